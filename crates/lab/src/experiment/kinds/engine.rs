//! Points of the kind `engine`: a workload on the F2FS engine on a simulated device.

mod watch;

use std::time::Duration;

use basalt_f2fs::{Deltas, Reclaim, VictimReads};
use basalt_flash::device::presets;
use basalt_flash::ftl::TranslationKind;
use basalt_segments::Touches;
use basalt_segments::cleaning::KeepFree;
use basalt_segments::slack::FlashPage;
use basalt_workloads::{Kind as Operation, Limit, PageCacheSettings, Settings};

use super::{ANY_NUMBER, ANY_SHARE, ANY_SIZE, SEGMENT, parameter};
use crate::engine::{EngineRun, EngineSettings, run as run_engine, run_watched};
use crate::experiment::parameter::{Form, Measured, Metric, Parameter};
use crate::experiment::point::Point;
use crate::size;
use watch::Watched;

/// From a second on.
const SECONDS: Form = Form::Number { least: 1, largest: 1 << 32 };

/// The largest volume.
const LARGEST: u64 = 16 << 40;

/// Bits of the hash of operations that a metric holds.
const HASH_BITS: u64 = (1 << 48) - 1;

/// What can be asked for.
pub const PARAMETERS: &[Parameter] = &[
    parameter(
        "workload",
        "zipf:0.99",
        Form::Text,
        "workload with its options, as `basalt lab workloads` lists them, or the path of a job file",
    ),
    parameter("device", "ssd-m", Form::Device, "preset of `basalt lab devices`, or the path of a device's TOML file"),
    parameter(
        "write-gap",
        "",
        Form::Number { least: 0, largest: 1 << 20 },
        "how much longer a write takes the device that begins a stream than one that goes on with it, in blocks of 4 KiB at the speed of large \
         writes [default: as the device's table has it]",
    ),
    parameter(
        "flash-page",
        "",
        Form::Size { least: 512 },
        "size of the device's flash pages, a power of two [default: as the device's file has it]",
    ),
    parameter(
        "align-slack",
        "on",
        Form::Choice(&["on", "off"]),
        "of dead blocks, only those of flash pages are written again of which no block is needed",
    ),
    parameter("size", "1G", Form::Size { least: 64 << 20 }, "size of the volume"),
    parameter("utilization", "85", Form::Percent { least: 1, largest: 99 }, "how full the volume is, in percent"),
    parameter("section", "2M", Form::Size { least: SEGMENT }, "size of a section, the unit of cleaning"),
    parameter(
        "overprovision",
        "",
        Form::Percent { least: 1, largest: 90 },
        "share of the volume reserved for cleaning, in percent [default: as mkfs chooses]",
    ),
    parameter("logs", "6", Form::Choice(&["2", "4", "6"]), "active logs"),
    parameter("placement", "static", Form::Placement, "which log each block is written to"),
    parameter(
        "groups",
        "",
        Form::Number { least: 1, largest: 8 },
        "groups of data, for placements that leave that open",
    ),
    parameter(
        "touches",
        "each",
        Form::Choice(Touches::NAMES),
        "what touches a page for placement `page-cache`: each write and read, those of a page in a row once, or reads only",
    ),
    parameter("victim", "greedy", Form::Victim, "which section is cleaned while a writer waits"),
    parameter("background-victim", "cost-benefit", Form::Victim, "which section is cleaned while the volume is idle"),
    parameter("cache", "64M", Form::Share { least: 1 << 20 }, "memory for cached data and data not yet written"),
    parameter(
        "page-cache",
        "0",
        ANY_SHARE,
        "memory for pages of files in front of the engine, a fifth of it dirty at most, as a kernel has it; 0: none",
    ),
    parameter("background", "on", Form::Choice(&["on", "off"]), "clean while the volume is idle"),
    parameter("journal", "0", ANY_SIZE, "size of the cleaning journal; 0: the volume has none"),
    parameter(
        "journal-use",
        "on",
        Form::Choice(&["on", "off"]),
        "commit cleaning by the journal, if the volume has one; off: by checkpoints only",
    ),
    parameter(
        "pre-invalid",
        "",
        Form::Share { least: 4096 },
        "bytes of dead but needed blocks at which a checkpoint is taken instead of a journal block [default: the adaptive rule]",
    ),
    parameter(
        "delta",
        "auto",
        Form::Choice(&["auto", "on", "off"]),
        "when an fsync tells what changed in place of writing nodes: while a journal keeps other F2FSs off, as soon as one can, never",
    ),
    parameter(
        "sections-per-commit",
        "",
        Form::Number { least: 1, largest: 1 << 20 },
        "maximum sections freed by one commit [default: as many as there is room for]",
    ),
    parameter(
        "keep-free",
        "adaptive",
        Form::Choice(&["adaptive", "reserve"]),
        "what cleaning keeps free of what the format reserves: all, or less where cleaning is dear",
    ),
    parameter(
        "reclaim",
        "clean",
        Form::Choice(&["clean", "slack", "partial"]),
        "where logs go on when free segments run short: in free ones that cleaning makes, or in dead blocks of others, after copying what \
         splits them",
    ),
    parameter(
        "victim-reads",
        "runs",
        Form::Choice(&["runs", "single"]),
        "requests of cleaning to read: one for neighbouring blocks, or one for each block, one after the other",
    ),
    parameter("discard", "on", Form::Choice(&["on", "off"]), "tell the device which blocks are free"),
    parameter("checkpoint", "60", SECONDS, "longest time between checkpoints, in seconds"),
    parameter("commit", "5", SECONDS, "longest time until a change is durable without being asked for, in seconds"),
    parameter(
        "think",
        "0",
        Form::Number { least: 0, largest: 86_400_000_000 },
        "microseconds that pass after each operation, up to a day",
    ),
    parameter(
        "age",
        "",
        ANY_SHARE,
        "bytes that the application writes before measuring [default: as the workload says]",
    ),
    parameter(
        "measure",
        "",
        Form::Share { least: 1 },
        "bytes that the application writes while measuring [default: as the workload says]",
    ),
    parameter("operations", "", ANY_NUMBER, "operations measured, instead of bytes"),
    parameter(
        "connections",
        "1",
        Form::Number { least: 1, largest: 1 << 20 },
        "clients that ask in turn, for reads_… and updates_…: each waits for the accesses of all others",
    ),
    parameter("sync-every", "", ANY_NUMBER, "fsync after N writes, if the workload does not decide that"),
    parameter("ftl", "none", Form::Choice(&["none", "page-level", "fast"]), "flash translation layer to simulate"),
    parameter(
        "ftl-fill",
        "100",
        Form::Percent { least: 0, largest: 100 },
        "share of the simulated flash that was written before the volume is made, in percent",
    ),
    parameter(
        "ftl-time",
        "off",
        Form::Choice(&["on", "off"]),
        "let the copies and erases of the translation layer take device time",
    ),
    parameter(
        "threads",
        "in-turn",
        Form::Choice(&["in-turn", "overlap"]),
        "the workload's threads: one operation after the other, or each thread with a time of its own",
    ),
    parameter(
        "processor-ns",
        "0",
        Form::Number { least: 0, largest: 1_000_000_000 },
        "processor time for each block of 4 KiB that the engine reads or writes, in nanoseconds",
    ),
    parameter(
        "queue-depth",
        "1",
        Form::Number { least: 1, largest: 65_536 },
        "requests that the device serves at a time; the engine has more than one under way only with threads that overlap",
    ),
    parameter("seed", "1", ANY_NUMBER, "seed of all random choices"),
];

