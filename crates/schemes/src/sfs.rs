//! SFS: blocks by hotness, around centres that follow the segments' hotness.

use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::Policy;
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Reason, Segment, SegmentKind, StaticPlacement};

use crate::blocks::Blocks;
use crate::groups::{Groups, is_grouped};
use crate::segments::{PerPlace, PerSegment};

/// SFS as SepBIT's authors read it.
pub(crate) const SEPBIT_POLICY: Policy = Policy {
    name: "sfs-sepbit",
    about: "by hotness around six centres, as SepBIT's authors read SFS (FAST 2012, FAST 2022)",
    make: |logs| (logs == 6).then(|| Box::new(Sfs::new(6, Scale::Linear)) as Box<dyn Placement>),
};

/// The same on a logarithmic scale.
pub(crate) const LOG_POLICY: Policy = Policy {
    name: "sfs-log",
    about: "by hotness around six centres on a logarithmic scale (after SFS, FAST 2012)",
    make: |logs| (logs == 6).then(|| Box::new(Sfs::new(6, Scale::Logarithmic)) as Box<dyn Placement>),
};

/// Rounds of each quantization: the paper's.
const ROUNDS: u32 = 3;

/// On which scale hotness is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As it is. Centres begin at zero, one without segments returns there, and a block that replaces none is the hottest.
    Linear,
    /// By its logarithm. Centres begin evenly spread over the segments there are, one without segments stays where it is, and a block
    /// that replaces none is the coldest.
    Logarithmic,
}

/// The hotness of a block is its number of writes divided by the time since the one before; of a segment, the sum of its live blocks'
/// numbers divided by the sum of the times since their last writes. Three rounds of k-means over the sealed segments give as many
/// centres as there are groups, each time that a segment was freed. A block goes to the group with the nearest centre. Copies by
/// cleaning neither count as writes nor change times. Times are counted in blocks that users wrote.
///
/// Sources: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, sections 3.3 and 3.4; Q. Wang et al.,
/// "Separating Data via Block Invalidation Time Inference for Write Amplification Reduction in Log-Structured Storage", FAST 2022,
/// section 4.1, and the simulator published with it, for what the paper leaves open ([`Scale::Linear`]). SFS as its paper has it, with its
/// cache and deferred groups, is [`FaithfulSfs`](crate::FaithfulSfs).
pub struct Sfs {
    groups: Groups,
    scale: Scale,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: u64,
    blocks: Blocks<Written>,
    places: PerPlace<Written>,
    segments: PerSegment<Sums>,
    /// Falling; on the scale. None until segments were sealed, if logarithmic.
    centres: Vec<f64>,
}

/// The writes of a block by users: how many, and when the last was.
#[derive(Clone, Copy, Default)]
struct Written {
    count: u32,
    time: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    is_sealed: bool,
    live: u64,
    counts: u64,
    times: u64,
}

impl Sfs {
    /// With so many groups, from 1 to [`GROUPS_MAX`](crate::GROUPS_MAX).
    #[must_use]
    pub fn new(groups: usize, scale: Scale) -> Sfs {
        let groups = Groups::new(groups);
        let centres = if scale == Scale::Linear { vec![0.0; groups.count()] } else { Vec::new() };
        Sfs { groups, scale, state: Mutex::new(State { centres, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_scale(&self, hotness: f64) -> f64 {
        match self.scale {
            Scale::Linear => hotness,
            Scale::Logarithmic => hotness.ln(),
        }
    }

    fn group(&self, state: &State, block: &BlockTraits) -> usize {
        let Written { count, time } = state.blocks.get(block);
        let coldest = self.groups.count() - 1;
        if count == 0 {
            return if self.scale == Scale::Linear { nearest(&state.centres, f64::MAX) } else { coldest };
        }
        let hotness = f64::from(count) / (state.now.saturating_sub(time).max(1) as f64);
        if state.centres.is_empty() { coldest } else { nearest(&state.centres, self.on_scale(hotness)) }
    }

    /// Moves the centres to where the segments are.
    fn quantize(&self, state: &mut State) {
        let segments = state.segments.iter().filter(|sums| sums.is_sealed && sums.live > 0 && sums.counts > 0);
        let hotness: Vec<f64> = segments
            .map(|sums| {
                self.on_scale(sums.counts as f64 / (sums.live * state.now).saturating_sub(sums.times).max(1) as f64)
            })
            .collect();
        let count = self.groups.count();
        if hotness.len() <= count {
            return;
        }
        if state.centres.is_empty() {
            let (least, most) = hotness
                .iter()
                .fold((f64::MAX, f64::MIN), |(least, most), &hotness| (least.min(hotness), most.max(hotness)));
            let at = |part: usize| most - (most - least) * (2 * part + 1) as f64 / (2 * count) as f64;
            state.centres = (0..count).map(at).collect();
        }
        for _ in 0..ROUNDS {
            let mut sums = vec![(0.0, 0u32); count];
            for &hotness in &hotness {
                let (sum, members) = &mut sums[nearest(&state.centres, hotness)];
                (*sum, *members) = (*sum + hotness, *members + 1);
            }
            for (centre, (sum, members)) in state.centres.iter_mut().zip(sums) {
                match (members, self.scale) {
                    (0, Scale::Linear) => *centre = 0.0,
                    (0, Scale::Logarithmic) => {}
                    _ => *centre = sum / f64::from(members),
                }
            }
        }
        state.centres.sort_unstable_by(|one, other| other.total_cmp(one));
    }
}

/// The centre that is the nearest, the last of equals.
fn nearest(centres: &[f64], hotness: f64) -> usize {
    let distances = centres.iter().map(|centre| (centre - hotness).abs()).enumerate().rev();
    distances.min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(0, |(at, _)| at)
}

impl Placement for Sfs {
    fn more_logs(&self) -> &[SegmentKind] {
        self.groups.more_logs()
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if is_grouped(block) {
            self.groups.log(self.group(&self.state(), block))
        } else {
            StaticPlacement::default().log(block)
        }
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        if !is_grouped(block) {
            return;
        }
        let state = &mut *self.state();
        let written = state.blocks.get_mut(block);
        if block.reason != Reason::Cleaning || written.count == 0 {
            *written = Written { count: written.count.saturating_add(1), time: state.now };
            state.now += 1;
        }
        let written = *written;
        state.places.set(place, written);
        let sums = state.segments.get_mut(place.segment());
        sums.live += 1;
        sums.counts += u64::from(written.count);
        sums.times += written.time;
    }

    fn note_dead(&self, place: MainBlock) {
        let state = &mut *self.state();
        let Written { count, time } = state.places.take(place);
        if count > 0 {
            let sums = state.segments.get_mut(place.segment());
            sums.live -= 1;
            sums.counts -= u64::from(count);
            sums.times -= time;
        }
    }

    fn note_sealed(&self, _log: LogId, segment: Segment) {
        self.state().segments.get_mut(segment).is_sealed = true;
    }

    fn note_free(&self, segment: Segment) {
        let state = &mut *self.state();
        *state.segments.get_mut(segment) = Sums::default();
        self.quantize(state);
    }
}
