//! The token under schedules that shuttle chooses: whatever the order of events, one loop receives at a time, no request is left
//! lying, and everybody goes home.

#[path = "../src/session/token.rs"]
mod token;

/// What the token locks with here.
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

use basalt_testkit::shuttled::shuttle::{self, thread};
use basalt_testkit::shuttled::{AtomicBool, AtomicU64, Mutex, Ordering};

use token::Token;

/// Schedules tried of each kind.
const SCHEDULES: usize = 3_000;
/// Loops at most; there is one at first.
const LOOPS: usize = 3;
/// Looks after which the monitor sleeps: few, so that it often does.
const IDLE_LOOKS: u32 = 2;
const REQUESTS: u64 = 5;

/// What the loops do with their requests; the real ones are in `session/worker.rs`.
#[derive(Clone, Copy)]
enum Requests {
    Quick,
    /// The token is passed on before the work begins.
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
    token: Token,
    kernel: Kernel,
    requests: Requests,
    pool: Mutex<Pool>,
}

/// As in `session/worker.rs`.
#[derive(Default)]
struct Pool {
    started: usize,
    alive: usize,
}

impl Session {
    /// Starts one more loop, if there may be more; the monitor calls it with the token's state locked.
    fn start_loop(self: &Arc<Self>) {
        let mut pool = self.pool.lock();
        if pool.started + 1 < LOOPS && pool.alive > 0 {
            let session = Arc::clone(self);
            thread::spawn(move || session.work());
            pool.started += 1;
            pool.alive += 1;
        }
    }

    /// One loop from its beginning to its end; the last one ends the monitor.
    fn work(self: Arc<Self>) {
        self.serve();
        let is_last = {
            let mut pool = self.pool.lock();
            pool.alive -= 1;
            pool.alive == 0
        };
        if is_last {
            self.token.close();
        }
    }

    fn serve(self: &Arc<Self>) {
        let Session { token, kernel, requests, .. } = &**self;
        token.take();
        loop {
            let received = kernel.receive();
            let ticket = token.begin();
            let Some(number) = received else {
                token.pass(ticket);
                return;
            };
            let is_long = match requests {
                Requests::Quick => false,
                Requests::Long => true,
                Requests::Mixed => number % 2 == 0,
            };
            if is_long && token.pass(ticket) {
                self.start_loop();
            }
            for _ in 0..number % 3 {
                thread::yield_now();
            }
            kernel.answered.fetch_add(1, Ordering::SeqCst);
            if !token.finish(ticket) {
                token.take();
            }
        }
    }
}

fn session(requests: Requests) {
    let kernel =
        Kernel { waiting: AtomicU64::new(REQUESTS), answered: AtomicU64::new(0), receiving: AtomicBool::new(false) };
    let pool = Mutex::new(Pool { started: 0, alive: 1 });
    let session = Arc::new(Session { token: Token::new(IDLE_LOOKS), kernel, requests, pool });
    let first = {
        let session = Arc::clone(&session);
        thread::spawn(move || session.work())
    };
    // The last loop ends it; a loop that never ends is a deadlock, which fails.
    session.token.watch(wakeful::Wakeful, || session.start_loop());
    first.join().unwrap();
    let pool = session.pool.lock();
    assert_eq!((pool.alive, session.kernel.answered.load(Ordering::SeqCst)), (0, REQUESTS), "{} started", pool.started);
}

#[test]
fn one_loop_receives_and_no_request_is_lost() {
    for requests in [Requests::Quick, Requests::Long, Requests::Mixed] {
        shuttle::check_random(move || session(requests), SCHEDULES);
        shuttle::check_pct(move || session(requests), SCHEDULES, 3);
    }
}
