//! Putting some power cuts of a workload aside, for somebody else to recover and judge.

use std::fmt;
use std::sync::{Arc, Mutex};

use basalt_device::power::{Change, Fate, TORN_SECTOR};
use basalt_device::{MemoryDevice, Replay};
use basalt_testkit::rng::Rng;

use crate::explore::{Density, Explorer, moments};
use crate::scenario::{Scenario, relative};
use crate::session::Life;

/// What a power cut has left, and all that judges it.
pub struct Sample {
    /// The story that leads to it.
    pub scenario: Scenario,
    /// The life that the cut has ended.
    pub life: Arc<Life>,
    /// The change of it that was under way.
    pub at: usize,
    /// What is left.
    pub image: MemoryDevice,
}

/// Takes a few cuts of each life.
pub struct Sampler {
    per_life: usize,
    taken: Mutex<Vec<Sample>>,
}

impl Sampler {
    /// One that takes so many of each life.
    pub fn new(per_life: usize) -> Sampler {
        Sampler { per_life, taken: Mutex::default() }
    }

    /// What was taken, in order.
    pub fn into_taken(self) -> Vec<Sample> {
        self.taken.into_inner().unwrap_or_default()
    }

    /// Chooses among the cuts that `density` would have made, and makes those.
    pub(crate) fn take(&self, explorer: &Explorer<'_>, life: Life, density: Density, rng: &mut Rng) {
        let mut cuts = Vec::new();
        for at in moments(&life, explorer.prelude, density.moments, rng) {
            let fates = (0..density.random + 2).filter_map(|number| explorer.fate(number, density.moments, rng));
            cuts.extend(fates.map(|(style, seed)| (at, style, seed)));
        }
        while cuts.len() > self.per_life {
            cuts.swap_remove(rng.index(cuts.len()));
        }
        cuts.sort_unstable_by_key(|(at, ..)| *at);
        let life = Arc::new(life);
        let mut replay = Replay::new(&life.history);
        for (at, style, seed) in cuts {
            let image = replay.cut(at, |cached| whole_blocks(style.fates(seed, cached), cached));
            let (steps, after) = relative(&life, at);
            let cut = crate::cut::Cut { after, style, seed };
            let scenario = explorer.finding(vec![(steps, cut)], Vec::new(), String::new()).scenario;
            if let Ok(mut taken) = self.taken.lock() {
                taken.push(Sample { scenario, life: life.clone(), at, image });
            }
        }
    }
}

/// The same fates, but blocks of 4096 bytes are kept or lost whole, by their first sector: Linux counts on that.
pub(crate) fn whole_blocks(fates: Vec<Fate>, cached: &[Change]) -> Vec<Fate> {
    const SECTORS: usize = 8;
    let whole = |(fate, change): (Fate, &Change)| match fate {
        Fate::Torn(kept) => {
            let before = (change.range().0 / TORN_SECTOR) as usize % SECTORS;
            let first = |sector: usize| ((before + sector) / SECTORS * SECTORS).saturating_sub(before);
            Fate::Torn((0..kept.len()).map(|sector| kept[first(sector)]).collect())
        }
        fate => fate,
    };
    fates.into_iter().zip(cached).map(whole).collect()
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("per_life", &self.per_life).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_of_a_torn_write_goes_by_its_own_first_sector() {
        let sectors = |text: &str| text.bytes().map(|byte| byte == b'+').collect::<Vec<_>>();
        let write = |offset, length| Change::Write { offset, data: vec![1; length].into() };
        for (offset, before, after) in [
            (8192, "+-------", "++++++++"),
            (8192, "-+++++++", "--------"),
            (4096, "+-------+++++++--+++++++", "++++++++++++++++--------"),
            (4096, "-+++++++-+++++++++------", "----------------++++++++"),
            // From the fifth sector of a block on.
            (4096 + 4 * 512, "+---++++++++-", "++++++++++++-"),
            (4096 + 4 * 512, "-+++-+++++++++", "------------++"),
        ] {
            let fates = vec![Fate::Torn(sectors(before)), Fate::Lost, Fate::Kept];
            let cached = [write(offset, before.len() * 512), Change::Flush, Change::Flush];
            let expected = [Fate::Torn(sectors(after)), Fate::Lost, Fate::Kept];
            assert_eq!(whole_blocks(fates, &cached), expected, "{before} at {offset}");
        }
    }
}
