//! The chip refuses what real ones do not bear, and fails as they do.

use basalt_nand::chip::{Failures, Flips};
use basalt_nand::presets::{PRESETS, Preset};
use basalt_nand::{Chip, ChipOptions, Corrected, Ecc, EccError, Geometry, NandDevice, NandError, ReadStatus, Rule};
use basalt_random::Rng;

const PAGE: usize = 2048;
const SPARE: usize = 64;

fn geometry() -> Geometry {
    Geometry::new(PAGE as u32, SPARE as u32, 8, 16).unwrap()
}

fn options(seed: u64) -> ChipOptions {
    ChipOptions { seed, ..ChipOptions::new(geometry()) }
}

fn content(page: u32) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    Rng::new(u64::from(page)).fill(&mut bytes);
    bytes
}

/// The first two are the factory's.
fn beside(device: &impl NandDevice, page: u32) -> Vec<u8> {
    let mut spare = vec![page as u8; device.geometry().spare_bytes as usize];
    spare[..2].fill(0xFF);
    spare
}

fn program(device: &mut impl NandDevice, page: u32) -> Result<(), NandError> {
    let spare = beside(device, page);
    device.program(page, &content(page), &spare)
}

fn read(device: &mut impl NandDevice, page: u32) -> Result<(Vec<u8>, Vec<u8>, ReadStatus), NandError> {
    let (mut data, mut spare) = (vec![0; PAGE], vec![0; device.geometry().spare_bytes as usize]);
    let status = device.read(page, &mut data, &mut spare)?;
    Ok((data, spare, status))
}

fn holds(device: &mut impl NandDevice, page: u32) -> bool {
    let wanted = beside(device, page);
    read(device, page).is_ok_and(|(data, spare, _)| data == content(page) && spare == wanted)
}

#[test]
fn pages_are_programmed_once_and_in_order() {
    let mut chip = Chip::new(options(0));
    let broken = |page, rule| Err(NandError::Rule { page, rule });
    program(&mut chip, 9).unwrap();
    program(&mut chip, 11).unwrap();
    assert_eq!(program(&mut chip, 9), broken(9, Rule::Twice));
    assert_eq!(program(&mut chip, 10), broken(10, Rule::Order));
    assert!(holds(&mut chip, 9) && holds(&mut chip, 11), "what is refused changes nothing");
    assert_eq!(read(&mut chip, 10).unwrap().0, [0xFF; PAGE], "nothing was programmed there");
    chip.erase(1).unwrap();
    assert_eq!(read(&mut chip, 9).unwrap().0, [0xFF; PAGE]);
    program(&mut chip, 9).unwrap();

    chip.mark_bad(2).unwrap();
    assert!(chip.is_bad(2).unwrap() && !chip.is_bad(1).unwrap());
    assert_eq!(program(&mut chip, 17), broken(17, Rule::Bad));
    assert_eq!(chip.erase(2), broken(16, Rule::Bad));
    let mut spare = [0; SPARE];
    chip.read(9, &mut [], &mut spare).unwrap();
    assert_eq!(spare[..], beside(&chip, 9), "spare bytes alone");
    let counted = chip.counters();
    assert_eq!((counted.programs, counted.erases, counted.reads, counted.broken_rules), (3, 1, 5, 4));
    assert_eq!(counted.time, 3 * 252_800 + 1_500_000 + 5 * 77_800);
    assert_eq!((chip.erase_count(1), chip.erase_count(2)), (1, 0));
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let mut chip = Chip::new(options(0));
    let limit = NandError::OutOfRange { what: "page", number: 128, limit: 128 };
    assert_eq!(program(&mut chip, 128), Err(limit));
    assert_eq!(chip.erase(16), Err(NandError::OutOfRange { what: "block", number: 16, limit: 16 }));
    assert_eq!(chip.program(0, &[0; 512], &[]), Err(NandError::Length { page: 0, data: 512, spare: 0 }));
    assert_eq!(chip.read(0, &mut [0; PAGE], &mut [0; 3]), Err(NandError::Length { page: 0, data: 2048, spare: 3 }));
    assert_eq!(chip.program(0, &[], &[0; SPARE]), Err(NandError::Length { page: 0, data: 0, spare: 64 }));
    assert_eq!(chip.counters(), basalt_nand::chip::Counters::default());
    assert!(matches!(
        Ecc::<_, 8>::new(Chip::new(ChipOptions::new(Geometry::new(2048, 52, 8, 1).unwrap()))),
        Err(EccError::NoRoom { spare: 52, parity: 52 })
    ));
}

