//! Results of the papers, measured again: each figure that the papers' text gives numbers for.
//!
//! | module | what |
//! |---|---|
//! | `figures` | every figure: an experiment with its verdict file, or a program |
//! | `files` | running an experiment with its verdict file |
//! | `sfs_figure_15` | a figure that is a program: the experiment and what is compared |
//! | `uncovered` | what the papers' text says that no row covers |
//! | `markdown` | the tables of docs/reproduction.md |
//!
//! All but that one are files: `experiments/*-figure-*.toml` and the verdict files beside them, which are part of the program. `basalt lab
//! run` runs the same files.

mod figures;
mod files;
mod markdown;
mod sfs_figure_15;
mod uncovered;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

pub use figures::{FIGURES, Figure, select};
pub use files::Runs;
pub use markdown::{markdown, markdown_uncovered};
pub use uncovered::{UNCOVERED, Uncovered, uncovered};

use crate::experiment::Runner;
use crate::verdicts::{Item, Row};

/// How large and with which seeds experiments run.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The paper's own size instead of the usual fraction of it, five times the usual where a paper gives none: hours instead of minutes.
    pub full: bool,
    /// A fraction of the usual size, for a first look: seconds instead of minutes. Not with `full`. SFS figure 15 has none.
    pub small: bool,
    /// Seed of every random choice.
    pub seed: u64,
}

/// What is said while a figure is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// What a program begins to do.
    Begins(&'a str),
    /// How many of how many points of an experiment are done.
    Points(u64, u64),
}

/// Hears what is done.
pub type Say<'a> = &'a mut dyn FnMut(Step<'_>);
/// Hears what a program begins to do.
type Tell<'a> = &'a mut dyn FnMut(&str);

/// Why there is no outcome of a program that had to stop.
const STOPPED: &str = "stopped";

/// What a program gives with one seed: its items, or why it could not be run.
type Outcome = Result<Vec<Item>, String>;

/// By what the points of experiments are run.
pub struct Means<'a> {
    /// Runs one point.
    pub runner: &'a dyn Runner,
    /// So many at a time.
    pub jobs: usize,
    /// Where each experiment's results are kept, in a directory of its own, and looked for; if not, they are gone with the run.
    pub output: Option<PathBuf>,
    /// Becomes true when everything has to stop.
    pub stop: &'a AtomicBool,
}

/// What came of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Its rows.
    pub rows: Vec<Row>,
    /// The points of its experiment that failed, with the reason: rows that need them were not measured.
    pub failed: Vec<String>,
}

impl Figure {
    /// Paper and figure, as headings name them.
    pub fn label(&self) -> String {
        format!("{} figure {}", self.paper.to_uppercase(), self.figure)
    }

    /// Runs the experiment with each of these seeds, and gives its rows; `say` hears what is done. What other figures have run already
    /// is taken from `runs`. The seed of `scale` is not used.
    ///
    /// # Errors
    /// When the experiment cannot be run with one of the seeds.
    pub fn run(
        &self,
        scale: &Scale,
        seeds: Range<u64>,
        means: &Means<'_>,
        runs: &mut Runs,
        say: Say<'_>,
    ) -> Result<Measured, String> {
        match self.way {
            figures::Way::Files(files) => files::run(&files, scale, seeds, means, runs, say),
            figures::Way::Program(program) => {
                with_seeds(program, scale, seeds, means.stop, say).map(|rows| Measured { rows, failed: Vec::new() })
            }
        }
    }
}

/// Runs a program with each seed and merges what it gives.
fn with_seeds(
    program: figures::Program,
    scale: &Scale,
    seeds: Range<u64>,
    stop: &AtomicBool,
    say: Say<'_>,
) -> Result<Vec<Row>, String> {
    let several = seeds.end.saturating_sub(seeds.start) > 1;
    let mut measured = Vec::new();
    for seed in seeds {
        let scale = Scale { seed, ..*scale };
        let mut tell = |step: &str| match several {
            true => say(Step::Begins(&format!("seed {seed}: {step}"))),
            false => say(Step::Begins(step)),
        };
        measured.push((seed, program(&scale, stop, &mut tell)?));
    }
    Ok(Row::merge(measured))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::verdicts::Expectation;

    /// Half its seed.
    fn program(scale: &Scale, stop: &AtomicBool, tell: Tell<'_>) -> Outcome {
        tell("a step");
        if stop.load(Ordering::Relaxed) {
            return Err(STOPPED.to_owned());
        }
        let claim = Expectation::Above(3.0).derived("a test");
        Ok(vec![Item::new(("sfs", "15"), "half the seed", claim, scale.seed as f64 / 2.0, "a test")])
    }

    #[test]
    fn a_program_runs_with_each_seed_and_stops_when_it_is_told_to() {
        let scale = Scale { full: false, small: true, seed: 0 };
        let run = |seeds, is_stopped| {
            let mut told = Vec::new();
            let mut say = |step: Step<'_>| match step {
                Step::Begins(step) => told.push(step.to_owned()),
                Step::Points(..) => panic!("a program has no points"),
            };
            let rows = with_seeds(program, &scale, seeds, &AtomicBool::new(is_stopped), &mut say);
            (rows, told)
        };
        let (rows, told) = run(7..9, false);
        assert_eq!(told, ["seed 7: a step", "seed 8: a step"]);
        let rows = rows.unwrap();
        assert_eq!((rows.len(), rows[0].ours_text().as_str()), (1, "3.75"));
        assert_eq!(run(7..8, false).1, ["a step"]);
        assert_eq!(run(7..9, true), (Err("stopped".to_owned()), vec!["seed 7: a step".to_owned()]));
    }
}
