//! What the NAT has lost of the segments that logs write to.

#[allow(dead_code)]
mod editor;

use std::sync::Arc;

use basalt_device::MemoryDevice;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::bit_msb;
use basalt_f2fs::layout::nat::RawNatEntry;
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
use editor::Editor;

const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Nodes in the segments of logs, behind a live journal, whose entries the NAT has lost.
#[test]
fn lost_entries_in_the_segments_of_logs_are_noticed_behind_a_live_journal() {
    let device = Arc::new(MemoryDevice::new(96 << 20, 512));
    let options = FormatOptions {
        journal_bytes: 256 << 10,
        overprovision_percent: Some(30.0),
        discard_reads_zeros: true,
        ..FormatOptions::default()
    };
    format(&*device, &options, &mut |_, _| {}).unwrap();
    let eager = || OpenOptions {
        pre_invalid_bytes: Some(1 << 30),
        cache_bytes: 1 << 20,
        sections_per_commit: Some(1),
        ..OpenOptions::default()
    };
    let fs = F2fs::open(device.clone(), eager(), Arc::new(SystemClock)).unwrap();
    let count = fs.stat_fs().unwrap().available * 4096 * 85 / 100 / (1 << 20);
    let inodes: Vec<u64> = (0..count)
        .map(|number| {
            let ino = fs.create(fs.root(), format!("file{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            fs.write(ino, 0, &vec![number as u8; 1 << 20], false).unwrap();
            ino
        })
        .collect();
    let small: Vec<u64> = (0..20)
        .map(|number| fs.create(fs.root(), format!("small{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino)
        .collect();
    let mut rng = Rng::new(3);
    let image = 'found: {
        for round in 0..100 {
            // Their inodes are among what the checkpoint has in the log of file nodes.
            for ino in &small {
                fs.write(*ino, 0, &[round; 100], false).unwrap();
            }
            fs.sync().unwrap();
            let before = fs.statistics();
            while fs.statistics().since(&before).checkpoints.total() == 0 {
                for _ in 0..20 {
                    let (file, block) = (rng.index(inodes.len()), rng.index(256) as u64);
                    fs.write(inodes[file], block * 4096, &[7; 4096], false).unwrap();
                }
                let done = fs.statistics().since(&before);
                if done.cleaning.total().journal_commits > 1 && done.checkpoints.total() == 0 {
                    break 'found device.snapshot();
                }
            }
        }
        panic!("no commits")
    };
    let open = |editor: &Editor| {
        let fs = F2fs::open(Arc::new(editor.device.snapshot()), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        (fs.is_writable(), fs.warnings())
    };
    let geometry = basalt_f2fs::journal::guard::read(&image).unwrap().geometry;
    let (pack, _) = basalt_f2fs::checkpoint::choose::choose_pack(&image, &geometry).unwrap();
    let loaded = basalt_f2fs::checkpoint::load::load_pack(&image, &geometry, pack).unwrap();
    let editor = Editor { device: image, geometry, loaded };
    let mut lost = 0;
    for ino in small {
        let address = editor.node_address(ino as u32);
        let (segment, block) = editor.segment_of(address);
        let is_live = bit_msb(&editor.sit(segment).valid_map, block);
        if editor.loaded.logs[4].segment == segment && is_live {
            editor.edit_nat(ino as u32, |entry| *entry = RawNatEntry::default());
            lost += 1;
        }
    }
    let (is_writable, warnings) = open(&editor);
    assert!(lost > 0 && !is_writable, "{lost} entries lost, and it is written to: {warnings:?}");
}
