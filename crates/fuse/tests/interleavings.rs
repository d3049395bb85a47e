//! The baton under schedules that shuttle chooses: whatever the order of events, one loop receives at a time, no request is left
//! lying, and everybody goes home.

#[path = "../src/session/baton.rs"]
mod baton;

/// What the baton locks with here.
mod locks {
    pub(super) use basalt_testkit::shuttled::{AtomicU64, Condvar, Mutex, Ordering};
}

/// No part of what is tested.
mod wakeful {
    pub(super) struct Wakeful;

    impl Wakeful {
        pub(super) fn look(&mut self, _begun: u64) {}
    }
}

use std::sync::Arc;

use basalt_testkit::shuttled::shuttle::thread::JoinHandle;
use basalt_testkit::shuttled::shuttle::{self, thread};
use basalt_testkit::shuttled::{AtomicBool, AtomicU64, Mutex, Ordering};

use baton::Baton;

/// Schedules tried of each kind.
const SCHEDULES: usize = 3_000;
/// Loops at most; there is one at first.
const LOOPS: usize = 3;
/// Looks after which the watchman sleeps: few, so that he often does.
const BOREDOM: u32 = 2;
const REQUESTS: u64 = 5;

/// What the loops do with their requests; the real ones are in `session/worker.rs`.
#[derive(Clone, Copy)]
enum Requests {
    Quick,
    /// The baton is passed on before the work begins.
    Long,
    /// Some of each, and some that take longer than they should.
    Mixed,
}

struct Kernel {
    waiting: AtomicU64,
    answered: AtomicU64,
    /// Somebody receives.
    receiving: AtomicBool,
}

impl Kernel {
    /// The next request; `None` when the connection is closed.
    fn receive(&self) -> Option<u64> {
        assert!(!self.receiving.swap(true, Ordering::SeqCst), "two loops receive");
        thread::yield_now();
        let left = self.waiting.load(Ordering::SeqCst);
        if left > 0 {
            self.waiting.store(left - 1, Ordering::SeqCst);
        }
        self.receiving.store(false, Ordering::SeqCst);
        (left > 0).then_some(left)
    }
}

/// Everything that loops share.
struct Session {
    baton: Baton,
    kernel: Kernel,
    requests: Requests,
    /// Every loop there ever was.
    loops: Mutex<Vec<Option<JoinHandle<()>>>>,
}

impl Session {
    fn hire(self: &Arc<Self>) {
        let mut loops = self.loops.lock();
        if loops.len() < LOOPS {
            let session = Arc::clone(self);
            loops.push(Some(thread::spawn(move || session.serve())));
        }
    }

    fn serve(self: Arc<Self>) {
        let Session { baton, kernel, requests, .. } = &*self;
        baton.take();
        loop {
            let received = kernel.receive();
            let ticket = baton.begin();
            let Some(number) = received else {
                baton.pass(ticket);
                return;
            };
            let is_long = match requests {
                Requests::Quick => false,
                Requests::Long => true,
                Requests::Mixed => number % 2 == 0,
            };
            if is_long && baton.pass(ticket) {
                self.hire();
            }
            for _ in 0..number % 3 {
                thread::yield_now();
            }
            kernel.answered.fetch_add(1, Ordering::SeqCst);
            if !baton.finish(ticket) {
                baton.take();
            }
        }
    }
}

fn session(requests: Requests) {
    let kernel =
        Kernel { waiting: AtomicU64::new(REQUESTS), answered: AtomicU64::new(0), receiving: AtomicBool::new(false) };
    let session = Arc::new(Session { baton: Baton::new(BOREDOM), kernel, requests, loops: Mutex::default() });
    let watchman = {
        let session = Arc::clone(&session);
        thread::spawn(move || session.baton.watch(wakeful::Wakeful, || session.hire()))
    };
    session.hire();
    let mut ended = 0;
    // Who hires is in the list itself, and has not ended.
    loop {
        let next = session.loops.lock().get_mut(ended).and_then(Option::take);
        let Some(next) = next else { break };
        next.join().unwrap();
        ended += 1;
    }
    session.baton.close();
    watchman.join().unwrap();
    assert_eq!(session.kernel.answered.load(Ordering::SeqCst), REQUESTS);
}

#[test]
fn one_loop_receives_and_no_request_is_lost() {
    for requests in [Requests::Quick, Requests::Long, Requests::Mixed] {
        shuttle::check_random(move || session(requests), SCHEDULES);
        shuttle::check_pct(move || session(requests), SCHEDULES, 3);
    }
}
