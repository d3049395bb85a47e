//! What stands around a simulated volume: a page cache in front, a device below.

use std::sync::Arc;

use basalt_device::RequestKind;
use basalt_flash::device::DeviceModel;
use basalt_lab::experiment::{InProcess, Kind, Point, Record, Runner};
use basalt_lab::trace_load::TraceLoad;
use basalt_lab::volume::{Around, Lengths, Placing, Priced, Ran, Setup, Source, defaults, run_around};
use basalt_simulator::Age;
use basalt_traces::TraceRequest;

/// 1 µs a block in streams, 9 µs more to begin one; reads 2 µs a block and 18 µs more; a flush 100 µs.
const ROUND: &str = r#"
    name = "round"
    description = "d"
    source = "made up"
    kind = "ssd"
    flush_us = 100
    [read]
    streams = 4
    sequential = { points = [[4096, 2048]] }
    random = { latency_us = 18, points = [[4096, 2048]] }
    [write]
    streams = 4
    sequential = { points = [[4096, 4096]] }
    random = { latency_us = 9, points = [[4096, 4096]] }
"#;

fn device(request_bytes: u64) -> Priced {
    Priced::new(Arc::new(DeviceModel::parse(ROUND, "round").unwrap()), request_bytes)
}

fn run(stream: &str, measured: u64, around: Around) -> Ran {
    let setup = Setup {
        size: 128 << 20,
        utilization: 75,
        segments_per_section: 1,
        logs: 6,
        policy: &basalt_segments::Greedy,
        placement: Placing::default(),
        cleaning: defaults::CLEANING.to_owned(),
        age: Age::Modified,
    };
    let options = setup.options().unwrap();
    let mut source = Source::stream(stream, options.blocks, 1).unwrap();
    let lengths = Lengths { warm_up: 3 * u64::from(options.blocks), measured };
    run_around(options, setup.placement, &mut source, lengths, around, &mut |_, _| ()).unwrap()
}

#[test]
fn what_is_overwritten_in_order_costs_its_writing() {
    // The segments die whole. 48 of 64 are in use, and each time that fewer than four are free, a checkpoint frees what died.
    let ran = run("sequential", 512 * 48, Around::new(None, Some(device(1 << 20))));
    let cost = ran.device.unwrap();
    assert_eq!((ran.statistics.copies, cost.reads, cost.written_blocks), (0, 0, 512 * 48));
    assert_eq!(cost.writes, 2 * 48);
    assert_eq!(cost.flushes, ran.statistics.checkpoints);
    assert_eq!(cost.flush_ns, cost.flushes * 100_000);
    // 1 µs a block, and 9 where the next segment is not behind the last: at most each time.
    let begun = cost.write_ns - 512 * 48 * 1000;
    assert!(begun.is_multiple_of(9000) && begun <= 48 * 9000, "{cost:?}");
    let all = (cost.write_ns + cost.flush_ns) as f64 / (512.0 * 48.0 * 1000.0);
    assert!((cost.write_cost(ran.statistics.user_blocks).unwrap() - all).abs() < 1e-9);
}

#[test]
fn a_device_sees_every_block_and_changes_none() {
    for stream in ["uniform", "zipf:0.99"] {
        let without = run(stream, 50_000, Around::default());
        let with = run(stream, 50_000, Around::new(None, Some(device(1 << 20))));
        assert_eq!(with.statistics, without.statistics);
        assert!(without.device.is_none());
        let (cost, statistics) = (with.device.unwrap(), with.statistics);
        assert!(statistics.copies > 10_000, "{statistics:?}");
        assert_eq!(cost.written_blocks, statistics.user_blocks + statistics.copies);
        assert_eq!(cost.read_blocks, statistics.copies);
        assert_eq!(cost.flushes, statistics.checkpoints);
        // Runs of live blocks: more than one block each, and fewer reads than blocks.
        assert!(cost.reads < cost.read_blocks && cost.reads * 16 > cost.read_blocks, "{cost:?}");
        // Each read begins a stream or follows one: 2 µs a block, 18 µs for most.
        let begun = cost.read_ns - cost.read_blocks * 2000;
        assert!(begun.is_multiple_of(18_000) && begun / 18_000 <= cost.reads, "{cost:?}");
        // Small requests cost more of them, and nothing else where the device follows all logs.
        let small = run(stream, 50_000, Around::new(None, Some(device(4096)))).device.unwrap();
        assert_eq!((small.writes, small.written_blocks), (cost.written_blocks, cost.written_blocks));
        assert!(small.writes > 100 * cost.writes);
    }
}

