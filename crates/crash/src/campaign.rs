//! Many runs on all processors, until one of them finds something.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::explore::{Finding, Tally};

/// What a campaign came to.
#[derive(Debug)]
pub struct Outcome {
    /// What was done.
    pub tally: Tally,
    /// The first violation, with the number of its run.
    pub finding: Option<(u64, Finding)>,
}

/// Runs the numbers of `runs` on all processors, and stops early at the first violation, or once `cuts` power cuts have been made
/// (0: as many as there are runs for).
pub fn campaign(
    label: &'static str,
    runs: std::ops::Range<u64>,
    cuts: u64,
    run: impl Fn(u64, &mut Tally) -> Result<(), Finding> + Sync,
) -> Outcome {
    let bar = bar(label, runs.end - runs.start, cuts);
    let next = AtomicU64::new(runs.start);
    let total = Mutex::new(Tally::default());
    let finding = Mutex::new(None);
    let locked = "no thread panics with this lock";
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let done = total.lock().expect(locked).cuts;
                    if finding.lock().expect(locked).is_some() || cuts > 0 && done >= cuts {
                        return;
                    }
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs.end {
                        return;
                    }
                    let mut tally = Tally::default();
                    let result = run(number, &mut tally);
                    let mut total = total.lock().expect(locked);
                    total.add(&tally);
                    bar.set_position(if cuts > 0 { total.cuts.min(cuts) } else { number - runs.start });
                    bar.set_message(format!("{label}, {} cuts", total.cuts));
                    if let Err(found) = result {
                        finding.lock().expect(locked).get_or_insert((number, found));
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    Outcome { tally: total.into_inner().expect(locked), finding: finding.into_inner().expect(locked) }
}

/// A bar on a terminal; nothing elsewhere.
fn bar(label: &'static str, runs: u64, cuts: u64) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(if cuts > 0 { cuts } else { runs }), target);
    let style = ProgressStyle::with_template("{msg} [{wide_bar}] {human_pos}/{human_len} {eta}");
    // The template is fixed; should it be wrong after all, a plain bar does as well.
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(label)
}
