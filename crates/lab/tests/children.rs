//! Points in processes of their own, with scripts in place of the program.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use basalt_lab::experiment::{Children, Kind, Point, Record, Runner};

/// What the script of this name in `programs` makes of a point with this seed.
fn answer(program: &str, seed: &str) -> Record {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(program);
    let point = Point::new(Kind::Volume, [("seed", seed)]).unwrap();
    let stop = AtomicBool::new(false);
    let record = Children { program, limit: Duration::from_secs(600), stop: &stop }.run(&point).unwrap();
    assert_eq!(record.point, point);
    record
}

#[test]
fn the_result_of_another_point_is_none() {
    assert_eq!(answer("answers-for-seed-99", "99").metric("write_amplification"), Some(1.5));
    let why = answer("answers-for-seed-99", "98").outcome.unwrap_err();
    assert_eq!(why, "ended without a result: exit status: 0");
}

#[test]
fn the_last_line_tells_why_there_is_none() {
    let why = answer("complains", "1").outcome.unwrap_err();
    assert_eq!(why, "ended without a result: exit status: 3: the reason");
}