#[test]
fn a_file_is_the_chip_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("chip");
    let options = ChipOptions { factory_bad: 300, ..options(3) };
    let mut chip = Chip::create(&path, options).unwrap();
    let bad: Vec<u32> = (0..16).filter(|&block| chip.is_bad(block).unwrap()).collect();
    assert!(!bad.is_empty() && !bad.contains(&0), "{bad:?}");
    let good: Vec<u32> = (0..16).filter(|block| !bad.contains(block)).collect();
    program(&mut chip, good[1] * 8).unwrap();
    program(&mut chip, good[1] * 8 + 3).unwrap();
    program(&mut chip, good[2] * 8).unwrap();
    chip.mark_bad(good[2]).unwrap();
    let mut copy = chip.snapshot().unwrap();
    drop(chip);

    let mut again = Chip::open(&path, options).unwrap();
    for chip in [&mut copy, &mut again] {
        assert!(holds(chip, good[1] * 8) && holds(chip, good[1] * 8 + 3));
        let found: Vec<u32> = (0..16).filter(|&block| chip.is_bad(block).unwrap()).collect();
        assert_eq!(found.len(), bad.len() + 1, "{found:?}");
        assert!(matches!(program(chip, good[1] * 8 + 2), Err(NandError::Rule { rule: Rule::Order, .. })));
        program(chip, good[1] * 8 + 4).unwrap();
    }
    again.erase(good[1]).unwrap();
    assert!(holds(&mut copy, good[1] * 8) && !holds(&mut again, good[1] * 8), "a snapshot is a chip of its own");

    assert!(Chip::create(&path, options).is_err(), "there is a file");
    let other = ChipOptions::new(Geometry::new(2048, 128, 8, 16).unwrap());
    let said = Chip::open(&path, other).unwrap_err().to_string();
    assert!(said.contains("270336 bytes, where a chip of this geometry has 278528"), "{said}");

    program(&mut again, good[1] * 8 + 1).unwrap();
    let before = std::fs::read(&path).unwrap();
    let mut beside = Chip::beside(Box::new(std::fs::File::open(&path).unwrap()), options).unwrap();
    assert!(holds(&mut beside, good[1] * 8 + 1));
    beside.erase(good[1]).unwrap();
    program(&mut beside, good[1] * 8 + 5).unwrap();
    assert!(!holds(&mut beside, good[1] * 8 + 1) && holds(&mut beside, good[1] * 8 + 5));
    assert!(holds(&mut beside.snapshot().unwrap(), good[1] * 8 + 5));
    beside.flush().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before, "the file stays as it is");
}

/// Bits flip in erased pages too: such a page is programmed as any other.
#[test]
fn a_few_flipped_bits_leave_a_page_erased() {
    use std::os::unix::fs::FileExt;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("chip");
    let mut chip = Chip::create(&path, options(3)).unwrap();
    program(&mut chip, 8).unwrap();
    drop(chip);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let at = |page: u64, byte: u64| page * (PAGE + SPARE) as u64 + byte;
    // Four bits of each 512 bytes, and of the spare bytes.
    for (page, byte) in [(9, 0), (9, 511), (9, 512), (9, PAGE as u64 + 60), (10, 700)] {
        file.write_at(&[0xE7], at(page, byte)).unwrap();
    }
    // A page that was programmed: half of it is zero, or its parity.
    file.write_at(&[0; 64], at(16, 0)).unwrap();
    file.write_at(&[0x0F; 3], at(24, PAGE as u64 + 60)).unwrap();
    let mut chip = Ecc::<_, 4>::new(Chip::open(&path, options(3)).unwrap()).unwrap();
    let mut page = [0; PAGE];
    assert_eq!(chip.read(9, &mut page, &mut []), Ok(ReadStatus::Corrected(4)));
    assert_eq!(page, [0xFF; PAGE]);
    for page in [16, 24] {
        assert!(matches!(program(&mut chip, page), Err(NandError::Rule { rule: Rule::Twice, .. })), "page {page}");
    }
    for page in [9, 10, 11] {
        program(&mut chip, page).unwrap();
        assert!(holds(&mut chip, page), "page {page}");
    }
}

