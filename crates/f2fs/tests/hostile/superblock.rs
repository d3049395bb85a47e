//! Superblocks: two copies, and what a volume says it needs.

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::Error;
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::superblock::{Features, JOURNAL_GUARD, RawSuperblock};

use crate::support::{
    editor, expect_damaged, expect_read_only, expect_unsupported, open, read, try_open, try_open_cut,
};

#[test]
fn a_bad_first_copy_is_replaced_by_the_second_and_said() {
    let zeroed = editor();
    zeroed.put(Address::new(0), &[0; 4096]);
    let torn = editor();
    let mut block = torn.block(Address::new(0));
    block[1024 + 100] ^= 1;
    torn.put(Address::new(0), &block);
    for editor in [zeroed, torn] {
        let fs = open(&editor.device);
        let warnings = fs.warnings();
        assert!(warnings.iter().any(|warning| warning.contains("second copy is used")), "{warnings:?}");
        assert!(fs.is_writable());
        assert_eq!(read(&fs, "small"), b"inline");
    }
}

#[test]
fn a_bad_second_copy_does_not_matter() {
    let editor = editor();
    editor.put(Address::new(1), &[0xFF; 4096]);
    assert_eq!(read(&open(&editor.device), "small"), b"inline");
}

#[test]
fn two_bad_copies_are_refused() {
    let editor = editor();
    for copy in 0..2 {
        let mut block = editor.block(Address::new(copy));
        block[1024 + 200] ^= 0x10;
        editor.put(Address::new(copy), &block);
    }
    let said = expect_damaged(&editor.device, "superblock");
    assert!(said.contains("copy 1") && said.contains("checksum"), "{said}");
}

#[test]
fn what_is_no_volume_is_called_so() {
    let short = MemoryDevice::from_bytes(&[1; 5000], 512);
    let empty = MemoryDevice::new(64 << 20, 512);
    let other = MemoryDevice::from_bytes(&vec![0x5A; 1 << 20], 512);
    for device in [short, empty, other] {
        assert!(matches!(try_open(&device, false), Err(Error::NotF2fs { .. })));
    }
}

#[test]
fn unknown_features_make_a_volume_read_only() {
    for (feature, name) in [(0x4000_0000, "0x40000000"), (Features::CASEFOLD.bits(), "casefold"), (0x4000, "ro")] {
        let editor = editor();
        for copy in 0..2 {
            editor.superblock(copy, |superblock| {
                let features = superblock.feature.get() | feature;
                superblock.feature.set(features);
            });
        }
        expect_read_only(&editor.device, name);
    }
}

/// Changes both copies of the superblock of a fresh volume.
fn with_superblock(change: impl Fn(&mut RawSuperblock)) -> MemoryDevice {
    let editor = editor();
    for copy in 0..2 {
        editor.superblock(copy, &change);
    }
    editor.device
}

#[test]
fn what_is_laid_out_otherwise_is_refused_even_for_reading() {
    let with = |feature: Features| {
        with_superblock(|superblock| {
            let features = superblock.feature.get() | feature.bits();
            superblock.feature.set(features);
        })
    };
    expect_unsupported(&with(Features::BLKZONED), "blkzoned");
    expect_unsupported(&with(Features::DEVICE_ALIAS), "device_alias");
    expect_unsupported(&with(Features::PACKED_SSA), "packed_ssa");
    expect_unsupported(&with_superblock(|superblock| superblock.devs[0].path[0] = b'/'), "several devices");
    expect_unsupported(&with_superblock(|superblock| superblock.log_blocksize.set(14)), "2^14");
}

