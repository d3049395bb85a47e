//! Damage inside the newest checkpoint pack of volumes with a random past: files written, replaced, renamed and removed, fsyncs, unmounts, and
//! checkpoints that power cut when all but their pack was there. Whatever block of the pack is zeros, garbage, or one of a checkpoint before:
//! rescue and a repair find every file as it was, and no mount writes to a volume that it does not read so.
//!
//! `BASALT_SEED` runs one volume, `BASALT_PACK_VOLUMES` sets how many there are, from `BASALT_PACK_SEED` on.

#[path = "../packs/mod.rs"]
#[allow(dead_code)] // Part of it is for other tests.
mod packs;
mod past;

use basalt_device::{BlockDevice, MemoryDevice};
use packs::{BLOCK, Outcome, both, fill, last};
use past::{Past, wrong};

/// Volumes where nothing else is said.
const VOLUMES: u64 = 40;

#[derive(Debug, Clone, Copy)]
enum Damage {
    Filled(u8),
    /// The block that a checkpoint before had in this place: a write that was lost.
    Stale,
    /// The first sector, where the journal begins, or one with owners.
    Sector(u64),
}

const DAMAGES: [Damage; 6] = [
    Damage::Filled(0),
    Damage::Filled(0x5A),
    Damage::Filled(0xFF),
    Damage::Stale,
    Damage::Sector(0),
    Damage::Sector(3),
];

fn damaged(past: &Past, block: u64, at: u64, damage: Damage) -> MemoryDevice {
    let image = past.image.snapshot();
    match damage {
        Damage::Filled(byte) => fill(&image, block, 1, byte),
        Damage::Stale => {
            let stale = &past.stale[(at * BLOCK) as usize..((at + 1) * BLOCK) as usize];
            image.write_at(block * BLOCK, stale).unwrap();
        }
        Damage::Sector(sector) => image.write_at(block * BLOCK + sector * 512, &[0; 512]).unwrap(),
    }
    image
}

fn expect_nothing_lost(seed: u64) {
    let past = Past::of(seed);
    let outcome = |image: &MemoryDevice| Outcome::of(image, |fs| wrong(fs, &past.files).len() as u64);
    let whole = outcome(&past.image);
    let is_whole = whole.is_clean && whole.is_writable && whole.mounted == Some(0);
    assert!(is_whole && whole.rescued == Some(0), "BASALT_SEED={seed}: undamaged: {whole:?}");
    let [newest, _] = both(&past.image);
    for block in u64::from(newest.start) + 1..last(&newest) {
        for damage in DAMAGES {
            let at = block - u64::from(newest.start);
            let found = outcome(&damaged(&past, block, at, damage));
            let what = format!("BASALT_SEED={seed}: block {at}, {damage:?}: {found:?}");
            assert!(found.rescued == Some(0) && found.repaired == Some(0), "{what}");
            assert!(found.is_mended && found.losses == 0, "{what}");
            assert!(!found.is_writable || found.mounted == Some(0), "{what}");
        }
    }
}

#[test]
fn damage_inside_a_pack_loses_nothing_whatever_came_before() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    match number("BASALT_SEED") {
        Some(seed) => expect_nothing_lost(seed),
        None => {
            let first = number("BASALT_PACK_SEED").unwrap_or(0);
            (first..first + number("BASALT_PACK_VOLUMES").unwrap_or(VOLUMES)).for_each(expect_nothing_lost);
            // A node of which an older version is still live by the table, where that is out of date.
            expect_nothing_lost(292);
        }
    }
}