/// What is measured, in the measured phase alone.
pub const METRICS: &[Metric] = &[
    Metric::plain("operations", "operations"),
    Metric::plain("operation_hash", "hash of the operations, 48 bits"),
    Metric::plain("operations_per_second", "operations per second"),
    Metric::plain("write_mb_per_second", "written by the application (MB/s)"),
    Metric::time("elapsed_ns", "virtual time"),
    Metric::bytes("written_bytes", "written by the application"),
    Metric::bytes("device_written_bytes", "written to the device"),
    Metric::plain("write_amplification", "write amplification of the file system"),
    Metric::plain("write_cost", "write cost"),
    Metric::time("p50_ns", "latency, median"),
    Metric::time("p95_ns", "latency, p95"),
    Metric::time("p99_ns", "latency, p99"),
    Metric::time("p99_9_ns", "latency, p99.9"),
    Metric::time("max_ns", "latency, longest"),
    Metric::time("write_p99_ns", "latency of writes, p99"),
    Metric::time("fsync_p99_ns", "latency of fsync, p99"),
    Metric::plain("victims", "sections cleaned"),
    Metric::plain("victims_background", "sections cleaned while idle"),
    Metric::plain("blocks_copied", "blocks copied by cleaning"),
    Metric::plain("data_blocks_copied", "data blocks copied by cleaning"),
    Metric::plain("pre_invalid_copied", "blocks copied that were dead but needed"),
    Metric::plain("blocks_read", "blocks read by cleaning"),
    Metric::plain("copies_per_victim", "blocks copied for each section cleaned"),
    Metric::time("select_ns", "choosing victims"),
    Metric::time("copy_ns", "copying live blocks"),
    Metric::time("commit_ns", "commits of cleaning"),
    Metric::time("checkpointing_ns", "commits of cleaning that were checkpoints"),
    Metric::plain("cleanings", "commits of cleaning while a writer waited"),
    Metric::time("cleaning_mean_ns", "cleaning a section, mean"),
    Metric::plain("commit_share", "share of the commits in the time of cleaning"),
    Metric::time("cleaning_p5_ns", "cleaning a section, p5 of the commits"),
    Metric::time("cleaning_p50_ns", "cleaning a section, median of the commits"),
    Metric::time("cleaning_p95_ns", "cleaning a section, p95 of the commits"),
    Metric::time("cleaning_max_ns", "cleaning a section, longest of the commits"),
    Metric::plain("commit_metadata_blocks", "metadata and node blocks written with commits of cleaning"),
    Metric::plain("commit_correlation", "correlation of the time of a commit and the metadata that it writes"),
    Metric::time("reads_mean_ns", "accesses that read, mean"),
    Metric::time("reads_p95_ns", "accesses that read, p95"),
    Metric::time("reads_p99_ns", "accesses that read, p99"),
    Metric::time("updates_mean_ns", "accesses that commit, mean"),
    Metric::time("updates_p95_ns", "accesses that commit, p95"),
    Metric::time("updates_p99_ns", "accesses that commit, p99"),
    Metric::plain("new_data_blocks", "data blocks written, without copies"),
    Metric::plain("data_blocks", "data blocks written"),
    Metric::plain("node_blocks", "node blocks written"),
    Metric::plain("metadata_blocks", "metadata blocks written"),
    Metric::plain("metadata_per_data_block", "node, metadata and journal blocks for each new data block"),
    Metric::plain("checkpoints", "checkpoints"),
    Metric::plain("checkpoints_fsync", "checkpoints for fsync"),
    Metric::plain("checkpoints_cleaning", "checkpoints for cleaning"),
    Metric::plain("journal_commits", "journal commits"),
    Metric::plain("journal_blocks", "journal blocks written"),
    Metric::plain("slack_blocks", "data and node blocks written to slack"),
    Metric::plain("islands_copied", "blocks copied because they split slack"),
    Metric::plain("page_cache_hits", "pages read that were in the page cache"),
    Metric::plain("page_cache_misses", "pages read into the page cache"),
    Metric::plain("page_cache_absorbed", "writes to pages that were dirty already"),
    Metric::time("device_busy_ns", "device time"),
    Metric::plain("device_reads", "reads of the device"),
    Metric::plain("device_writes", "writes to the device"),
    Metric::plain("device_flushes", "flushes of the device"),
    Metric::plain("flushes_shared", "flushes asked for that another one's served"),
    Metric::plain("device_discards", "discards of the device"),
    Metric::plain("ftl_write_amplification", "write amplification of the translation layer"),
    Metric::plain("ftl_erases", "erases"),
    Metric::plain("ftl_pages_programmed", "flash pages programmed"),
    Metric::plain("flash_pages_per_page", "flash pages per application page"),
    Metric::plain("utilization_reached", "utilization reached (%)"),
];

