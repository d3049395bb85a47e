//! Workloads on the engine in virtual time.

use std::time::Duration;

use basalt_f2fs::{Reclaim, VictimReads};
use basalt_flash::device::presets;
use basalt_flash::ftl::TranslationKind;
use basalt_lab::engine::{EngineRun, EngineSettings, run};
use basalt_segments::cleaning::KeepFree;
use basalt_segments::slack::DeviceClass;
use basalt_workloads::{Contents, Limit, PageCacheSettings, Settings, by_name};

fn settings(device: &str, utilization_percent: u32) -> EngineSettings {
    let workload = Settings {
        size_bytes: 256 << 20,
        utilization_percent,
        age: Some(Limit::Bytes(40 << 20)),
        measure: Some(Limit::Bytes(12 << 20)),
        // Whatever is overwritten twice in between does not reach the device.
        sync_every: Some(16),
        ..Settings::default()
    };
    EngineSettings::new(presets::preset(device).unwrap(), workload)
}

fn run_named(name: &str, settings: &EngineSettings) -> EngineRun {
    let mut workload = by_name(name, &settings.workload).unwrap();
    run(workload.as_mut(), settings).unwrap_or_else(|error| panic!("{name}, seed {}: {error}", settings.workload.seed))
}

#[test]
fn the_same_settings_give_the_same_run() {
    let mut settings = settings("ssd-m", 80);
    settings.layers = TranslationKind::ALL.to_vec();
    for name in ["zipf:0.99", "varmail"] {
        let (first, second) = (run_named(name, &settings), run_named(name, &settings));
        assert_eq!(format!("{first:?}"), format!("{second:?}"), "{name}");
        settings.workload.seed += 1;
        let other = run_named(name, &settings);
        assert_ne!(first.workload.measure.operation_hash, other.workload.measure.operation_hash, "{name}");
    }
}

/// Of a card that is taken for a disk, the engine learns what the card's own model says.
#[test]
fn times_are_learned_from_the_engines_own_requests() {
    let mut settings = settings("sd-l", 90);
    settings.workload.sync_every = Some(64);
    let own = settings.options.times.clone();
    settings.options.reclaim = Reclaim::Partial;
    settings.options.times = DeviceClass::Hdd.device_times();
    assert_eq!(run_named("zipf:0.99", &settings).learned_times, None);
    settings.learns_times = true;
    settings.workload.age = Some(Limit::Bytes(256 << 20));
    let (first, second) = (run_named("zipf:0.99", &settings), run_named("zipf:0.99", &settings));
    let learned = first.learned_times.as_ref().expect("enough is known after the volume was filled once more");
    for n in [1, 4, 64, 512] {
        let parts = 100 * learned.write(n) / own.write(n);
        assert!((75..=133).contains(&parts), "{n} blocks: {parts} % of what the model says");
    }
    assert_eq!(first.learned_times, second.learned_times, "the same requests teach the same");
    assert_eq!(first.workload.measure.elapsed_ns, second.workload.measure.elapsed_ns);
}

#[test]
fn all_time_is_the_devices_and_all_bytes_are_the_engines() {
    let mut settings = settings("ssd-m", 85);
    settings.layers = vec![TranslationKind::PageLevel];
    let run = run_named("uniform", &settings);
    let measure = &run.workload.measure;
    assert_eq!(measure.elapsed_ns, run.device.busy_ns());
    let written = run.engine.written;
    let blocks = written.data_blocks + written.node_blocks + written.metadata_blocks;
    assert_eq!(run.device.write.bytes, blocks * 4096);
    assert_eq!(run.layers[0].statistics.pages_written, blocks);
    assert!(measure.written_bytes >= 12 << 20);
    assert!(run.write_amplification().unwrap() > 1.0);

    // At 85 % there is something to clean, and its time is part of the whole.
    let cleaning = run.engine.cleaning.total();
    assert!(cleaning.victims > 0 && cleaning.blocks_copied > 0, "{cleaning:?}");
    assert!(run.write_cost().unwrap() > 1.0);
    let spent = (cleaning.copy + cleaning.commit).as_nanos();
    assert!(spent > 0 && spent < u128::from(measure.elapsed_ns), "{cleaning:?}");
}

#[test]
fn a_fuller_volume_costs_more_and_a_slower_device_takes_longer() {
    let cost = |utilization| run_named("uniform", &settings("ssd-m", utilization)).write_cost().unwrap();
    let (low, high) = (cost(60), cost(88));
    assert!(high > low * 1.1, "{low} at 60 %, {high} at 88 %");
    let time = |device| run_named("uniform", &settings(device, 60)).workload.measure.elapsed_ns;
    let (card, drive) = (time("sd-a"), time("nvme"));
    assert!(card > drive * 5, "{card} ns on a card, {drive} ns on an NVMe drive");
}

