//! Results of the papers, measured again: each figure that the papers' text gives numbers for.
//!
//! | module | what |
//! |---|---|
//! | `item` | a number of a paper, ours, and the verdict |
//! | `sfs_figure_1`, … | one module a figure: the experiment, and what is compared |
//! | `markdown` | the tables of docs/reproduction.md |

mod item;
mod markdown;
mod page_cache;
mod scj_figure_1;
mod sfs_figure_1;
mod sfs_figure_15;
mod sfs_figure_9;

pub use item::{Expectation, Item, Verdict, number};
pub use markdown::markdown;

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
    /// The experiment.
    run: fn(&Scale, Say<'_>) -> Outcome,
}

impl Figure {
    /// Paper and figure, as headings name them.
    pub fn label(&self) -> String {
        format!("{} figure {}", self.paper.to_uppercase(), self.figure)
    }

    /// Runs the experiment; `say` hears what is done.
    pub fn run(&self, scale: &Scale, say: Say<'_>) -> Outcome {
        (self.run)(scale, say)
    }
}

/// Every figure that can be measured, in the order of the papers.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: "scj",
        figure: "1",
        title: "the share of each phase in the time of segment cleaning (section III)",
        run: scj_figure_1::run,
    },
    Figure {
        paper: "sfs",
        figure: "1",
        title: "random writes catch up with sequential ones when requests are large (with table 1)",
        run: sfs_figure_1::run,
    },
    Figure {
        paper: "sfs",
        figure: "9",
        title: "write cost over utilization, the baseline LFS-CB (with figures 7a and 11a)",
        run: sfs_figure_9::run,
    },
    Figure {
        paper: "sfs",
        figure: "15",
        title: "write amplification and erases in the device: ext4, btrfs and a log (with figure 16)",
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
