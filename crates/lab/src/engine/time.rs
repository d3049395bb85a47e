//! Time of a run: the engine's clock, its background work, and who waits for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use basalt_f2fs::Clock;
use basalt_flash::device::VirtualClock;
use basalt_vfs::{Counters, Engine, Time};
use basalt_workloads::{Event, Observer, Phase};

use super::Watch;

/// When virtual time begins, in seconds since 1970: midnight of 1 January 2026, UTC.
const EPOCH_SECONDS: i64 = 1_767_225_600;
/// Background work is never asked for again sooner than this, so that waiting comes to an end.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const NANOSECONDS: u64 = 1_000_000_000;

/// The engine's clock: virtual time since [`EPOCH_SECONDS`]. Where threads have times of their own, it shows the latest of them.
#[derive(Debug, Clone)]
pub(super) struct EngineClock {
    time: VirtualClock,
    latest: Arc<AtomicU64>,
}

impl EngineClock {
    pub(super) fn new(time: VirtualClock) -> EngineClock {
        EngineClock { time, latest: Arc::default() }
    }

    /// The time of the thread that works.
    pub(super) fn time(&self) -> &VirtualClock {
        &self.time
    }

    /// The latest time so far, in nanoseconds.
    pub(super) fn latest(&self) -> u64 {
        let now = self.time.now();
        self.latest.fetch_max(now, Ordering::AcqRel).max(now)
    }
}

impl Clock for EngineClock {
    fn now(&self) -> Time {
        let now = self.latest();
        Time { seconds: EPOCH_SECONDS + (now / NANOSECONDS) as i64, nanoseconds: (now % NANOSECONDS) as u32 }
    }
}

/// Lets time pass between operations, and the engine work in it.
pub(super) struct Ticker<'a, 'w> {
    engine: &'a dyn Engine,
    clock: EngineClock,
    think_ns: u64,
    next_tick: u64,
    watch: Option<&'a mut (dyn Watch + 'w)>,
    /// The measured phase has begun.
    is_measuring: bool,
    /// Threads overlap: what the engine did so far that keeps others out, and until when it does.
    exclusive: Option<Exclusive>,
}

/// Who keeps modifying operations out.
#[derive(Debug, Clone, Copy, Default)]
struct Exclusive {
    /// How much of that the engine has done.
    work: u64,
    /// When the last of it ended.
    until: u64,
}

impl Exclusive {
    /// What the engine did until `now` is done.
    fn note(&mut self, counters: &Counters, now: u64) {
        let cleaning = counters.cleaning.foreground;
        let cleaned = cleaning.victims + cleaning.blocks_read + cleaning.blocks_copied + cleaning.journal_commits;
        let work = cleaned + counters.named.sum("checkpoints").unwrap_or(0);
        if work > self.work {
            *self = Exclusive { work, until: self.until.max(now) };
        }
    }
}

impl<'a, 'w> Ticker<'a, 'w> {
    pub(super) fn new(
        engine: &'a dyn Engine,
        clock: EngineClock,
        think_ns: u64,
        overlap: bool,
        watch: Option<&'a mut (dyn Watch + 'w)>,
    ) -> Ticker<'a, 'w> {
        Ticker {
            engine,
            clock,
            think_ns,
            next_tick: 0,
            watch,
            is_measuring: false,
            exclusive: overlap.then(Exclusive::default),
        }
    }

    /// Lets the engine do what it wants to have done by `until`.
    fn work_until(&mut self, until: u64, begin: impl Fn(&VirtualClock, u64)) {
        while self.next_tick <= until {
            begin(self.clock.time(), self.next_tick);
            let next = self.engine.tick(self.clock.now()).next.max(SHORTEST_PAUSE);
            self.next_tick = self.clock.time().now().saturating_add(next.as_nanos() as u64);
            self.note();
        }
    }

    /// Looks whether the engine did something that keeps others out.
    fn note(&mut self) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.note(&self.engine.counters(), self.clock.time().now());
        }
    }
}

impl Observer for Ticker<'_, '_> {
    fn now(&mut self) -> u64 {
        self.clock.time().now()
    }

    fn operation(&mut self, event: &Event) -> basalt_workloads::Result<()> {
        if let Some(watch) = self.watch.as_mut().filter(|_| event.phase == Phase::Measure) {
            watch.operation(event, &self.engine.counters());
        }
        if event.kind.changes() {
            self.note();
        }
        let until = self.clock.time().now().saturating_add(self.think_ns);
        // Threads that overlap have their background work done when the first of them is that far.
        let is_overlapping = self.exclusive.is_some() && matches!(event.phase, Phase::Age | Phase::Measure);
        if !is_overlapping {
            self.work_until(until, VirtualClock::advance_to);
        }
        self.clock.time().advance_to(until);
        Ok(())
    }

    fn resume(&mut self, time: u64) {
        // The background is a thread too, with a time of its own.
        let floor = self.clock.time().floor();
        self.work_until(time, |clock, tick| clock.resume(tick.max(floor)));
        self.clock.time().resume(time);
    }

    fn join(&mut self, time: u64) {
        self.clock.time().join(time);
    }

    fn held_until(&mut self) -> u64 {
        self.exclusive.map_or(0, |exclusive| exclusive.until)
    }

