//! Streams of block numbers: which block is written next. No file system: they drive the volume simulator, and the workloads
//! that overwrite one file.
//!
//! | stream | what |
//! |---|---|
//! | `sequential` | 0, 1, 2, … and again |
//! | `uniform` | every block alike |
//! | `zipf:θ` | rank k with probability proportional to k^-θ, ranks scattered over the blocks |
//! | `hotcold:W/B` | W % of the writes on B % of the blocks, the rest on the rest, scattered |
//! | `moving-zipf:θ` | as `zipf`, but which blocks are hot changes; `moves=P`: P % become the hottest while each is written once |
//! | `runs` | half of the writes are runs over four files, rewritten at speeds 8 : 4 : 2 : 1, half single blocks by Zipf's law |
//! | `write-once` | half of the blocks stay, 45 % are a log that 30 % of the writes go round, 5 % are hot |
//! | `tpcc` | as an OLTP database writes its pages: 29 % of the writes on 1.6 % of them, …; `log=P`: P % go round a log |

mod classes;
mod mixed;
mod random;
mod scatter;
mod zipf;

pub use classes::{Classes, TPCC};
pub use scatter::Scatter;
pub use zipf::Zipf;

pub(crate) use random::{gamma, lognormal, unit};

use basalt_random::Rng;

use crate::error::{Error, Result};
use crate::specification::Specification;
use mixed::{Moving, Runs, WriteOnce};

/// Share of a TPC-C-like set that is its log, if it has one: 1 GB of 8 GB.
const LOG_SHARE: u32 = 8;

/// Percent of the blocks of `moving-zipf` that become the hottest while each is written once, if nobody says.
const MOVES_PERCENT: f64 = 2.0;

/// How the next block is chosen.
#[derive(Debug, Clone)]
enum Choice {
    Sequential,
    Uniform,
    Zipf(Zipf, Scatter),
    Classes(Classes, Scatter),
    Moving(Moving),
    Runs(Runs),
    WriteOnce(WriteOnce),
}

/// An endless stream of block numbers below [`blocks`](Self::blocks), repeatable by its seed.
#[derive(Debug, Clone)]
pub struct Stream {
    name: String,
    blocks: u32,
    choice: Choice,
    rng: Rng,
    /// Blocks at the beginning that are written in turn by `log_percent` of the writes.
    log_blocks: u32,
    log_percent: u64,
    next: u32,
}

impl Stream {
    /// The stream of a specification over `blocks` blocks, at least one.
    ///
    /// # Errors
    /// [`Error::Specification`] if there is no such stream, or an option makes no sense.
    pub fn parse(text: &str, blocks: u32, seed: u64) -> Result<Stream> {
        let mut specification = Specification::parse(text)?;
        let stream = Stream::of(&mut specification, blocks, seed)?;
        specification.finish()?;
        Ok(stream)
    }

    /// The stream of a specification whose other options somebody else takes.
    pub(crate) fn of(specification: &mut Specification, blocks: u32, seed: u64) -> Result<Stream> {
        if blocks == 0 {
            return Err(Error::Specification(format!(
                "{}: a set of no blocks cannot be written",
                specification.name()
            )));
        }
        let name = specification.name().to_owned();
        let scatter_seed = seed ^ 0x5CA7_7E25;
        let mut log_blocks = 0;
        let mut log_percent = 0;
        let (name, choice) = match name.as_str() {
            "sequential" => (name, Choice::Sequential),
            "uniform" => (name, Choice::Uniform),
            "zipf" => {
                let theta = specification.number("", 0.99, 0.0, 5.0)?;
                let choice = Choice::Zipf(Zipf::new(u64::from(blocks), theta), Scatter::new(blocks, scatter_seed));
                (format!("zipf:{theta}"), choice)
            }
            "moving-zipf" => {
                let theta = specification.number("", 1.0, 0.0, 5.0)?;
                let percent = specification.number("moves", MOVES_PERCENT, 0.0, 100.0)?;
                let choice = Choice::Moving(Moving::new(blocks, theta, percent, scatter_seed));
                (format!("moving-zipf:{theta},moves={percent}"), choice)
            }
            "runs" => (name, Choice::Runs(Runs::new(blocks, scatter_seed))),
            "write-once" => (name, Choice::WriteOnce(WriteOnce::new(blocks, scatter_seed))),
            "hotcold" => {
                let shares = specification.text("").unwrap_or_else(|| "90/10".to_owned());
                let (writes, share) = hot_cold(&shares)?;
                let classes = Classes::new(&[(writes, share), (100.0 - writes, 100.0 - share)], blocks);
                (format!("hotcold:{shares}"), Choice::Classes(classes, Scatter::new(blocks, scatter_seed)))
            }
            "tpcc" => {
                log_percent = specification.number("log", 0, 0, 100)?;
                log_blocks = if log_percent == 0 { 0 } else { (blocks / LOG_SHARE).max(1) };
                let pages = (blocks - log_blocks).max(1);
                let choice = Choice::Classes(Classes::new(&TPCC, pages), Scatter::new(pages, scatter_seed));
                (format!("tpcc:log={log_percent}"), choice)
            }
            _ => {
                let known = "sequential, uniform, zipf, moving-zipf, hotcold, runs, write-once, tpcc";
                return Err(Error::Specification(format!("there is no stream `{name}`; there are {known}")));
            }
        };
        Ok(Stream { name, blocks, choice, rng: Rng::new(seed), log_blocks, log_percent, next: 0 })
    }

    /// Its specification with all options.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Numbers are below this.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The next block to write.
    pub fn next_block(&mut self) -> u32 {
        if self.log_percent > 0 && self.rng.chance(self.log_percent) {
            return self.in_turn(self.log_blocks);
        }
        let pages = self.blocks - self.log_blocks;
        let block = match &mut self.choice {
            Choice::Sequential => return self.log_blocks + self.in_turn(pages),
            Choice::Uniform => self.rng.below(u64::from(pages)) as u32,
            Choice::Zipf(zipf, scatter) => scatter.apply((zipf.sample(&mut self.rng) - 1) as u32),
            Choice::Classes(classes, scatter) => scatter.apply(classes.sample(&mut self.rng)),
            Choice::Moving(moving) => moving.sample(&mut self.rng),
            Choice::Runs(runs) => runs.sample(&mut self.rng),
            Choice::WriteOnce(once) => once.sample(&mut self.rng),
        };
        // A set of one block that is all log has no other page.
        (self.log_blocks + block).min(self.blocks - 1)
    }

    fn in_turn(&mut self, of: u32) -> u32 {
        let block = self.next;
        self.next = if block + 1 >= of { 0 } else { block + 1 };
        block
    }
}

impl Iterator for Stream {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        Some(self.next_block())
    }
}

/// `90/10`: percent of the writes, percent of the blocks.
fn hot_cold(shares: &str) -> Result<(f64, f64)> {
    let parsed = shares.split_once('/').and_then(|(writes, blocks)| {
        let percent = |text: &str| text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 100.0);
        Some((percent(writes)?, percent(blocks)?))
    });
    parsed.ok_or_else(|| {
        Error::Specification(format!("hotcold: `{shares}` is not writes/blocks in percent, as 90/10: 90 % on 10 %"))
    })
}
