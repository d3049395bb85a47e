//! Streams whose blocks differ in more than how often they are written: runs over files beside single blocks, a log beside data that stays.

use basalt_random::Rng;

use super::{Scatter, Zipf};

/// Files that are rewritten from front to back over and over, and how often each gets a run.
const SPEEDS: [u32; 4] = [8, 4, 2, 1];
/// Blocks of a run.
const RUN: u32 = 64;
/// Each file is one part in so many of the set.
const FILE_SHARE: u32 = 8;
const RUNS_THETA: f64 = 0.9;

/// Half of the writes are runs of 64 blocks over four files, each an eighth of the set, rewritten cyclically at speeds of 8 : 4 : 2 : 1. The
/// other half is single blocks of the other half of the set by Zipf's law with 0.9.
#[derive(Debug, Clone)]
pub(super) struct Runs {
    file_blocks: u32,
    /// Where each file goes on.
    cursors: [u32; SPEEDS.len()],
    /// The file of the run under way, and the blocks that are left of it.
    run: (usize, u32),
    zipf: Zipf,
    scatter: Scatter,
}

impl Runs {
    pub(super) fn new(blocks: u32, seed: u64) -> Runs {
        let file_blocks = blocks / FILE_SHARE;
        let others = blocks - file_blocks * SPEEDS.len() as u32;
        Runs {
            file_blocks,
            cursors: [0; SPEEDS.len()],
            run: (0, 0),
            zipf: Zipf::new(u64::from(others), RUNS_THETA),
            scatter: Scatter::new(others, seed),
        }
    }

    pub(super) fn sample(&mut self, rng: &mut Rng) -> u32 {
        // One run for each `RUN` single blocks.
        if self.run.1 == 0 && self.file_blocks > 0 && rng.below(u64::from(RUN) + 1) == 0 {
            self.run = (draw_file(rng), RUN);
        }
        let (file, left) = self.run;
        if left == 0 {
            let first = self.file_blocks * SPEEDS.len() as u32;
            // Ranks are below the number of blocks.
            return first + self.scatter.apply((self.zipf.sample(rng) - 1) as u32);
        }
        self.run.1 -= 1;
        let block = self.cursors[file];
        self.cursors[file] = (block + 1) % self.file_blocks;
        file as u32 * self.file_blocks + block
    }
}

/// A file, by its speed.
fn draw_file(rng: &mut Rng) -> usize {
    let mut draw = rng.below(u64::from(SPEEDS.iter().sum::<u32>())) as u32;
    let is_next = |speed: &u32| {
        let is_here = draw < *speed;
        draw = draw.saturating_sub(*speed);
        is_here
    };
    SPEEDS.iter().position(is_next).unwrap_or(0)
}

/// Percent of the set that are never written again, and that are the log; the rest is hot.
const STAYS_PERCENT: u64 = 50;
const LOG_PERCENT: u64 = 45;
/// Percent of the writes that go to the log.
const LOG_WRITES_PERCENT: u64 = 30;
const HOT_THETA: f64 = 0.8;

/// Half of the set is never written again. 30 % of the writes go round a log of 45 % of the set, the others to the last 5 % by Zipf's law with
/// 0.8.
#[derive(Debug, Clone)]
pub(super) struct WriteOnce {
    first_of_log: u32,
    log_blocks: u32,
    cursor: u32,
    zipf: Zipf,
    scatter: Scatter,
}

impl WriteOnce {
    pub(super) fn new(blocks: u32, seed: u64) -> WriteOnce {
        // Shares of a number that fits.
        let share = |percent: u64| (u64::from(blocks) * percent / 100) as u32;
        let (first_of_log, log_blocks) = (share(STAYS_PERCENT), share(LOG_PERCENT));
        let hot = blocks - first_of_log - log_blocks;
        WriteOnce {
            first_of_log,
            log_blocks,
            cursor: 0,
            zipf: Zipf::new(u64::from(hot), HOT_THETA),
            scatter: Scatter::new(hot, seed),
        }
    }

    pub(super) fn sample(&mut self, rng: &mut Rng) -> u32 {
        if rng.chance(LOG_WRITES_PERCENT) && self.log_blocks > 0 {
            let block = self.cursor;
            self.cursor = (block + 1) % self.log_blocks;
            return self.first_of_log + block;
        }
        self.first_of_log + self.log_blocks + self.scatter.apply((self.zipf.sample(rng) - 1) as u32)
    }
}

