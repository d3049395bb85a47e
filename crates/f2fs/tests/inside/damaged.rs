//! Damage among inodes that are their own seals, and what was cut off behind it.

use super::*;

/// Six files with a page each that the checkpoint has, and the chain's first seal.
fn six_files() -> (Arc<MemoryDevice>, F2fs, Vec<InodeNumber>) {
    let (device, fs, _) = usual();
    let files: Vec<_> = (0..6).map(|number| create(&fs, &format!("file{number}"))).collect();
    files.iter().for_each(|ino| _ = fs.write(*ino, 0, &[1; 20 * BLOCK as usize], false).unwrap());
    fs.sync().unwrap();
    let again = create(&fs, "again");
    sync(&fs, again);
    (device, fs, files)
}

/// Writes page 3 of each of these files, with an fsync each: the blocks of their inodes.
fn fsync_each(device: &MemoryDevice, fs: &F2fs, files: &[InodeNumber]) -> Vec<u64> {
    for ino in files {
        write_page(fs, *ino, 3, 9);
        sync(fs, *ino);
    }
    let all = insides(device);
    all[all.len() - files.len()..].to_vec()
}

/// Page 3 of each file, once the volume is repaired.
fn after_repair(hurt: &Arc<MemoryDevice>, files: &[InodeNumber], what: &str) -> Vec<u8> {
    let planned = plan(hurt.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(planned.commit().unwrap().clean, "{what}");
    let fs = open(hurt, Deltas::Auto);
    files.iter().map(|ino| contents(&fs, *ino)[3 * BLOCK as usize]).collect()
}

/// A part of an inode is damaged, and others follow that had returned: it is the only one that does not count.
#[test]
fn a_part_of_the_first_damaged_one_counts_for_nothing() {
    let (device, fs, files) = six_files();
    let chain = fsync_each(&device, &fs, &files);
    for (sector, fill) in (0..8).flat_map(|sector| [(sector, 0), (sector, 0x33)]) {
        let (what, at) = (format!("sector {sector}, {fill:#x}"), chain[2] * BLOCK + sector * 512);
        let hurt = Arc::new(device.snapshot());
        let mut was = [0; 512];
        hurt.read_at(at, &mut was).unwrap();
        if was != [fill; 512] {
            hurt.write_at(at, &[fill; 512]).unwrap();
            assert_eq!(after_repair(&hurt, &files, &what), [9, 9, 1, 9, 9, 9], "{what}");
        }
    }
}

/// An inode that was its own seal is written again with a seal, which is lost: the inode says nothing of the time before.
#[test]
fn an_inode_behind_a_lost_seal_counts_though_it_was_its_own_before() {
    let (device, fs, files) = six_files();
    let seal = fsync_each(&device, &fs, &files[..1])[0] + 1;
    [5, 8].into_iter().for_each(|page| write_page(&fs, files[0], page, 9));
    sync(&fs, files[0]);
    fsync_each(&device, &fs, &files[1..]);
    let mut bytes = vec![0; BLOCK as usize];
    device.read_at(seal * BLOCK, &mut bytes).unwrap();
    assert!(Seal::of_block(&bytes).is_some());
    let hurt = Arc::new(device.snapshot());
    hurt.write_at(seal * BLOCK, &[0x33; BLOCK as usize]).unwrap();
    assert_eq!(after_repair(&hurt, &files, "a seal"), [9; 6]);
    let found = contents(&open(&hurt, Deltas::Auto), files[0]);
    assert_eq!([5, 8].map(|page| found[page * BLOCK as usize]), [9, 9]);
}

/// One that had returned is damaged, and the page of the last one did not arrive: neither counts, and those between them do.
#[test]
fn behind_damage_what_was_cut_off_does_not_count() {
    let (device, fs, files) = six_files();
    let mut chain = fsync_each(&device, &fs, &files[..4]);
    let before = device.snapshot();
    chain.extend(fsync_each(&device, &fs, &files[4..5]));
    let hurt = Arc::new(device.snapshot());
    hurt.write_at(chain[1] * BLOCK, &[0x33; BLOCK as usize]).unwrap();
    let mut bytes = vec![0; BLOCK as usize];
    hurt.read_at(chain[4] * BLOCK, &mut bytes).unwrap();
    let page = u64::from(RawInode::ref_from_bytes(&bytes).unwrap().addresses(false)[3].get());
    before.read_at(page * BLOCK, &mut bytes).unwrap();
    hurt.write_at(page * BLOCK, &bytes).unwrap();
    assert_eq!(after_repair(&hurt, &files, "one and the last"), [9, 1, 9, 9, 1, 1]);
}

/// Two inodes are damaged, of the last one a part alone: whatever that has left of it, it costs no other fsync.
#[test]
fn a_part_of_an_inode_counts_for_nothing() {
    let (device, fs, ino) = usual();
    for round in 2..12 {
        write_page(&fs, ino, u64::from(round), round);
        sync(&fs, ino);
    }
    let chain = insides(&device);
    let other = create(&fs, "other");
    (0..3).for_each(|number| change_mode(&fs, other, number));
    for (sector, fill) in (0..8).flat_map(|sector| [(sector, 0), (sector, 0x33)]) {
        let what = format!("sector {sector}, {fill:#x}");
        let hurt = Arc::new(device.snapshot());
        hurt.write_at(chain[2] * BLOCK, &[0x33; BLOCK as usize]).unwrap();
        hurt.write_at(chain[9] * BLOCK + sector * 512, &[fill; 512]).unwrap();
        assert!(plan(hurt.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap().clean, "{what}");
        let found = contents(&open(&hurt, Deltas::Auto), ino);
        let pages: Vec<u8> = (2..12).map(|page| found[page * BLOCK as usize]).collect();
        assert_eq!(pages[..9], [2, 3, 4, 5, 6, 7, 8, 9, 10], "{what}");
    }
}

/// An fsync that had returned is damaged, and only inodes that are their own seals follow: they say that it was durable.
#[test]
fn what_was_fsynced_behind_damage_is_not_given_up() {
    let (device, fs, ino) = usual();
    for round in 2..12 {
        write_page(&fs, ino, u64::from(round), round);
        sync(&fs, ino);
    }
    let chain = insides(&device);
    assert_eq!(chain.len(), 10);
    for lost in [0, 4, 8] {
        for is_data in [false, true] {
            let what = format!("number {lost}, data {is_data}");
            let hurt = Arc::new(device.snapshot());
            let mut bytes = vec![0; BLOCK as usize];
            hurt.read_at(chain[lost] * BLOCK, &mut bytes).unwrap();
            let raw = RawInode::ref_from_bytes(&bytes).unwrap();
            let page = raw.addresses(false)[lost + 2].get();
            let bad = if is_data { u64::from(page) } else { chain[lost] };
            hurt.write_at(bad * BLOCK, &[0x33; BLOCK as usize]).unwrap();
            let report = check(&*hurt, &CheckOptions::default(), &mut |_| ()).unwrap();
            assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::FsyncLost), "{what}: {report:?}");
            assert!(!open(&hurt, Deltas::Auto).is_writable(), "{what}");
            let repaired = hurt.clone();
            assert!(plan(repaired, &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap().clean, "{what}");
            let fs = open(&hurt, Deltas::Auto);
            let found = contents(&fs, ino);
            for round in 2..12_usize {
                let expected = if is_data && round == lost + 2 { 0x33 } else { round as u8 };
                assert_eq!(found[round * BLOCK as usize], expected, "{what}: round {round}");
            }
        }
    }
    // The last may be one that power cut off.
    let hurt = Arc::new(device.snapshot());
    hurt.write_at(chain[9] * BLOCK, &[0x33; BLOCK as usize]).unwrap();
    let fs = open(&hurt, Deltas::Auto);
    assert!(fs.is_writable() && contents(&fs, ino)[11 * BLOCK as usize] == 1, "{:?}", fs.warnings());
}

/// Behind damage of what was durable, one of two fsyncs under way did not arrive. What the other one's seal lists is there, but not all that it points to.
#[test]
fn one_with_a_seal_does_not_count_behind_a_cut_off_one_either() {
    let (device, fs, ino) = usual();
    for page in [2, 3] {
        write_page(&fs, ino, page, 9);
        sync(&fs, ino);
    }
    let before = device.snapshot();
    write_page(&fs, ino, 4, 9);
    sync(&fs, ino);
    [6, 9].into_iter().for_each(|page| write_page(&fs, ino, page, 9));
    sync(&fs, ino);
    let chain = insides(&device);
    let image = Arc::new(device.snapshot());
    // The flush of the one before was not over when the seal was written, which lies behind it.
    let at = chain[2] + 1;
    let mut bytes = vec![0; BLOCK as usize];
    image.read_at(at * BLOCK, &mut bytes).unwrap();
    let footer = RawNode::read_from_bytes(&bytes).unwrap().footer;
    let seal = Seal::of_block(&bytes).unwrap();
    let durable = seal.position.unwrap() - 1;
    let said = Seal { durable, ..seal }.encode(footer.cp_ver.get(), footer.next_blkaddr.into());
    image.write_at(at * BLOCK, &said.0).unwrap();
    // Neither the inode nor its page arrived.
    image.read_at(chain[2] * BLOCK, &mut bytes).unwrap();
    let page = RawInode::read_from_bytes(&bytes).unwrap().addresses(false)[4].get();
    for lost in [chain[2], u64::from(page)] {
        before.read_at(lost * BLOCK, &mut bytes).unwrap();
        image.write_at(lost * BLOCK, &bytes).unwrap();
    }
    image.write_at(chain[0] * BLOCK, &[0x33; BLOCK as usize]).unwrap();
    assert!(plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap().clean);
    let found = contents(&open(&image, Deltas::Auto), ino);
    assert_eq!([2, 3, 4, 6, 9].map(|page| found[page * BLOCK as usize]), [9, 9, 1, 1, 1]);
}

/// Of two fsyncs under way at once, the first one's inode has not arrived, and the second one's cannot be read: it does not count without
/// the first, whose page it points to and does not list.
#[test]
fn one_that_follows_a_cut_off_one_does_not_count() {
    let (device, fs, ino) = usual();
    write_page(&fs, ino, 2, 9);
    sync(&fs, ino);
    let before = device.snapshot();
    for page in [3, 4] {
        write_page(&fs, ino, page, 9);
        sync(&fs, ino);
    }
    let chain = insides(&device);
    let image = device.snapshot();
    let mut bytes = vec![0; BLOCK as usize];
    image.read_at(chain[2] * BLOCK, &mut bytes).unwrap();
    // The flush of the first was not over when the second one was written.
    let said = Inside::of_block(&bytes, Address::new(chain[2] as u32)).unwrap();
    assert_eq!(said.undurable, Some(0));
    say(&image, chain[2], &Inside { undurable: Some(1), ..said });
    before.read_at(chain[1] * BLOCK, &mut bytes).unwrap();
    image.write_at(chain[1] * BLOCK, &bytes).unwrap();
    let image = Arc::new(image);
    let fs = open(&image, Deltas::Auto);
    assert!(fs.is_writable(), "{:?}", fs.warnings());
    let found = contents(&fs, ino);
    assert_eq!([2, 3, 4].map(|page| found[page * BLOCK as usize]), [9, 1, 1]);
}