#[test]
fn thinking_lets_the_engine_clean_in_the_background() {
    // A quarter of the volume, overwritten once: enough of it is dead for cleaning to be worth it.
    let mut settings = settings("ssd-m", 60);
    settings.workload.age = Some(Limit::Bytes(0));
    settings.workload.measure = Some(Limit::Bytes(64 << 20));
    settings.workload.sync_every = Some(64);
    settings.think = Duration::from_secs(6);
    let idle = run_named("uniform:set=25%", &settings);
    assert!(idle.engine.cleaning.background.victims > 0, "{:?}", idle.engine.cleaning);
    let measure = &idle.workload.measure;
    assert!(measure.elapsed_ns >= (measure.operations - 1) * 6_000_000_000);
    settings.options.background_cleaning = false;
    let busy = run_named("uniform:set=25%", &settings);
    assert_eq!(busy.engine.cleaning.background.victims, 0);
}

#[test]
fn what_cannot_be_run_says_why() {
    let mut small = settings("ssd-m", 85);
    small.workload.size_bytes = 1 << 20;
    let mut workload = by_name("uniform:set=50%", &settings("ssd-m", 20).workload).unwrap();
    let error = run(workload.as_mut(), &small).unwrap_err().to_string();
    assert!(error.starts_with("the volume: "), "{error}");
    let error = run(workload.as_mut(), &settings("ssd-m", 20)).unwrap_err().to_string();
    assert!(error.contains("uniform") && error.contains("20 %"), "{error}");
}

#[test]
fn a_checkpoint_behind_each_victim_can_be_asked_for() {
    let mut settings = settings("ssd-m", 85);
    let shared = run_named("uniform", &settings).engine.cleaning.foreground;
    settings.options.sections_per_commit = Some(1);
    let each = run_named("uniform", &settings).engine.cleaning.foreground;
    assert!(each.victims > 0 && each.checkpoints * 5 >= each.victims * 4, "{each:?}");
    assert!(shared.checkpoints * 2 < shared.victims, "{shared:?}");
}

/// On a volume that is nearly full, cleaning copies less where less is kept free.
#[test]
fn less_is_kept_free_where_cleaning_is_dear() {
    let amplification = [KeepFree::Reserve, KeepFree::Adaptive].map(|keep_free| {
        let mut settings = settings("ssd-m", 92);
        settings.options.keep_free = keep_free;
        run_named("uniform:set=20%", &settings).write_amplification().unwrap()
    });
    assert!(amplification[1] < 0.9 * amplification[0], "{amplification:?}");
}

#[test]
fn cleaning_reads_neighbours_at_once_or_each_block_by_itself() {
    let mut settings = settings("ssd-m", 85);
    let runs = run_named("uniform", &settings);
    settings.options.victim_reads = VictimReads::Single;
    let single = run_named("uniform", &settings);
    // Commits come by the clock, which is why not all is alike.
    let copied = [&runs, &single].map(|run| run.engine.cleaning.total().blocks_copied as f64);
    assert!((copied[0] / copied[1] - 1.0).abs() < 0.05, "{copied:?}");
    // The workload reads nothing, and the engine what it needs of the tables block by block.
    assert_eq!(single.device.read.bytes, single.device.read.requests * 4096);
    let requests = [runs.device.read.requests, single.device.read.requests];
    assert!(requests[0] * 2 < requests[1], "{requests:?}");
    assert!(runs.workload.measure.elapsed_ns < single.workload.measure.elapsed_ns);
}

/// With memory for everything, what a workload reads costs the device nothing, and its operations are the same.
#[test]
fn a_page_cache_takes_reads_off_the_device() {
    for name in ["varmail", "ycsb-a"] {
        let mut settings = settings("nvme", 70);
        let without = run_named(name, &settings);
        assert_eq!(without.page_cache, None);
        settings.page_cache = Some(PageCacheSettings::new(512 << 20));
        let with = run_named(name, &settings);
        assert_eq!(with.workload.measure.operation_hash, without.workload.measure.operation_hash, "{name}");
        assert_eq!(with.workload.measure.read_bytes, without.workload.measure.read_bytes, "{name}");
        let cache = with.page_cache.unwrap();
        assert_eq!(cache.misses, 0, "{name}");
        assert!(cache.hits >= with.workload.measure.read_bytes.div_ceil(4096), "{name}: {cache:?}");
        // What is left is read by cleaning.
        let (left, all) = (with.device.read.bytes, without.device.read.bytes);
        assert!(left + without.workload.measure.read_bytes * 9 / 10 <= all, "{name}: {left} of {all}");
        // With less memory than pages, some are read again.
        settings.page_cache = Some(PageCacheSettings::new(16 << 20));
        let small = run_named(name, &settings);
        let cache = small.page_cache.unwrap();
        assert!(cache.misses > 0 && cache.hits > 0 && small.device.read.bytes > left, "{name}: {cache:?}");
    }
}

