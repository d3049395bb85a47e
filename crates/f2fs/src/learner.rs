//! How long the device takes, learned from the engine's own requests while the volume is in use.
//!
//! A [`StopwatchDevice`](basalt_device::StopwatchDevice) below the volume tells a [`Learner`]; the volume asks it at each
//! [`tick`](basalt_vfs::FileSystem::tick). No request is made for it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use basalt_device::{RequestKind, Stopwatch, Timed};
use basalt_segments::slack::{DeviceTimes, LearnedTimes, TookTime};

use crate::layout::BLOCK_SIZE;
use crate::sync::Mutex;

/// So many requests make it worth to look again.
const NEWS: u32 = 32;

/// Learns how long a device takes. What it knows is bounded; a request costs one short lock.
pub struct Learner {
    /// What holds of the device as long as nothing else is known.
    class: DeviceTimes,
    /// Nanoseconds since any moment.
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The first block of the main area. Nothing is learned of writes before it: cards serve the front of a device in a way of its own, and no
    /// plan is made for it.
    main: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    learned: LearnedTimes,
    /// Requests since somebody looked.
    news: u32,
    /// What was found last.
    times: Option<DeviceTimes>,
}

impl Learner {
    /// Learns of a device that is taken for one of `class` until more is known. `clock` tells nanoseconds since any moment.
    #[must_use]
    pub fn new(class: DeviceTimes, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Learner {
        Learner { class, clock: Box::new(clock), main: AtomicU64::new(u64::MAX), state: Mutex::default() }
    }

    /// What was learned, where the volume takes that in place of the class: the device's times, in nanoseconds.
    #[must_use]
    pub fn times(&self) -> Option<DeviceTimes> {
        self.state.lock().times.clone()
    }

    /// From here on it is known where the main area begins.
    pub(crate) fn begin(&self, main: u64) {
        self.main.store(main, Relaxed);
    }

    /// The times that hold now, where they may be others than before.
    pub(crate) fn look(&self) -> Option<DeviceTimes> {
        let learned = {
            let mut state = self.state.lock();
            if state.news < NEWS {
                return None;
            }
            state.news = 0;
            state.learned.clone()
        };
        // Requests do not wait for tables to be made.
        let times = learned.times(&self.class);
        tracing::debug!(?learned, ?times, "times of the device");
        let before = std::mem::replace(&mut self.state.lock().times, times.clone());
        // What is forgotten again leaves the class; what was never known leaves everything as it is.
        times.or_else(|| before.map(|_| self.class.clone()))
    }
}

impl Stopwatch for Learner {
    fn now(&self) -> u64 {
        (self.clock)()
    }

    fn took(&self, request: Timed) {
        let block = BLOCK_SIZE as u64;
        let at = request.offset / block;
        let blocks = u32::try_from(request.length / block).unwrap_or(u32::MAX);
        let took = TookTime { at, blocks, nanoseconds: request.nanoseconds, was_alone: request.was_alone };
        let is_planned_for = at >= self.main.load(Relaxed);
        let mut state = self.state.lock();
        state.news = state.news.saturating_add(1);
        match request.kind {
            RequestKind::Write => state.learned.note_write(took, is_planned_for),
            RequestKind::Read => state.learned.note_read(took),
            RequestKind::Flush => state.learned.note_flush(took.nanoseconds, took.was_alone),
            RequestKind::Discard => {}
        }
    }
}

impl std::fmt::Debug for Learner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Learner").field("class", &self.class).field("times", &self.times()).finish_non_exhaustive()
    }
}