/// A guard says that a journal has to be recovered. Without one, what the checkpoint refers to may be anything.
#[test]
fn a_guarded_volume_without_its_journal_is_refused() {
    let guard = |superblock: &mut RawSuperblock| {
        let sectors = superblock.log_sectors_per_block.get() | JOURNAL_GUARD;
        superblock.log_sectors_per_block.set(sectors);
    };
    let both = with_superblock(guard);
    let mut devices = vec![both];
    // The other copy being unreadable does not open the door, nor does one that has no guard.
    for copy in 0..2 {
        for spoilt in [false, true] {
            let editor = editor();
            editor.superblock(copy, guard);
            if spoilt {
                editor.put(Address::new(1 - copy), &[0; 4096]);
            }
            devices.push(editor.device);
        }
    }
    for device in devices {
        for read_only in [false, true] {
            match try_open(&device, read_only).map(drop) {
                Err(error @ Error::Damaged { structure: "journal", .. }) => {
                    assert!(error.to_string().contains("no descriptor"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_truncated_image_is_refused() {
    let editor = editor();
    let size = editor.device.size();
    for cut in [size / 2, size - (4 << 20), 1 << 20, 9000] {
        match try_open_cut(&editor.device, cut, false).map(drop) {
            Err(error @ (Error::Damaged { structure: "superblock", .. } | Error::Truncated { .. })) => {
                assert!(error.to_string().contains("cut off"), "{error}");
            }
            other => panic!("{cut} bytes: {other:?}"),
        }
    }
}

#[test]
fn impossible_geometries_are_refused() {
    type Change = fn(&mut RawSuperblock);
    let changes: [(&str, Change); 18] = [
        ("no segments in a section", |s| s.segs_per_sec.set(0)),
        ("sections larger than the table", |s| {
            s.segs_per_sec.set(u32::MAX);
            s.section_count.set(1);
        }),
        ("sections that are no whole area", |s| s.section_count.set(s.section_count.get() + 1)),
        ("zones", |s| s.secs_per_zone.set(0)),
        ("sector sizes that overflow", |s| s.log_sectors_per_block.set(u32::MAX - 5)),
        ("sector size", |s| s.log_sectorsize.set(3)),
        ("blocks in a segment", |s| s.log_blocks_per_seg.set(10)),
        ("root inode", |s| s.root_ino.set(4)),
        ("payload", |s| s.cp_payload.set(504)),
        ("extensions", |s| s.extension_count.set(u32::MAX)),
        ("checkpoint area", |s| s.cp_blkaddr.set(0)),
        ("SIT area", |s| s.segment_count_sit.set(0)),
        ("NAT area", |s| s.segment_count_nat.set(u32::MAX)),
        ("SSA area", |s| s.ssa_blkaddr.set(u32::MAX)),
        ("main area", |s| s.segment_count_main.set(u32::MAX)),
        ("main area's start", |s| s.main_blkaddr.set(1)),
        ("segments", |s| s.segment_count.set(u32::MAX)),
        ("blocks", |s| s.block_count.set(0)),
    ];
    for (what, change) in changes {
        let device = with_superblock(change);
        assert!(matches!(try_open(&device, false), Err(Error::Damaged { structure: "superblock", .. })), "{what}");
    }
}

#[test]
fn a_table_with_more_nodes_than_numbers_is_refused() {
    // A sparse image of 20 TiB can say so for nothing.
    let editor = editor();
    let device = MemoryDevice::new(20 << 40, 512);
    let shape = |nat_segments: u32, per_section: u32, main: u32| {
        let mut s = *editor.geometry.superblock;
        s.segment_count_nat.set(nat_segments);
        s.ssa_blkaddr.set(s.nat_blkaddr.get() + nat_segments * 512);
        s.segment_count_ssa.set(main.div_ceil(512));
        s.main_blkaddr.set(s.ssa_blkaddr.get() + main.div_ceil(512) * 512);
        s.segment_count_main.set(main);
        s.segs_per_sec.set(per_section);
        s.section_count.set(main / per_section);
        s.segment_count.set(8_000_000);
        s.block_count.set(8_000_000 * 512);
        s.feature.set(0);
        s.crc.set(0);
        basalt_f2fs::Geometry::from_superblock(s, 0, &device).map(|geometry| geometry.node_ids())
    };
    assert!(shape(2 * 1000, 1, 1000).is_ok());
    let error = shape(2 * 19_000, 1, 1000).unwrap_err().to_string();
    assert!(error.contains("more than there are numbers"), "{error}");
}
