//! Looks at other programs without waiting for them.
//!
//! To read what a program is about to write is to read its memory, and that can take for ever: a page of it may be mapped from a file on a
//! mount whose server hangs, and the program chooses which. So threads beside the session look, and whoever asks waits for a limited time.
//! A thread that does not come back is left alone. There are few of them; when all wait for programs, nobody can be looked at.
//!
//! Such a thread waits in the kernel, perhaps where no signal ends it. So it has no file of the process open: `/dev/fuse` and the image are
//! closed when the session ends, though it still waits. It takes no signals: their handlers write to files that it does not have.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::Mutex;

use super::caller::Call;

/// How long a look may take: much longer than any that does not hang.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most threads that look, or hang.
const MOST: usize = 8;

/// What a look is: from the number of a thread to what it does.
type Look = fn(u32) -> Call;

/// Those who look.
pub(super) struct Onlooker {
    look: Look,
    patience: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Helpers that wait for a question.
    idle: Vec<Helper>,
    /// Helpers that have not ended.
    alive: usize,
    /// Programs' threads that somebody has looked at in vain, as long as that look lasts.
    hanging: Vec<u32>,
}

/// A thread that looks.
struct Helper {
    questions: Sender<u32>,
    answers: Receiver<Call>,
}

impl Onlooker {
    pub(super) fn new() -> Self {
        Onlooker::with(Call::of, PATIENCE)
    }

    fn with(look: Look, patience: Duration) -> Self {
        Onlooker { look, patience, state: Arc::default() }
    }

    /// What a thread does, by its number; [`Call::Unknown`] where that cannot be told in time.
    pub(super) fn call_of(&self, thread: u32) -> Call {
        let Some(helper) = self.helper_for(thread) else { return Call::Unknown };
        // It waits for questions.
        let _ = helper.questions.send(thread);
        if let Ok(call) = helper.answers.recv_timeout(self.patience) {
            self.state.lock().idle.push(helper);
            return call;
        }
        let mut state = self.state.lock();
        // It may have answered a moment ago.
        if let Ok(call) = helper.answers.try_recv() {
            state.idle.push(helper);
            return call;
        }
        tracing::debug!(thread, "looking at a program takes too long");
        state.hanging.push(thread);
        // Before the state is free: the helper sees from this that nobody waits.
        drop(helper);
        Call::Unknown
    }

    /// Somebody who can look at this thread now.
    fn helper_for(&self, thread: u32) -> Option<Helper> {
        let mut state = self.state.lock();
        if state.hanging.contains(&thread) {
            return None;
        }
        if let Some(helper) = state.idle.pop() {
            return Some(helper);
        }
        if state.alive == MOST {
            return None;
        }
        let helper = self.start().inspect_err(|error| tracing::debug!(%error, "no thread to look at programs")).ok()?;
        state.alive += 1;
        Some(helper)
    }

    fn start(&self) -> std::io::Result<Helper> {
        let ((questions, asked), (answer, answers)) = (mpsc::channel(), mpsc::channel());
        let (look, state) = (self.look, Arc::clone(&self.state));
        Builder::new().name("fuse-onlooker".to_owned()).spawn(move || {
            set_apart();
            while let Ok(thread) = asked.recv() {
                let call = catch_unwind(|| look(thread)).unwrap_or(Call::Unknown);
                let mut state = state.lock();
                if answer.send(call).is_err() {
                    // Nobody waited so long.
                    state.hanging.retain(|&hanging| hanging != thread);
                    break;
                }
            }
            state.lock().alive -= 1;
        })?;
        Ok(Helper { questions, answers })
    }
}

/// Threads that wait for questions end.
impl Drop for Onlooker {
    fn drop(&mut self) {
        self.state.lock().idle.clear();
    }
}

/// Takes signals and open files from the thread that calls this.
#[allow(unsafe_code)]
fn set_apart() {
    // SAFETY: a signal set is plain data, which sigfillset(3) makes whole; the mask is the calling thread's own.
    let is_deaf = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all) == 0
            && libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) == 0
    };
    if !is_deaf {
        return;
    }
    // SAFETY: with CLOSE_RANGE_UNSHARE, the thread gets a table of descriptors of its own, and only that one is emptied. The thread uses no
    // descriptor that another one has opened. Before Linux 5.9, which lacks the call, nothing happens.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    /// Longer than a look takes that does not hang, on a slow machine too.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn who_looks_in_vain_is_not_waited_for() {
        static MAY_END: AtomicBool = AtomicBool::new(false);
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        // Odd numbers hang.
        fn look(thread: u32) -> Call {
            LOOKS.fetch_add(1, Ordering::SeqCst);
            while thread % 2 == 1 && !MAY_END.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Call::Look
        }
        let mut onlooker = Onlooker::with(look, LONG);
        assert_eq!(onlooker.call_of(2), Call::Look);
        onlooker.patience = Duration::from_millis(10);
        assert_eq!(onlooker.call_of(1), Call::Unknown);
        // Not again.
        let looks = LOOKS.load(Ordering::SeqCst);
        assert_eq!((onlooker.call_of(1), LOOKS.load(Ordering::SeqCst)), (Call::Unknown, looks));
        onlooker.patience = LONG;
        assert_eq!(onlooker.call_of(2), Call::Look);
        // However many hang, there are no more threads than that.
        onlooker.patience = Duration::from_millis(10);
        for thread in 0..2 * MOST as u32 {
            assert_eq!(onlooker.call_of(2 * thread + 1), Call::Unknown);
        }
        assert_eq!(onlooker.state.lock().alive, MOST);
        onlooker.patience = LONG;
        assert_eq!(onlooker.call_of(2), Call::Unknown);
        MAY_END.store(true, Ordering::SeqCst);
        let start = Instant::now();
        while onlooker.state.lock().alive > 0 {
            assert!(start.elapsed() < LONG, "the threads do not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((onlooker.call_of(1), onlooker.call_of(2)), (Call::Look, Call::Look));
        // Threads that wait for questions end with it.
        let state = Arc::clone(&onlooker.state);
        drop(onlooker);
        while state.lock().alive > 0 {
            assert!(start.elapsed() < LONG, "the threads do not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_looks_has_no_file_of_the_process() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let number = file.as_raw_fd();
        let is_open = move || std::fs::exists(format!("/proc/thread-self/fd/{number}")).unwrap();
        assert!(is_open());
        let apart = std::thread::spawn(move || {
            set_apart();
            is_open()
        });
        assert!(!apart.join().unwrap());
        assert!(is_open());
    }
}
