//! SCJ figure 7 (section VI.D): the latency of each cleaning, with a checkpoint behind it and with a journal block.
//!
//! The paper draws the series and says that one lies below the other; by figure 1 what is saved is the checkpoint, about half.

use std::time::Duration;

use super::scj::{
    BASELINE, Cleaning, FILESERVER, GAIN_TOLERANCE, JOURNALED, Measured, Runs, SHARED, SHARES, Setup, on_paper_terms,
    ratio,
};
use super::{Expectation, Item, Outcome, Say, Scale, Side};

const LABEL: (&str, &str) = ("scj", "7");
/// Parts of the measured phase whose means show how the series runs.
const PARTS: usize = 8;

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let baseline = runs.get(scale, &Setup::new(FILESERVER, BASELINE), say)?;
    let shared = runs.get(scale, &Setup::new(FILESERVER, SHARED), say)?;
    let mut items = Vec::new();
    for (name, way) in JOURNALED {
        let run = runs.get(scale, &Setup::new(FILESERVER, way), say)?;
        items.extend(compare(name, &baseline, &run, on_paper_terms(way, scale)));
        if way.shared {
            let what = format!("fileserver, mean latency of cleaning over that with shared checkpoints, {name}");
            let ours = ratio(run.latency().as_secs_f64(), shared.latency().as_secs_f64());
            let why = format!("with shared checkpoints, ms a victim: {}", series(&shared.cleanings));
            let claim = Expectation::Below(1.0).ours("the journal should gain where victims share checkpoints too");
            items.push(Item::new(LABEL, what, claim, ours, why));
        }
    }
    Ok(items)
}

/// A journalled series against the baseline's.
fn compare(name: &str, baseline: &Measured, run: &Measured, on_paper_terms: bool) -> Vec<Item> {
    let what = |what: &str| format!("fileserver, {what}, {name}");
    let mean = what("mean latency of cleaning over the baseline's");
    let share = what("share of cleanings below the baseline's mean");
    let half = Expectation::Near { value: 1.0 - SHARES[0], tolerance: GAIN_TOLERANCE }
        .derived("1 less the checkpoint's share of 52 % (section III)")
        .better(Side::Less)
        .on_paper_terms(on_paper_terms)
        .over(baseline.as_baseline(0));
    let most = Expectation::Above(0.5).derived("section VI.D: the latency is lower; we ask it of more than half");
    if baseline.cleanings.is_empty() || run.cleanings.is_empty() {
        let why = "nothing was cleaned in the measured phase";
        return vec![Item::missing(LABEL, mean, half, why), Item::missing(LABEL, share, most, why)];
    }
    let usual = baseline.latency();
    let below = run.cleanings.iter().filter(|cleaning| cleaning.each() < usual).count();
    let below = below as f64 / run.cleanings.len() as f64;
    let left = ratio(run.latency().as_secs_f64(), usual.as_secs_f64());
    let why = format!("ms a victim; baseline: {}; journal: {}", series(&baseline.cleanings), series(&run.cleanings));
    vec![Item::new(LABEL, mean, half, left, why), Item::new(LABEL, share, most, below, "of the same runs")]
}

/// A series in a few numbers: the means of its parts, and the highest.
fn series(cleanings: &[Cleaning]) -> String {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let length = cleanings.len().div_ceil(PARTS).max(1);
    let means = cleanings.chunks(length).map(|part| {
        let each = part.iter().map(|cleaning| milliseconds(cleaning.each())).sum::<f64>();
        format!("{:.2}", each / part.len() as f64)
    });
    let highest = cleanings.iter().map(|cleaning| milliseconds(cleaning.each())).fold(0.0, f64::max);
    format!("{} (highest {highest:.2})", means.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_told_by_its_parts() {
        let cleaning = |victims, milliseconds| Cleaning {
            victims,
            took: Duration::from_millis(milliseconds),
            ..Cleaning::default()
        };
        assert_eq!(series(&[cleaning(2, 10), cleaning(1, 7)]), "5.00 7.00 (highest 7.00)");
        let long: Vec<_> = (1..=16).map(|time| cleaning(1, time)).collect();
        assert_eq!(series(&long), "1.50 3.50 5.50 7.50 9.50 11.50 13.50 15.50 (highest 16.00)");
        assert_eq!(series(&[]), " (highest 0.00)");
    }
}