/// What a table shows if nobody chooses.
pub const MAIN_METRICS: &[&str] = &[
    "operations_per_second",
    "write_mb_per_second",
    "write_amplification",
    "write_cost",
    "victims",
    "copies_per_victim",
    "p99_ns",
];

/// Runs a point.
pub(super) fn run(point: &Point) -> Result<Measured, String> {
    let mut device = presets::find(point.value("device")).map_err(|error| error.to_string())?;
    if let Some(blocks) = point.number("write-gap") {
        device = device.with_write_gap(blocks as u32);
    }
    if let Some(bytes) = point.number("flash-page") {
        device = device.with_flash_page(bytes).map_err(|error| error.to_string())?;
    }
    let mut settings = EngineSettings::new(device, workload_settings(point)?);
    if point.value("align-slack") == "off" {
        settings.options.flash_page = FlashPage::BLOCK;
    }
    if settings.workload.size_bytes > LARGEST {
        return Err(format!(
            "size: {} is more than {}, the most that a volume can have",
            point.value("size"),
            size::exact(LARGEST)
        ));
    }
    let section = point.number("section").unwrap_or(SEGMENT);
    if !section.is_multiple_of(SEGMENT) {
        return Err(format!("section: {} is not a multiple of {}", size::exact(section), size::exact(SEGMENT)));
    }
    settings.segments_per_section = u32::try_from(section / SEGMENT).map_err(|_| "section: too large".to_owned())?;
    settings.overprovision_percent = point.number("overprovision").map(|percent| percent as f64);
    settings.options.logs = point.number("logs").unwrap_or(6) as u8;
    settings.options.placement = super::placement(point)?;
    settings.options.groups = point.number("groups").and_then(|groups| u8::try_from(groups).ok());
    settings.options.touches =
        Touches::by_name(point.value("touches")).filter(|touches| *touches != Touches::default());
    settings.options.placement.make(&settings.options.placement_options())?;
    settings.options.victim = super::victim(point, "victim")?;
    settings.options.background_victim = super::victim(point, "background-victim")?;
    settings.options.cache_bytes = usize::try_from(point.number("cache").unwrap_or(64 << 20)).unwrap_or(usize::MAX);
    settings.page_cache = point.number("page-cache").filter(|bytes| *bytes > 0).map(PageCacheSettings::new);
    settings.options.background_cleaning = point.value("background") == "on";
    settings.options.discard = point.value("discard") == "on";
    settings.journal_bytes = point.number("journal").unwrap_or(0);
    settings.options.journal = point.value("journal-use") == "on";
    settings.options.pre_invalid_bytes = point.number("pre-invalid");
    settings.options.sections_per_commit =
        point.number("sections-per-commit").and_then(|most| u32::try_from(most).ok());
    if let Some(delta) = Deltas::by_name(point.value("delta")) {
        settings.options.delta = delta;
    }
    if let Some(keep_free) = KeepFree::by_name(point.value("keep-free")) {
        settings.options.keep_free = keep_free;
    }
    if let Some(reclaim) = Reclaim::by_name(point.value("reclaim")) {
        settings.options.reclaim = reclaim;
    }
    if point.value("victim-reads") == "single" {
        settings.options.victim_reads = VictimReads::Single;
    }
    settings.options.checkpoint_interval = Duration::from_secs(point.number("checkpoint").unwrap_or(60));
    settings.options.commit_interval = Duration::from_secs(point.number("commit").unwrap_or(5));
    settings.think = Duration::from_micros(point.number("think").unwrap_or(0));
    settings.layers = TranslationKind::ALL.into_iter().filter(|kind| kind.name() == point.value("ftl")).collect();
    settings.layers_filled_percent = point.number("ftl-fill").unwrap_or(100) as u8;
    settings.queue_depth = point.number("queue-depth").unwrap_or(1) as u32;
    settings.overlap = point.value("threads") == "overlap";
    settings.processor_ns = point.number("processor-ns").unwrap_or(0);
    settings.layer_time = point.value("ftl-time") == "on";
    if settings.layer_time && settings.layers.is_empty() {
        return Err("ftl-time: needs a translation layer (ftl=page-level or ftl=fast)".to_owned());
    }
    let mut workload =
        basalt_workloads::by_name(point.value("workload"), &settings.workload).map_err(|error| error.to_string())?;
    let connections = point.number("connections").unwrap_or(1) as usize;
    if settings.overlap {
        if connections > 1 {
            return Err("connections: ask in turn, and threads=overlap has threads that do not".to_owned());
        }
        // Accesses are not whole one after the other, and the engine's clock does not tell what a cleaning takes: nothing to watch.
        let run = run_engine(workload.as_mut(), &settings).map_err(|error| error.to_string())?;
        let mut measured = measured(&run);
        measured.count("flushes_shared", run.device.flushes_shared);
        return Ok(measured);
    }
    let mut watched = Watched::new(connections);
    let run = run_watched(workload.as_mut(), &settings, &mut watched).map_err(|error| error.to_string())?;
    let mut measured = measured(&run);
    watched.measured(&mut measured);
    Ok(measured)
}

