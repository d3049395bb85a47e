//! The crash simulator: cuts the power of a file system at every request, and holds what is left against what was promised.
//!
//! 1. A workload ([`script`]) runs on an engine ([`engine`]) over a device with a volatile cache
//!    ([`basalt_device::power`]); the state of the tree is kept after every step ([`session`], [`tree`]).
//! 2. From the recorded requests, the device after a power cut is made for as many moments and fates of the cache as wanted
//!    ([`cut`], [`explore`]).
//! 3. The engine opens each; the oracle ([`oracle`]) says whether the tree ([`found`]) may be there; the engine's check finds nothing;
//!    work goes on, and the volume is closed and checked again. What follows a cut, recovery included, is cut in turn.
//! 4. A violation becomes a story ([`scenario`]) as short as possible ([`shrink`](mod@shrink)), which one command replays.
//!
//! | module | what |
//! |---|---|
//! | [`modes`], [`enumerate`], [`sequences`], [`generate`] | which workloads, which cuts |
//! | [`prepare`] | what is on a volume before |
//! | [`perform`], [`usage`] | doing a step; what is done after a power cut |
//! | [`overlay`], [`same`], [`meta`] | parts of the oracle |
//! | [`tools`] | what is not the engine's: mkfs, tune, resize, repair, restore |
//! | [`reach`] | which branches recovery goes through: what steers the choice of cuts |
//! | [`campaign`](mod@campaign) | many of them, on all processors |
//! | [`hunt`](mod@hunt) | all modes in turns, until one finds something |
//! | [`threads`](mod@threads) | operations side by side, under a scheduler |
//! | [`f2fs`] | F2FS volumes under test |
//! | [`sample`](mod@sample), [`linux`] | some of the cuts, recovered by Linux and judged by the same oracle |
//! | `planted` (feature `mutants`) | bugs planted in the engine |
//! | [`device_mutant`] | devices that lie, which the simulator must notice |

pub mod campaign;
mod chosen;
pub mod cut;
pub mod device_mutant;
pub mod engine;
pub mod enumerate;
pub mod explore;
pub mod f2fs;
pub mod found;
pub mod generate;
pub mod hunt;
mod interrupted;
pub mod linux;
pub mod meta;
pub mod modes;
pub mod oracle;
pub mod overlay;
pub mod perform;
#[cfg(feature = "mutants")]
pub mod planted;
pub mod prepare;
pub mod reach;
pub mod same;
pub mod sample;
pub mod scenario;
pub mod script;
pub mod sequences;
pub mod session;
pub mod shrink;
pub mod steered;
pub mod threads;
pub mod tools;
pub mod tree;
pub mod usage;
