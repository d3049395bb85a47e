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
use basalt_f2fs::Geometry;
use basalt_f2fs::checkpoint::choose::choose_pack;
use packs::{BLOCK, Outcome, fill, last};
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

fn expect_nothing_lost(seed: u64, past: &Past) {
    examine(seed, past, &DAMAGES, &|found| {
        let is_found = found.rescued == Some(0) && found.repaired == Some(0) && found.losses == 0;
        is_found && (!found.is_writable || found.mounted == Some(0))
    });
}

/// Power cut the next checkpoint, which has left its journals in the older pack's place: where the newest pack's are damaged too, some files may
/// not be told from what they were before. Then a repair and rescue say so. A mount can take zeros for a journal without entries, a check does not.
fn expect_nothing_lost_in_silence(seed: u64) {
    examine(seed, &Past::torn(seed), &DAMAGES[..3], &|found| {
        let is_told = found.losses > 0;
        (is_told || found.repaired == Some(0)) && (is_told || found.is_warned || found.rescued == Some(0))
    });
}

fn examine(seed: u64, past: &Past, damages: &[Damage], is_right: &dyn Fn(&Outcome) -> bool) {
    let outcome = |image: &MemoryDevice| Outcome::of(image, |fs| wrong(fs, &past.files).len() as u64);
    let whole = outcome(&past.image);
    let is_whole = whole.is_clean && whole.is_writable && whole.mounted == Some(0);
    assert!(is_whole && whole.rescued == Some(0), "BASALT_SEED={seed}: undamaged: {whole:?}");
    let geometry = Geometry::read(&past.image).unwrap().0;
    let newest = choose_pack(&past.image, &geometry).unwrap().0;
    for block in u64::from(newest.start) + 1..last(&newest) {
        for &damage in damages {
            let at = block - u64::from(newest.start);
            let found = outcome(&damaged(past, block, at, damage));
            let what = format!("BASALT_SEED={seed}: block {at}, {damage:?}: {found:?}");
            assert!(is_right(&found) && found.is_mended, "{what}");
        }
    }
}

#[test]
fn damage_inside_a_pack_loses_nothing_whatever_came_before() {
    seeds().for_each(|seed| expect_nothing_lost(seed, &Past::of(seed)));
}

#[test]
fn damage_inside_a_pack_of_linux_loses_nothing_to_what_power_cut_before() {
    seeds().for_each(|seed| expect_nothing_lost(seed, &Past::mounted_by_linux(seed)));
}

/// The journal of the SIT is as stale as that of the NAT beside it: what it calls dead contradicts all the same.
#[test]
fn a_journal_that_is_stale_in_both_halves_is_not_believed() {
    expect_nothing_lost(40_024, &Past::of(40_024));
}

/// A node of which an older version is live by the table, where that is out of date: it is put back and freed in turns.
#[test]
fn repairs_that_went_in_circles_once_come_to_an_end() {
    [68, 5_113].into_iter().for_each(|seed| expect_nothing_lost(seed, &Past::of(seed)));
}

#[test]
fn damage_inside_a_pack_behind_which_power_cut_the_next_loses_nothing_in_silence() {
    seeds().for_each(expect_nothing_lost_in_silence);
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("BASALT_SEED").or(number("BASALT_PACK_SEED")).unwrap_or(0);
    let count = if number("BASALT_SEED").is_some() { Some(1) } else { number("BASALT_PACK_VOLUMES") };
    first..first + count.unwrap_or(VOLUMES)
}