/// Zipf's law, where which blocks are hot changes steadily: a block becomes the hottest at once, and colder with each one that comes after it.
#[derive(Debug, Clone)]
pub(super) struct Moving {
    blocks: u32,
    zipf: Zipf,
    scatter: Scatter,
    /// The place of the hottest block before scattering, in units of 1 / `blocks`.
    hottest: u64,
    /// By how much it moves with each write.
    step: u64,
}

impl Moving {
    /// While each block is written once on average, this many percent of them become the hottest in turn.
    pub(super) fn new(blocks: u32, theta: f64, percent: f64, seed: u64) -> Moving {
        Moving {
            blocks,
            zipf: Zipf::new(u64::from(blocks), theta),
            scatter: Scatter::new(blocks, seed),
            hottest: 0,
            step: (f64::from(blocks) * percent / 100.0) as u64,
        }
    }

    pub(super) fn sample(&mut self, rng: &mut Rng) -> u32 {
        let blocks = u64::from(self.blocks);
        self.hottest = (self.hottest + self.step) % (blocks * blocks);
        // Ranks are from 1 to `blocks`.
        let place = (self.hottest / blocks + blocks - (self.zipf.sample(rng) - 1)) % blocks;
        self.scatter.apply(place as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_writes_are_runs_at_four_speeds() {
        let blocks = 8000;
        let mut runs = Runs::new(blocks, 3);
        let mut rng = Rng::new(3);
        let writes: Vec<u32> = (0..1_000_000).map(|_| runs.sample(&mut rng)).collect();
        let share = |low: u32, high: u32| {
            writes.iter().filter(|block| (low..high).contains(*block)).count() as f64 / writes.len() as f64
        };
        for (file, speed) in (0..).zip(SPEEDS) {
            let expected = 0.5 * f64::from(speed) / 15.0;
            assert!((share(file * 1000, file * 1000 + 1000) - expected).abs() < 0.02, "file {file}");
        }
        assert!((share(4000, 8000) - 0.5).abs() < 0.02 && writes.iter().all(|block| *block < blocks));
        let follow = writes.windows(2).filter(|pair| pair[0] < 4000 && pair[0] % 1000 + 1 == pair[1] % 1000).count();
        let in_files = writes.iter().filter(|block| **block < 4000).count();
        assert!(follow * 66 > in_files * 64, "{follow} of {in_files} follow the one before");
    }

    #[test]
    fn half_of_the_set_is_written_once() {
        let mut stream = WriteOnce::new(1000, 5);
        let mut rng = Rng::new(5);
        let writes: Vec<u32> = (0..100_000).map(|_| stream.sample(&mut rng)).collect();
        assert!(writes.iter().all(|block| (500..1000).contains(block)));
        let log: Vec<u32> = writes.into_iter().filter(|block| *block < 950).collect();
        assert!((log.len() as f64 / 100_000.0 - 0.3).abs() < 0.01);
        assert!(log.windows(2).all(|pair| pair[1] == if pair[0] == 949 { 500 } else { pair[0] + 1 }));
    }

    #[test]
    fn the_hottest_blocks_change() {
        let hottest = |stream: &mut Moving, rng: &mut Rng| {
            let mut counts = [0; 1000];
            (0..20_000).for_each(|_| counts[stream.sample(rng) as usize] += 1);
            (0..1000).max_by_key(|block| counts[*block]).unwrap()
        };
        let mut rng = Rng::new(1);
        let mut stays = Moving::new(1000, 1.5, 0.0, 1);
        assert_eq!(hottest(&mut stays, &mut rng), hottest(&mut stays, &mut rng));
        // One becomes the hottest with each 1000 writes, so that twenty do meanwhile.
        let mut moves = Moving::new(1000, 1.5, 0.1, 1);
        assert_ne!(hottest(&mut moves, &mut rng), hottest(&mut moves, &mut rng));
    }

    #[test]
    fn tiny_sets_work() {
        let mut rng = Rng::new(7);
        for blocks in 1..20 {
            let (mut runs, mut once) = (Runs::new(blocks, 1), WriteOnce::new(blocks, 1));
            let mut moving = Moving::new(blocks, 1.0, 100.0, 1);
            for _ in 0..1000 {
                let blocks_written = [runs.sample(&mut rng), once.sample(&mut rng), moving.sample(&mut rng)];
                assert!(blocks_written.iter().all(|block| *block < blocks), "{blocks_written:?} of {blocks}");
            }
        }
    }
}
