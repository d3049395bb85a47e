//! Power cuts in the middle of fsyncs by deltas, and cleaning behind them.

use std::sync::Arc;

use basalt_device::power::{Change, Fate};
use basalt_device::{MemoryDevice, PowerCutDevice, Replay};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Deltas, F2fs, OpenOptions, SystemClock};
use basalt_segments::cleaning::KeepFree;
use basalt_testkit::rng::Rng;
use basalt_vfs::{FileSystem, InodeNumber};

use super::{BLOCK, contents, create, open, options, rescue, volume, write_page};

/// Pages of a sparse file, each as far from the next as leaves some in a node.
fn pages(count: u64, apart: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |page| page * apart)
}

/// Fsyncs of so many pages, each cut everywhere with some of what no flush covers lost: each page is of before or of this fsync, and what
/// had returned is there.
#[test]
fn an_fsync_of_many_pages_never_shows_a_page_that_did_not_arrive() {
    let seed = std::env::var("BASALT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    // A delta; nodes, because there are few; a delta behind a flush of its own; nodes behind one; a delta behind more of another file than a
    // seal lists, which has left a small cache.
    for (count, apart, of_other) in [(200, 3, 0), (400, 3, 0), (400, 150, 0), (600, 150, 0), (3, 3, 800)] {
        let device = Arc::new(PowerCutDevice::new(volume(256 << 10).snapshot()));
        let how = OpenOptions { cache_bytes: if of_other > 0 { 64 << 10 } else { 64 << 20 }, ..options(Deltas::On) };
        let fs = F2fs::open(device.clone(), how, Arc::new(SystemClock)).unwrap();
        let [ino, other] = ["file", "other"].map(|name| create(&fs, name));
        pages(count, apart).for_each(|page| write_page(&fs, ino, page, 1));
        fs.write(other, 0, &vec![1; (of_other * BLOCK) as usize], false).unwrap();
        fs.sync().unwrap();
        (0..of_other).for_each(|page| write_page(&fs, other, page, 2));
        let begun = device.history().changes.len();
        pages(count, apart).for_each(|page| write_page(&fs, ino, page, 2));
        fs.sync_file(ino, true).unwrap();
        let history = device.history();
        let mut rng = Rng::new(seed);
        for at in begun..=history.changes.len() {
            for _ in 0..6 {
                let lost = rng.between(0, 100);
                let mut fate = |_: &Change| if rng.chance(lost) { Fate::Lost } else { Fate::Kept };
                let image = Replay::new(&history).cut(at, |cached| cached.iter().map(&mut fate).collect());
                let what = format!("BASALT_SEED={seed}: {count} pages, {apart} apart, cut behind request {at}");
                let least = if at == history.changes.len() { 2 } else { 1 };
                expect_old_or_new(Arc::new(image), ino, (count, apart), least, &what);
            }
        }
    }
}

fn expect_old_or_new(image: Arc<MemoryDevice>, ino: InodeNumber, (count, apart): (u64, u64), least: u8, what: &str) {
    let fs = open(&image, options(Deltas::Off));
    assert!(fs.is_writable(), "{what}: {:?}", fs.warnings());
    let mut bytes = vec![0; BLOCK as usize];
    for page in pages(count, apart) {
        fs.read(ino, page * BLOCK, &mut bytes).unwrap();
        assert!((least..=2).contains(&bytes[0]), "{what}: page {page} holds {}", bytes[0]);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{what}: page {page} is torn");
    }
}

/// Cleaning moves what deltas told, and commits by the journal; no checkpoint comes in between.
#[test]
fn what_deltas_told_is_found_where_cleaning_moved_it() {
    let device = Arc::new(MemoryDevice::new(96 << 20, 512));
    let how = FormatOptions { journal_bytes: 256 << 10, overprovision_percent: Some(30.0), ..FormatOptions::default() };
    format(&*device, &how, &mut |_, _| {}).unwrap();
    let eager = OpenOptions {
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        keep_free: KeepFree::Reserve,
        ..options(Deltas::On)
    };
    let fs = open(&device, eager);
    let ino = create(&fs, "file");
    let pages = fs.stat_fs().unwrap().available * 85 / 100;
    fs.write(ino, 0, &vec![1; (pages * BLOCK) as usize], false).unwrap();
    fs.sync().unwrap();
    let mut rng = Rng::new(3);
    let (mut before, mut seen) = (fs.statistics(), 0);
    for round in 0..20_000_u32 {
        write_page(&fs, ino, rng.below(pages), round as u8);
        fs.sync_file(ino, false).unwrap();
        let done = fs.statistics().since(&before);
        if done.checkpoints.total() > 0 {
            before = fs.statistics();
        } else if done.cleaning.total().journal_commits > 4 && round % 20 == 0 {
            let expected = contents(&fs, ino);
            assert!(contents(&rescue(&device).unwrap(), ino) == expected, "rescued, round {round}");
            assert!(
                contents(&open(&Arc::new(device.snapshot()), options(Deltas::Off)), ino) == expected,
                "round {round}"
            );
            seen += 1;
            if seen == 5 {
                return;
            }
        }
    }
    panic!("the journal committed too little: {:?}", fs.statistics());
}
