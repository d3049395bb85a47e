//! The hazard table: how likely blocks of each history are to die at each age, learned from what they did.

mod kept;

use super::buckets::{BUCKETS, bucket, centre, edge};
use super::records::{CELLS, mean_bucket};
use super::survival::remaining_lives;

/// What is left of all counts after an eighth of the volume was written once more.
const FADES: f64 = 0.95;
/// How many deaths the prior of a cell weighs: that of all cells with the same mean, that of such a mean, that of the cell of blocks
/// that were never overwritten.
const WEIGHT: f64 = 16.0;
const WEIGHT_OF_MEAN: f64 = 4.0;
const WEIGHT_OF_NEVER: f64 = 2.0;
/// A block that was never overwritten is expected to live for so many times the number of blocks.
const LIFE_OF_NEVER: f64 = 4.0;

/// Deaths and exposure (the time that blocks lived) by age.
#[derive(Clone)]
struct Row {
    deaths: [f32; BUCKETS],
    exposure: [f64; BUCKETS],
    /// Something was counted since the volume was opened.
    is_used: bool,
}

const EMPTY: Row = Row { deaths: [0.0; BUCKETS], exposure: [0.0; BUCKETS], is_used: false };

/// Learned hazards by history and age, and the remaining lives that follow from them. Its size is fixed: 1.8 MB.
pub struct Table {
    rows: Vec<Row>,
    /// Of each bucket of the mean interval: the hazards of its cells together.
    priors: Vec<[f64; BUCKETS]>,
    /// Remaining lives of each cell at the ages where buckets begin; computed when a cell is asked for.
    lives: Vec<[f32; BUCKETS]>,
    is_computed: Vec<bool>,
    blocks: f64,
}

impl Default for Table {
    fn default() -> Table {
        let mut table = Table {
            rows: vec![EMPTY; CELLS],
            priors: vec![[0.0; BUCKETS]; BUCKETS],
            lives: vec![[0.0; BUCKETS]; CELLS],
            is_computed: vec![false; CELLS],
            blocks: 1.0,
        };
        table.learn_priors();
        table
    }
}

impl Table {
    /// A block of this history died at this age.
    pub fn count_death(&mut self, cell: usize, age: u32) {
        let row = &mut self.rows[cell];
        row.deaths[bucket(age)] += 1.0;
        row.is_used = true;
    }

    /// So many blocks of this history lived from one age to another.
    pub fn count_life(&mut self, cell: usize, from: u32, to: u32, blocks: f64) {
        if from >= to {
            return;
        }
        let row = &mut self.rows[cell];
        row.is_used = true;
        let (first, last) = (bucket(from), bucket(to));
        let (from, to) = (f64::from(from), f64::from(to));
        if first == last {
            row.exposure[first] += (to - from) * blocks;
            return;
        }
        row.exposure[first] += (edge(first + 1) - from) * blocks;
        for at in first + 1..last {
            row.exposure[at] += (edge(at + 1) - edge(at)) * blocks;
        }
        row.exposure[last] += (to - edge(last)) * blocks;
    }

    /// The predicted remaining life of a block of this history and age.
    pub fn remaining_life(&mut self, cell: usize, age: u32) -> f64 {
        if !self.is_computed[cell] {
            self.lives[cell] = remaining_lives(&self.hazards(cell));
            self.is_computed[cell] = true;
        }
        let at = bucket(age);
        let lives = &self.lives[cell];
        let (here, next) = (f64::from(lives[at]), f64::from(lives[(at + 1).min(BUCKETS - 1)]));
        here + (next - here) * (f64::from(age) - edge(at)) / (edge(at + 1) - edge(at))
    }

    /// Learns from what was counted, in a volume of so many blocks, and lets it fade.
    pub fn learn(&mut self, blocks: u32) {
        self.blocks = f64::from(blocks.max(1));
        for row in self.rows.iter_mut().filter(|row| row.is_used) {
            row.deaths.iter_mut().for_each(|deaths| *deaths *= FADES as f32);
            row.exposure.iter_mut().for_each(|exposure| *exposure *= FADES);
        }
        self.learn_priors();
        self.is_computed.fill(false);
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let each = size_of::<Row>() + size_of::<[f32; BUCKETS]>() + size_of::<bool>();
        self.rows.len() * each + self.priors.len() * size_of::<[f64; BUCKETS]>()
    }

