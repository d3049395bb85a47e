//! The set-up in which separation by the page cache does what its paper says: `server`, whose cold data lies between its files.
//!
//! The numbers to meet are those of another simulator of the same set-up, of 2,000 files of 128 KiB, 60,000 pages between them that nobody
//! touches again, and ten runs. It does not say how large its volume is. With 227 segments the copies of all four agree at once.

use basalt_lab::experiment::{InProcess, Kind, Point, Runner};
use basalt_lab::volume::{AroundFiles, FileLengths, FileLoad, MemoryStatistics, Placing, Setup, defaults, run_files};
use basalt_segments::placement::Moved;
use basalt_segments::{Greedy, Touches};
use basalt_simulator::{Age, Statistics};

/// The paper to the letter, and with what is moved apart.
const L: (u8, Placing) = (4, Placing::ByPageCache(Moved::ByList));
const M: (u8, Placing) = (6, Placing::ByPageCache(Moved::Cold));
const BY_RUN: (u8, Placing) = (6, Placing::RunLength(Moved::Cold));

fn run(load: &str, placing: (u8, Placing), touches: Touches, seed: u64) -> (Statistics, MemoryStatistics) {
    let (logs, placement) = placing;
    let setup = Setup {
        size: 0,
        utilization: 85,
        segments_per_section: 1,
        logs,
        policy: &Greedy,
        placement,
        cleaning: defaults::CLEANING.to_owned(),
        age: Age::Modified,
    };
    let lengths = FileLengths::usual(seed);
    let around = AroundFiles::new(None, touches, None);
    let load = FileLoad::parse(load, 1 << 30).unwrap();
    let (ran, memory) = run_files(&setup, &load, &lengths, around, &mut |_, _| ()).unwrap();
    (ran.statistics, memory)
}

/// F2FS with one log for all files and what is moved.
fn f2() -> (u8, Placing) {
    (4, Placing::default())
}

/// F2FS with another log for what is moved.
fn f6() -> (u8, Placing) {
    (6, Placing::default())
}

/// Copies of F2, F6, L and M, and F2's sections cleaned over L's.
fn copies(load: &str, touches: Touches, seed: u64) -> ([f64; 4], f64) {
    let each = [f2(), f6(), L, M].map(|placing| run(load, placing, touches_for(placing, touches), seed).0);
    println!(
        "{load} {touches:?} seed {seed}: copies {:?}, cleaned {:?}, write amplification {:.3?}",
        each.map(|statistics| statistics.copies),
        each.map(|statistics| statistics.victims),
        each.map(|statistics| statistics.write_amplification())
    );
    (each.map(|statistics| statistics.copies as f64), each[0].victims as f64 / each[2].victims as f64)
}

fn touches_for((_, placing): (u8, Placing), touches: Touches) -> Touches {
    if matches!(placing, Placing::ByPageCache(_)) { touches } else { Touches::default() }
}

/// A quarter of it, in four runs.
const QUARTER: &str = "server:files=500,cold=15000,loops=1000,rate=15,runs=4,segments=57";

#[test]
fn cold_data_between_files_lies_apart_from_its_first_write() {
    let ([mixed, moved_apart, lists, three], cleanings) = copies(QUARTER, Touches::Each, 1);
    assert!(mixed > 1.1 * moved_apart && moved_apart > 1.5 * lists, "{mixed} {moved_apart} {lists}");
    assert!(mixed > 3.0 * lists && cleanings > 2.0, "{mixed} of {lists}, {cleanings}");
    assert!((three / lists - 1.0).abs() < 0.5, "{three} {lists}");
    // Pages are in memory for half a minute, so that every second one that reaches the volume was touched again.
    let (statistics, memory) = run(QUARTER, M, Touches::Each, 1);
    assert_eq!(statistics.user_blocks, memory.written);
    let share = memory.active_share().unwrap();
    assert!((0.4..0.7).contains(&share), "{share}");
    assert!(memory.died > memory.written, "{memory:?}");
}

#[test]
fn where_only_reads_are_touches_little_of_it_is_left() {
    let ([mixed, _, lists, _], _) = copies(QUARTER, Touches::Reads, 1);
    let ([_, _, each, _], _) = copies(QUARTER, Touches::Each, 1);
    assert!(lists > 1.5 * each && lists < mixed, "{mixed} {lists} {each}");
}

#[test]
fn without_cold_data_the_lists_gain_nothing() {
    let load = "server:files=500,cold=0,loops=1000,rate=15,runs=4";
    let ([mixed, _, lists, _], _) = copies(load, Touches::Each, 1);
    assert!(mixed > 1000.0 && lists > 0.9 * mixed, "{mixed} {lists}");
}

#[test]
#[ignore = "a minute"]
fn copies_in_ten_runs_are_those_of_the_other_simulator() {
    const EXPECTED: [f64; 4] = [279e3, 179e3, 46e3, 50e3];
    let ([mixed, moved_apart, lists, three], _) = copies("server:segments=227", Touches::Each, 1);
    for (ours, expected) in [mixed, moved_apart, lists, three].into_iter().zip(EXPECTED) {
        assert!((ours / expected - 1.0).abs() < 0.12, "{ours} of {expected}");
    }
}

#[test]
#[ignore = "minutes, to look at"]
fn numbers() {
    for seed in [1, 2, 3] {
        copies("server:segments=227", Touches::Each, seed);
    }
    copies("server:segments=227", Touches::Reads, 1);
    copies("server:segments=227,pick=rotation", Touches::Each, 1);
    copies("server:cold=0", Touches::Each, 1);
    for touches in Touches::ALL {
        copies("mobile", touches, 1);
    }
    println!("mobile by run {:?}", run("mobile", BY_RUN, Touches::Each, 1).0.copies);
    for more in [&["logs=4"][..], &["logs=6"], &["logs=4", "placement=page-cache", "moved=list"]] {
        let base = ["stream=zipf:0.99", "size=1G", "utilization=85", "page-cache=128M"];
        let record = InProcess.run(&Point::parse(Kind::Volume, &[&base[..], more].concat()).unwrap()).unwrap();
        println!("zipf:0.99 behind 128 MiB, {more:?}: {:?}", record.metric("write_amplification"));
    }
}