    fn progress(&mut self, phase: Phase, _done: u64, _total: u64) {
        if phase != Phase::Measure {
            return;
        }
        // The first call of a phase comes before its first step. Later ones may have nothing done: not all steps write.
        let has_begun = std::mem::replace(&mut self.is_measuring, true);
        if let Some(watch) = self.watch.as_mut().filter(|_| has_begun) {
            watch.step(self.clock.time().now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_device::MemoryDevice;
    use basalt_f2fs::format::{FormatOptions, format};
    use basalt_f2fs::{F2fs, OpenOptions};
    use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
    use basalt_workloads::Kind;

    /// An empty volume whose device takes no time.
    fn engine(clock: &EngineClock) -> F2fs {
        let device = MemoryDevice::new(64 << 20, 4096);
        format(&device, &FormatOptions::default(), &mut |_, _| {}).unwrap();
        F2fs::open(Arc::new(device), OpenOptions::default(), Arc::new(clock.clone())).unwrap()
    }

    fn make(engine: &F2fs, name: &[u8]) {
        let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
        engine.create(engine.root(), name, &node, &Caller::default()).unwrap();
    }

    fn event(phase: Phase, kind: Kind) -> Event {
        Event { phase, kind, bytes: 0, start_ns: 0, end_ns: 0 }
    }

    /// Notes what it sees.
    #[derive(Default)]
    struct Seen(Vec<&'static str>);

    impl Watch for Seen {
        fn operation(&mut self, _: &Event, _: &Counters) {
            self.0.push("operation");
        }

        fn step(&mut self, _: u64) {
            self.0.push("step");
        }
    }

    #[test]
    fn a_checkpoint_keeps_others_out_whoever_takes_it() {
        let clock = EngineClock::new(VirtualClock::new());
        let engine = engine(&clock);
        let mut ticker = Ticker::new(&engine, clock.clone(), 0, true, None);
        ticker.resume(0);
        assert_eq!(ticker.held_until(), 0);
        make(&engine, b"a");
        engine.sync().unwrap();
        clock.time().advance(2_000_000);
        ticker.operation(&event(Phase::Measure, Kind::Sync)).unwrap();
        assert_eq!(ticker.held_until(), 2_000_000);
        // The engine takes one in the background, since its time has come.
        make(&engine, b"b");
        ticker.resume(120 * NANOSECONDS);
        let until = ticker.held_until();
        assert!((NANOSECONDS..=120 * NANOSECONDS).contains(&until), "{until}");
        let mut serial = Ticker::new(&engine, clock, 0, false, None);
        serial.operation(&event(Phase::Measure, Kind::Sync)).unwrap();
        assert_eq!(serial.held_until(), 0);
    }

    #[test]
    fn background_work_is_done_behind_operations_or_when_all_threads_are_there() {
        for (overlap, phase, works) in [
            (false, Phase::Measure, true),
            (true, Phase::Prepare, true),
            (true, Phase::Age, false),
            (true, Phase::Measure, false),
        ] {
            let clock = EngineClock::new(VirtualClock::new());
            let engine = engine(&clock);
            clock.time().advance(7);
            let mut ticker = Ticker::new(&engine, clock.clone(), 500, overlap, None);
            ticker.operation(&event(phase, Kind::Write)).unwrap();
            assert_eq!((ticker.next_tick > 0, clock.time().now()), (works, 507), "{overlap} {phase:?}");
        }
    }

    #[test]
    fn only_the_measured_phase_is_watched_and_its_beginning_is_no_step() {
        let clock = EngineClock::new(VirtualClock::new());
        let engine = engine(&clock);
        let mut seen = Seen::default();
        let mut ticker = Ticker::new(&engine, clock, 0, false, Some(&mut seen));
        for phase in [Phase::Prepare, Phase::Dummy, Phase::Age, Phase::Measure] {
            ticker.progress(phase, 0, 9);
            ticker.operation(&event(phase, Kind::Write)).unwrap();
            // A step that writes nothing, where bytes are counted, is one.
            ticker.progress(phase, 0, 9);
            ticker.progress(phase, 1, 9);
        }
        drop(ticker);
        assert_eq!(seen.0, ["operation", "step", "step"]);
    }

    #[test]
    fn the_engines_clock_shows_the_latest_time_of_all_threads() {
        let clock = EngineClock::new(VirtualClock::new());
        clock.time().resume(3 * NANOSECONDS);
        let latest = clock.now();
        clock.time().resume(2 * NANOSECONDS);
        assert_eq!((clock.now(), clock.latest(), clock.time().now()), (latest, 3 * NANOSECONDS, 2 * NANOSECONDS));
    }

    #[test]
    fn what_keeps_others_out_never_ends_earlier() {
        let mut exclusive = Exclusive::default();
        let mut counters = Counters::default();
        exclusive.note(&counters, 50);
        assert_eq!(exclusive.until, 0);
        counters.cleaning.foreground.victims = 1;
        exclusive.note(&counters, 100);
        assert_eq!(exclusive.until, 100);
        // Nothing new.
        exclusive.note(&counters, 120);
        assert_eq!(exclusive.until, 100);
        // A thread whose time is earlier cleans too: the first one's work is not over before.
        counters.cleaning.foreground.victims = 2;
        exclusive.note(&counters, 80);
        assert_eq!(exclusive.until, 100);
        counters.cleaning.foreground.journal_commits = 1;
        exclusive.note(&counters, 130);
        assert_eq!(exclusive.until, 130);
        // A part of a victim, and a checkpoint of whatever cause.
        counters.cleaning.foreground.blocks_copied = 9;
        exclusive.note(&counters, 140);
        assert_eq!(exclusive.until, 140);
        counters.named.set("checkpoints/fsync", 1);
        exclusive.note(&counters, 150);
        assert_eq!(exclusive.until, 150);
    }
}