/// Nothing looks at what files hold: with random bytes and with one byte throughout, every number is the same.
#[test]
fn what_files_hold_changes_no_number() {
    for (name, journal_bytes, has_cache) in
        [("varmail", 0, false), ("tpcc", 32 << 10, true), ("fileserver", 0, true), ("zipf:0.99", 32 << 10, false)]
    {
        let mut settings = settings("ssd-m", 80);
        settings.journal_bytes = journal_bytes;
        settings.page_cache = has_cache.then(|| PageCacheSettings::new(16 << 20));
        settings.layers = TranslationKind::ALL.to_vec();
        let of = |contents| {
            let mut settings = settings.clone();
            settings.workload.contents = contents;
            let mut run = run_named(name, &settings);
            assert_eq!(run.workload.settings.contents, contents, "{name}: settings are reported as they were given");
            run.workload.settings.contents = None;
            format!("{run:?}")
        };
        let random = of(Some(Contents::Random));
        assert_eq!(of(Some(Contents::Plain)), random, "{name}");
        assert_eq!(of(None), random, "{name}");
    }
}

#[test]
fn contents_that_are_verified_are_not_plain() {
    let mut settings = settings("nvme", 60);
    settings.workload.verify = true;
    let run_with = |settings: &EngineSettings| {
        let mut workload = by_name("varmail", &settings.workload).unwrap();
        run(workload.as_mut(), settings)
    };
    assert!(run_with(&settings).unwrap().workload.verified_bytes > 1 << 20);
    settings.workload.contents = Some(Contents::Plain);
    let error = run_with(&settings).unwrap_err().to_string();
    assert!(error.contains("plain contents cannot be verified"), "{error}");
}

/// The engine waits for each request: that the device could serve more changes nothing.
#[test]
fn one_thread_gains_nothing_by_a_queue() {
    let mut settings = settings("nvme", 80);
    settings.layers = vec![TranslationKind::PageLevel];
    settings.layer_time = true;
    let one = run_named("varmail", &settings);
    settings.queue_depth = 32;
    let many = run_named("varmail", &settings);
    assert_eq!(format!("{:?}", one.workload), format!("{:?}", many.workload));
    assert_eq!(one.device, many.device);
}

/// Requests that make the translation layer collect are slow, and nothing else is different.
#[test]
fn what_the_translation_layer_copies_can_take_time() {
    let mut settings = settings("ssd-m", 85);
    settings.layers = vec![TranslationKind::Fast];
    let free = run_named("uniform", &settings);
    settings.layer_time = true;
    let paid = run_named("uniform", &settings);
    assert_eq!(paid.workload.measure.operation_hash, free.workload.measure.operation_hash);
    assert!(free.layers[0].statistics.pages_copied > 0, "{:?}", free.layers[0].statistics);
    assert_eq!(paid.workload.measure.elapsed_ns, paid.device.busy_ns());
    // Writing a page takes 47 us at 87 MB/s.
    let least = free.device.busy_ns() + free.layers[0].statistics.pages_copied * 47_000;
    assert!(paid.device.busy_ns() > least, "{} and {least}", paid.device.busy_ns());
    let tail = |run: &EngineRun| -> u64 {
        [99.0, 99.9, 100.0].into_iter().map(|percent| run.device.write.percentile_ns(percent)).sum()
    };
    assert!(tail(&paid) > tail(&free), "{} and {}", tail(&paid), tail(&free));

    settings.layers = TranslationKind::ALL.to_vec();
    let mut workload = by_name("uniform", &settings.workload).unwrap();
    let error = run(workload.as_mut(), &settings).unwrap_err().to_string();
    assert_eq!(error, "the translation layer's work can take time with exactly one layer, not 2");
}

/// What was on the flash before keeps the layer busy, as on a device in use; it is neither timed nor part of the measured phase.
#[test]
fn flash_was_written_before_the_volume_is_made() {
    let mut settings = settings("ssd-m", 60);
    settings.layers = TranslationKind::ALL.to_vec();
    settings.options.discard = false;
    let filled = run_named("uniform", &settings);
    settings.layers_filled_percent = 0;
    let fresh = run_named("uniform", &settings);
    assert_eq!(filled.workload.measure, fresh.workload.measure);
    assert_eq!(filled.device, fresh.device);
    for (filled, fresh) in filled.layers.iter().zip(&fresh.layers) {
        let before = filled.end.statistics.pages_written - fresh.end.statistics.pages_written;
        // On a device that was not discarded mkfs writes zeros where there have to be some.
        let pages = filled.end.geometry.logical_pages();
        assert!((pages..pages + pages / 20).contains(&before), "{before} of {pages}");
        assert_eq!((filled.end.statistics.trims, fresh.end.statistics.trims > 0), (0, true));
        assert_eq!(filled.statistics.pages_written, fresh.statistics.pages_written);
        assert!(filled.statistics.erases > 2 * fresh.statistics.erases, "{filled:?} {fresh:?}");
    }
}
