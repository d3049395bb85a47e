//! Roots that cannot be read any more: what a volume shows is never what it was some time ago.

mod support;

use std::collections::BTreeSet;

use basalt_flashlight::{Bytes, Error, FlashLight};
use basalt_nand::{Geometry, NandDevice};
use support::{Device, Lossy, NOW, new_file};

const ROOT_BLOCKS: u32 = 8;

fn geometry() -> Geometry {
    Geometry::new(2048, 64, 16, 96).unwrap()
}

fn add<M: Bytes, D: NandDevice>(volume: &mut FlashLight<M, D>, name: &str) {
    let file = volume.create(volume.root(), name.as_bytes(), &new_file(0o644)).unwrap();
    volume.write(file, 0, name.as_bytes(), NOW).unwrap();
    volume.sync_file(file).unwrap();
}

/// Which of the files of the sessions are there.
fn names<M: Bytes, D: NandDevice>(volume: &mut FlashLight<M, D>) -> BTreeSet<String> {
    support::tree(volume).into_keys().collect()
}

/// A chip after some sessions: the last one ends as it should, or by a power cut behind its fsync.
fn sessions(count: usize, last_is_closed: bool) -> (Device, Vec<u8>, BTreeSet<String>) {
    let mut device = support::chip(geometry(), 1);
    let mut memory = support::memory(&geometry());
    support::format(&mut device, &mut memory, 1);
    let mut wanted = BTreeSet::new();
    for at in 0..count {
        let mut volume = FlashLight::mount(&mut device, &mut memory[..]).unwrap();
        let name = format!("session{at}");
        add(&mut volume, &name);
        wanted.insert(format!("/{name}"));
        if at + 1 < count || last_is_closed {
            volume.close().unwrap();
        }
    }
    (device, memory, wanted)
}

/// Blocks with pages of roots, those of the highest generation first.
fn roots(device: &mut Device) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for block in 0..ROOT_BLOCKS {
        let mut page = [0; 2048];
        device.read(geometry().first_page(block), &mut page, &mut []).unwrap();
        if page.starts_with(&[1]) {
            found.push((u32::from_le_bytes(page[128..132].try_into().unwrap()), block));
        }
    }
    found.sort_by(|one, other| other.cmp(one));
    found
}

#[test]
fn one_page_of_a_root_can_be_lost() {
    for (count, is_closed) in [(1, true), (2, true), (3, false), (6, true), (6, false)] {
        for block in 0..ROOT_BLOCKS {
            let (device, mut memory, mut wanted) = sessions(count, is_closed);
            let mut lossy = Lossy { device, lost: BTreeSet::from([geometry().first_page(block)]) };
            for round in 0..4 {
                let mut volume = FlashLight::mount(&mut lossy, &mut memory[..]).unwrap();
                assert_eq!(names(&mut volume), wanted, "{count} sessions, block {block}, round {round}");
                let name = format!("round{round}");
                add(&mut volume, &name);
                wanted.insert(format!("/{name}"));
                if round % 2 == 0 {
                    volume.close().unwrap();
                }
            }
        }
    }
}

/// With both pages of the newest root gone, an older one leads to what was. Nothing is shown then, and nothing is written.
#[test]
fn an_older_root_is_not_taken_for_the_newest() {
    for (count, is_closed) in [(2, true), (2, false), (3, true), (4, false), (7, true)] {
        let (mut device, mut memory, _) = sessions(count, is_closed);
        let found = roots(&mut device);
        let newest = found[0].0;
        let lost = found.iter().filter(|root| root.0 == newest).map(|root| geometry().first_page(root.1)).collect();
        let mut lossy = Lossy { device, lost };
        let before = lossy.device.device().counters();
        let error = FlashLight::mount(&mut lossy, &mut memory[..]).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{count} sessions: {error:?}");
        let after = lossy.device.device().counters();
        assert_eq!((before.programs, before.erases), (after.programs, after.erases));
    }
}

/// The same behind a power cut: the session that recovered wrote the newest root, and went on. Whatever it wrote last, the state before it is not
/// shown.
#[test]
fn an_older_root_behind_a_power_cut_is_not_taken_either() {
    for (rounds, is_synced, is_closed) in
        [(1, false, false), (1, true, false), (1, true, true), (3, true, true), (40, true, true), (40, true, false)]
    {
        let (mut device, mut memory, _) = sessions(2, false);
        {
            let mut volume = FlashLight::mount(&mut device, &mut memory[..]).unwrap();
            for round in 0..rounds {
                add(&mut volume, &format!("round{round}"));
                if is_synced {
                    volume.sync().unwrap();
                }
            }
            if is_closed {
                volume.close().unwrap();
            }
        }
        let found = roots(&mut device);
        let newest = found[0].0;
        let lost = found.iter().filter(|root| root.0 == newest).map(|root| geometry().first_page(root.1)).collect();
        let mut lossy = Lossy { device, lost };
        let error = FlashLight::mount(&mut lossy, &mut memory[..]).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{rounds} rounds, {is_synced}, {is_closed}: {error:?}");
    }
}

/// Three blocks are bad when the volume is made, which is allowed, and one more becomes so.
#[test]
fn four_good_blocks_for_roots_are_enough() {
    for bad in 0..5 {
        let mut device = support::chip(geometry(), 1);
        (5..ROOT_BLOCKS).for_each(|block| device.mark_bad(block).unwrap());
        let mut memory = support::memory(&geometry());
        support::format(&mut device, &mut memory, 1);
        let mut wanted = BTreeSet::new();
        for at in 0..6 {
            let mut volume = FlashLight::mount(&mut device, &mut memory[..]).unwrap();
            add(&mut volume, &format!("session{at}"));
            wanted.insert(format!("/session{at}"));
            if at < 3 {
                volume.close().unwrap();
            }
            if at == 3 {
                device.mark_bad(bad).unwrap();
            }
        }
        let mut volume = FlashLight::mount(&mut device, &mut memory[..]).unwrap();
        assert_eq!(names(&mut volume), wanted, "block {bad}");
    }
}

/// Nobody can erase a block that is marked bad: what is in it belongs to a volume that was there before.
#[test]
fn a_root_in_a_bad_block_does_not_count() {
    for bad in 0..ROOT_BLOCKS {
        let (mut device, mut memory, _) = sessions(5, true);
        device.mark_bad(bad).unwrap();
        support::format(&mut device, &mut memory, 2);
        let mut volume = FlashLight::mount(&mut device, &mut memory[..]).unwrap();
        assert_eq!(names(&mut volume), BTreeSet::new());
        add(&mut volume, "new");
        volume.close().unwrap();
        let mut volume = FlashLight::mount(&mut device, &mut memory[..]).unwrap();
        assert_eq!(names(&mut volume), BTreeSet::from(["/new".to_owned()]));
    }
}
