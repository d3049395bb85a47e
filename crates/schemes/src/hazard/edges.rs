//! Where one group ends and the next begins. A model of cleaning decides it, from how many blocks have each predicted remaining life.

mod kept;
mod plan;

use super::buckets::{BUCKETS, bucket_of, centre, edge};
use plan::{Class, Planner};

/// What is left of all counts after an eighth of the volume was written once more.
const FADES: f64 = 0.6;
/// How many deaths the prior of a rate weighs.
const WEIGHT: f64 = 2.0;
/// The first edge before anything is known, as a share of the blocks, and the ratio of each edge to the one before.
const FIRST_SHARE: f64 = 1.0 / 16.0;
const RATIO: f64 = 4.0;
/// As many samples as this share of the blocks are enough to plan.
const SAMPLES: f64 = 1.0 / 8.0;
/// Blocks that a group takes beyond its own, because its segment is open: a tenth of a segment.
const OPEN: f64 = 51.2;
/// Less spare space than this share of the blocks is none to divide.
const LEAST_SPARE: f64 = 0.02;

/// The edges between groups, on the scale of predicted remaining lives.
pub struct Edges {
    /// One fewer than groups, rising.
    edges: Vec<f64>,
    /// Blocks that the hand saw, and blocks that died, by what was predicted of them.
    seen: [f64; BUCKETS],
    died: [f64; BUCKETS],
    samples: f64,
    /// Groups of the last plan; `None` before the first.
    planned: Option<usize>,
    planner: Planner,
}

/// A volume as the model sees it.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Blocks that are live.
    pub blocks: u32,
    /// Blocks that were written between two visits of the hand: what one that it saw stands for.
    pub lap: u32,
    /// Blocks of the segments that hold live and dead ones.
    pub space: u64,
}

impl Edges {
    /// Between so many groups.
    pub fn new(groups: usize) -> Edges {
        Edges {
            edges: vec![f64::INFINITY; groups.saturating_sub(1)],
            seen: [0.0; BUCKETS],
            died: [0.0; BUCKETS],
            samples: 0.0,
            planned: None,
            planner: Planner::new(groups),
        }
    }

    /// The group of blocks with this predicted remaining life: the number of edges below it.
    pub fn group(&self, life: f64) -> usize {
        self.edges.iter().take_while(|edge| **edge < life).count()
    }

    /// The coldest group that is wanted: those behind it vanish when their blocks are overwritten or collected.
    pub fn coldest(&self) -> usize {
        self.planned.map_or(self.edges.len(), |planned| planned - 1)
    }

    /// The hand saw a block with this predicted remaining life.
    pub fn count_seen(&mut self, life: f64) {
        self.seen[bucket_of(life)] += 1.0;
        self.samples += 1.0;
    }

    /// A block with this predicted remaining life died.
    pub fn count_died(&mut self, life: f64) {
        self.died[bucket_of(life)] += 1.0;
    }

    /// Moves the edges to where they should be: half of the way, on a logarithmic scale, and the first time at once. Lets what was counted
    /// fade.
    pub fn learn(&mut self, volume: Volume) {
        let blocks = f64::from(volume.blocks);
        if self.samples >= blocks * SAMPLES && volume.space as f64 >= blocks * (1.0 + LEAST_SPARE) {
            let classes = self.classes(volume);
            let ends = self.planner.plan(&classes, volume.space as f64, OPEN);
            self.planned = Some(ends.len() + 1);
            // Groups that are not wanted lie behind the last: nothing has so long a life.
            let wanted = ends.into_iter().chain(std::iter::repeat(edge(BUCKETS)));
            for (edge, wanted) in self.edges.iter_mut().zip(wanted) {
                // There is no way half from where no edge was.
                *edge = if edge.is_finite() { (*edge * wanted).sqrt() } else { wanted };
            }
        } else if self.planned.is_none() {
            let first = std::iter::successors(Some(blocks * FIRST_SHARE), |edge| Some(edge * RATIO));
            self.edges.iter_mut().zip(first).for_each(|(edge, first)| *edge = first);
        }
        self.seen.iter_mut().chain(&mut self.died).for_each(|count| *count *= FADES);
    }