#[test]
fn a_page_cache_absorbs_writes_to_dirty_blocks() {
    // Three dirty blocks at most: of 1 1 2 1 5 1, two writes find theirs dirty, three blocks are written, and one stays behind.
    let requests = [1, 1, 2, 1, 5, 1].map(|block: u64| {
        Ok(TraceRequest { time_ns: 0, kind: RequestKind::Write, offset: block * 4096, length: 4096 })
    });
    let load = TraceLoad::read(requests.into_iter()).unwrap();
    let setup = Setup {
        size: 64 << 20,
        utilization: 50,
        segments_per_section: 1,
        logs: 6,
        policy: &basalt_segments::Greedy,
        placement: Placing::default(),
        cleaning: defaults::CLEANING.to_owned(),
        age: Age::Modified,
    };
    let mut options = setup.options().unwrap();
    options.blocks = load.blocks();
    let lengths = Lengths { warm_up: 0, measured: 6 };
    let around = Around::new(Some(3 * 4096), Some(device(1 << 20)));
    let ran =
        run_around(options, Placing::default(), &mut Source::Trace(&load), lengths, around, &mut |_, _| ()).unwrap();
    assert_eq!((ran.absorbed, ran.statistics.user_writes), (2, 3));
    let cost = ran.device.unwrap();
    // They lie one behind the other in the log, and go on behind the first fill.
    assert_eq!((cost.writes, cost.written_blocks, cost.write_ns), (1, 3, 3000));
}

#[test]
fn the_oracle_is_told_what_comes_behind_the_cache() {
    let point = |more: &[&str]| {
        let all = ["placement=oracle", "size=128M", "utilization=75", "writes=60000", "warm-up=60000"];
        measured(&[&all[..], more].concat())
    };
    let (plain, cached) = (point(&[]), point(&["page-cache=4M"]));
    let amplification = |record: &Record| record.metric("write_amplification").unwrap();
    assert!(cached.metric("page_cache_absorbed").unwrap() > 1000.0);
    // Told of another order, it would do worse than one that knows nothing.
    assert!(amplification(&cached) < amplification(&plain) * 1.5, "{cached:?} {plain:?}");
}

fn measured(parameters: &[&str]) -> Record {
    let record = InProcess.run(&Point::parse(Kind::Volume, parameters).unwrap()).unwrap();
    assert!(record.outcome.is_ok(), "{record:?}");
    record
}

#[test]
fn points_have_both() {
    let base = ["size=128M", "utilization=75", "writes=60000", "warm-up=60000", "device=nvme"];
    let (plain, timed) = (measured(&base), measured(&[&base[..], &["request=512K"]].concat()));
    let only = ["device_seconds", "device_write_cost", "device_writes", "device_reads"];
    assert!(only.iter().all(|name| plain.metric(name).is_none() && timed.metric(name).is_some()), "{timed:?}");
    for name in ["write_amplification", "write_cost", "copies", "victims", "memory_bytes"] {
        assert_eq!(plain.metric(name), timed.metric(name), "{name}");
    }
    // Both ways to count say that cleaning costs something, on a device of whatever bandwidths.
    assert!(timed.metric("device_write_cost").unwrap() > 1.0 && timed.metric("write_cost").unwrap() > 1.0);
    assert_eq!(plain.metric("page_cache_absorbed"), None);
    let cached = measured(&[&base[..], &["page-cache=1M"]].concat());
    let sum = cached.metric("page_cache_absorbed").unwrap() + cached.metric("writes").unwrap();
    // What is dirty before and behind the measured writes is no more than the cache.
    assert!((sum - 60_000.0).abs() <= 256.0, "{cached:?}");
}
