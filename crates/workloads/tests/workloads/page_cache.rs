//! The page cache in front of an engine.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use basalt_f2fs::F2fs;
use basalt_testkit::rng::Rng;
use basalt_workloads::{Files, List, PAGE, PageCache, PageCacheSettings, PageCacheStatistics, VfsFiles, by_name, run};

use super::engine::{SHAPES, settings};
use super::support::{Volume, clock};

const BLOCK: u64 = PAGE as u64;

fn with_cache(volume: &Volume, settings: PageCacheSettings) -> VfsFiles<Arc<F2fs>> {
    VfsFiles::with_page_cache(volume.engine.clone(), PageCache::new(settings, || 0))
}

fn statistics(files: &VfsFiles<Arc<F2fs>>) -> PageCacheStatistics {
    files.page_cache().unwrap().statistics()
}

/// In a cache of 100 pages and in one that holds all: what is read is what was written, and the volume is sound behind it.
#[test]
fn workloads_read_what_they_wrote_through_the_cache() {
    for shape in SHAPES {
        let mut hashes = Vec::new();
        for bytes in [100 * BLOCK, 1 << 30] {
            let settings = settings(80);
            let name = format!("{shape}, cache of {bytes} bytes, seed {}", settings.seed);
            let mut workload = by_name(shape, &settings).unwrap();
            let volume = Volume::new();
            let mut files = with_cache(&volume, PageCacheSettings::new(bytes));
            let mut clock = clock(&volume.engine);
            let report = run(&mut *workload, &settings, &mut files, &mut clock);
            let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(report.verified_bytes > 0 || shape.starts_with("postmark"), "{name}");
            assert!(files.page_cache().unwrap().dirty_pages() as u64 * BLOCK <= bytes / 5, "{name}");
            hashes.push((report.measure.operation_hash, report.measure.written_bytes));
            drop(files);
            volume.close_and_check(&name);
        }
        assert_eq!(hashes[0], hashes[1], "{shape}: the operations do not depend on the cache");
    }
}

/// Random operations on a few files against a copy in memory, in caches of one page and more.
#[test]
fn any_operations_leave_what_a_copy_in_memory_has() {
    for (seed, pages) in [(1, 1), (2, 2), (3, 7), (4, 64)] {
        let volume = Volume::new();
        let settings = PageCacheSettings { bytes: pages * BLOCK, dirty_bytes: pages / 2 * BLOCK };
        let mut files = with_cache(&volume, settings);
        let mut rng = Rng::new(seed);
        let mut copies: Vec<Vec<u8>> = vec![Vec::new(); 4];
        for number in 0..4 {
            let file = files.create(&format!("f{number}")).unwrap();
            files.close(file);
        }
        for step in 0..2000 {
            let context = format!("seed {seed}, step {step}");
            let number = rng.index(4);
            let (path, copy) = (format!("f{number}"), &mut copies[number]);
            let file = files.open(&path).unwrap();
            let at = rng.index(60_000);
            match rng.index(10) {
                0..5 => {
                    let data = vec![rng.next_u64() as u8; 1 + rng.index(9_000)];
                    files.write(file, at as u64, &data).unwrap();
                    copy.resize(copy.len().max(at + data.len()), 0);
                    copy[at..at + data.len()].copy_from_slice(&data);
                }
                5..8 => {
                    let mut buffer = vec![0xEE; 1 + rng.index(20_000)];
                    let count = files.read(file, at as u64, &mut buffer).unwrap();
                    let expected = copy.get(at..).unwrap_or(&[]);
                    let expected = &expected[..expected.len().min(buffer.len())];
                    assert_eq!(&buffer[..count], expected, "{context}");
                }
                8 => {
                    files.truncate(file, at as u64).unwrap();
                    copy.resize(at, 0);
                }
                _ if rng.index(2) == 0 => files.sync(file, false).unwrap(),
                _ => {
                    files.close(file);
                    files.unlink(&path).unwrap();
                    let file = files.create(&path).unwrap();
                    files.close(file);
                    copy.clear();
                    continue;
                }
            }
            assert_eq!(files.size(file).unwrap(), copy.len() as u64, "{context}");
            files.close(file);
            assert_eq!(files.stat(&path).unwrap(), copy.len() as u64, "{context}");
        }
        // And behind the cache.
        files.sync_all().unwrap();
        let mut behind = VfsFiles::new(volume.engine.clone());
        for (number, copy) in copies.iter().enumerate() {
            let file = behind.open(&format!("f{number}")).unwrap();
            let mut bytes = vec![0; copy.len() + 1];
            let count = behind.read(file, 0, &mut bytes).unwrap();
            assert_eq!(&bytes[..count], copy, "seed {seed}, file {number} behind the cache");
        }
        drop((files, behind));
        volume.close_and_check(&format!("seed {seed}"));
    }
}

/// Where every page is as likely as any other, no list knows better: the share of hits is that of the pages that fit.
#[test]
fn uniform_reads_hit_by_the_share_of_pages_that_fit() {
    let volume = Volume::new();
    let mut files = with_cache(&volume, PageCacheSettings::new(300 * BLOCK));
    let file = files.create("file").unwrap();
    (0..1000).for_each(|page| files.write(file, page * BLOCK, &[1; PAGE]).unwrap());
    files.sync_all().unwrap();
    let mut rng = Rng::new(5);
    let mut buffer = [0; PAGE];
    let mut read = |files: &mut VfsFiles<Arc<F2fs>>, count| {
        for _ in 0..count {
            files.read(file, rng.index(1000) as u64 * BLOCK, &mut buffer).unwrap();
        }
    };
    read(&mut files, 10_000);
    let before = statistics(&files);
    read(&mut files, 100_000);
    let found = statistics(&files).since(&before);
    assert_eq!(found.hits + found.misses, 100_000);
    let share = found.hits as f64 / 100_000.0;
    assert!((share - 0.3).abs() < 0.01, "{share}");
    let cache = files.page_cache().unwrap();
    assert_eq!(cache.pages(List::Active) + cache.pages(List::Inactive), 300);
}

