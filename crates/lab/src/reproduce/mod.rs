//! Results of the papers, measured again: each figure that the papers' text gives numbers for.
//!
//! | module | what |
//! |---|---|
//! | `expectation` | what a paper leads one to expect of a number, and where ours lies beside it |
//! | `verdict` | what is to be thought of that: by rule, from what a row declares |
//! | `item` | a number of a paper and ours, with one seed |
//! | `row` | the same with several seeds: the median, the spread, the verdict |
//! | `uncovered` | what the papers' text says that no row covers |
//! | `scj_figure_1`, … | one module a figure: the experiment, and what is compared |
//! | `scj` | what the SCJ paper's figures share: volume, workloads, ways of committing, and runs made once for all |
//! | `markdown` | the tables of docs/reproduction.md |

mod expectation;
mod item;
mod markdown;
mod page_cache;
mod row;
mod scj;
mod scj_figure_1;
mod scj_figure_10;
mod scj_figure_11;
mod scj_figure_4;
mod scj_figure_6;
mod scj_figure_7;
mod scj_figure_8;
mod scj_figure_9;
mod sfs_figure_15;
mod sfs_figure_9;
mod uncovered;
mod verdict;

use std::ops::Range;

pub use expectation::{Expectation, Position, Side, Tolerance, number};
pub use item::Item;
pub use markdown::{markdown, markdown_uncovered};
pub use row::{BaselineRow, Row};
pub use scj::Runs;
pub use uncovered::{UNCOVERED, Uncovered, uncovered};
pub use verdict::{Baseline, Claim, Source, Verdict};

/// How large and with which seed experiments run.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The paper's own size instead of the usual fraction of it: hours instead of minutes.
    pub full: bool,
    /// A fraction of the usual size, for a first look: seconds instead of minutes. Not with `full`. SFS figure 15 has none.
    pub small: bool,
    /// Seed of every random choice.
    pub seed: u64,
}

/// What an experiment says while it runs: the step it begins.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// What a figure's experiment gives with one seed: its items, or why it could not be run.
type Outcome = Result<Vec<Item>, String>;

/// A figure or table of a paper that is measured again.
pub struct Figure {
    /// The paper's short name.
    pub paper: &'static str,
    /// The figure's name in the paper: `1`, `9`, …
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// About how long the experiment takes with one seed, when none of its runs is made yet and full size is not asked for.
    pub takes: &'static str,
    /// The experiment with one seed.
    run: fn(&Scale, &mut Runs, Say<'_>) -> Outcome,
}

impl Figure {
    /// Paper and figure, as headings name them.
    pub fn label(&self) -> String {
        format!("{} figure {}", self.paper.to_uppercase(), self.figure)
    }

    /// Runs the experiment with each of these seeds, and merges what they give; `say` hears what is done. What other figures have
    /// run already is taken from `runs`. The seed of `scale` is not used.
    ///
    /// # Errors
    /// When the experiment cannot be run with one of the seeds.
    pub fn run(&self, scale: &Scale, seeds: Range<u64>, runs: &mut Runs, say: Say<'_>) -> Result<Vec<Row>, String> {
        let several = seeds.end.saturating_sub(seeds.start) > 1;
        let mut measured = Vec::new();
        for seed in seeds {
            let scale = Scale { seed, ..*scale };
            let mut tell = |step: &str| say(&if several { format!("seed {seed}: {step}") } else { step.to_owned() });
            measured.push((seed, (self.run)(&scale, runs, &mut tell)?));
        }
        Ok(Row::merge(measured))
    }
}

/// Every figure that can be measured, in the order of the papers.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: "scj",
        figure: "1",
        title: "the share of each phase in the time of segment cleaning (section III)",
        takes: "1 min",
        run: scj_figure_1::run,
    },
    Figure {
        paper: "scj",
        figure: "4",
        title: "speed, cleaning and checkpoints over the interval of checkpoints (section VI.B)",
        takes: "4 min",
        run: scj_figure_4::run,
    },
    Figure {
        paper: "scj",
        figure: "5",
        title: "metadata written over the interval of checkpoints (section VI.B)",
        takes: "1 min",
        run: scj_figure_4::metadata,
    },
    Figure {
        paper: "scj",
        figure: "6",
        title: "speed and checkpoints over the size of the journal area (section VI.C)",
        takes: "1 min",
        run: scj_figure_6::run,
    },
    Figure {
        paper: "scj",
        figure: "7",
        title: "latency of each cleaning, one after the other (section VI.D)",
        takes: "20 s",
        run: scj_figure_7::run,
    },
    Figure {
        paper: "scj",
        figure: "8",
        title: "speed, latency of cleaning, checkpoints and metadata for all workloads (section VI.E)",
        takes: "1 min",
        run: scj_figure_8::run,
    },
    Figure {
        paper: "scj",
        figure: "9",
        title: "latency of reads and updates of YCSB (section VI.E)",
        takes: "20 s",
        run: scj_figure_9::run,
    },
    Figure {
        paper: "scj",
        figure: "10",
        title: "speed and write amplification over the utilization (section VI.F)",
        takes: "1 min",
        run: scj_figure_10::run,
    },
    Figure {
        paper: "scj",
        figure: "11",
        title: "speed and writes over the locality of random writes (section VI.G)",
        takes: "1 min",
        run: scj_figure_11::run,
    },
    Figure {
        paper: "sfs",
        figure: "9",
        title: "write cost over utilization, the baseline LFS-CB (with figures 7a and 11a)",
        takes: "10 s",
        run: sfs_figure_9::run,
    },
    Figure {
        paper: "sfs",
        figure: "15",
        title: "write amplification and erases in the device: ext4, btrfs and a log (with figure 16)",
        takes: "10 min",
        run: sfs_figure_15::run,
    },
];

/// The figures of a paper, or one of them; all without names. Empty where there is none of that name.
pub fn select(paper: Option<&str>, figure: Option<&str>) -> Vec<&'static Figure> {
    let wanted = |one: &&Figure| {
        paper.is_none_or(|paper| paper.eq_ignore_ascii_case(one.paper))
            && figure.is_none_or(|figure| figure == one.figure)
    };
    FIGURES.iter().filter(wanted).collect()
}
