//! Whole deltas that no Basalt writes.

use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_f2fs::journal::guard;
use basalt_f2fs::layout::delta::{Delta, Empty, Written};
use basalt_f2fs::layout::seal::Seal;
use basalt_f2fs::layout::{Address, FileBlock, Ino};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{Deltas, F2fs, OpenOptions, SystemClock};
use basalt_vfs::{FileSystem, InodeNumber};

use super::{BLOCK, create, last_delta, open, options, rescue, with_file, write_page};

/// A chain of small blocks that tell a lot: what no Basalt tells between two checkpoints ends it.
#[test]
fn deltas_that_tell_more_than_a_checkpoint_allows_end_the_chain() {
    let (device, fs, ino) = with_file(Deltas::On);
    write_page(&fs, ino, 1_000, 2);
    fs.sync_file(ino, false).unwrap();
    let (at, seal, node) = last_delta(&device);
    let sound = seal.delta.clone().unwrap();
    let first = (at / BLOCK) as u32;
    for (count, expected) in [(1, 1), (2, 2), (3, 2), (300, 2)] {
        let hostile = Arc::new(device.snapshot());
        for step in 0..count {
            // Half of what may be told, of the same pages.
            let run = Empty { first: FileBlock::new(3_000), count: 1 << 18, is_reserved: false };
            let size = sound.written.size + u64::from(step);
            let delta =
                Delta { listed: vec![], empty: vec![run], written: Written { size, ..sound.written }, ..sound.clone() };
            let position = seal.position.map(|position| position + step);
            let seal = Seal { nodes: 0, entries: vec![], durable: 0, position, delta: Some(delta) };
            let block = seal.encode(node.footer.cp_ver.get(), Address::new(first + step + 1));
            hostile.write_at(u64::from(first + step) * BLOCK, &block.0).unwrap();
        }
        let fs = open(&hostile, OpenOptions { read_only: true, ..options(Deltas::Off) });
        assert_eq!(fs.attributes(ino).unwrap().size, sound.written.size + expected - 1, "{count}");
        let rescued = rescue(&hostile).unwrap();
        assert!(rescued.attributes(ino).unwrap().size < sound.written.size + 5, "{count}");
    }
}

/// Whole deltas that no Basalt writes: nothing panics, nothing else is lost, and what cannot be is told.
#[test]
fn hostile_deltas_are_refused() {
    let (device, fs, ino) = with_file(Deltas::On);
    let inline = create(&fs, "inline");
    fs.write(inline, 0, &[7; 100], false).unwrap();
    fs.sync().unwrap();
    write_page(&fs, ino, 1_000, 2);
    fs.sync_file(ino, false).unwrap();
    let root = fs.root();
    let (at, seal, node) = last_delta(&device);
    let sound = seal.delta.clone().unwrap();
    let page = |page: u32, address: u32| Delta {
        placed: vec![(FileBlock::new(page), Address::new(address))],
        ..sound.clone()
    };
    let of = |ino: InodeNumber| Delta { ino: Ino::new(ino as u32), ..sound.clone() };
    let with_size = |ino: InodeNumber, size: u64| Delta {
        ino: Ino::new(ino as u32),
        written: Written { size, ..sound.written },
        ..sound.clone()
    };
    let empty = |first: u32, count: u32| {
        let run = Empty { first: FileBlock::new(first), count, is_reserved: true };
        Delta { empty: vec![run], ..sound.clone() }
    };
    let cases = [
        ("an address in front of the main area", page(5, 1)),
        ("an address behind the volume", page(5, u32::MAX - 7)),
        ("the mark of a compressed block", page(5, u32::MAX - 1)),
        ("a page behind the largest file", page(u32::MAX - 2, 0)),
        ("reservations behind the largest file", empty(u32::MAX - 9, 5)),
        ("more reservations than there is room for", empty(0, 1 << 19)),
        ("inode 0", of(0)),
        ("an inode that is not there", of(90_000)),
        ("the root", of(root)),
        ("a file whose data is in its inode", of(inline)),
        ("another number of addresses", Delta { own: 7, ..sound.clone() }),
        ("no addresses", Delta { own: u32::MAX, ..sound.clone() }),
        ("a size that no file has", with_size(ino, u64::MAX)),
        ("more than an inode holds", with_size(inline, 1 << 20)),
        ("a size of the root", with_size(root, 1 << 36)),
    ];
    for (what, delta) in cases {
        let hostile = Arc::new(device.snapshot());
        let seal = Seal { delta: Some(delta), ..seal.clone() };
        let block = seal.encode(node.footer.cp_ver.get(), Address::from(node.footer.next_blkaddr));
        hostile.write_at(at, &block.0).unwrap();
        let opened = F2fs::open(hostile.clone(), OpenOptions::default(), Arc::new(SystemClock));
        let Ok(fs) = opened else { panic!("{what}: {:?}", opened.err()) };
        let mut bytes = vec![0; BLOCK as usize];
        fs.read(ino, 7 * BLOCK, &mut bytes).unwrap();
        assert_eq!(bytes, vec![1; BLOCK as usize], "{what}");
        fs.read(inline, 0, &mut bytes[..100]).unwrap();
        assert_eq!(bytes[..100], [7; 100], "{what}");
        if !matches!(what, "an inode that is not there" | "more reservations than there is room for") {
            assert!(
                !fs.is_writable() && fs.warnings().iter().any(|warning| warning.contains("read-only")),
                "{what}: {:?}",
                fs.warnings()
            );
        }
        fs.close().unwrap();
        if let Ok(rescued) = rescue(&hostile) {
            let mut bytes = vec![0; 2 * BLOCK as usize];
            for (ino, most) in [(ino, 4 << 40), (inline, BLOCK), (root, BLOCK)] {
                let _ = rescued.read(ino, 0, &mut bytes);
                let size = rescued.attributes(ino).map_or(0, |attributes| attributes.size);
                assert!(size <= most, "{what}: {ino} has {size} bytes");
            }
            rescued.read(inline, 0, &mut bytes[..100]).unwrap();
            assert_eq!(bytes[..100], [7; 100], "{what}");
        }
        if let Ok(planned) = plan(hostile.clone(), &RepairOptions::default(), &mut |_| ()) {
            drop(planned.commit());
        }
    }
    assert!(guard::read(&*device).unwrap().is_set);
}