/// A scan of what is never read again does not drive out what is read often.
#[test]
fn a_scan_leaves_what_is_active() {
    let volume = Volume::new();
    let mut files = with_cache(&volume, PageCacheSettings::new(200 * BLOCK));
    let file = files.create("file").unwrap();
    (0..2000).for_each(|page| files.write(file, page * BLOCK, &[1; PAGE]).unwrap());
    files.sync_all().unwrap();
    let mut buffer = [0; PAGE];
    let mut read = |files: &mut VfsFiles<Arc<F2fs>>, pages: std::ops::Range<u64>| {
        pages.for_each(|page| assert_eq!(files.read(file, page * BLOCK, &mut buffer).unwrap(), PAGE));
    };
    (0..3).for_each(|_| read(&mut files, 0..80));
    assert_eq!(files.page_cache().unwrap().pages(List::Active), 80);
    read(&mut files, 100..2000);
    let before = statistics(&files);
    read(&mut files, 0..80);
    assert_eq!(statistics(&files).since(&before).hits, 80);
}

#[test]
fn dirty_pages_wait_for_fsync_thirty_seconds_or_the_limit() {
    let volume = Volume::new();
    let now = Rc::new(Cell::new(0));
    let seconds = now.clone();
    let settings = PageCacheSettings { bytes: 1 << 20, dirty_bytes: 20 * BLOCK };
    let cache = PageCache::new(settings, move || seconds.get() * 1_000_000_000);
    let mut files = VfsFiles::with_page_cache(volume.engine.clone(), cache);
    let [one, other] = ["one", "other"].map(|name| files.create(name).unwrap());
    for page in (0..10).chain(0..10) {
        files.write(one, page * BLOCK, &[1; PAGE]).unwrap();
    }
    files.write(other, 0, &[2; 100]).unwrap();
    let found = statistics(&files);
    assert_eq!((found.absorbed, found.written_back, found.misses), (10, 0, 0));
    // The engine knows nothing of it; programs do.
    assert_eq!((files.size(one).unwrap(), files.size(other).unwrap()), (10 * BLOCK, 100));
    files.sync(other, false).unwrap();
    assert_eq!((statistics(&files).written_back, files.page_cache().unwrap().dirty_pages()), (1, 10));
    now.set(29);
    files.write(other, 0, &[3; 100]).unwrap();
    assert_eq!(statistics(&files).written_back, 1);
    now.set(30);
    files.read(other, 0, &mut [0; 10]).unwrap();
    assert_eq!((statistics(&files).written_back, files.page_cache().unwrap().dirty_pages()), (11, 1));
    // The longest dirty file goes first.
    (0..20).for_each(|page| files.write(one, page * BLOCK, &[4; PAGE]).unwrap());
    assert_eq!((statistics(&files).written_back, files.page_cache().unwrap().dirty_pages()), (12, 20));
    drop(files);
    volume.close_and_check("written back in the end");
}

/// What is gone before it is written back is never written.
#[test]
fn files_that_do_not_live_long_cost_nothing() {
    let volume = Volume::new();
    let mut files = with_cache(&volume, PageCacheSettings::new(4 << 20));
    for round in 0..50 {
        let file = files.create("short").unwrap();
        files.write(file, 0, &[round; 10 * PAGE]).unwrap();
        if round % 2 == 0 {
            files.unlink("short").unwrap();
            // Still open: readable.
            let mut buffer = [0; PAGE];
            files.read(file, 9 * BLOCK, &mut buffer).unwrap();
            assert_eq!(buffer, [round; PAGE]);
            files.close(file);
        } else {
            files.close(file);
            let file = files.create("other").unwrap();
            files.close(file);
            files.rename("other", "short").unwrap();
            assert_eq!(files.stat("short").unwrap(), 0);
            files.unlink("short").unwrap();
        }
    }
    files.sync_all().unwrap();
    let found = statistics(&files);
    assert_eq!((found.written_back, found.absorbed, found.misses, found.hits), (0, 0, 0, 25));
    let cache = files.page_cache().unwrap();
    assert_eq!(cache.pages(List::Active) + cache.pages(List::Inactive), 0);
}

#[test]
fn a_cold_read_has_no_hits_however_long_it_is() {
    let volume = Volume::new();
    let mut files = with_cache(&volume, PageCacheSettings::new(64 * BLOCK));
    let file = files.create("file").unwrap();
    (0..1000).for_each(|page| files.write(file, page * BLOCK, &[1; PAGE]).unwrap());
    files.sync_all().unwrap();
    for (pages, misses, hits) in [(16, 16, 0), (20, 4, 16)] {
        let before = statistics(&files);
        assert_eq!(files.read(file, 0, &mut vec![0; pages * PAGE]).unwrap(), pages * PAGE);
        let found = statistics(&files).since(&before);
        assert_eq!((found.misses, found.hits), (misses, hits), "{pages} pages");
    }
}