fn workload_settings(point: &Point) -> Result<Settings, String> {
    let measure = match (point.number("measure"), point.number("operations")) {
        (Some(_), Some(_)) => return Err("measure and operations exclude each other".to_owned()),
        (Some(bytes), None) => Some(Limit::Bytes(bytes)),
        (None, operations) => operations.map(Limit::Operations),
    };
    Ok(Settings {
        size_bytes: point.number("size").unwrap_or(1 << 30),
        utilization_percent: point.number("utilization").unwrap_or(85) as u32,
        seed: point.number("seed").unwrap_or(1),
        age: point.number("age").map(Limit::Bytes),
        measure,
        sync_every: point.number("sync-every"),
        ..Settings::default()
    })
}

fn measured(run: &EngineRun) -> Measured {
    let mut measured = Measured::default();
    application(run, &mut measured);
    engine(run, &mut measured);
    device(run, &mut measured);
    measured
}

fn application(run: &EngineRun, measured: &mut Measured) {
    let phase = &run.workload.measure;
    measured.count("operations", phase.operations);
    measured.count("operation_hash", phase.operation_hash & HASH_BITS);
    if phase.elapsed_ns > 0 {
        measured.add("operations_per_second", phase.operations_per_second());
        measured.add("write_mb_per_second", phase.written_bytes_per_second() / 1e6);
    }
    measured.count("elapsed_ns", phase.elapsed_ns);
    measured.count("written_bytes", phase.written_bytes);
    measured.count("device_written_bytes", run.device.write.bytes);
    for (name, value) in [("write_amplification", run.write_amplification()), ("write_cost", run.write_cost())] {
        measured.add(name, value.unwrap_or(f64::NAN));
    }
    let all = phase.latencies(&[]);
    for (name, percent) in [("p50_ns", 50.0), ("p95_ns", 95.0), ("p99_ns", 99.0), ("p99_9_ns", 99.9), ("max_ns", 100.0)]
    {
        measured.count(name, all.percentile(percent));
    }
    for (name, kinds) in
        [("write_p99_ns", &[Operation::Write][..]), ("fsync_p99_ns", &[Operation::Fsync, Operation::Fdatasync])]
    {
        let latencies = phase.latencies(kinds);
        if latencies.count() > 0 {
            measured.count(name, latencies.percentile(99.0));
        }
    }
    measured.add("utilization_reached", run.workload.utilization_percent);
}

