//! Each commit of cleaning, and the latencies of a database's accesses, while a run is measured.

use std::time::Duration;

use basalt_vfs::{CleaningWork, Counters, WrittenBlocks};
use basalt_workloads::{Event, Kind, Latencies};

use super::Cleaning;
use crate::engine::Watch;

/// Connections of the paper's YCSB (table 1).
const CONNECTIONS: usize = 32;

/// Collects cleanings and latencies while a run is measured.
pub(super) struct Watched {
    pub(super) cleanings: Vec<Cleaning>,
    pub(super) checkpointing: Duration,
    /// Foreground cleaning up to the last commit.
    committed: Option<CleaningWork>,
    /// Blocks written up to the last operation.
    written: WrittenBlocks,
    queue: Queue,
    kind: Option<Kind>,
    pub(super) reads: Latencies,
    pub(super) updates: Latencies,
}

impl Watched {
    pub(super) fn new() -> Watched {
        Watched {
            cleanings: Vec::new(),
            checkpointing: Duration::ZERO,
            committed: None,
            written: WrittenBlocks::default(),
            queue: Queue::new(CONNECTIONS),
            kind: None,
            reads: Latencies::default(),
            updates: Latencies::default(),
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

    #[test]
    fn an_access_waits_for_those_of_all_connections_before_it() {
        let mut queue = Queue::new(3);
        queue.begin(100);
        // Every access takes 10, but for the third: the three behind it wait for it.
        let latencies = [110, 120, 180, 190, 200, 210].map(|now| queue.done(now));
        assert_eq!(latencies, [10, 20, 80, 80, 80, 30]);
    }

    #[test]
    fn each_commit_of_cleaning_is_one_of_the_series() {
        let (mut watched, mut written) = (Watched::new(), WrittenBlocks::default());
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
        assert_eq!(watched.cleanings[0].each(), Duration::from_millis(44));
        assert_eq!(watched.checkpointing, Duration::from_millis(130));
    }
}
