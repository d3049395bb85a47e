//! Results of the papers, measured again: each figure that the papers' text gives numbers for.
//!
//! | module | what |
//! |---|---|
//! | `item` | a number of a paper, ours, and the verdict |
//! | `sfs_figure_1`, … | one module a figure: the experiment, and what is compared |
//! | `scj` | what the SCJ paper's figures share: volume, workloads, ways of committing, and runs made once for all |
//! | `markdown` | the tables of docs/reproduction.md |

mod item;
mod markdown;
mod page_cache;
mod scj;
mod scj_figure_1;
mod scj_figure_10;
mod scj_figure_11;
mod scj_figure_4;
mod scj_figure_6;
mod scj_figure_7;
mod scj_figure_8;
mod scj_figure_9;
mod sfs_figure_1;
mod sfs_figure_15;
mod sfs_figure_9;

pub use item::{Expectation, Item, Verdict, number};
pub use markdown::markdown;
pub use scj::Runs;

/// How large and with which seed experiments run.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The paper's own size instead of the usual fraction of it: hours instead of minutes.
    pub full: bool,
    /// Seed of every random choice.
    pub seed: u64,
}

/// What an experiment says while it runs: the step it begins.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// What a figure's experiment gives: its items, or why it could not be run.
pub type Outcome = Result<Vec<Item>, String>;

/// A figure or table of a paper that is measured again.
pub struct Figure {
    /// The paper's short name.
    pub paper: &'static str,
    /// The figure's name in the paper: `1`, `9`, …
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// About how long the experiment takes, when none of its runs is made yet and full size is not asked for.
    pub takes: &'static str,
    /// The experiment.
    run: fn(&Scale, &mut Runs, Say<'_>) -> Outcome,
}

impl Figure {
    /// Paper and figure, as headings name them.
    pub fn label(&self) -> String {
        format!("{} figure {}", self.paper.to_uppercase(), self.figure)
    }

    /// Runs the experiment; `say` hears what is done. What other figures have run already is taken from `runs`.
    pub fn run(&self, scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
        (self.run)(scale, runs, say)
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
        figure: "1",
        title: "random writes catch up with sequential ones when requests are large (with table 1)",
        takes: "1 s",
        run: sfs_figure_1::run,
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
