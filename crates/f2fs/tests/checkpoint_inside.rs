//! Damage inside the newest checkpoint pack, of which both ends are whole: the summaries of the logs, and the journals with the newest
//! entries of NAT and SIT, have no checksum.

#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::sync::Arc;

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice};
use basalt_f2fs::SystemClock;
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::layout::summary::{JOURNAL_SIZE, encode_journal, nat_journal, sit_journal};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_vfs::FileSystem;
use packs::{BLOCK, FILES, Outcome, both, files, fill, fresh, last, make, open, unreadable};

/// Volumes whose newest checkpoint has entries of the NAT that the table itself has not: of new files, and of such as were written again.
fn volumes() -> Vec<(&'static str, MemoryDevice)> {
    let (is_unmounted, is_synced) = (true, false);
    vec![
        ("new files, unmounted", new_files(is_unmounted)),
        ("new files, in use", new_files(is_synced)),
        ("written again, unmounted", written_again(is_unmounted)),
        ("written again, in use", written_again(is_synced)),
    ]
}

fn new_files(is_unmounted: bool) -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 38);
    fs.close().unwrap();
    drop(fs);
    let fs = open(device.clone());
    make(&fs, 38, FILES);
    end(&fs, is_unmounted);
    let image = device.snapshot();
    drop(fs);
    image
}

fn written_again(is_unmounted: bool) -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let inos = [3, 5].map(|number| fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino);
    inos.into_iter().for_each(|ino| assert_eq!(fs.write(ino, 0, &[0; 9_000], false).unwrap(), 9_000));
    fs.close().unwrap();
    drop(fs);
    let fs = open(device.clone());
    for (ino, value) in inos.into_iter().zip([3, 5]) {
        fs.write(ino, 0, &[value; 9_000], false).unwrap();
    }
    end(&fs, is_unmounted);
    let image = device.snapshot();
    drop(fs);
    image
}

fn end(fs: &basalt_f2fs::F2fs, is_unmounted: bool) {
    if is_unmounted { fs.close().unwrap() } else { fs.sync().unwrap() }
}

#[test]
fn what_only_the_journal_has_is_found_without_it() {
    for (name, volume) in volumes() {
        let newest = both(&volume)[0].clone();
        for block in u64::from(newest.start) + 1..last(&newest) {
            for byte in [0, 0x5A, 0xFF] {
                let image = volume.snapshot();
                fill(&image, block, 1, byte);
                let found = Outcome::of(&image, files);
                let what = format!("{name}, block {} of {byte:#x}: {found:?}", block - u64::from(newest.start));
                assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES) && found.losses == 0, "{what}");
                assert!(!found.is_writable || found.mounted == Some(FILES), "{what}");
            }
        }
    }
}

#[test]
fn what_only_the_journal_has_is_found_where_a_block_of_the_pack_cannot_be_read() {
    for (name, volume) in volumes() {
        let newest = both(&volume)[0].clone();
        for block in u64::from(newest.start) + 1..last(&newest) {
            let device = Arc::new(FaultyDevice::new(volume.snapshot()));
            unreadable(&device, block * BLOCK..(block + 1) * BLOCK);
            let device: Arc<dyn BlockDevice> = device;
            let found = Rescued::open(device, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
            let what = format!("{name}, block {}: {:?}", block - u64::from(newest.start), found.report());
            assert_eq!(files(&found), FILES, "{what}");
        }
    }
}

/// A block that looks like one without entries, where the volume could be mounted otherwise: no table contradicts, and nothing may be written.
#[test]
fn a_mount_without_the_journal_is_only_to_read() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let ino = fs.lookup(fs.root(), b"file3").unwrap().ino;
    // Of more segments than a journal has room for.
    fs.write(ino, 0, &vec![3; 20 << 20], false).unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = open(device.clone());
    fs.write(ino, 0, &[4; 9_000], false).unwrap();
    fs.close().unwrap();
    drop(fs);
    let volume = device.snapshot();
    let newest = both(&volume)[0].clone();
    fill(&volume, u64::from(newest.start) + 1, 1, 0);
    let report = check(&volume, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::NatJournal), "{:?}", report.faults);
    let fs = open(Arc::new(volume));
    assert!(!fs.is_writable() && fs.warnings().iter().any(|line| line.contains("NAT journal")), "{:?}", fs.warnings());
}

/// Writes the files from `from` to `to` again, full of `value`, or each of its own number.
fn rewrite(fs: &basalt_f2fs::F2fs, numbers: std::ops::Range<u64>, value: Option<u8>) {
    for number in numbers {
        let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
        assert_eq!(fs.write(ino, 0, &[value.unwrap_or(number as u8); 9_000], false).unwrap(), 9_000);
    }
}

