//! Which event loop receives.
//!
//! With several loops waiting on `/dev/fuse` the kernel wakes them in turn, mostly on an idle processor, and that costs
//! three times what most requests take. So one loop, the holder of the token, receives and answers one request after the
//! other, warm on its processor; the others sleep. The token goes on
//!
//! - at once, before a request that takes long (fsync, large transfers) and when requests pile up: [`Token::pass`];
//! - by the monitor, when the holder has not finished its request after [`PATIENCE`]: [`Token::watch`]. Since it looks regularly while
//!   there is work, it also sees bursts: [`Wakeful::look`].
//!
//! A holder that lost the token finishes its request and queues up for it like everybody else. Where the token lies free and nobody
//! queues, whoever put it down is told so, and may start another one: there are never more than were needed at one time.
//!
//! `tests/interleavings.rs` runs this file under every schedule it can find.

use std::time::Duration;

use super::locks::{AtomicU64, Condvar, Mutex, Ordering};
use super::wakeful::Wakeful;

/// How often the monitor looks. Who works on one request at two looks in a row loses the token.
pub(super) const PATIENCE: Duration = Duration::from_micros(500);

/// The holder waits for a request.
const RECEIVING: u64 = 0;
/// Nobody holds the token, or the holder has just got it.
const FREE: u64 = u64::MAX;

/// The token, lying free at first.
pub(super) struct Token {
    /// [`RECEIVING`], [`FREE`], or the number of the request that the holder works on.
    work: AtomicU64,
    /// Numbers for requests; never one twice.
    next: AtomicU64,
    state: Mutex<State>,
    offered: Condvar,
    activity: Condvar,
    /// After so many looks without a new request the monitor sleeps until there is one.
    idle_looks: u32,
    /// Whether the monitor sleeps: a copy of what the state says, to be read without the lock.
    asleep: AtomicU64,
}

struct State {
    free: bool,
    /// Loops that queue for it.
    waiting: usize,
    closed: bool,
}

/// The number of a request being worked on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket(u64);

impl Token {
    /// A new one, whose monitor sleeps after `idle_looks` looks for nothing.
    pub(super) fn new(idle_looks: u32) -> Self {
        Token {
            idle_looks,
            work: AtomicU64::new(FREE),
            next: AtomicU64::new(1),
            state: Mutex::new(State { free: true, waiting: 0, closed: false }),
            offered: Condvar::new(),
            activity: Condvar::new(),
            asleep: AtomicU64::new(0),
        }
    }

    /// Waits for the token.
    pub(super) fn take(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        while !state.free {
            self.offered.wait(&mut state);
        }
        state.waiting -= 1;
        state.free = false;
        self.work.store(RECEIVING, Ordering::SeqCst);
    }

    /// The holder begins to work on a request.
    pub(super) fn begin(&self) -> Ticket {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.work.store(number, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) != 0 {
            let _state = self.state.lock();
            self.activity.notify_one();
        }
        Ticket(number)
    }

    /// The work is done. Whether its worker still has the token.
    pub(super) fn finish(&self, ticket: Ticket) -> bool {
        self.work.compare_exchange(ticket.0, RECEIVING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Lets another loop receive; returns whether there is none to do so. Nothing happens where the token is lost already.
    pub(super) fn pass(&self, ticket: Ticket) -> bool {
        self.work.compare_exchange(ticket.0, FREE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            && self.offer(&mut self.state.lock())
    }

    /// Puts the token down; returns whether nobody queues for it.
    fn offer(&self, state: &mut State) -> bool {
        state.free = true;
        self.offered.notify_one();
        state.waiting == 0
    }

    /// Takes the token from holders that are held up, and calls `start_loop` where there is no other loop to go on; returns after
    /// [`close`](Self::close).
    pub(super) fn watch(&self, mut wakeful: Wakeful, mut start_loop: impl FnMut()) {
        let (mut seen, mut looks) = (RECEIVING, 0);
        let mut state = self.state.lock();
        while !state.closed {
            if looks < self.idle_looks {
                self.activity.wait_for(&mut state, PATIENCE);
            } else {
                self.asleep.store(1, Ordering::SeqCst);
                // A request that began before the store above finds the monitor awake: look once more.
                if self.work.load(Ordering::SeqCst) == RECEIVING {
                    self.activity.wait(&mut state);
                }
                self.asleep.store(0, Ordering::SeqCst);
                looks = 0;
            }
            wakeful.look(self.next.load(Ordering::SeqCst));
            let work = self.work.load(Ordering::SeqCst);
            looks = if work == RECEIVING { looks + 1 } else { 0 };
            let stuck = work == seen && work != RECEIVING && work != FREE;
            if stuck
                && self.work.compare_exchange(work, FREE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
                && self.offer(&mut state)
            {
                // The new loop waits for the state's lock until this look is over.
                start_loop();
            }
            seen = work;
        }
    }

    /// Ends the monitor.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.activity.notify_all();
    }
}