fn engine(run: &EngineRun, measured: &mut Measured) {
    let cleaning = run.engine.cleaning.total();
    measured.count("victims", cleaning.victims);
    measured.count("victims_background", run.engine.cleaning.background.victims);
    measured.count("blocks_copied", cleaning.blocks_copied);
    measured.count("data_blocks_copied", cleaning.data_blocks_copied);
    measured.count("pre_invalid_copied", cleaning.pre_invalid_copied);
    measured.count("blocks_read", cleaning.blocks_read);
    measured.add("copies_per_victim", cleaning.blocks_copied as f64 / cleaning.victims as f64);
    for (name, time) in [("select_ns", cleaning.select), ("copy_ns", cleaning.copy), ("commit_ns", cleaning.commit)] {
        measured.add(name, time.as_nanos() as f64);
    }
    let time = cleaning.select + cleaning.copy + cleaning.commit;
    measured.add("cleaning_mean_ns", time.as_nanos() as f64 / cleaning.victims as f64);
    measured.add("commit_share", cleaning.commit.as_secs_f64() / time.as_secs_f64());
    let written = run.engine.written;
    let metadata = written.node_blocks + written.metadata_blocks + written.journal_blocks;
    measured.add("metadata_per_data_block", metadata as f64 / run.engine.new_data_blocks() as f64);
    measured.count("data_blocks", run.engine.written.data_blocks);
    measured.count("new_data_blocks", run.engine.new_data_blocks());
    measured.count("node_blocks", run.engine.written.node_blocks);
    measured.count("metadata_blocks", run.engine.written.metadata_blocks);
    measured.count("journal_commits", cleaning.journal_commits);
    let named = &run.engine.named;
    measured.count("journal_blocks", run.engine.written.journal_blocks);
    measured.count("slack_blocks", named.get("slack/blocks").unwrap_or(0));
    measured.count("islands_copied", named.get("slack/islands_copied").unwrap_or(0));
    measured.count("checkpoints", named.sum("checkpoints").unwrap_or(0));
    measured.count("checkpoints_fsync", named.get("checkpoints/fsync").unwrap_or(0));
    measured.count("checkpoints_cleaning", named.get("checkpoints/cleaning").unwrap_or(0));
}

fn device(run: &EngineRun, measured: &mut Measured) {
    if let Some(cache) = run.page_cache {
        measured.count("page_cache_hits", cache.hits);
        measured.count("page_cache_misses", cache.misses);
        measured.count("page_cache_absorbed", cache.absorbed);
    }
    measured.count("device_busy_ns", run.device.busy_ns());
    measured.count("device_reads", run.device.read.requests);
    measured.count("device_writes", run.device.write.requests);
    measured.count("device_flushes", run.device.flush.requests);
    measured.count("device_discards", run.device.discard.requests);
    let Some(layer) = run.layers.first() else { return };
    measured.add("ftl_write_amplification", layer.statistics.write_amplification());
    measured.count("ftl_erases", layer.statistics.erases);
    measured.count("ftl_pages_programmed", layer.statistics.pages_programmed);
    let page = f64::from(layer.end.geometry.page_bytes());
    let written = run.workload.measure.written_bytes as f64 / page;
    measured.add("flash_pages_per_page", layer.statistics.pages_programmed as f64 / written);
}
