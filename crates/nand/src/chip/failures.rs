//! How programs and erases fail.

use basalt_random::Rng;

use super::block::Block;

/// How programs and erases fail. A block of which one has failed takes neither any more, and loses what it holds in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Of a million programs, those that fail.
    pub programs: u32,
    /// Of a million erases, those that fail.
    pub erases: u32,
    /// Erases after which a block fails within as many again; 0: none does.
    pub endurance: u32,
}

impl Failures {
    pub(super) fn program_fails(&self, block: &mut Block, rng: &mut Rng) -> bool {
        block.failed |= chance(rng, self.programs);
        block.failed
    }

    pub(super) fn erase_fails(&self, block: &mut Block, rng: &mut Rng) -> bool {
        let worn = self.endurance > 0 && block.erases > self.endurance;
        block.failed |= chance(rng, self.erases) || worn && rng.below(u64::from(self.endurance)) == 0;
        block.failed
    }
}

fn chance(rng: &mut Rng, of_a_million: u32) -> bool {
    of_a_million > 0 && rng.below(1_000_000) < u64::from(of_a_million)
}
