//! Each commit of cleaning, and the latencies of accesses, while a run is measured.

use std::time::Duration;

use basalt_vfs::{CleaningWork, Counters, WrittenBlocks};
use basalt_workloads::{Event, Kind, Latencies};

use crate::engine::Watch;
use crate::experiment::parameter::Measured;

/// One commit of cleaning in the foreground.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cleaning {
    /// Victims that it freed.
    victims: u64,
    /// Device time of choosing and copying them and of the commit.
    took: Duration,
    /// Of that, of the commit.
    commit: Duration,
    /// Blocks of nodes and other metadata written in the operation that had to clean: those of the commit.
    metadata: u64,
}

impl Cleaning {
    /// Nanoseconds of device time for each victim.
    fn each(&self) -> f64 {
        self.took.as_nanos() as f64 / self.victims.max(1) as f64
    }
}

/// Collects cleanings and latencies while a run is measured.
pub(super) struct Watched {
    cleanings: Vec<Cleaning>,
    checkpointing: Duration,
    /// Foreground cleaning up to the last commit.
    committed: Option<CleaningWork>,
    /// Blocks written up to the last operation.
    written: WrittenBlocks,
    queue: Queue,
    kind: Option<Kind>,
    reads: Latencies,
    updates: Latencies,
}

impl Watched {
    /// For accesses of so many connections.
    pub(super) fn new(connections: usize) -> Watched {
        Watched {
            cleanings: Vec::new(),
            checkpointing: Duration::ZERO,
            committed: None,
            written: WrittenBlocks::default(),
            queue: Queue::new(connections),
            kind: None,
            reads: Latencies::default(),
            updates: Latencies::default(),
        }
    }

    /// What was seen, as metrics.
    pub(super) fn measured(&self, measured: &mut Measured) {
        let mut each: Vec<f64> = self.cleanings.iter().map(Cleaning::each).collect();
        each.sort_by(f64::total_cmp);
        measured.count("cleanings", each.len() as u64);
        let ranks =
            [("cleaning_p5_ns", 0.05), ("cleaning_p50_ns", 0.5), ("cleaning_p95_ns", 0.95), ("cleaning_max_ns", 1.0)];
        for (name, share) in ranks {
            // The first of them that this share lies at or below.
            let rank = (each.len() as f64 * share).ceil() as usize;
            measured.add(name, rank.checked_sub(1).and_then(|rank| each.get(rank)).copied().unwrap_or(f64::NAN));
        }
        measured.add("checkpointing_ns", self.checkpointing.as_nanos() as f64);
        measured.count("commit_metadata_blocks", self.cleanings.iter().map(|one| one.metadata).sum());
        let point = |one: &Cleaning| (one.metadata as f64, one.commit.as_secs_f64());
        measured.add("commit_correlation", correlation(&self.cleanings.iter().map(point).collect::<Vec<_>>()));
        for (names, latencies) in [
            (["reads_mean_ns", "reads_p95_ns", "reads_p99_ns"], &self.reads),
            (["updates_mean_ns", "updates_p95_ns", "updates_p99_ns"], &self.updates),
        ] {
            if latencies.count() > 0 {
                let summary = latencies.summary();
                for (name, value) in names.into_iter().zip([summary.mean_ns, summary.p95_ns, summary.p99_ns]) {
                    measured.count(name, value);
                }
            }
        }
    }

    /// Notes a commit if there was one since the last call, behind the operation before.
    fn cleaned(&mut self, now: CleaningWork, written: WrittenBlocks) {
        let written = written - std::mem::replace(&mut self.written, written);
        let Some(before) = self.committed else {
            self.committed = Some(now);
            return;
        };
        let since = now - before;
        if since.checkpoints + since.journal_commits == 0 {
            return;
        }
        self.committed = Some(now);
        if since.checkpoints > 0 {
            self.checkpointing += since.commit;
        }
        // Sections that died by themselves may be all that was freed.
        if since.victims > 0 {
            self.cleanings.push(Cleaning {
                victims: since.victims,
                took: since.select + since.copy + since.commit,
                commit: since.commit,
                metadata: written.node_blocks + written.metadata_blocks,
            });
        }
    }
}

impl Watch for Watched {
    fn operation(&mut self, event: &Event, counters: &Counters) {
        self.queue.begin(event.start_ns);
        self.cleaned(counters.cleaning.foreground, counters.written);
        match event.kind {
            Kind::Read => self.kind = self.kind.or(Some(Kind::Read)),
            Kind::Fsync | Kind::Fdatasync => self.kind = Some(event.kind),
            _ => {}
        }
    }

