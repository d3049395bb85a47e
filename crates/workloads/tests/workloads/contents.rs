//! What the engine leaves on a device is on record: the same workload, the same bytes, today and after any change that does not mean to
//! change them.

use std::path::Path;

use basalt_f2fs::OpenOptions;
use basalt_f2fs::format::FormatOptions;
use basalt_segments::cleaning::KeepFree;
use basalt_testkit::recorded;
use basalt_workloads::{Limit, Settings, VfsFiles, by_name, run};

use crate::support::{SIZE, Volume, clock};

/// Workloads that overwrite, append, create, delete and sync, so that sections are cleaned.
const SHAPES: [&str; 5] = ["zipf", "fileserver", "varmail", "tpcc", "hotcold"];
const SEEDS: u64 = 20;

#[test]
fn device_contents_are_as_recorded() {
    expect_recorded(KeepFree::Adaptive, "contents.txt");
}

/// The same with all kept free that the format reserves, as Linux does.
#[test]
fn device_contents_with_the_reserve_kept_free_are_as_recorded() {
    expect_recorded(KeepFree::Reserve, "contents-reserve.txt");
}

fn expect_recorded(keep_free: KeepFree, file: &str) {
    let mut lines = Vec::new();
    for seed in 0..SEEDS {
        for journal_bytes in [0, FormatOptions::DEFAULT_JOURNAL_BYTES] {
            let shape = SHAPES[seed as usize % SHAPES.len()];
            let settings = Settings {
                size_bytes: SIZE / 2,
                utilization_percent: 75,
                seed,
                age: Some(Limit::Bytes(24 << 20)),
                measure: Some(Limit::Bytes(48 << 20)),
                dummy_bytes: Some(4 << 20),
                verify: false,
                ..Settings::default()
            };
            // With a journal, cleaning is committed by it whenever it can be.
            let pre_invalid_bytes = (journal_bytes > 0).then_some(1 << 30);
            let options = OpenOptions { cache_bytes: 4 << 20, pre_invalid_bytes, keep_free, ..OpenOptions::default() };
            let volume = Volume::with(SIZE / 2, journal_bytes, options);
            let mut files = VfsFiles::new(volume.engine.clone());
            let mut workload = by_name(shape, &settings).unwrap();
            let mut clock = clock(&volume.engine);
            run(&mut *workload, &settings, &mut files, &mut clock).unwrap();
            drop(files);
            let cleaned = volume.engine.statistics().cleaning.total().victims;
            lines.push(format!(
                "seed {seed} {shape} journal {journal_bytes} cleaned {cleaned} sections, contents {:016x}",
                volume.content_hash()
            ));
        }
    }
    recorded::expect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads").join(file), &lines);
}
