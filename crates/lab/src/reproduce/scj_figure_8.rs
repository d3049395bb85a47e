//! SCJ figure 8 (section VI.E): speed, latency of cleaning, checkpoints and metadata of all four workloads; with the journal blocks that
//! a victim costs (section IV).
//!
//! The paper's text gives the range of the gain, 1.13 to 1.63, that it is least for varmail, and a bound on checkpoints; the rest is
//! drawn.

use std::rc::Rc;

use super::scj::{BASELINE, JOURNALED, LOADS, Measured, Runs, SHARED, Setup, on_paper_terms, ratio};
use super::{Expectation, Item, Outcome, Say, Scale, Side, Tolerance};

const LABEL: (&str, &str) = ("scj", "8");
/// Where the text speaks of it.
const PLACE: &str = "section VI.E";
/// The paper's gain: the least of its workloads, and the most.
const GAIN: Expectation = Expectation::Band { low: 1.13, high: 1.63 };
/// Its checkpoints over the baseline's: less than this.
const CHECKPOINTS: f64 = 0.06;
/// Journal blocks that one victim costs, at most.
const JOURNAL_BLOCKS: Expectation = Expectation::AtMost { value: 1.0, tolerance: Tolerance::OfValue(0.0) };
/// The place of varmail among the workloads.
const VARMAIL: usize = 1;

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let mut items = Vec::new();
    let mut gains = JOURNALED.map(|_| Vec::new());
    let mut baselines = Vec::new();
    for (load, (name, specification)) in LOADS.into_iter().enumerate() {
        let baseline = runs.get(scale, &Setup::new(specification, BASELINE), say)?;
        for ((way_name, way), gains) in JOURNALED.into_iter().zip(&mut gains) {
            let run = runs.get(scale, &Setup::new(specification, way), say)?;
            let label = format!("{name}, {way_name}");
            items.extend(compare(&label, load, &baseline, &run, on_paper_terms(way, scale)));
            items.push(by_cleaning(&label, &baseline, &run));
            if way.shared {
                let shared = runs.get(scale, &Setup::new(specification, SHARED), say)?;
                items.push(over_shared(&label, &baseline, &shared, &run));
            } else {
                items.push(journal_blocks(&label, &run));
            }
            gains.push(run.speedup(&baseline));
        }
        baselines.push(baseline);
    }
    items.push(varmail("cleaning's share of the baseline's time", &cleaning_shares(&baselines)));
    for ((way_name, _), gains) in JOURNALED.into_iter().zip(&gains) {
        items.push(varmail(&format!("speed over the baseline's, {way_name}"), gains));
    }
    Ok(items)
}

/// A journalled run against a checkpoint behind each victim.
fn compare(label: &str, load: usize, baseline: &Measured, run: &Measured, on_paper_terms: bool) -> Vec<Item> {
    let item = |what: &str, expectation: Expectation, better, rests_on, ours, why| {
        let claim = expectation.stated(PLACE).better(better).on_paper_terms(on_paper_terms).over(rests_on);
        Item::new(LABEL, format!("{label}: {what} over the baseline's"), claim, ours, why)
    };
    // Without a victim there is no latency that could be lower.
    let seconds = |run: &Measured| if run.cleaning().victims > 0 { run.latency().as_secs_f64() } else { f64::NAN };
    let (less, rests_on) = (Expectation::Below(1.0), baseline.as_baseline(load));
    let counts = [run.checkpoints(), baseline.checkpoints()];
    let fewer = ratio(counts[0] as f64, counts[1] as f64);
    vec![
        item(
            "speed",
            GAIN,
            Side::More,
            rests_on,
            run.speedup(baseline),
            format!("{}; baseline: {}", run.account(), baseline.account()),
        ),
        item(
            "latency of cleaning",
            less,
            Side::Less,
            rests_on,
            ratio(seconds(run), seconds(baseline)),
            format!("ms a victim: {}; baseline: {}", run.phases(), baseline.phases()),
        ),
        item(
            "checkpoints",
            Expectation::Below(CHECKPOINTS),
            Side::Less,
            None,
            fewer,
            format!("{}; baseline {}", counts[0], counts[1]),
        ),
        item(
            "metadata",
            less,
            Side::Less,
            None,
            ratio(run.metadata(), baseline.metadata()),
            format!("blocks for each block of data: {:.3}; baseline {:.3}", run.metadata(), baseline.metadata()),
        ),
    ]
}

/// What of the gain is cleaning's: the rest is what runs beside it, such as nodes that a checkpoint made clean and that are read again.
fn by_cleaning(label: &str, baseline: &Measured, run: &Measured) -> Item {
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    let why = format!(
        "speed in all {:.3}; cleaning {:.2} s instead of {:.2} s of {:.2} s; requests to read {} instead of {}",
        run.speedup(baseline),
        seconds(run.cleaning_time()),
        seconds(baseline.cleaning_time()),
        seconds(baseline.elapsed),
        run.device_reads,
        baseline.device_reads
    );
    let what = format!("{label}: speed over the baseline's, were cleaning all that differs");
    let claim = Expectation::Above(1.0).ours("the journal should gain in cleaning itself");
    Item::new(LABEL, what, claim, run.speedup_by_cleaning(baseline), why)
}