#[test]
fn flipped_bits_are_set_right_until_there_are_too_many() {
    let flips = Flips { reads: 0, age: 1_000_000, erases: 0 };
    let mut device = Ecc::<_, 4>::new(Chip::new(ChipOptions { flips, ..options(1) })).unwrap();
    (0..128).for_each(|page| program(&mut device, page).unwrap());
    // Programming all takes 32 ms: of 32 flipped bits in the mean some pages lose too many, those that are programmed last do not.
    let mut seen = [0; 3];
    let mut worst = 0;
    for page in 0..128 {
        match read(&mut device, page) {
            Ok((data, _, status)) => {
                assert_eq!(data, content(page), "page {page}");
                seen[usize::from(status != ReadStatus::Clean)] += 1;
                if let ReadStatus::Corrected(flipped) = status {
                    worst = worst.max(flipped);
                }
            }
            Err(error) => {
                assert_eq!(error, NandError::Uncorrectable { page });
                seen[2] += 1;
            }
        }
    }
    assert!(seen[1] > 10 && seen[2] > 10 && worst == 4, "{seen:?}, {worst}");
    // An erased page has not aged.
    device.erase(0).unwrap();
    assert_eq!(read(&mut device, 0).unwrap().2, ReadStatus::Clean);
}

#[test]
fn reads_and_erases_flip_bits_too() {
    for flips in [Flips { reads: 50, ..Flips::default() }, Flips { erases: 10, ..Flips::default() }] {
        let mut chip = Chip::new(ChipOptions { flips, ..options(2) });
        if flips.erases > 0 {
            (0..60).for_each(|_| chip.erase(1).unwrap());
        }
        (8..16).for_each(|page| program(&mut chip, page).unwrap());
        let mut flipped = [0, 0];
        for round in 0..80 {
            let wrong: u32 = (8..16)
                .map(|page| {
                    let found = read(&mut chip, page).unwrap().0;
                    content(page).iter().zip(found).map(|(one, other)| (one ^ other).count_ones()).sum::<u32>()
                })
                .sum();
            flipped[usize::from(round > 0)] = wrong;
        }
        assert!(flipped[1] > 0, "{flips:?}");
        assert_eq!(flipped[1] > flipped[0], flips.reads > 0, "{flips:?}: {flipped:?}");
    }
}

#[test]
fn a_block_that_fails_once_fails_always_and_loses_what_it_holds() {
    let failures = Failures { programs: 20_000, ..Failures::default() };
    let mut chip = Chip::new(ChipOptions { failures, ..options(4) });
    let done: Vec<_> = (0..128).map(|page| program(&mut chip, page)).collect();
    let failed = (0..128u32).filter(|page| page % 8 > 3).find(|&page| {
        let block = &done[page as usize / 8 * 8..=page as usize];
        block.iter().position(Result::is_err) == Some(block.len() - 1)
    });
    let failed = failed.expect("one program in fifty fails");
    assert_eq!(done[failed as usize], Err(NandError::ProgramFailed { page: failed }));
    let first = failed / 8 * 8;
    assert!((first..failed).all(|page| holds(&mut chip, page)), "what was programmed before can be copied out");
    assert!(!holds(&mut chip, failed));
    assert_eq!(chip.erase(failed / 8), Err(NandError::EraseFailed { block: failed / 8 }));
    let lost = (0..300).find(|_| (first..failed).any(|page| !holds(&mut chip, page)));
    assert!(lost.is_some(), "later it is gone");
    chip.mark_bad(failed / 8).unwrap();
    assert!(chip.is_bad(failed / 8).unwrap());
}

#[test]
fn blocks_wear_out() {
    let failures = Failures { endurance: 100, ..Failures::default() };
    let mut chip = Chip::new(ChipOptions { failures, ..options(5) });
    let lives: Vec<u32> = (0..16).map(|block| (0..).take_while(|_| chip.erase(block).is_ok()).count() as u32).collect();
    assert!(lives.iter().all(|&erases| erases >= 100), "{lives:?}");
    assert!(lives.iter().any(|&erases| erases < 150) && lives.iter().any(|&erases| erases > 200), "{lives:?}");
}

/// What a power cut leaves of the page or block that it met.
#[derive(Debug, Default)]
struct Left {
    nothing: u32,
    part: u32,
    all: u32,
    later: u32,
}

