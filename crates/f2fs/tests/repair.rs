//! Repair: damage at random, power cuts while it is written, dry runs, backups.

#[allow(dead_code)] // Part of it is for tests/check_faults.rs.
mod editor;
#[allow(dead_code)] // Likewise.
mod repaired;

use basalt_segments::Segment;
use std::io::{Cursor, ErrorKind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::layout::Address;
use basalt_f2fs::repair::{RepairOptions, RestoreError, plan, restore};
use basalt_f2fs::{Error, F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::FileSystem;
use editor::Editor;

/// Volumes damaged at random; more with `BASALT_REPAIR_SEEDS`.
const SEEDS: u64 = 40;
/// Far more than the repair of a small volume takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn base() -> &'static MemoryDevice {
    static BASE: OnceLock<MemoryDevice> = OnceLock::new();
    BASE.get_or_init(editor::filled_volume)
}

/// Blocks that hold structures: superblocks, both packs, tables, summaries, nodes, directories.
fn structures(editor: &Editor) -> Vec<Address> {
    let g = &editor.geometry;
    let mut blocks = vec![Address::new(0), Address::new(1)];
    for pack in [g.checkpoint, g.checkpoint + 512] {
        blocks.extend(Address::all(pack..pack + 8));
    }
    blocks.extend([false, true].map(|second| g.sit_block(0, second)));
    blocks.extend([false, true].map(|second| g.nat_block(0, second)));
    blocks.extend(
        (0..g.main_segments)
            .filter(|&s| editor.sit(Segment::new(s)).live() > 0)
            .map(|s| g.summary_block(Segment::new(s))),
    );
    blocks.extend((3..900).map(|nid| editor.node_address(nid)).filter(|&address| g.in_main(address)));
    for path in [&[][..], &["crowd"], &["outer"]] {
        blocks.extend(editor.entries(editor.path(path)).iter().map(|entry| entry.2.0));
    }
    blocks
}

/// Damages a few structures: single bytes, whole blocks, or one block put over another. Checksums are renewed now and then, so that
/// the damage goes deeper.
fn damage(editor: &Editor, blocks: &[Address], rng: &mut Rng) {
    for _ in 0..rng.between(1, 5) {
        let address = blocks[rng.index(blocks.len())];
        let mut block = editor.block(address);
        match rng.below(10) {
            0 => block.fill(0),
            1 => block = editor.block(blocks[rng.index(blocks.len())]),
            _ => {
                for _ in 0..rng.between(1, 8) {
                    let at = rng.index(block.len());
                    block[at] = *rng.pick(&[0, 1, 0x7F, 0x80, 0xFF]).unwrap();
                }
            }
        }
        editor.put(address, &block);
        let g = &editor.geometry;
        if g.in_main(address) && rng.chance(70) {
            let nid = u32::from_le_bytes(block[4072..4076].try_into().unwrap());
            if nid < 900 && editor.node_address(nid) == address && block[4072..4076] == block[4076..4080] {
                editor.renew_checksum(nid);
            }
        }
    }
}

#[test]
fn damage_at_random() {
    let seeds = std::env::var("BASALT_REPAIR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let blocks = structures(&Editor::new(base()));
    let (mut clean, mut left) = (0, Vec::new());
    for seed in 0..seeds {
        let editor = Editor::new(base());
        damage(&editor, &blocks, &mut Rng::new(seed));
        let device: Arc<dyn BlockDevice> = Arc::new(editor.device);
        let start = Instant::now();
        let result = repaired::repair(&device);
        assert!(start.elapsed() < PATIENCE, "seed {seed}: {:?}", start.elapsed());
        match result {
            Ok(report) if report.clean => {
                let after = repaired::checked(&*device);
                assert!(after.is_clean() && after.complete, "seed {seed}: {:?}", after.faults);
                let second = repaired::repair(&device).unwrap();
                assert!(second.repairs.is_empty(), "seed {seed}: {:?}", second.repairs);
                // The engine takes it.
                repaired::tree(device);
                clean += 1;
            }
            // What is left is said.
            Ok(report) => {
                assert!(!report.left.is_empty(), "seed {seed}");
                left.push((seed, report.left[0].to_string()));
            }
            Err(Error::NotF2fs { .. } | Error::Unsupported { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(clean * 10 >= seeds * 9, "only {clean} of {seeds} were repaired: {left:#?}");
}

/// A volume with damage of many kinds, and what is left of its tree when it is repaired.
fn damaged() -> MemoryDevice {
    let editor = Editor::new(base());
    let crowd = editor.path(&["crowd"]);
    let files: Vec<Vec<u8>> = editor.entries(crowd).into_iter().map(|entry| entry.0).skip(20).take(9).collect();
    for (index, name) in files.iter().enumerate() {
        let name = String::from_utf8(name.clone()).unwrap();
        match index % 3 {
            0 => editor.edit_entry(crowd, &name, |entry| entry.hash_code.set(1)),
            1 => editor.edit_inode(editor.find(crowd, &name), |inode| inode.i_links.set(7)),
            _ => editor.edit_entry(crowd, &name, |entry| entry.ino.set(40_000)),
        }
    }
    editor.edit_entry(3, "pipe", |entry| entry.file_type = 1);
    editor.edit_sit(editor.quiet_segment(1), |sit| sit.vblocks.set(sit.vblocks.get() ^ 1));
    let (block, _) = editor.summary_type(editor.quiet_segment(4));
    editor.put(block, &[0; 4096]);
    editor.put(Address::new(1), &[0; 4096]);
    editor.device
}

#[test]
fn a_power_cut_leaves_the_old_volume_or_the_new_one() {
    let whole: Arc<dyn BlockDevice> = Arc::new(damaged());
    let before = kinds_of(&*whole);
    repaired::repair_fully(&whole, "uncut");
    let expected = repaired::tree(whole);
    let (mut cuts, mut news) = (0, 0);
    for writes in 1.. {
        let device = Arc::new(FaultyDevice::new(damaged()));
        device.fail_nth(RequestKind::Write, writes, ErrorKind::Other);
        let shared: Arc<dyn BlockDevice> = device.clone();
        let result = repaired::repair(&shared);
        if result.is_ok() {
            break;
        }
        cuts += 1;
        let what = format!("cut at write {writes}");
        let rest: Arc<dyn BlockDevice> = Arc::new(device.inner().snapshot());
        // Until the checkpoint holds, only summaries are better; then only the superblock is left.
        let left = kinds_of(&*rest);
        let old = left == before;
        let new = left.iter().all(|kind| kind.starts_with("superblock"));
        assert!(old || new, "{what}: {left:?}, before {before:?}");
        news += u32::from(new);
        repaired::repair_fully(&rest, &what);
        assert_eq!(repaired::differences(&expected, &repaired::tree(rest)), Vec::<String>::new(), "{what}");
    }
    assert!(cuts >= 3 && news == 1, "{cuts} cuts, {news} of them behind the checkpoint");
}

/// The faults of a volume, but for those that are repaired in place: summaries, and the pack that is being written.
fn kinds_of(device: &dyn BlockDevice) -> Vec<String> {
    let kinds = repaired::checked(device).faults.into_iter().map(|fault| fault.kind.to_string());
    kinds.filter(|kind| !kind.starts_with("summary") && kind != "checkpoint-pack").collect()
}

#[test]
fn a_plan_writes_nothing_and_a_backup_brings_everything_back() {
    let device = Arc::new(damaged());
    let shared: Arc<dyn BlockDevice> = device.clone();
    let writes = device.counters().writes;
    let plan = plan(Arc::clone(&shared), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert_eq!(device.counters().writes, writes);
    assert!(plan.report().clean && plan.report().blocks > 0 && plan.report().repairs.len() > 10);
    let mut backup = Vec::new();
    plan.back_up(&mut backup).unwrap();
    let before = device.snapshot();
    plan.commit().unwrap();
    assert!(repaired::checked(&*shared).is_clean());

    let mut broken = backup.clone();
    broken[5000] ^= 1;
    assert!(matches!(restore(&*shared, &mut Cursor::new(&broken), true), Err(RestoreError::Unfit(_))));
    assert!(matches!(restore(&*shared, &mut Cursor::new(&backup[..9000]), true), Err(RestoreError::Unfit(_))));
    let other = MemoryDevice::new(1 << 20, 512);
    assert!(matches!(restore(&other, &mut Cursor::new(&backup), true), Err(RestoreError::Unfit(_))));
    assert!(repaired::checked(&*shared).is_clean());

    assert!(restore(&*shared, &mut Cursor::new(&backup), false).unwrap() > 10);
    let (mut was, mut is) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for offset in (0..device.size()).step_by(1 << 20) {
        before.read_at(offset, &mut was).unwrap();
        device.read_at(offset, &mut is).unwrap();
        assert!(was == is, "at {offset}");
    }
}

/// The damaged volume and its backup, and the volume repaired with `failing`, cut off at that write.
fn repaired_with_backup(failing: Option<u64>) -> (MemoryDevice, Vec<u8>, MemoryDevice, bool) {
    let before = damaged();
    let device = Arc::new(FaultyDevice::new(before.snapshot()));
    let plan = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    let mut backup = Vec::new();
    plan.back_up(&mut backup).unwrap();
    if let Some(nth) = failing {
        device.fail_nth(RequestKind::Write, nth, ErrorKind::Other);
    }
    let is_whole = plan.commit().is_ok();
    let after = device.inner().snapshot();
    (before, backup, after, is_whole)
}

#[test]
fn a_repair_that_was_cut_off_is_taken_back_wherever_that_was() {
    for writes in 1.. {
        let (before, backup, after, is_whole) = repaired_with_backup(Some(writes));
        // The last write torn: some of its sectors are as before.
        let (mut block, mut old) = ([0; 4096], [0; 4096]);
        after.read_at(4096, &mut block).unwrap();
        before.read_at(4096, &mut old).unwrap();
        after.write_at(4096, &[&block[..1536], &old[1536..]].concat()).unwrap();
        restore(&after, &mut Cursor::new(&backup), false).unwrap();
        assert!(after.digest() == before.digest(), "cut at write {writes}");
        restore(&after, &mut Cursor::new(&backup), false).unwrap();
        assert!(after.digest() == before.digest(), "put back twice");
        if is_whole {
            assert!(writes > 3);
            break;
        }
    }
}

/// What somebody does with a volume that was repaired.
type Use = fn(&F2fs);

#[test]
fn a_backup_is_not_put_back_once_the_volume_was_used() {
    let uses: [(&str, Use); 3] = [
        ("unmounted", |_| ()),
        ("fsynced", |fs| {
            let small = fs.lookup(fs.root(), b"small").unwrap().ino;
            fs.write(small, 0, b"content", false).unwrap();
            fs.sync_file(small, false).unwrap();
        }),
        ("synced", |fs| {
            fs.unlink(fs.root(), b"small").unwrap();
            fs.sync().unwrap();
        }),
    ];
    for (what, work) in uses {
        let (before, backup, after, _) = repaired_with_backup(None);
        let device = Arc::new(after);
        let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        work(&fs);
        // The power goes, or else the volume is unmounted as well.
        let used = device.snapshot();
        if what == "unmounted" {
            fs.close().unwrap();
            restore(&used, &mut Cursor::new(&backup), false).unwrap();
            assert!(used.digest() == before.digest(), "opened, and nothing written");
            continue;
        }
        let digest = used.digest();
        let refused = restore(&used, &mut Cursor::new(&backup), false);
        assert!(matches!(&refused, Err(RestoreError::Stale(why)) if why.contains("used since")), "{what}: {refused:?}");
        assert!(used.digest() == digest, "{what}: something was written");
        restore(&used, &mut Cursor::new(&backup), true).unwrap();
    }
}

#[test]
fn a_backup_is_put_back_on_its_own_volume_only() {
    let (_, backup, after, _) = repaired_with_backup(None);
    let (mut own, mut other) = ([0; 8192], [0; 8192]);
    after.read_at(0, &mut own).unwrap();
    other.copy_from_slice(&own);
    for copy in [0, 4096] {
        other[copy + 1024 + 108..][..16].fill(9);
    }
    after.write_at(0, &other).unwrap();
    let refused = restore(&after, &mut Cursor::new(&backup), false);
    assert!(matches!(&refused, Err(RestoreError::Stale(why)) if why.contains("09090909-")), "{refused:?}");
    // Without a superblock, other blocks tell what the volume is. Of those, the backup holds only the second.
    after.write_at(0, &[0; 4096]).unwrap();
    after.write_at(4096, &own[4096..]).unwrap();
    restore(&after, &mut Cursor::new(&backup), false).unwrap();

    let old = [b"BASALT-UNDO 1\n", &backup[14..]].concat();
    let refused = restore(&after, &mut Cursor::new(&old), true);
    assert!(matches!(&refused, Err(RestoreError::Unfit(why)) if why.contains("made it")), "{refused:?}");
}

/// A backup of before there were groups: its blocks in one row.
#[test]
fn a_backup_without_groups_is_put_back() {
    let (before, backup, after, _) = repaired_with_backup(None);
    let number = |at: usize| u64::from_le_bytes(backup[at..at + 8].try_into().unwrap()) as usize;
    let (head, entry) = (14 + 8 + 16, 4 + 4096 + 32);
    let (mut at, mut blocks) = (head + 8, Vec::new());
    for _ in 0..number(head) {
        let end = at + 8 + number(at) * entry;
        blocks.extend_from_slice(&backup[at + 8..end]);
        at = end;
    }
    let count = (blocks.len() / entry) as u64;
    let witnesses = &backup[at..backup.len() - 4];
    let mut old = [b"BASALT-UNDO 2\n", &backup[14..head], &count.to_le_bytes(), &blocks, witnesses].concat();
    let checksum = crc32fast::hash(&old).to_le_bytes();
    old.extend_from_slice(&checksum);
    assert_eq!(restore(&after, &mut Cursor::new(&old), false).unwrap(), count);
    assert!(after.digest() == before.digest());
}

#[test]
fn a_sound_volume_is_left_alone() {
    let device = Arc::new(base().snapshot());
    let shared: Arc<dyn BlockDevice> = device.clone();
    let report = repaired::repair(&shared).unwrap();
    assert!(report.clean && report.repairs.is_empty() && report.blocks == 0);
    assert_eq!(device.counters().writes, 0);
}

#[test]
fn a_volume_without_checkpoints_is_made_from_its_tables() {
    let editor = Editor::new(base());
    for pack in [editor.geometry.checkpoint, editor.geometry.checkpoint + 512] {
        Address::all(pack..pack + 512).for_each(|block| editor.put(block, &[0; 4096]));
    }
    let device: Arc<dyn BlockDevice> = Arc::new(editor.device);
    let report = repaired::repair_fully(&device, "no checkpoint");
    assert!(report.repairs.iter().any(|repair| repair.kind.name() == "checkpoint-unreadable"));
    // What only the journals knew is gone; all else is there.
    let before = repaired::tree(Arc::new(base().snapshot()));
    let lost = repaired::differences(&before, &repaired::tree(device));
    assert!(lost.len() < before.len() / 10, "{lost:?}");
}