/// What the journal writes for each victim.
fn journal_blocks(label: &str, run: &Measured) -> Item {
    let (blocks, work) = (run.engine.written.journal_blocks, run.engine.cleaning.total());
    let why = format!("{blocks} blocks in {} commits for {} victims: the mean", work.journal_commits, work.victims);
    let ours = if work.journal_commits > 0 { blocks as f64 / work.victims as f64 } else { f64::NAN };
    Item::new(LABEL, format!("{label}: journal blocks for each victim"), JOURNAL_BLOCKS.stated("section IV"), ours, why)
}

/// The share of the phase that each run spent on cleaning in the foreground.
fn cleaning_shares(runs: &[Rc<Measured>]) -> Vec<f64> {
    let share = |run: &Rc<Measured>| run.cleaning_time().as_secs_f64() / run.elapsed.as_secs_f64();
    runs.iter().map(share).collect()
}

/// Of varmail the paper says that it spends the least of its time on cleaning, and so gains least.
fn varmail(what: &str, values: &[f64]) -> Item {
    let others = values.iter().enumerate().filter(|(load, _)| *load != VARMAIL);
    let least = others.map(|(_, value)| *value).fold(f64::NAN, f64::min);
    let list: Vec<_> = LOADS.iter().zip(values).map(|((name, _), value)| format!("{name} {value:.3}")).collect();
    let ours = values.get(VARMAIL).map_or(f64::NAN, |varmail| varmail - least);
    let what = format!("{what}: varmail's less the least of the others'");
    Item::new(LABEL, what, Expectation::Below(0.0).stated(PLACE), ours, list.join(", "))
}

/// What the journal gains where victims share commits with it and without.
fn over_shared(label: &str, baseline: &Measured, shared: &Measured, run: &Measured) -> Item {
    let why = format!(
        "shared checkpoints: {:.3} of the baseline's speed, {}; ms a victim: {}",
        shared.speedup(baseline),
        shared.account(),
        shared.phases()
    );
    let what = format!("{label}: speed over that with shared checkpoints");
    let claim = Expectation::Above(1.0).ours("the journal should gain where victims share checkpoints too");
    Item::new(LABEL, what, claim, run.speedup(shared), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::Verdict;

    #[test]
    fn varmail_is_held_against_the_least_of_the_others() {
        let least = varmail("speed", &[1.4, 1.1, 1.3, 1.2]);
        assert_eq!(least.verdict(), Verdict::Holds);
        assert!(least.ours.is_some_and(|ours| (ours + 0.1).abs() < 1e-9), "{least:?}");
        assert_eq!(least.why, "fileserver 1.400, varmail 1.100, tpcc 1.300, ycsb-a 1.200");
        assert_eq!(varmail("speed", &[1.4, 1.2, 1.3, 1.1]).verdict(), Verdict::Differs);
        assert_eq!(varmail("speed", &[]).ours, None);
    }

    #[test]
    fn journal_blocks_are_counted_for_each_victim() {
        let mut run = Measured::example(10, 1, 3);
        assert_eq!(journal_blocks("x", &run).ours, None);
        run.engine.written.journal_blocks = 30;
        run.engine.cleaning.foreground.journal_commits = 30;
        run.engine.cleaning.foreground.victims = 20;
        run.engine.cleaning.background.victims = 10;
        assert_eq!((journal_blocks("x", &run).ours, journal_blocks("x", &run).verdict()), (Some(1.0), Verdict::Holds));
        run.engine.written.journal_blocks = 31;
        assert_eq!(journal_blocks("x", &run).verdict(), Verdict::Differs);
    }

    #[test]
    fn ratios_of_times_rest_on_the_baselines_checkpoints_and_counts_do_not() {
        let (mut baseline, mut run) = (Measured::example(100, 4, 100), Measured::example(95, 1, 7));
        let work = &mut baseline.engine.cleaning.foreground;
        (work.victims, work.copy, work.commit) =
            (100, std::time::Duration::from_millis(10), std::time::Duration::from_millis(90));
        run.engine.cleaning.foreground.victims = 100;
        let verdicts = |load| compare("x", load, &baseline, &run, true).iter().map(Item::verdict).collect::<Vec<_>>();
        // Nine tenths of the time go into checkpoints, against the paper's 52 %: 1.05 times as fast says nothing.
        let expected = [Verdict::BaselineDiffers, Verdict::Holds, Verdict::Differs, Verdict::Holds];
        assert_eq!(verdicts(0), expected);
    }

    #[test]
    fn what_was_not_cleaned_is_not_measured() {
        let (baseline, run) = (Measured::example(100, 4, 0), Measured::example(100, 4, 0));
        let items = compare("x", 0, &baseline, &run, true);
        assert_eq!([&items[1], &items[2]].map(|item| (item.ours, item.verdict())), [(None, Verdict::Differs); 2]);
        assert_eq!(journal_blocks("x", &run).ours, None);
    }
}
