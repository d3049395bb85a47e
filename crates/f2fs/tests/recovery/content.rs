//! What a file holds, after its fsync and a power cut.

use basalt_vfs::{FallocateMode, FileSystem, SetAttributes, XattrFlags};

use crate::power::{Bench, content};

const KIB: usize = 1024;

/// Sizes that lie in the inode, in its own blocks, and below each of its nodes.
const SIZES: [usize; 7] = [0, 1, 100, 3000, 5000, 300 * KIB, 9000 * KIB];

#[test]
fn new_files_of_every_size() {
    let bench = Bench::new();
    for (seed, size) in SIZES.into_iter().enumerate() {
        let ino = bench.create(&format!("file {size}"));
        bench.fs.write(ino, 0, &content(seed as u64, size), false).unwrap();
        bench.fs.sync_file(ino, seed % 2 == 0).unwrap();
    }
    let after = bench.after_cut();
    for (seed, size) in SIZES.into_iter().enumerate() {
        assert_eq!(after.read(&format!("file {size}")), Some(content(seed as u64, size)), "{size} bytes");
    }
    assert!(after.fs.warnings().iter().any(|warning| warning.contains("7 files")), "{:?}", after.fs.warnings());
    after.close_clean("new files");
}

#[test]
fn from_every_size_to_every_other() {
    for before in SIZES {
        for now in SIZES {
            let bench = Bench::new();
            let ino = bench.create("file");
            bench.fs.write(ino, 0, &content(1, before), false).unwrap();
            bench.fs.sync().unwrap();
            let size = |size: usize| SetAttributes { size: Some(size as u64), ..SetAttributes::default() };
            bench.fs.set_attributes(ino, &size(now.min(before) / 2)).unwrap();
            bench.fs.sync_file(ino, false).unwrap();
            bench.fs.write(ino, (now / 2) as u64, &content(2, now - now / 2), false).unwrap();
            bench.fs.set_attributes(ino, &size(now)).unwrap();
            bench.fs.sync_file(ino, true).unwrap();
            let expected = bench.read("file");
            let after = bench.after_cut();
            assert!(after.read("file") == expected, "from {before} to {now} bytes");
            after.close_clean(&format!("from {before} to {now} bytes"));
        }
    }
}

#[test]
fn overwritten_blocks_holes_and_preallocation() {
    let bench = Bench::new();
    let ino = bench.create("file");
    bench.fs.write(ino, 0, &content(1, 6000 * KIB), false).unwrap();
    bench.fs.sync().unwrap();
    for step in 0..40_u64 {
        bench.fs.write(ino, step * 150_001, &content(step, 5000), false).unwrap();
        if step % 5 == 0 {
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            bench.fs.fallocate(ino, mode, step * 140_000, 70_000).unwrap();
        }
        bench.fs.sync_file(ino, true).unwrap();
    }
    bench.fs.fallocate(ino, FallocateMode::KEEP_SIZE, 7_000_000, 4_000_000).unwrap();
    bench.fs.sync_file(ino, false).unwrap();
    let (expected, attributes) = (bench.read("file"), bench.fs.attributes(ino).unwrap());
    let after = bench.after_cut();
    assert!(after.read("file") == expected);
    let now = after.fs.attributes(after.ino("file").unwrap()).unwrap();
    assert_eq!((now.size, now.sectors, now.mtime), (attributes.size, attributes.sectors, attributes.mtime));
    after.close_clean("overwritten");
}

#[test]
fn attributes_and_xattrs() {
    let bench = Bench::new();
    // Of the checkpoint: none, inline, in the node; then the same after it.
    let values = [None, Some(content(1, 40)), Some(content(2, 2000))];
    for (from, old) in values.iter().enumerate() {
        for (to, _) in values.iter().enumerate() {
            let ino = bench.create(&format!("{from} to {to}"));
            if let Some(old) = old {
                bench.fs.set_xattr(ino, b"user.value", old, XattrFlags::empty()).unwrap();
            }
        }
    }
    bench.fs.sync().unwrap();
    for (from, old) in values.iter().enumerate() {
        for (to, new) in values.iter().enumerate() {
            let ino = bench.ino(&format!("{from} to {to}")).unwrap();
            match (old, new) {
                (_, Some(new)) => bench.fs.set_xattr(ino, b"user.value", new, XattrFlags::empty()).unwrap(),
                (Some(_), None) => bench.fs.remove_xattr(ino, b"user.value").unwrap(),
                (None, None) => {}
            }
            let changes = SetAttributes { permissions: Some(0o611), uid: Some(7), gid: Some(8), ..Default::default() };
            bench.fs.set_attributes(ino, &changes).unwrap();
            bench.fs.sync_file(ino, false).unwrap();
        }
    }
    let new = bench.create("new");
    bench.fs.set_xattr(new, b"user.value", &content(3, 3000), XattrFlags::empty()).unwrap();
    bench.fs.sync_file(new, false).unwrap();
    let after = bench.after_cut();
    for (from, _) in values.iter().enumerate() {
        for (to, expected) in values.iter().enumerate() {
            let ino = after.ino(&format!("{from} to {to}")).unwrap();
            assert_eq!(after.fs.get_xattr(ino, b"user.value").ok(), *expected, "{from} to {to}");
            let attributes = after.fs.attributes(ino).unwrap();
            assert_eq!((attributes.permissions, attributes.uid, attributes.gid), (0o611, 7, 8), "{from} to {to}");
        }
    }
    assert_eq!(after.fs.get_xattr(after.ino("new").unwrap(), b"user.value").unwrap(), content(3, 3000));
    after.close_clean("attributes");
}

/// Whoever recovers must not take blocks behind the end for a size that was not written in time.
#[test]
fn an_allocation_that_fails_half_way_tells_of_blocks_behind_the_end() {
    const KEEP_SIZE: u8 = 0x10;
    for mode in [FallocateMode::empty(), FallocateMode::KEEP_SIZE, FallocateMode::ZERO_RANGE] {
        let bench = Bench::new();
        let (filler, ino) = (bench.create("filler"), bench.create("file"));
        bench.fs.write(ino, 0, &content(1, 10_000), false).unwrap();
        bench.fs.write(filler, 0, &content(2, 10_000), false).unwrap();
        let free = bench.fs.stat_fs().unwrap().free;
        bench.fs.fallocate(filler, FallocateMode::KEEP_SIZE, 0, (free - 300) * 4 * KIB as u64).unwrap();
        bench.fs.sync().unwrap();
        let refused = bench.fs.fallocate(ino, mode, 0, 400 * 4 * KIB as u64);
        assert!(matches!(refused, Err(basalt_vfs::Error::NoSpace)), "{mode:?}: {refused:?}");
        let attributes = bench.fs.attributes(ino).unwrap();
        assert!(attributes.size == 10_000 && attributes.sectors > 8 * 100, "{mode:?}: {attributes:?}");
        let advise = bench.fs.get_xattr(ino, b"system.advise").unwrap();
        assert_eq!(advise[0] & KEEP_SIZE, KEEP_SIZE, "{mode:?}");
        bench.fs.sync_file(ino, false).unwrap();
        let after = bench.after_cut();
        assert_eq!(after.fs.attributes(after.ino("file").unwrap()).unwrap().size, 10_000);
        after.close_clean("refused");
    }
}
