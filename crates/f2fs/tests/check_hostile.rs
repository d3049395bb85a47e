//! fsck: whatever the bytes on the device, it comes to an end, says something, and does not panic.

#[allow(dead_code)] // Part of it is for tests/check_faults.rs.
mod editor;

use basalt_segments::Segment;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::Error;
use basalt_f2fs::check::{CheckOptions, CheckReport, Fault, FaultKind, check};
use basalt_f2fs::layout::Address;
use basalt_testkit::rng::Rng;
use editor::Editor;

const SEEDS: u64 = 500;
/// Far more than the check of a small volume takes.
const PATIENCE: Duration = Duration::from_secs(5);

fn base() -> &'static MemoryDevice {
    static BASE: OnceLock<MemoryDevice> = OnceLock::new();
    BASE.get_or_init(editor::filled_volume)
}

/// Checks and measures; an error must be one about the volume, not about the device.
fn survive(device: &dyn BlockDevice, what: &str) -> Option<CheckReport> {
    let start = Instant::now();
    let result = check(device, &CheckOptions { max_faults: 200 }, &mut |_| ());
    // What is listed must not decide what is done.
    let short = check(device, &CheckOptions { max_faults: 1 }, &mut |_| ());
    if let (Ok(report), Ok(short)) = (&result, &short) {
        assert_eq!(
            (report.worst, report.complete, report.counts),
            (short.worst, short.complete, short.counts),
            "{what}"
        );
    }
    assert!(start.elapsed() < PATIENCE, "{what}: {:?}", start.elapsed());
    match result {
        Ok(report) => {
            assert!(report.faults.len() <= 200, "{what}");
            Some(report)
        }
        Err(Error::NotF2fs { .. } | Error::Unsupported { .. }) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Blocks that hold structures: the superblocks, both packs, SIT, NAT, summaries in use, nodes and directory blocks.
fn structure_blocks(editor: &Editor) -> Vec<Address> {
    let g = &editor.geometry;
    let mut blocks = vec![Address::new(0), Address::new(1)];
    for pack in [g.checkpoint, g.checkpoint + 512] {
        blocks.extend(Address::all(pack..pack + 8));
    }
    for second in [false, true] {
        blocks.extend((0..2).map(|index| g.sit_block(index, second)));
        blocks.extend((0..3).map(|index| g.nat_block(index, second)));
    }
    blocks.extend(
        (0..g.main_segments)
            .filter(|&s| editor.sit(Segment::new(s)).live() > 0)
            .map(|s| g.summary_block(Segment::new(s))),
    );
    let nodes: Vec<Address> =
        (3..900).map(|nid| editor.node_address(nid)).filter(|&address| g.in_main(address)).collect();
    blocks.extend(nodes);
    for path in [&[][..], &["crowd"], &["outer"]] {
        blocks.extend(editor.entries(editor.path(path)).iter().map(|entry| entry.2.0));
    }
    blocks
}

/// Brings the checksums up to date that would otherwise end the check early.
fn heal_checksums(editor: &Editor, address: Address) {
    let block = editor.block(address);
    let g = &editor.geometry;
    if address < Address::new(2) {
        let superblock = zerocopy::FromBytes::read_from_bytes(&block[1024..4096]).unwrap();
        editor.put(address, &basalt_f2fs::geometry::superblock_block(&superblock));
    } else if address < g.sit {
        editor.checkpoint(|_| ());
    } else if g.in_main(address) {
        let nid = u32::from_le_bytes(block[4072..4076].try_into().unwrap());
        let ino = u32::from_le_bytes(block[4076..4080].try_into().unwrap());
        if nid == ino && nid < 900 && editor.node_address(nid) == address {
            editor.renew_checksum(nid);
        }
    }
}

#[test]
fn random_bytes_in_structures() {
    let blocks = structure_blocks(&Editor::new(base()));
    let mut found = 0;
    for seed in 0..SEEDS {
        let editor = Editor::new(base());
        let mut rng = Rng::new(seed);
        for _ in 0..rng.between(1, 4) {
            let address = blocks[rng.index(blocks.len())];
            let mut block = editor.block(address);
            for _ in 0..rng.between(1, 8) {
                let value = *rng.pick(&[0, 1, 0x7F, 0x80, 0xFF, rng.clone().below(256) as u8]).unwrap();
                let at = rng.index(block.len());
                block[at] = value;
            }
            editor.put(address, &block);
            if rng.chance(80) {
                heal_checksums(&editor, address);
            }
        }
        let report = survive(&editor.device, &format!("seed {seed}"));
        found += usize::from(report.is_none_or(|report| !report.faults.is_empty()));
    }
    assert!(found > SEEDS as usize / 4, "only {found} of {SEEDS} noticed");
}

#[test]
fn structures_moved_onto_each_other() {
    let blocks = structure_blocks(&Editor::new(base()));
    for seed in 0..SEEDS {
        let editor = Editor::new(base());
        let mut rng = Rng::new(seed);
        for _ in 0..rng.between(1, 6) {
            let (from, to) = (blocks[rng.index(blocks.len())], blocks[rng.index(blocks.len())]);
            editor.put(to, &editor.block(from));
        }
        survive(&editor.device, &format!("seed {seed}"));
    }
}

#[test]
fn regions_of_zeros_ones_and_noise() {
    let g = Editor::new(base()).geometry;
    let areas = [
        (Address::new(0), 2),
        (g.checkpoint, 512),
        (g.checkpoint + 512, 512),
        (g.checkpoint, 1024),
        (g.sit, g.nat - g.sit),
        (g.nat, g.ssa - g.nat),
        (g.ssa, g.main - g.ssa),
        (g.main, g.main_blocks()),
        (g.main, 512),
        (Address::new(2), 10_000),
    ];
    for (start, count) in areas {
        for fill in [Some(0), Some(0xFF), None] {
            let device = base().snapshot();
            let mut rng = Rng::new(start.into());
            let mut bytes = vec![fill.unwrap_or(0); count as usize * 4096];
            if fill.is_none() {
                rng.fill(&mut bytes);
            }
            device.write_at(u64::from(start) * 4096, &bytes).unwrap();
            let report = survive(&device, &format!("{start}+{count} of {fill:?}"));
            // Half of the tables is the copy that is not in use.
            assert!(report.is_none_or(|report| !report.faults.is_empty()), "{start}+{count} of {fill:?}");
        }
    }
}

#[test]
fn truncated_images() {
    for size in [0, 1, 1023, 4096, 8191, 8192, 12_288, 1 << 20, 5 << 20, 100 << 20, (200 << 20) - 4096] {
        let device = MemoryDevice::new(size, 512);
        let mut at = 0;
        while at < size {
            let mut piece = vec![0; (size - at).min(1 << 20) as usize];
            base().read_at(at, &mut piece).unwrap();
            device.write_at(at, &piece).unwrap();
            at += piece.len() as u64;
        }
        let report = survive(&device, &format!("{size} bytes"));
        assert!(report.is_none_or(|report| !report.is_clean() && !report.complete), "{size} bytes");
    }
}

#[test]
fn a_device_that_fails_is_an_error_or_a_fault() {
    let whole = survive(&base().snapshot(), "as it is").map(|report| format!("{report:?}"));
    for nth in [0, 1, 3, 10, 20] {
        let device = FaultyDevice::new(base().snapshot());
        device.fail_nth(RequestKind::Read, nth, std::io::ErrorKind::Other);
        match check(&device, &CheckOptions::default(), &mut |_| ()) {
            Err(Error::Device(_)) => {}
            // Read once more, all of it was there.
            Ok(report) if whole == Some(format!("{report:?}")) => {}
            // What is there twice is found in the other copy.
            Ok(report) => {
                let kinds = [FaultKind::SuperblockUnreadable, FaultKind::CheckpointPack];
                let is_told = |fault: &Fault| kinds.contains(&fault.kind) && fault.found.contains("read of");
                assert!(report.faults.iter().any(is_told), "read {nth}: {:?}", report.faults);
            }
            Err(error) => panic!("read {nth}: {error}"),
        }
    }
}

#[test]
fn few_faults_are_listed_if_few_are_wanted() {
    let device = base().snapshot();
    let g = Editor::new(base()).geometry;
    device.write_at(u64::from(g.ssa) * 4096, &vec![0xFF; ((g.main - g.ssa) * 4096) as usize]).unwrap();
    let report = check(&device, &CheckOptions { max_faults: 2 }, &mut |_| ()).unwrap();
    assert!(report.faults.len() == 2 && report.truncated && !report.is_clean());
}
