//! A progress bar for whatever takes over two seconds, on a terminal only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::tell;

/// What takes less long needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Files, segments or steps.
    Things,
}

/// A bar on standard error that appears when the work turns out to be long, and goes away when dropped.
pub struct Progress {
    label: &'static str,
    unit: Unit,
    started: Instant,
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar for work that starts now; `quiet` keeps it away in any case.
    pub fn new(label: &'static str, unit: Unit, quiet: bool) -> Progress {
        Progress { label, unit, started: Instant::now(), wanted: !quiet && std::io::stderr().is_terminal(), bar: None }
    }

    /// Shows that `done` of `total` is done; a total of 0 is unknown.
    pub fn update(&mut self, done: u64, total: u64) {
        if !self.wanted || self.bar.is_none() && self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| new_bar(self.label, self.unit, total));
        if total > 0 {
            bar.set_length(total);
        }
        bar.set_position(done);
    }

    /// Writes a line to standard error without tearing the bar.
    pub fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(line)),
            None => tell(line),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(label: &'static str, unit: Unit, total: u64) -> ProgressBar {
    let template = match (unit, total) {
        (Unit::Bytes, 0) => "{msg} {bytes} {elapsed}",
        (Unit::Bytes, _) => "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        (Unit::Things, 0) => "{msg} {human_pos} {elapsed}",
        (Unit::Things, _) => "{msg} [{wide_bar}] {human_pos}/{human_len} {eta}",
    };
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    // The templates above are fixed; should one be wrong after all, a plain bar does as well.
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(label)
}

/// A turning sign with a message, for work of which nobody knows how much is left; on a terminal only, and gone when it is cleared.
pub fn spinner(doing: &'static str, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(&format!("{{spinner}} {doing} {{msg}} {{elapsed}}"));
    let bar = ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