/// Where the journals of a pack with compact summaries are, and what they are.
fn journals(image: &MemoryDevice) -> (u64, [[u8; JOURNAL_SIZE]; 2]) {
    let newest = both(image)[0].clone();
    let at = u64::from(newest.start + newest.raw.cp_pack_start_sum.get()) * BLOCK;
    let mut block = [0; BLOCK as usize];
    image.read_at(at, &mut block).unwrap();
    (at, [0, JOURNAL_SIZE].map(|first| block[first..first + JOURNAL_SIZE].try_into().unwrap()))
}

fn overwrite(image: &MemoryDevice, at: u64, bytes: &[u8]) {
    let mut block = [0; BLOCK as usize];
    image.read_at(at / BLOCK * BLOCK, &mut block).unwrap();
    block[(at % BLOCK) as usize..][..bytes.len()].copy_from_slice(bytes);
    image.write_at(at / BLOCK * BLOCK, &block).unwrap();
}

/// The journal of the SIT is empty; that of the NAT in the same block is whole, or lacks too little to tell: both are gone.
#[test]
fn a_journal_beside_one_that_is_contradicted_does_not_count() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    fs.sync().unwrap();
    // With the new files these are more entries than a journal has room for: all are in the table then.
    rewrite(&fs, 0..30, Some(0xEE));
    make(&fs, 100, 110);
    fs.sync().unwrap();
    rewrite(&fs, 39..FILES, None);
    fs.sync().unwrap();
    rewrite(&fs, 0..30, None);
    fs.sync().unwrap();
    let image = device.snapshot();
    let inos: Vec<u64> =
        (0..7).map(|number| fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino).collect();
    drop(fs);
    let (at, [nat, sit]) = journals(&image);
    let entries = nat_journal(&nat).unwrap();
    let kept: Vec<_> = entries.iter().filter(|one| !inos.contains(&one.nid.get().into())).copied().collect();
    assert_eq!(kept.len() + inos.len(), entries.len());
    assert!(!sit_journal(&sit).unwrap().is_empty());
    overwrite(&image, at + JOURNAL_SIZE as u64, &[0; JOURNAL_SIZE]);
    for what in ["whole", "short"] {
        let report = check(&image, &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::SitJournal), "{what}: {:?}", report.faults);
        let found = Outcome::of(&image, files);
        assert!(!found.is_writable, "{what}: {found:?}");
        assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES) && found.is_mended, "{what}: {found:?}");
        overwrite(&image, at, &encode_journal(&kept));
    }
}

/// Power cut a checkpoint that wrote every file, and then one was made that wrote less: nodes of the first lie behind those of the second, under
/// the same version.
#[test]
fn what_lies_behind_the_nodes_of_the_checkpoint_was_given_up() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    fs.sync().unwrap();
    let before = device.snapshot();
    rewrite(&fs, 0..FILES, Some(0xEE));
    fs.sync().unwrap();
    drop(fs);
    // All but its pack arrived.
    let given_up = both(&device)[0].clone();
    let mut pack = vec![0; 512 * BLOCK as usize];
    before.read_at(u64::from(given_up.start) * BLOCK, &mut pack).unwrap();
    device.write_at(u64::from(given_up.start) * BLOCK, &pack).unwrap();
    let fs = open(device.clone());
    rewrite(&fs, 3..4, None);
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    let (at, _) = journals(&image);
    fill(&image, at / BLOCK, 1, 0);
    let found = Outcome::of(&image, files);
    assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES) && found.losses == 0, "{found:?}");
}

/// Power cut a checkpoint of which all arrived but the ends of its pack: the journals in the older pack's place are that one's, and say nothing
/// against the newest.
#[test]
fn what_a_cut_leaves_in_the_older_pack_contradicts_nothing() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    fs.sync().unwrap();
    for number in 0..2 {
        rewrite(&fs, number..number + 1, None);
        fs.sync().unwrap();
    }
    let [newest, older] = both(&device.snapshot());
    let before = device.snapshot();
    make(&fs, 100, 120);
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    for end in [older.start.into(), last(&older), last(&both(&image)[0])] {
        let mut block = [0; BLOCK as usize];
        before.read_at(end * BLOCK, &mut block).unwrap();
        image.write_at(end * BLOCK, &block).unwrap();
    }
    assert_eq!(both(&image).map(|pack| pack.raw.checkpoint_ver), [newest, older].map(|pack| pack.raw.checkpoint_ver));
    let found = Outcome::of(&image, files);
    assert!(found.is_clean && found.is_writable && found.mounted == Some(FILES), "{found:?}");
    // Nor does a search go by them; without either journal, a repair may have to ask.
    let (at, _) = journals(&image);
    fill(&image, at / BLOCK, 1, 0);
    let found = Outcome::of(&image, files);
    assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES), "{found:?}");
}
