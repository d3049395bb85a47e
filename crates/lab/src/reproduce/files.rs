//! Running an experiment with its verdict file.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use super::figures::Files;
use super::{Means, Measured, Say, Scale, Step};
use crate::experiment::{Change, Point, Record, ResultsDirectory, run as run_points, with_changes};

/// Results that figures have in common: each point runs once.
#[derive(Debug, Default)]
pub struct Runs {
    done: HashMap<Point, Record>,
}

pub(super) fn run(
    files: &Files,
    scale: &Scale,
    seeds: Range<u64>,
    means: &Means<'_>,
    runs: &mut Runs,
    say: Say<'_>,
) -> Result<Measured, String> {
    let text = with_changes(files.experiment, &changes(files, scale, seeds));
    let temporary;
    let kept = match &means.output {
        Some(path) => path.as_path(),
        None => {
            temporary = tempfile::tempdir().map_err(|error| format!("a directory for results: {error}"))?;
            temporary.path()
        }
    };
    let path = kept.join(files.name);
    let text_of = |error: crate::experiment::DirectoryError| error.to_string();
    let origin = Path::new(files.name).with_extension("toml");
    let mut directory = ResultsDirectory::create_from(&path, &text, Some(files.verdicts), &origin).map_err(text_of)?;
    for point in directory.missing() {
        if let Some(record) = runs.done.get(&point) {
            directory.add(record.clone()).map_err(text_of)?;
        }
    }
    let summary = run_points(&mut directory, means.jobs, means.runner, means.stop, &mut |done, all| {
        say(Step::Points(done as u64, all as u64));
    });
    let summary = summary.map_err(text_of)?;
    if summary.left > 0 {
        return Err(format!("stopped with {} points left", summary.left));
    }
    directory.finish().map_err(text_of)?;
    let mut failed = Vec::new();
    for record in directory.records() {
        match &record.outcome {
            Ok(_) => {
                runs.done.insert(record.point.clone(), record.clone());
            }
            Err(why) => failed.push(format!("{}: {why}", record.point.arguments().join(" "))),
        }
    }
    Ok(Measured { rows: directory.rows(), failed })
}

/// Seeds, and the size unless it is the usual one.
fn changes(files: &Files, scale: &Scale, seeds: Range<u64>) -> Vec<Change> {
    let seeds = Change { name: "seed".to_owned(), values: seeds.map(|seed| seed.to_string()).collect() };
    let size = match (scale.full, scale.small) {
        (true, _) => Some(files.full),
        (false, true) => Some(files.small),
        (false, false) => None,
    };
    let size = size.map(|size| Change { name: "size".to_owned(), values: vec![size.to_owned()] });
    std::iter::once(seeds).chain(size).collect()
}