#[test]
fn a_power_cut_takes_what_it_meets_and_nothing_else() {
    let (mut programs, mut erases) = (Left::default(), Left::default());
    for seed in 0..200 {
        let mut chip = Chip::new(options(seed));
        (0..24).for_each(|page| program(&mut chip, page).unwrap());
        let erase = seed % 2 == 0;
        chip.cut_power_at(1);
        program(&mut chip, 24).unwrap();
        let cut = if erase { chip.erase(1) } else { program(&mut chip, 25) };
        assert_eq!(cut, Err(NandError::PowerLost));
        assert_eq!(read(&mut chip, 0).unwrap_err(), NandError::PowerLost);
        assert_eq!(chip.erase(0), Err(NandError::PowerLost));
        chip.power_on().unwrap();

        let target = if erase { 8 } else { 25 };
        let left = if erase { &mut erases } else { &mut programs };
        let first = read(&mut chip, target).unwrap().0;
        if first == [0xFF; PAGE] {
            left.nothing += 1;
        } else if first == content(target) {
            left.all += 1;
        } else {
            left.part += 1;
        }
        left.later += u32::from((0..30).any(|_| read(&mut chip, target).unwrap().0 != first));
        for page in (0..25).filter(|page| !erase || page / 8 != 1) {
            assert!(holds(&mut chip, page), "seed {seed}: page {page} was there before");
        }
        // Whatever is programmed in that block until it is erased for good is lost in time.
        let behind = if erase { 15 } else { 26 };
        if program(&mut chip, behind).is_ok() {
            assert!((0..30).any(|_| !holds(&mut chip, behind)), "seed {seed}");
        }
        chip.erase(behind / 8).unwrap();
        program(&mut chip, behind).unwrap();
        assert!((0..40).all(|_| holds(&mut chip, behind)), "seed {seed}: erased and programmed anew, it is sound");
        assert_eq!(chip.counters().broken_rules, u64::from(erase && first != [0xFF; PAGE]), "seed {seed}");
    }
    for left in [programs, erases] {
        assert!(left.nothing > 10 && left.part > 10 && left.all > 10 && left.later > 10, "{left:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_chip() {
    let run = |seed| {
        let failures = Failures { programs: 10_000, erases: 10_000, endurance: 20 };
        let flips = Flips { reads: 100, age: 10_000_000, erases: 30 };
        let mut chip = Chip::new(ChipOptions { failures, flips, factory_bad: 50, ..options(seed) });
        let mut seen = Vec::new();
        for round in 0..30 {
            for block in 0..16 {
                seen.push(format!("{:?}", chip.erase(block)));
                for page in block * 8..block * 8 + 8 {
                    seen.push(format!("{:?}", program(&mut chip, page)));
                    seen.push(format!("{:?}", read(&mut chip, page)));
                }
            }
            chip.pass(round);
        }
        seen
    };
    assert_eq!(run(6), run(6));
    assert_ne!(run(6), run(7));
}

/// The shape of a chip decides how it is corrected: whoever opens it again must come to the same.
#[test]
fn the_stronger_code_is_taken_where_the_spare_bytes_have_room_for_it() {
    let chip = |spare| Chip::new(ChipOptions::new(Geometry::new(2048, spare, 8, 1).unwrap()));
    for (spare, bits, left) in [(64, 4, 34), (65, 4, 35), (66, 8, 12), (128, 8, 74), (42, 4, 12)] {
        let mut device = Corrected::new(chip(spare)).unwrap();
        assert_eq!((device.correctable(), device.geometry().spare_bytes), (bits, left), "{spare} spare bytes");
        device.program(0, &[7; 2048], &vec![9; left as usize]).unwrap();
        let (mut data, mut beside) = ([0; 2048], vec![0; left as usize]);
        assert_eq!(device.read(0, &mut data, &mut beside), Ok(ReadStatus::Clean));
        assert!(data == [7; 2048] && beside == vec![9; left as usize]);
    }
    let few = Corrected::new(chip(41)).unwrap_err();
    assert_eq!(few, EccError::NoRoom { spare: 41, parity: 40 });
}

/// A chip whose data sheet asks for more than is corrected would lose data.
#[test]
fn chips_on_the_market_are_corrected_as_much_as_they_need() {
    for Preset { name, geometry, bits } in PRESETS {
        let chip = Chip::new(ChipOptions::new(Geometry { blocks: 1, ..*geometry }));
        let corrected = Corrected::new(chip).unwrap().correctable();
        assert!(corrected >= *bits, "{name}: {corrected} of {bits} bits");
    }
}
