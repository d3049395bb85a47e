//! mkfs: what it writes is what mkfs.f2fs writes for the same size, and fsck.f2fs has nothing to say about it.

use std::path::Path;
use std::process::Command;

use basalt_device::{BlockDevice, FileDevice, MemoryDevice, OpenOptions};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::plan::minimum_size;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::Ino;
use basalt_f2fs::layout::checkpoint::RawCheckpoint;
use basalt_f2fs::layout::inode::RawInode;
use basalt_f2fs::layout::superblock::{Features, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use basalt_f2fs::probe::probe;
use basalt_f2fs::{Error, Geometry};
use basalt_vfs::Time;
use zerocopy::{FromBytes, IntoBytes};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn options(per_section: u32, features: Features) -> FormatOptions {
    FormatOptions {
        label: "Bäsalt".into(),
        segments_per_section: per_section,
        features,
        discard_reads_zeros: true,
        time: Time { seconds: 1_700_000_000, nanoseconds: 5 },
        ..FormatOptions::default()
    }
}

fn make(path: &Path, size: u64, options: &FormatOptions) -> Result<(), Error> {
    let device = FileDevice::create(path, size)?;
    format(&device, options, &mut |done, total| assert!(done <= total))?;
    Ok(())
}

fn open(path: &Path) -> FileDevice {
    FileDevice::open(path, &OpenOptions::default()).unwrap()
}

/// Exit code and output of fsck.f2fs, a full check without repair.
fn fsck(path: &Path) -> (Option<i32>, String) {
    let output = Command::new("fsck.f2fs").arg("--dry-run").arg(path).output().expect("fsck.f2fs is installed");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn assert_fsck_clean(path: &Path) {
    let (code, output) = fsck(path);
    assert_eq!(code, Some(0), "{output}");
    for complaint in ["[FAIL]", "[ASSERT]", "[FIX]", "Error", "WARN"] {
        assert!(!output.contains(complaint), "{complaint}: {output}");
    }
}

fn read<T: FromBytes>(device: &dyn BlockDevice, offset: u64) -> T {
    let mut bytes = vec![0; size_of::<T>()];
    device.read_at(offset, &mut bytes).unwrap();
    T::read_from_bytes(&bytes).unwrap()
}

fn superblock(device: &dyn BlockDevice) -> RawSuperblock {
    assert!(SUPERBLOCK_SIZE == size_of::<RawSuperblock>());
    read(device, SUPERBLOCK_OFFSET as u64)
}

/// Makes the same volume with mkfs.f2fs, with the same UUID; `None` if it refuses.
fn reference(path: &Path, size: u64, per_section: u32, features: &str) -> Option<FileDevice> {
    drop(FileDevice::create(path, size).unwrap());
    let mut command = Command::new("mkfs.f2fs");
    command.args(["-q", "-l", "Bäsalt", "-U", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "-s", &per_section.to_string()]);
    if !features.is_empty() {
        command.args(["-O", features]);
    }
    let status = command.arg(path).output().expect("mkfs.f2fs is installed").status;
    status.success().then(|| open(path))
}

const UUID: [u8; 16] = *b"\x6b\xa7\xb8\x10\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8";

/// Compares without printing kilobytes.
fn assert_same(what: &str, ours: &[u8], theirs: &[u8]) {
    let different = ours.iter().zip(theirs).position(|(a, b)| a != b);
    assert!(different.is_none(), "{what} differs from byte {different:?}");
}

fn assert_same_volume(ours: &dyn BlockDevice, theirs: &dyn BlockDevice) {
    let (mut our_sb, their_sb) = (superblock(ours), superblock(theirs));
    assert!(our_sb.version.starts_with(b"Basalt "));
    (our_sb.version, our_sb.init_version, our_sb.crc) = (their_sb.version, their_sb.init_version, their_sb.crc);
    assert_same("superblock", our_sb.as_bytes(), their_sb.as_bytes());

    let checkpoint = u64::from(our_sb.cp_blkaddr.get()) * 4096;
    let (mut our_cp, their_cp): (RawCheckpoint, RawCheckpoint) = (read(ours, checkpoint), read(theirs, checkpoint));
    assert!(our_cp.checkpoint_ver.get() % 2 == 1);
    our_cp.checkpoint_ver = their_cp.checkpoint_ver;
    // mkfs.f2fs also promises that everything is discarded, and writes redundant NAT bits.
    our_cp.ckpt_flags.set(our_cp.ckpt_flags.get() | 0x180);
    let mut their_cp = their_cp;
    their_cp.ckpt_flags.set(their_cp.ckpt_flags.get() | 0x180);
    if their_cp.free_segment_count.get() != their_sb.segment_count_main.get() - 6 {
        // mkfs.f2fs 1.15 counts segments behind the last section as free, and computes the reserve from that; its own fsck
        // complains. Ours is right.
        their_cp.free_segment_count = our_cp.free_segment_count;
        their_cp.rsvd_segment_count = our_cp.rsvd_segment_count;
        their_cp.overprov_segment_count = our_cp.overprov_segment_count;
        their_cp.user_block_count = our_cp.user_block_count;
    }
    assert_same("checkpoint", our_cp.as_bytes(), their_cp.as_bytes());

    let main = u64::from(our_sb.main_blkaddr.get());
    let root = (main + u64::from(our_cp.cur_node_segno[0].get()) * 512) * 4096;
    for inode in 0..u64::from(our_cp.valid_inode_count.get()) {
        assert_same_inode(read(ours, root + inode * 4096), read(theirs, root + inode * 4096));
    }
    let names = (main + u64::from(our_cp.cur_data_segno[0].get()) * 512) * 4096;
    for block in 0..u64::from(our_cp.valid_inode_count.get()) {
        let (a, b): ([u8; 4096], [u8; 4096]) = (read(ours, names + block * 4096), read(theirs, names + block * 4096));
        assert_same("directory block", &a, &b);
    }
}

fn assert_same_inode(mut ours: RawInode, theirs: RawInode) {
    ours.i_atime = theirs.i_atime;
    ours.i_mtime = theirs.i_mtime;
    ours.i_ctime = theirs.i_ctime;
    ours.i_atime_nsec = theirs.i_atime_nsec;
    ours.i_mtime_nsec = theirs.i_mtime_nsec;
    ours.i_ctime_nsec = theirs.i_ctime_nsec;
    ours.footer.cp_ver = theirs.footer.cp_ver;
    if theirs.has_extra(12) {
        ours.extra_mut().i_inode_checksum = theirs.extra().i_inode_checksum;
    }
    if theirs.has_extra(24) {
        ours.extra_mut().i_crtime = theirs.extra().i_crtime;
        ours.extra_mut().i_crtime_nsec = theirs.extra().i_crtime_nsec;
    }
    assert_same("inode", ours.as_bytes(), theirs.as_bytes());
}

const DEFAULT: &str = "extra_attr,inode_checksum,sb_checksum,inode_crtime,lost_found";

#[test]
fn volumes_are_those_of_mkfs_f2fs() {
    let directory = basalt_testkit::scratch::directory().unwrap();
    let sizes =
        [52 * MIB, 53 * MIB + 4096, 64 * MIB, 100 * MIB, 300 * MIB, GIB, 64 * GIB, 500 * GIB + 12_288, 2048 * GIB];
    let mut compared = 0;
    for size in sizes {
        for per_section in [1, 2, 4, 16] {
            let path = directory.path().join("theirs");
            let theirs = reference(&path, size, per_section, DEFAULT);
            let ours = MemoryDevice::new(size, 512);
            let mut options = options(per_section, FormatOptions::DEFAULT_FEATURES);
            options.uuid = Some(UUID);
            let made = format(&ours, &options, &mut |_, _| ());
            assert_eq!(made.is_ok(), theirs.is_some(), "{size} bytes, {per_section} segments a section: {made:?}");
            if let Some(theirs) = theirs {
                assert_same_volume(&ours, &theirs);
                compared += 1;
            }
            std::fs::remove_file(path).unwrap();
        }
    }
    assert!(compared >= 24, "only {compared} volumes compared");
}

#[test]
fn features_change_what_mkfs_f2fs_changes() {
    let directory = basalt_testkit::scratch::directory().unwrap();
    let cases = [
        ("", Features::empty()),
        ("extra_attr", Features::EXTRA_ATTR),
        ("extra_attr,flexible_inline_xattr", Features::EXTRA_ATTR | Features::FLEXIBLE_INLINE_XATTR),
        (
            "encrypt,verity,extra_attr,inode_checksum,compression",
            Features::ENCRYPT
                | Features::VERITY
                | Features::EXTRA_ATTR
                | Features::INODE_CHECKSUM
                | Features::COMPRESSION,
        ),
        ("lost_found", Features::LOST_FOUND),
    ];
    for (names, features) in cases {
        let path = directory.path().join("theirs");
        let theirs = reference(&path, 300 * MIB, 1, names).unwrap_or_else(|| panic!("mkfs.f2fs refuses {names}"));
        let path_of_ours = directory.path().join("ours");
        make(&path_of_ours, 300 * MIB, &FormatOptions { uuid: Some(UUID), ..options(1, features) }).unwrap();
        assert_fsck_clean(&path_of_ours);
        assert_same_volume(&open(&path_of_ours), &theirs);
        drop(theirs);
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(path_of_ours).unwrap();
    }
}

#[test]
fn fsck_f2fs_has_nothing_to_say() {
    let directory = basalt_testkit::scratch::directory().unwrap();
    for (size, per_section) in
        [(52 * MIB, 1), (100 * MIB, 2), (130 * MIB, 4), (512 * MIB, 16), (GIB, 1), (64 * GIB, 16), (2048 * GIB, 1)]
    {
        let path = directory.path().join("image");
        make(&path, size, &options(per_section, FormatOptions::DEFAULT_FEATURES)).unwrap();
        assert_fsck_clean(&path);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn old_content_does_not_shine_through() {
    let directory = basalt_testkit::scratch::directory().unwrap();
    let path = directory.path().join("image");
    for discard in [true, false] {
        let garbage: Vec<u8> =
            (0..80 * MIB as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(&path, garbage).unwrap();
        let device = open(&path);
        let options = FormatOptions { discard, discard_reads_zeros: false, ..FormatOptions::default() };
        format(&device, &options, &mut |_, _| ()).unwrap();
        drop(device);
        assert_fsck_clean(&path);
    }
}

#[test]
fn sections_of_a_partition_begin_at_multiples_of_their_size_on_the_disk() {
    let directory = basalt_testkit::scratch::directory().unwrap();
    let path = directory.path().join("image");
    for (per_section, disk_offset) in [(1, MIB), (1, 4 * MIB), (2, MIB), (2, 2 * MIB), (3, 5 * MIB), (8, 15 * MIB)] {
        let options = FormatOptions {
            disk_offset,
            journal_bytes: FormatOptions::DEFAULT_JOURNAL_BYTES,
            ..options(per_section, FormatOptions::DEFAULT_FEATURES)
        };
        let _ = std::fs::remove_file(&path);
        make(&path, 300 * MIB + 4096, &options).unwrap();
        let sb: RawSuperblock = read(&open(&path), SUPERBLOCK_OFFSET as u64);
        let section = u64::from(per_section) * 2 * MIB;
        for address in [sb.segment0_blkaddr, sb.main_blkaddr] {
            let place = disk_offset + u64::from(address.get()) * 4096;
            assert!(place.is_multiple_of(section), "{per_section} segments a section, {disk_offset}: at {place}");
        }
        let front = u64::from(sb.segment0_blkaddr.get()) * 4096;
        assert!((2 * MIB..section + 2 * MIB).contains(&front), "{front} bytes in front of segment 0");
        assert_fsck_clean(&path);
    }
}

#[test]
fn a_device_that_begins_between_mebibytes_is_laid_out_as_a_disk() {
    let layout = |disk_offset| {
        let device = MemoryDevice::new(300 * MIB, 512);
        let options = FormatOptions { disk_offset, ..FormatOptions::default() };
        format(&device, &options, &mut |_, _| ()).unwrap();
        let sb: RawSuperblock = read(&device, SUPERBLOCK_OFFSET as u64);
        (sb.segment0_blkaddr.get(), sb.main_blkaddr.get(), sb.segment_count.get())
    };
    assert_eq!(layout(63 * 512), layout(0));
    assert_eq!(layout(34 * 512), layout(0));
}

#[test]
fn a_device_too_small_is_told_the_least_size() {
    for (per_section, percent, disk_offset) in
        [(1, None, 0), (2, None, 0), (4, None, MIB), (16, None, 0), (1, Some(20.0), 2 * MIB), (1, None, MIB)]
    {
        let least = minimum_size(per_section, percent, disk_offset).unwrap();
        let mut options = options(per_section, FormatOptions::DEFAULT_FEATURES);
        (options.overprovision_percent, options.disk_offset) = (percent, disk_offset);
        let device = MemoryDevice::new(least - 4096, 512);
        let error = format(&device, &options, &mut |_, _| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("({least} bytes)")), "{error}");
        assert_eq!(device.counters().writes, 0);
        format(&MemoryDevice::new(least, 512), &options, &mut |_, _| ()).unwrap();
    }
    for size in [0, 1, 4096, 2 * MIB] {
        assert!(format(&MemoryDevice::new(size, 512), &FormatOptions::default(), &mut |_, _| ()).is_err());
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |change: &dyn Fn(&mut FormatOptions)| {
        let device = MemoryDevice::new(300 * MIB, 512);
        let mut options = FormatOptions::default();
        change(&mut options);
        let error = format(&device, &options, &mut |_, _| ()).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!(device.counters().writes, 0);
    };
    refused(&|options| options.segments_per_section = 0);
    refused(&|options| options.segments_per_section = u32::MAX);
    for percent in [0.0, -1.0, 100.0, f64::NAN, f64::INFINITY] {
        refused(&|options| options.overprovision_percent = Some(percent));
    }
    refused(&|options| options.label = "x".repeat(512));
    refused(&|options| options.features = Features::INODE_CHECKSUM);
    refused(&|options| options.features = Features::CASEFOLD);
    refused(&|options| options.features = Features::from_bits_retain(0x8000_0000));
}

#[test]
fn sectors_of_4096_bytes() {
    let device = MemoryDevice::new(300 * MIB, 4096);
    format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
    let sb = superblock(&device);
    assert_eq!((sb.log_sectorsize.get(), sb.log_sectors_per_block.get()), (12, 0));
    let (geometry, warning) = Geometry::read(&device).unwrap();
    assert!(warning.is_none() && geometry.root_ino == Ino::new(3));
}

#[test]
fn a_terabyte_takes_little_memory_and_time() {
    let device = MemoryDevice::new(1 << 40, 512);
    let start = std::time::Instant::now();
    format(&device, &options(1, FormatOptions::DEFAULT_FEATURES), &mut |_, _| ()).unwrap();
    assert!(device.allocated() < 4 * MIB, "{} bytes written", device.allocated());
    assert!(start.elapsed().as_secs() < 5);
}

/// Blocks are numbered below 2^32 - 1: of a larger device the last ones stay unused.
#[test]
fn what_mkfs_makes_of_16_tib_and_more_can_be_read() {
    for (size, per_section) in [((16 << 40) - 2 * MIB, 1), (16 << 40, 1), (16 << 40, 4), (17 << 40, 1), (20 << 40, 8)] {
        let device = MemoryDevice::new(size, 4096);
        format(&device, &options(per_section, FormatOptions::DEFAULT_FEATURES), &mut |_, _| ()).unwrap();
        let (geometry, warning) = Geometry::read(&device).unwrap();
        assert!(warning.is_none() && geometry.main_segments > 8_300_000, "{size}: {} segments", geometry.main_segments);
    }
}

#[test]
fn probe_names_what_is_there() {
    let device = MemoryDevice::new(80 * MIB, 512);
    assert_eq!(probe(&device).unwrap(), None);
    format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
    assert_eq!(probe(&device).unwrap(), Some("f2fs"));
    for size in [0, 100, 512, 5000] {
        assert_eq!(probe(&MemoryDevice::new(size, 512)).unwrap(), None);
    }
}

#[test]
fn probe_knows_what_other_tools_make() {
    let directory = basalt_testkit::scratch::directory().unwrap();
    let cases: [(&str, &[&str], &str); 8] = [
        ("mkfs.ext2", &["-q", "-F"], "ext2"),
        ("mkfs.ext3", &["-q", "-F"], "ext3"),
        ("mkfs.ext4", &["-q", "-F"], "ext4"),
        ("mkfs.xfs", &["-q", "-f"], "xfs"),
        ("mkfs.btrfs", &["-q", "-f"], "btrfs"),
        ("mkfs.vfat", &[], "vfat"),
        ("mkswap", &["-q"], "swap"),
        ("mkfs.f2fs", &["-q", "-f"], "f2fs"),
    ];
    let mut known = 0;
    for (tool, arguments, name) in cases {
        let path = directory.path().join(tool);
        drop(FileDevice::create(&path, 400 * MIB).unwrap());
        // A tool that is not installed here is skipped; e2fsprogs and f2fs-tools always are.
        let Ok(output) = Command::new(tool).args(arguments).arg(&path).output() else {
            continue;
        };
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
        let device = open(&path);
        assert_eq!(probe(&device).unwrap(), Some(name), "{tool}");
        format(&device, &options(1, FormatOptions::DEFAULT_FEATURES), &mut |_, _| ()).unwrap();
        assert_eq!(probe(&device).unwrap(), Some("f2fs"), "after {tool}");
        known += 1;
    }
    assert!(known >= 4, "only {known} tools are installed");
}

#[test]
fn linux_mounts_and_fills_what_we_made() {
    let Some(uml) = basalt_testkit::Uml::new_or_skip() else { return };
    // Linux keeps every segment's state in memory.
    let mut uml = uml.memory_mib(1536);
    let directory = basalt_testkit::scratch::directory().unwrap();
    let cases = [
        (52 * MIB, 1, FormatOptions::DEFAULT_FEATURES),
        (300 * MIB, 1, Features::empty()),
        (300 * MIB, 2, FormatOptions::DEFAULT_FEATURES),
        (300 * MIB, 4, FormatOptions::DEFAULT_FEATURES | Features::FLEXIBLE_INLINE_XATTR),
        (GIB, 16, FormatOptions::DEFAULT_FEATURES | Features::PROJECT_QUOTA),
        // So large that the SIT's bitmap does not fit the checkpoint block.
        (3500 * GIB, 1, FormatOptions::DEFAULT_FEATURES),
    ];
    let mut script = "set -e; mkdir /run/mnt\n".to_owned();
    let mut images = Vec::new();
    for ((size, per_section, features), letter) in cases.into_iter().zip('a'..) {
        let path = directory.path().join(format!("{letter}.img"));
        make(&path, size, &options(per_section, features)).unwrap();
        script.push_str(&format!(
            "mount -t f2fs /dev/ubd{letter} /run/mnt
             $TESTKIT build /run/mnt 5 files=50,directories=5,crowded=100,max-size=50000
             umount /run/mnt\n"
        ));
        uml = uml.image(&path);
        images.push(path);
    }
    uml.run_script(&script).unwrap().expect_success();
    for path in images {
        assert_fsck_clean(&path);
        let report = check(&open(&path), &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.faults.is_empty() && report.counts.files > 50, "{:#?}", report.faults);
    }
}
