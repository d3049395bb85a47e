//! Which event loop receives.
//!
//! With several loops waiting on `/dev/fuse` the kernel wakes them in turn, mostly on an idle processor, and that costs
//! three times what most requests take. So one loop, the holder of the baton, receives and answers one request after the
//! other, warm on its processor; the others sleep. The baton goes on
//!
//! - at once, before a request that takes long (fsync, large transfers) and when requests pile up: [`Baton::pass`];
//! - by the watchman, when the holder has not finished its request after [`PATIENCE`]: [`Baton::watch`]. Since it looks regularly while
//!   there is work, it also sees bursts: [`Wakeful::look`].
//!
//! A holder that lost the baton finishes its request and queues up for it like everybody else. Where the baton lies free and nobody
//! queues, whoever put it down is told so, and may hire another loop: there are never more than were needed at one time.
//!
//! `tests/interleavings.rs` runs this file under every schedule it can find.

use std::time::Duration;

use super::locks::{AtomicU64, Condvar, Mutex, Ordering};
use super::wakeful::Wakeful;

/// How often the watchman looks. Who works on one request at two looks in a row loses the baton.
pub(super) const PATIENCE: Duration = Duration::from_micros(500);

/// The holder waits for a request.
const RECEIVING: u64 = 0;
/// Nobody holds the baton, or the holder has just got it.
const FREE: u64 = u64::MAX;

/// The baton, lying free at first.
pub(super) struct Baton {
    /// [`RECEIVING`], [`FREE`], or the number of the request that the holder works on.
    work: AtomicU64,
    /// Numbers for requests; never one twice.
    next: AtomicU64,
    desk: Mutex<Desk>,
    offered: Condvar,
    activity: Condvar,
    /// After so many looks without a new request the watchman sleeps until there is one.
    boredom: u32,
    /// Whether the watchman sleeps; a copy of the desk's, to be read without the lock.
    asleep: AtomicU64,
}

struct Desk {
    free: bool,
    /// Loops that queue for it.
    waiting: usize,
    closed: bool,
}

/// The number of a request being worked on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket(u64);

impl Baton {
    /// A new one, whose watchman sleeps after `boredom` looks for nothing.
    pub(super) fn new(boredom: u32) -> Self {
        Baton {
            boredom,
            work: AtomicU64::new(FREE),
            next: AtomicU64::new(1),
            desk: Mutex::new(Desk { free: true, waiting: 0, closed: false }),
            offered: Condvar::new(),
            activity: Condvar::new(),
            asleep: AtomicU64::new(0),
        }
    }

    /// Waits for the baton.
    pub(super) fn take(&self) {
        let mut desk = self.desk.lock();
        desk.waiting += 1;
        while !desk.free {
            self.offered.wait(&mut desk);
        }
        desk.waiting -= 1;
        desk.free = false;
        self.work.store(RECEIVING, Ordering::SeqCst);
    }

    /// The holder begins to work on a request.
    pub(super) fn begin(&self) -> Ticket {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.work.store(number, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) != 0 {
            let _desk = self.desk.lock();
            self.activity.notify_one();
        }
        Ticket(number)
    }

    /// The work is done. Whether its worker still has the baton.
    pub(super) fn finish(&self, ticket: Ticket) -> bool {
        self.work.compare_exchange(ticket.0, RECEIVING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Lets another loop receive; returns whether there is none to do so. Nothing happens where the baton is lost already.
    pub(super) fn pass(&self, ticket: Ticket) -> bool {
        self.work.compare_exchange(ticket.0, FREE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            && self.offer(&mut self.desk.lock())
    }

    /// Puts the baton down; returns whether nobody queues for it.
    fn offer(&self, desk: &mut Desk) -> bool {
        desk.free = true;
        self.offered.notify_one();
        desk.waiting == 0
    }

    /// Takes the baton from holders that are held up, and calls `hire` where there is no other loop to go on; returns after
    /// [`close`](Self::close).
    pub(super) fn watch(&self, mut wakeful: Wakeful, mut hire: impl FnMut()) {
        let (mut seen, mut looks) = (RECEIVING, 0);
        let mut desk = self.desk.lock();
        while !desk.closed {
            if looks < self.boredom {
                self.activity.wait_for(&mut desk, PATIENCE);
            } else {
                self.asleep.store(1, Ordering::SeqCst);
                // A request that began before the store above finds the watchman awake: look once more.
                if self.work.load(Ordering::SeqCst) == RECEIVING {
                    self.activity.wait(&mut desk);
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
                && self.offer(&mut desk)
            {
                // The new loop waits at the desk until this look is over.
                hire();
            }
            seen = work;
        }
    }

    /// Sends the watchman home.
    pub(super) fn close(&self) {
        self.desk.lock().closed = true;
        self.activity.notify_all();
    }
}