    fn step(&mut self, now: u64) {
        let latency = self.queue.done(now);
        match self.kind.take() {
            Some(Kind::Read) => self.reads.record(latency),
            Some(_) => self.updates.record(latency),
            None => {}
        }
    }
}

/// Pearson's coefficient; not a number for fewer than two different points.
fn correlation(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
    let sums = points.iter().fold([0.0; 3], |[xy, xx, yy], point| {
        let (dx, dy) = (point.0 - x, point.1 - y);
        [xy + dx * dy, xx + dx * dx, yy + dy * dy]
    });
    sums[0] / (sums[1] * sums[2]).sqrt()
}

/// A database's connections in front of a device that serves them in turn: each asks for its next access when its last is
/// answered, so an access waits for those of all others that came before it. This is how cleaning for one delays the others'
/// reads.
struct Queue {
    /// When each connection asked for its access under way; empty before the first.
    asked: Vec<u64>,
    next: usize,
    connections: usize,
}

impl Queue {
    fn new(connections: usize) -> Queue {
        Queue { asked: Vec::new(), next: 0, connections }
    }

    /// The first call begins everything.
    fn begin(&mut self, now: u64) {
        if self.asked.is_empty() {
            self.asked = vec![now; self.connections];
        }
    }

    /// The access whose turn it was is answered: how long it took, and its connection asks for the next.
    fn done(&mut self, now: u64) -> u64 {
        let connection = self.next;
        self.next = (connection + 1) % self.connections;
        self.asked.get_mut(connection).map_or(0, |asked| now.saturating_sub(std::mem::replace(asked, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_workloads::Phase;

    #[test]
    fn an_access_waits_for_those_of_all_connections_before_it() {
        let mut queue = Queue::new(3);
        queue.begin(100);
        // The third access takes longer than the others, and the three behind it wait.
        let latencies = [110, 120, 180, 190, 200, 210].map(|now| queue.done(now));
        assert_eq!(latencies, [10, 20, 80, 80, 80, 30]);
    }

    #[test]
    fn each_commit_of_cleaning_is_one_of_the_series() {
        let (mut watched, mut written) = (Watched::new(1), WrittenBlocks::default());
        let work = |victims, journal_commits, checkpoints, milliseconds| CleaningWork {
            victims,
            journal_commits,
            checkpoints,
            copy: Duration::from_millis(milliseconds),
            commit: Duration::from_millis(milliseconds * 10),
            ..CleaningWork::default()
        };
        for now in [
            work(5, 2, 1, 100),
            work(6, 2, 1, 103),
            work(7, 2, 1, 106),
            work(7, 3, 1, 108),
            // A checkpoint for sections that died by themselves is none of the series.
            work(7, 3, 2, 120),
            work(8, 3, 3, 121),
        ] {
            written.data_blocks += 100;
            (written.node_blocks, written.metadata_blocks) = (written.node_blocks * 2 + 1, written.metadata_blocks + 1);
            watched.cleaned(now, written);
        }
        let cleaning = |victims, took, commit, metadata| {
            let [took, commit] = [took, commit].map(Duration::from_millis);
            Cleaning { victims, took, commit, metadata }
        };
        // Nodes: 1, 3, 7, 15, 31, 63 by then.
        assert_eq!(watched.cleanings, [cleaning(2, 88, 80, 8 + 1), cleaning(1, 11, 10, 32 + 1)]);
        assert_eq!(watched.checkpointing, Duration::from_millis(130));
        let mut measured = Measured::default();
        watched.measured(&mut measured);
        let value = |name: &str| measured.values().iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!((value("cleanings"), value("cleaning_max_ns")), (Some(2.0), Some(44e6)));
        assert_eq!((value("cleaning_p50_ns"), value("cleaning_p95_ns")), (Some(11e6), Some(44e6)));
        assert_eq!((value("commit_metadata_blocks"), value("checkpointing_ns")), (Some(42.0), Some(130e6)));
        assert_eq!((value("commit_correlation").map(f64::round), value("reads_mean_ns")), (Some(-1.0), None));
    }

    #[test]
    fn without_a_cleaning_there_is_nothing_to_tell_of_it() {
        let mut measured = Measured::default();
        Watched::new(1).measured(&mut measured);
        let names: Vec<_> = measured.values().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["cleanings", "checkpointing_ns", "commit_metadata_blocks"]);
    }

    fn value(watched: &Watched, name: &str) -> Option<f64> {
        let mut measured = Measured::default();
        watched.measured(&mut measured);
        measured.values().iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    #[test]
    fn a_percentile_is_the_first_that_its_share_lies_at_or_below() {
        let mut watched = Watched::new(1);
        let cleaning = |ms| Cleaning { victims: 1, took: Duration::from_millis(ms), ..Cleaning::default() };
        watched.cleanings = (1..=21).rev().map(cleaning).collect();
        // Of 21 these shares are 1.05, 10.5 and 19.95.
        let names = ["cleaning_p5_ns", "cleaning_p50_ns", "cleaning_p95_ns", "cleaning_max_ns"];
        assert_eq!(names.map(|name| value(&watched, name)), [2e6, 11e6, 20e6, 21e6].map(Some));
    }

    #[test]
    fn a_cleaning_takes_all_its_phases_and_only_its_commit_is_correlated() {
        let (mut watched, mut work) = (Watched::new(1), CleaningWork::default());
        let mut written = WrittenBlocks::default();
        watched.cleaned(work, written);
        for (step, select) in [(1, 50), (2, 9), (3, 70)] {
            (work.victims, work.checkpoints) = (work.victims + 1, work.checkpoints + 1);
            work.select += Duration::from_millis(select);
            work.copy += Duration::from_millis(1);
            work.commit += Duration::from_millis(step);
            written.metadata_blocks += step * 10;
            watched.cleaned(work, written);
        }
        let took: Vec<_> = watched.cleanings.iter().map(|one| one.took.as_millis()).collect();
        assert_eq!(took, [52, 12, 74]);
        let correlation = value(&watched, "commit_correlation").unwrap();
        assert!((correlation - 1.0).abs() < 1e-9, "{correlation}");
    }

    #[test]
    fn latencies_of_reads_and_updates_have_their_names() {
        let mut watched = Watched::new(1);
        (1..=100).for_each(|latency| watched.reads.record(latency));
        (301..=400).for_each(|latency| watched.updates.record(latency));
        let names = ["mean", "p95", "p99"];
        assert_eq!(names.map(|name| value(&watched, &format!("reads_{name}_ns"))), [50.0, 95.0, 99.0].map(Some));
        assert_eq!(names.map(|name| value(&watched, &format!("updates_{name}_ns"))), [350.0, 395.0, 399.0].map(Some));
    }

    #[test]
    fn each_step_is_a_turn_whatever_it_does() {
        let mut watched = Watched::new(2);
        let mut step = |kinds: &[Kind], start_ns, end_ns| {
            for kind in kinds {
                let event = Event { phase: Phase::Measure, kind: *kind, bytes: 4096, start_ns, end_ns };
                watched.operation(&event, &Counters::default());
            }
            watched.step(end_ns);
        };
        step(&[Kind::Read], 100, 110);
        // Neither a read nor an update, but the second connection's turn.
        step(&[Kind::Write], 110, 130);
        step(&[Kind::Read], 130, 140);
        step(&[Kind::Write, Kind::Fsync], 140, 200);
        step(&[], 200, 210);
        let range = |latencies: &Latencies| (latencies.count(), latencies.percentile(1.0), latencies.percentile(100.0));
        assert_eq!((range(&watched.reads), range(&watched.updates)), ((2, 10, 30), (1, 70, 70)));
    }

    #[test]
    fn what_rises_together_is_correlated() {
        let near = |points: &[(f64, f64)], expected: f64| {
            let found = correlation(points);
            assert!((found - expected).abs() < 1e-9, "{found}");
        };
        near(&[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)], 1.0);
        near(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], -1.0);
        near(&[(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)], 0.0);
        assert!(correlation(&[]).is_nan() && correlation(&[(1.0, 1.0)]).is_nan());
    }

    #[test]
    fn a_step_that_reads_and_syncs_is_an_update() {
        let event = |kind| Event { phase: Phase::Measure, kind, bytes: 4096, start_ns: 0, end_ns: 0 };
        for (kinds, counts) in [
            (&[Kind::Read][..], (1, 0)),
            (&[Kind::Write, Kind::Fsync], (0, 1)),
            (&[Kind::Read, Kind::Write, Kind::Fsync], (0, 1)),
            (&[Kind::Read, Kind::Write, Kind::Fdatasync], (0, 1)),
            (&[Kind::Fsync, Kind::Read], (0, 1)),
            (&[Kind::Write], (0, 0)),
        ] {
            let mut watched = Watched::new(1);
            kinds.iter().for_each(|kind| watched.operation(&event(*kind), &Counters::default()));
            watched.step(10);
            assert_eq!((watched.reads.count(), watched.updates.count()), counts, "{kinds:?}");
        }
    }
}
