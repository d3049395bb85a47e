//! The figures of the page-cache paper, in a quarter of their size: their rows, and the runs behind them.

use std::sync::atomic::AtomicBool;

use basalt_lab::experiment::{InProcess, Kind, Point, Record, Runner};
use basalt_lab::reproduce::{Means, Measured, Runs, Scale, select};
use basalt_lab::verdicts::{Row, Verdict};

/// The rows of a figure. None of its points fails, and each row is measured.
fn rows(figure: &str) -> Vec<Row> {
    let figures = select(Some("page-cache"), Some(figure));
    let stop = AtomicBool::new(false);
    let means = Means { runner: &InProcess, jobs: 2, output: None, stop: &stop };
    let scale = Scale { full: false, small: true, seed: 1 };
    let measured = figures[0].run(&scale, 1..2, &means, &mut Runs::default(), &mut |_| ());
    let Measured { rows, failed } = measured.unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    for row in &rows {
        assert!(row.ours.is_some(), "{row:?}");
        // The paper does not say how large its volume is, so nothing is measured on its terms.
        assert!(!row.on_paper_terms && row.verdict != Verdict::Bettered, "{row:?}");
    }
    rows
}

/// Our number of the rows whose name begins so.
fn ours<'a>(rows: &'a [Row], begin: &'a str) -> impl Iterator<Item = f64> + 'a {
    let found = rows.iter().filter(move |row| row.item.starts_with(begin));
    found.filter_map(|row| row.ours)
}

#[test]
fn copies_fall_where_cold_data_lies_apart() {
    let rows = rows("2");
    let mut largest = Vec::new();
    for load in ["fileserver", "mobile"] {
        let of_all = ours(&rows, &format!("{load}: copies of F2FS over")).next().unwrap();
        let begin = format!("{load}: copies of F2FS with");
        let each: Vec<_> = ours(&rows, &begin).collect();
        assert_eq!(each.len(), 6, "three numbers of logs, and ours with two");
        assert!((each.iter().copied().fold(0.0, f64::max) / of_all - 1.0).abs() < 1e-9, "{each:?} {of_all}");
        largest.push(of_all);
    }
    assert!(largest[0] > 1.5 * largest[1] && largest[1] > 1.0, "{largest:?}");
    let without = ours(&rows, "fileserver without cold data").next().unwrap();
    assert!(without > 1.0 / largest[1], "{without}");
    // What is expected of blocks shrinks with the size, what is expected of ratios does not.
    let expected = |item: &str| rows.iter().find(|row| row.item == item).unwrap().paper_value;
    assert!((expected("fileserver: blocks copied, F2FS, 4 logs") - 279_000.0 / 4.0).abs() < 1e-6);
    assert!((expected("mobile: blocks copied for each block written, F2FS, 4 logs") - 1.44).abs() < 1e-9);
}

#[test]
fn the_gap_in_cleanings_grows_with_the_runs() {
    let rows = rows("3");
    let shares: Vec<_> = rows.iter().filter(|row| row.item.contains(": share of the runs")).collect();
    assert_eq!(shares.len(), 4);
    assert!(shares.iter().all(|row| (0.0..=1.0).contains(&row.ours.unwrap())), "{shares:?}");
    let growth: Vec<_> = ours(&rows, "fileserver: by how much the gap").collect();
    assert!(growth.len() == 2 && growth.iter().all(|growth| *growth > 0.0), "{growth:?}");
}

fn point(values: &[&str]) -> Record {
    InProcess.run(&Point::parse(Kind::Volume, values).unwrap()).unwrap()
}

/// A load that is stopped is the beginning of one that is not, on the same volume.
#[test]
fn a_share_of_a_load_is_its_beginning() {
    let until = |share: &str| point(&["files=server:segments=60%,runs=4", "size=64M", "logs=4", share]);
    let number = |record: &Record, name: &str| record.metric(name).unwrap();
    let parts = ["until=25", "until=50", "until=99", "until=100"].map(until);
    for name in ["writes", "copies", "victims"] {
        let numbers = parts.each_ref().map(|part| number(part, name));
        assert!(numbers.is_sorted() && numbers[0] < numbers[3], "{name}: {numbers:?}");
    }
    // The first of four runs is the whole of one; the volume has 19 segments in both.
    let first = point(&["files=server:segments=60%,runs=1", "size=64M", "logs=4"]);
    for name in ["writes", "copies", "victims", "removed_in_memory"] {
        assert_eq!(number(&first, name), number(&parts[0], name), "{name}");
    }
    // Half of what a workload writes behind its ageing, and not of its ageing.
    let workload = |share: &str| point(&["files=mobile", "size=64M", "warm-up=3000", "writes=20000", share]);
    let [half, whole] = ["until=50", "until=100"].map(workload);
    let share = number(&half, "writes") / number(&whole, "writes");
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn only_files_can_be_stopped() {
    let error = point(&["until=50", "size=64M"]).outcome.unwrap_err();
    assert_eq!(error, "until is for files: a stream has `writes`");
    assert!(Point::parse(Kind::Volume, &["until=0"]).is_err());
}