    /// What the hand saw, as shares of the volume, with the rates at which it dies.
    fn classes(&self, volume: Volume) -> Vec<Class> {
        let seen: f64 = self.seen.iter().sum();
        let scale = f64::from(volume.blocks) / seen;
        let class = |at: usize| {
            let exposure = self.seen[at] * f64::from(volume.lap);
            let rate = (self.died[at] + WEIGHT) / (exposure + WEIGHT * centre(at));
            Class { bucket: at, blocks: self.seen[at] * scale, rate }
        };
        (0..BUCKETS).filter(|&at| self.seen[at] > 0.0).map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Volume = Volume { blocks: 1 << 18, lap: 1 << 18, space: (1 << 18) * 100 / 85 };

    #[test]
    fn edges_are_geometric_before_anything_is_known() {
        let mut edges = Edges::new(4);
        assert_eq!((edges.group(1e12), edges.coldest()), (0, 3), "one group");
        edges.learn(VOLUME);
        assert_eq!(edges.edges, [16384.0, 65536.0, 262_144.0]);
        assert_eq!([1.0, 16384.0, 16385.0, 1e5, 1e6].map(|life| edges.group(life)), [0, 0, 1, 2, 3]);
    }

    /// All blocks alike: one group is the best. Unused ones go away by half of the way, on a logarithmic scale, each time.
    #[test]
    fn uniform_blocks_keep_one_group() {
        let mut edges = Edges::new(7);
        edges.learn(VOLUME);
        for round in 0..12 {
            (0..1 << 15).for_each(|_| edges.count_seen(262_144.0));
            (0..1 << 15).for_each(|_| edges.count_died(262_144.0));
            edges.learn(VOLUME);
            if round == 0 {
                assert_eq!(edges.edges[0], 2.0f64.powi(14 + 32).sqrt());
            }
        }
        assert_eq!((edges.group(1e9), edges.coldest()), (0, 0));
    }

    /// A small set that is overwritten from the start is planned for before the edges were ever set.
    #[test]
    fn the_first_plan_sets_the_edges() {
        let mut edges = Edges::new(7);
        (0..300).for_each(|_| edges.count_seen(1000.0));
        (0..300).for_each(|_| edges.count_died(1000.0));
        edges.learn(Volume { blocks: 1000, lap: 1000, space: 1500 });
        assert!(edges.edges.iter().all(|edge| edge.is_finite()), "{:?}", edges.edges);
    }

    /// By hand: a quarter of the buckets' blocks died in a lap of twice the volume, so each dies with a chance of 1/4 in 2^19 writes.
    #[test]
    fn rates_are_deaths_in_the_lap_of_the_hand() {
        let mut edges = Edges::new(4);
        let seen = 1 << 15;
        (0..seen).for_each(|_| edges.count_seen(1e6));
        (0..seen / 4).for_each(|_| edges.count_died(1e6));
        let classes = edges.classes(Volume { lap: 2 * VOLUME.lap, ..VOLUME });
        let [class] = &classes[..] else { panic!("{} classes", classes.len()) };
        assert_eq!(class.blocks, f64::from(VOLUME.blocks));
        let by_hand = 0.25 / f64::from(2 * VOLUME.lap);
        assert!((class.rate / by_hand - 1.0).abs() < 0.01, "{} and {by_hand}", class.rate);
    }

    /// A tenth of the blocks takes nine tenths of the writes: an edge lies between the two.
    #[test]
    fn hot_and_cold_blocks_are_divided() {
        let mut edges = Edges::new(7);
        edges.learn(VOLUME);
        let (hot, cold) = (f64::from(VOLUME.blocks) / 9.0, f64::from(VOLUME.blocks) * 9.0);
        for _ in 0..12 {
            (0..3277).for_each(|_| edges.count_seen(hot));
            (0..29_491).for_each(|_| edges.count_seen(cold));
            (0..29_491).for_each(|_| edges.count_died(hot));
            (0..3277).for_each(|_| edges.count_died(cold));
            edges.learn(VOLUME);
        }
        let groups = [hot / 1.3, hot * 1.3, cold / 1.3, cold * 1.3].map(|life| edges.group(life));
        assert_eq!(groups, [0, 0, 1, 1], "{:?}", edges.edges);
        assert!(edges.edges[1] > 1e9 && edges.coldest() == 1, "{:?}", edges.edges);
    }
}
