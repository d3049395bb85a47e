//! Growing and shrinking, and what is refused.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::OpenOptions;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::resize::{plan, resize};
use basalt_vfs::FileSystem;

use super::support::{Image, MIB, SECTOR, clock, filled, open, resized};

#[test]
fn shrinks_to_its_minimum_and_grows_back() {
    let image = Image::new(256 * MIB);
    let mut volume = filled(image.device, 256 * MIB, &FormatOptions::default(), 60, 60 * MIB, 1);
    let planned = plan(&*volume.device, 128 * MIB).unwrap();
    let report = volume.resize(128 * MIB);
    assert_eq!((report.before, report.after), (planned.before, planned.after));
    assert!(report.after.bytes == 128 * MIB && report.after.user_bytes < report.before.user_bytes);
    assert!(report.blocks_moved > 0 && report.steps == 1, "{report:?}");
    assert!(report.minimum_bytes <= 128 * MIB && report.minimum_bytes > 40 * MIB, "{report:?}");

    let least = report.minimum_bytes;
    let error = resized(&volume.device, least - 2 * MIB).unwrap_err().to_string();
    assert!(error.contains(&least.to_string()), "{error}");
    volume.expect_whole("refused");
    assert_eq!(volume.resize(least).minimum_bytes, least);
    assert_eq!(volume.resize(least).steps, 0, "nothing to do");
    let report = volume.resize(256 * MIB);
    assert_eq!(report.after, planned.before);
    volume.use_all();
}

#[test]
fn grows_within_its_tables_and_beyond() {
    let image = Image::new(24 << 30);
    let mut volume = filled(image.device.clone(), 64 * MIB, &FormatOptions::default(), 30, 15 * MIB, 2);
    // Within; another segment of NAT and SSA; many; in one go over several steps, the first of which have little room.
    for (size, steps) in [(300 * MIB, 1), (1200 * MIB, 1), (2000 * MIB, 1), (24 << 30, 1)] {
        let report = volume.resize(size);
        assert!(report.steps >= steps, "{report:?}");
        // As much room as a new volume has.
        let fresh = MemoryDevice::new(size, 512);
        let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
        let fresh = format(&fresh, &options, &mut |_, _| ()).unwrap();
        assert!(report.after.bytes == size && report.after.user_bytes >= fresh.user_bytes / 100 * 99, "{report:?}");
        image.expect_clean_for_linux();
    }
    // All of it still can be as small as what is in it, but for the tables.
    let report = volume.resize(plan(&*volume.device, 24 << 30).unwrap().minimum_bytes);
    assert!(report.after.bytes < 400 * MIB, "{report:?}");
    volume.use_all();
    image.expect_clean_for_linux();
}

#[test]
fn a_full_volume_grows() {
    let image = Image::new(8 << 30);
    let volume = filled(image.device, 64 * MIB, &FormatOptions::default(), 12, 30 * MIB, 3);
    let fs = open(volume.device.clone()).unwrap();
    let ino = fs.lookup(fs.root(), b"0").unwrap().ino;
    let size = fs.attributes(ino).unwrap().size;
    let mut at = size.next_multiple_of(4096);
    while fs.write(ino, at, &[5; 4096], false).is_ok() {
        at += 4096;
    }
    fs.close().unwrap();
    drop(fs);
    let report = resized(&volume.device, 8 << 30).unwrap();
    assert!(report.steps > 1 && report.after.bytes == 8 << 30, "{report:?}");
    super::support::expect_clean(&*volume.device, "grown");
    let fs = open(volume.device.clone()).unwrap();
    assert!(fs.stat_fs().unwrap().free > (7 << 30) / 4096);
    let mut block = [0; 4096];
    fs.read(fs.lookup(fs.root(), b"0").unwrap().ino, at - 4096, &mut block).unwrap();
    assert_eq!(block, [5; 4096]);
}

#[test]
fn every_kind_of_volume() {
    let plain = FormatOptions::default();
    let kinds = [
        FormatOptions { segments_per_section: 3, ..plain.clone() },
        FormatOptions { features: Features::empty(), ..plain.clone() },
        FormatOptions { overprovision_percent: Some(20.0), ..plain.clone() },
        FormatOptions { features: plain.features | Features::FLEXIBLE_INLINE_XATTR, segments_per_section: 2, ..plain },
    ];
    for (seed, options) in (10..).zip(kinds) {
        let image = Image::new(3 << 30);
        let mut volume = filled(image.device.clone(), 400 * MIB, &options, 30, 40 * MIB, seed);
        let (mut shares, sizes) = (Vec::new(), [400 * MIB - 5000, 250 * MIB, 251 * MIB, 3 << 30, 1 << 30, 2 << 30]);
        for size in sizes {
            let report = volume.resize(size);
            let section = 2 * MIB * u64::from(options.segments_per_section);
            assert!(report.after.segments > (size / section - 2) as u32 * options.segments_per_section, "{report:?}");
            shares.push(report.after.user_bytes as f64 / f64::from(report.after.main_segments) / f64::from(2 << 20));
            image.expect_clean_for_linux();
        }
        if options.overprovision_percent.is_some() {
            assert!(shares.iter().all(|share| (0.65..0.83).contains(share)), "the ratio was not kept: {shares:?}");
        }
        volume.use_all();
    }
}

/// 60 GiB has one more segment of SIT and one less of NAT than 50 GiB, if mkfs makes it: all tables move, none shrinks.
#[test]
fn the_sit_grows() {
    let image = Image::new(120 << 30);
    let volume = filled(image.device.clone(), 50 << 30, &FormatOptions::default(), 20, 20 * MIB, 4);
    volume.resize(60 << 30);
    volume.resize(120 << 30);
    image.expect_clean_for_linux();
    volume.resize(20 << 30);
}

#[test]
fn refuses_what_it_cannot_do() {
    let memory = Arc::new(MemoryDevice::new(64 * MIB, SECTOR));
    let volume = filled(memory.clone(), 64 * MIB, &FormatOptions::default(), 6, 4 * MIB, 5);
    for (size, reason) in [(65 * MIB, "fewer than"), (10 * MIB, "at least"), (0, "at least")] {
        let error = resized(&volume.device, size).unwrap_err().to_string();
        assert!(error.contains(reason), "{size}: {error}");
    }
    assert!(plan(&*volume.device, 10 * MIB).unwrap_err().to_string().contains("at least"));
    volume.expect_whole("refused");

    // A feature that Basalt does not write.
    let casefold = memory.snapshot();
    for copy in [0, 4096] {
        let mut block = [0; 4096];
        casefold.read_at(copy, &mut block).unwrap();
        // `feature`, and no checksum any more.
        let features = u32::from_le_bytes(block[1024 + 2180..][..4].try_into().unwrap());
        let changed = Features::from_bits_retain(features).difference(Features::SB_CHECKSUM) | Features::CASEFOLD;
        block[1024 + 2180..][..4].copy_from_slice(&changed.bits().to_le_bytes());
        casefold.write_at(copy, &block).unwrap();
    }
    let casefold: Arc<dyn BlockDevice> = Arc::new(casefold);
    let error = resize(&casefold, 60 * MIB, &OpenOptions::default(), &clock(), &mut |_, _, _| ()).unwrap_err();
    assert!(error.to_string().contains("casefold"), "{error}");
    assert!(plan(&*casefold, 60 * MIB).unwrap_err().to_string().contains("casefold"));
}