    fn learn_priors(&mut self) {
        let mut sums = vec![EMPTY; BUCKETS];
        for (cell, row) in self.rows.iter().enumerate().filter(|(_, row)| row.is_used) {
            let Some(mean) = mean_bucket(cell) else { continue };
            let sum = &mut sums[mean];
            sum.deaths.iter_mut().zip(&row.deaths).for_each(|(sum, deaths)| *sum += deaths);
            sum.exposure.iter_mut().zip(&row.exposure).for_each(|(sum, exposure)| *sum += exposure);
        }
        for (mean, (prior, sum)) in self.priors.iter_mut().zip(&sums).enumerate() {
            *prior = std::array::from_fn(|age| {
                let life = centre(age).max(centre(mean));
                smoothed(sum, age, WEIGHT_OF_MEAN, life)
            });
        }
    }

    /// Deaths for each block and write, by age.
    fn hazards(&self, cell: usize) -> [f64; BUCKETS] {
        let row = &self.rows[cell];
        match mean_bucket(cell) {
            Some(mean) => std::array::from_fn(|age| smoothed(row, age, WEIGHT, 1.0 / self.priors[mean][age])),
            None => std::array::from_fn(|age| {
                let life = centre(age).max(LIFE_OF_NEVER * self.blocks);
                smoothed(row, age, WEIGHT_OF_NEVER, life)
            }),
        }
    }
}

/// Deaths over exposure, where a prior of this mean life weighs as much as `weight` deaths.
fn smoothed(row: &Row, age: usize, weight: f64, life: f64) -> f64 {
    (f64::from(row.deaths[age]) + weight) / (row.exposure[age] + weight * life)
}

#[cfg(test)]
mod tests {
    use super::super::records::NEVER_OVERWRITTEN;
    use super::*;

    /// A cell with a mean interval in this bucket.
    fn cell_of(mean: usize) -> usize {
        (NEVER_OVERWRITTEN..CELLS).find(|&cell| mean_bucket(cell) == Some(mean)).expect("there is one")
    }

    #[test]
    fn lives_are_spread_over_the_buckets_that_they_pass() {
        let mut table = Table::default();
        table.count_life(9, 1, 5, 1.0);
        // 0.5 up to 1.5, 0.5 up to 2, 1 up to 3, 1 up to 4, 1 up to 5.
        assert_eq!(table.rows[9].exposure[..6], [0.5, 0.5, 1.0, 1.0, 1.0, 0.0]);
        table.count_life(9, 4, 5, 1.0);
        table.count_life(9, 5, 5, 1.0);
        table.count_life(9, 0, 1, 1.0);
        assert_eq!(table.rows[9].exposure[..6], [1.5, 0.5, 1.0, 1.0, 2.0, 0.0]);
        assert_eq!(table.rows[9].exposure.iter().sum::<f64>(), 6.0);
    }

    #[test]
    fn what_is_known_of_nothing_is_the_prior() {
        let mut table = Table::default();
        table.learn(1000);
        let life = table.remaining_life(NEVER_OVERWRITTEN, 3);
        assert!((life / 4000.0 - 1.0).abs() < 0.05, "four times the blocks: {life}");
        let cell = cell_of(bucket(1024));
        let life = table.remaining_life(cell, 0);
        assert!((life / (1.2 * 1024.0) - 1.0).abs() < 0.1, "the mean interval: {life}");
        assert!(table.remaining_life(cell, 1 << 20) > 300_000.0, "those that survived are cold");
    }

    /// Blocks that die with the same probability at every write: the table finds it, whatever their mean interval says.
    #[test]
    fn rates_are_learned() {
        let mut table = Table::default();
        let cell = cell_of(bucket(64));
        // At the rate of 1/500 for 1,000,000 block writes up to the age of 4000, the survivors counted too.
        for at in 0..bucket(4096) {
            let exposure = 1e6 * (edge(at + 1) - edge(at)) / 500.0;
            table.rows[cell].exposure[at] = exposure;
            table.rows[cell].deaths[at] = (exposure / 500.0) as f32;
        }
        table.rows[cell].is_used = true;
        table.learn(1000);
        for age in [0, 10, 100, 500, 1000] {
            let life = table.remaining_life(cell, age);
            assert!((life / 500.0 - 1.0).abs() < 0.05, "age {age}: {life}");
        }
    }

    #[test]
    fn what_was_counted_fades() {
        let mut table = Table::default();
        (0..100).for_each(|_| table.count_death(5, 70));
        table.count_life(5, 64, 74, 1.0);
        (0..2).for_each(|_| table.learn(1000));
        assert!((f64::from(table.rows[5].deaths[bucket(70)]) - 90.25).abs() < 1e-4);
        assert!((table.rows[5].exposure[bucket(70)] - 9.025).abs() < 1e-9);
    }

    #[test]
    fn what_was_lived_through_fades_where_nothing_died() {
        let mut table = Table::default();
        table.count_life(5, 64, 74, 1.0);
        table.learn(1000);
        assert!((table.rows[5].exposure[bucket(70)] - 9.5).abs() < 1e-9);
    }
}
