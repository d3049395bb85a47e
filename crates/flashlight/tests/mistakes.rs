//! Mistakes that a reader of this crate has found, each with the events that led there.

mod support;

use basalt_flashlight::{Bytes, Error, FlashLight, InodeNumber};
use basalt_nand::{Chip, ChipOptions, Geometry, NandDevice, NandError, ReadStatus};
use basalt_random::Rng;
use support::{NOW, name_hash as hash, new_file};

fn chip(pages_per_block: u32, blocks: u32) -> (Chip, Vec<u8>) {
    chip_of(Geometry::new(2048, 64, pages_per_block, blocks).unwrap())
}

fn chip_of(geometry: Geometry) -> (Chip, Vec<u8>) {
    let mut chip = Chip::new(ChipOptions::new(geometry));
    let mut memory = support::memory(&geometry);
    support::format_any(&mut chip, &mut memory, 1);
    (chip, memory)
}

fn file<M: Bytes, D: NandDevice>(
    volume: &mut FlashLight<M, D>,
    at: InodeNumber,
    name: &str,
    content: &[u8],
) -> InodeNumber {
    let file = volume.create(at, name.as_bytes(), &new_file(0o644)).unwrap();
    volume.write(file, 0, content, NOW).unwrap();
    file
}

fn content<M: Bytes, D: NandDevice>(volume: &mut FlashLight<M, D>, at: InodeNumber, name: &str) -> Option<Vec<u8>> {
    let file = volume.lookup(at, name.as_bytes()).ok()?;
    let mut content = vec![0; volume.attributes(file).unwrap().size as usize];
    volume.read(file, 0, &mut content).unwrap();
    Some(content)
}

/// Recovery has few blocks to write to. Each file that it finds is in another page of the inode table, and many in other directories.
#[test]
fn recovery_has_room_for_all_that_it_finds() {
    for (directories, pages_per_block) in [(1, 64), (300, 64), (1, 16), (300, 16)] {
        let (mut chip, mut memory) = chip(pages_per_block, 20_480 / pages_per_block);
        let mut rng = Rng::new(3);
        let mut names = Vec::new();
        {
            let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
            let parents: Vec<_> = (0..directories)
                .map(|at| volume.make_directory(volume.root(), format!("d{at}").as_bytes(), &new_file(0o755)).unwrap())
                .collect();
            for at in 0..900 {
                let parent = parents[at % parents.len()];
                let name = format!("f{at}");
                names.push((parent, name.clone(), file(&mut volume, parent, &name, b"old"), b"old".to_vec()));
            }
            volume.sync().unwrap();
            let before = volume.counters().checkpoints;
            for round in 0.. {
                let at = rng.index(names.len());
                let new = format!("new {round:06}").into_bytes();
                volume.write(names[at].2, 0, &new, NOW).unwrap();
                if volume.counters().checkpoints > before {
                    break;
                }
                volume.sync_file(names[at].2).unwrap();
                names[at].3 = new;
            }
        }
        // That was behind a checkpoint; so once more, up to just before the next.
        let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
        let before = volume.counters().checkpoints;
        for round in 0..10_000 {
            let at = rng.index(names.len());
            let new = format!("mor {round:06}").into_bytes();
            volume.write(names[at].2, 0, &new, NOW).unwrap();
            volume.sync_file(names[at].2).unwrap();
            names[at].3 = new;
            if volume.counters().checkpoints == before + 1 && volume.counters().metadata % 64 == 63 && round > 200 {
                break;
            }
        }
        let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
        for (parent, name, _, wanted) in &names {
            assert_eq!(content(&mut volume, *parent, name).as_ref(), Some(wanted), "{name}");
        }
        assert!(volume.check().unwrap().is_sound());
    }
}

/// Whether the file that is replaced is open or not, and whatever has to leave memory meanwhile.
#[test]
fn a_rename_that_replaces_is_one_step() {
    for open in [false, true] {
        for cut in 0.. {
            let (mut chip, mut memory) = chip(16, 128);
            let mut done = false;
            {
                let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
                let root = volume.root();
                let parents: Vec<_> = ["a", "b", "c", "d"]
                    .iter()
                    .map(|name| volume.make_directory(root, name.as_bytes(), &new_file(0o755)).unwrap())
                    .collect();
                for (at, name) in [(0, "x"), (1, "y"), (2, "f"), (3, "f")] {
                    file(&mut volume, parents[at], name, name.as_bytes());
                }
                volume.sync().unwrap();
                for at in [2, 3] {
                    let other = volume.lookup(parents[at], b"f").unwrap();
                    volume.write(other, 0, b"F", NOW).unwrap();
                }
                volume.device().cut_power_at(cut);
                done |= volume.rename((parents[0], b"x"), (parents[1], b"y"), open, NOW).is_ok();
            }
            chip.power_on().unwrap();
            chip.cut_power_at(u64::MAX);
            let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
            let root = volume.root();
            let (a, b) = (volume.lookup(root, b"a").unwrap(), volume.lookup(root, b"b").unwrap());
            let found = (content(&mut volume, a, "x"), content(&mut volume, b, "y"));
            let before = (Some(b"x".to_vec()), Some(b"y".to_vec()));
            let after = (None, Some(b"x".to_vec()));
            assert!(found == before && !done || found == after, "cut {cut}, {open}: {found:?}");
            assert!(volume.check().unwrap().is_sound());
            if done {
                break;
            }
        }
    }
}

/// A directory takes the place of an empty one, and the power goes before that one is said to be gone: it does not stay for ever.
#[test]
fn a_directory_that_is_replaced_is_gone() {
    for cut in 0.. {
        let (mut chip, mut memory) = chip(16, 128);
        let mut done = false;
        {
            let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
            let root = volume.root();
            for name in ["a", "b"] {
                volume.make_directory(root, name.as_bytes(), &new_file(0o755)).unwrap();
            }
            volume.sync().unwrap();
            volume.device().cut_power_at(cut);
            done |= volume.rename((root, b"a"), (root, b"b"), false, NOW).is_ok();
        }
        chip.power_on().unwrap();
        chip.cut_power_at(u64::MAX);
        let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
        let root = volume.root();
        let names = [&b"a"[..], b"b"].map(|name| u32::from(volume.lookup(root, name).is_ok()));
        assert!(names == [1, 1] && !done || names == [0, 1], "cut {cut}: {names:?}");
        assert_eq!(volume.usage().inodes, 1 + names[0] + names[1], "cut {cut}");
        let checked = volume.check().unwrap();
        assert!(checked.is_sound(), "cut {cut}: {checked:?}");
        if done {
            break;
        }
    }
}

/// To check a volume reads its files: none may be in memory twice then.
#[test]
fn a_file_that_was_checked_can_be_deleted() {
    let (mut chip, mut memory) = chip(16, 128);
    let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
    let root = volume.root();
    let made = file(&mut volume, root, "file", b"old");
    assert!(volume.check().unwrap().is_sound());
    volume.unlink(root, b"file", false, NOW).unwrap();
    assert_eq!(volume.attributes(made), Err(Error::NotFound));
    assert_eq!(volume.write(made, 0, b"new", NOW), Err(Error::NotFound));
}

#[test]
fn a_rename_that_fails_changes_nothing() {
    let (mut chip, mut memory) = chip(16, 128);
    let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
    let root = volume.root();
    let (short, long) = ("a", "b".repeat(250));
    volume.link(root, short.as_bytes(), &[b't'; 1600], &new_file(0o777)).unwrap();
    file(&mut volume, root, &long, b"precious");
    volume.sync().unwrap();
    let link = |volume: &mut FlashLight<_, _>| content(volume, root, short).map(|target| target.len());
    match volume.rename((root, short.as_bytes()), (root, long.as_bytes()), false, NOW) {
        Ok(()) => assert_eq!(content(&mut volume, root, &long).map(|target| target.len()), Some(1600)),
        Err(error) => {
            assert_eq!(error, Error::NameTooLong);
            assert_eq!(content(&mut volume, root, &long).as_deref(), Some(&b"precious"[..]));
            assert_eq!(link(&mut volume), Some(1600));
        }
    }
    // A name as long as the one that it has always fits.
    let other = "c".repeat(200);
    volume.link(root, other.as_bytes(), &[b't'; 1600], &new_file(0o777)).unwrap();
    volume.rename((root, other.as_bytes()), (root, "d".repeat(200).as_bytes()), false, NOW).unwrap();
    assert!(volume.check().unwrap().is_sound());
}

/// All in one bucket, and in one that has split as often as it can.
#[test]
fn names_whose_hashes_begin_alike_are_made_and_deleted() {
    let (mut chip, mut memory) = chip(64, 256);
    let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
    let uuid = volume.identity().uuid;
    let directory = volume.make_directory(volume.root(), b"directory", &new_file(0o755)).unwrap();
    let alike: Vec<String> =
        (0..).map(|at| format!("n{at}")).filter(|name| hash(name, &uuid) >> 23 == 0).take(700).collect();
    for name in &alike {
        file(&mut volume, directory, name, name.as_bytes());
    }
    volume.sync().unwrap();
    assert!(volume.check().unwrap().is_sound());
    for name in &alike {
        assert_eq!(content(&mut volume, directory, name).as_deref(), Some(name.as_bytes()));
    }
    for name in &alike {
        volume.unlink(directory, name.as_bytes(), false, NOW).unwrap();
        assert_eq!(volume.lookup(directory, name.as_bytes()), Err(Error::NotFound));
    }
    assert!(volume.check().unwrap().is_sound());
    volume.remove_directory(volume.root(), b"directory", NOW).unwrap();
}

#[test]
fn a_file_that_its_inode_could_not_lead_to_is_refused_at_once() {
    let (mut chip, mut memory) = chip(16, 256);
    let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
    let root = volume.root();
    let sparse = file(&mut volume, root, "sparse", b"");
    assert_eq!(volume.set_length(sparse, 1 << 30, NOW), Err(Error::FileTooLarge));
    assert_eq!(volume.write(sparse, 1 << 30, b"far", NOW), Err(Error::FileTooLarge));
    volume.set_length(sparse, 270 << 20, NOW).unwrap();
    for at in 0..400 {
        volume.write(sparse, at * 2048 * 300, &[at as u8; 2048], NOW).unwrap();
    }
    file(&mut volume, root, "other", b"other");
    volume.rename((root, b"sparse"), (root, b"other"), false, NOW).unwrap();
    volume.set_length(sparse, 100 << 20, NOW).unwrap();
    let mut page = [0; 2048];
    for at in 0..150 {
        volume.read(sparse, at * 2048 * 300, &mut page).unwrap();
        assert_eq!(page, [at as u8; 2048]);
    }
    assert!(volume.check().unwrap().is_sound());
}

#[test]
fn pages_of_four_kilobytes_hold_more_extents_in_a_map() {
    let (mut chip, mut memory) = chip_of(Geometry::new(4096, 64, 64, 128).unwrap());
    let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
    let root = volume.root();
    let sparse = file(&mut volume, root, "sparse", b"");
    volume.set_length(sparse, 1000 * 4096, NOW).unwrap();
    for at in 0..500 {
        volume.write(sparse, at * 2 * 4096, &[at as u8; 4096], NOW).unwrap();
    }
    let mut page = [0; 4096];
    for at in 0..500 {
        volume.read(sparse, at * 2 * 4096, &mut page).unwrap();
        assert_eq!(page, [at as u8; 4096]);
    }
    assert!(volume.check().unwrap().is_sound());
}

/// What a file contains may be any bytes, also those of an inode of this very volume.
#[test]
fn content_is_never_taken_for_metadata() {
    let (mut chip, mut memory) = chip(16, 128);
    let mut inodes = Vec::new();
    {
        let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
        let root = volume.root();
        file(&mut volume, root, "ghost", b"boo");
        volume.sync().unwrap();
        for page in 0..128 * 16 {
            let mut bytes = vec![0; 2048];
            volume.device().read(page, &mut bytes, &mut []).unwrap();
            if bytes[0] == 8 || bytes[0] == 6 {
                inodes.extend(bytes);
            }
        }
        volume.unlink(root, b"ghost", false, NOW).unwrap();
        volume.sync().unwrap();
        // Whole pages, at the beginning of a block of its own and elsewhere.
        let copy: Vec<u8> = inodes.iter().copied().cycle().take(2048 * 100).collect();
        let upload = file(&mut volume, root, "upload", &copy);
        volume.sync_file(upload).unwrap();
    }
    let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
    let root = volume.root();
    assert_eq!(volume.lookup(root, b"ghost"), Err(Error::NotFound));
    assert!(content(&mut volume, root, "upload").is_some_and(|found| found.starts_with(&inodes)));
    assert!(volume.check().unwrap().is_sound());
}

/// A chip that fails at chosen moments.
struct Faulty<'c> {
    chip: &'c mut Chip,
    /// Programs until one reports an error, though it was done.
    error_in: u64,
    unreadable: u32,
    /// The next page of a directory is not programmed.
    fail_directory: bool,
    /// As some drivers do: a block is erased before it is marked; then the power goes.
    marks_harshly: bool,
    errors: u64,
    after: u64,
}

impl<'c> Faulty<'c> {
    fn new(chip: &'c mut Chip) -> Faulty<'c> {
        Faulty {
            chip,
            error_in: u64::MAX,
            unreadable: u32::MAX,
            fail_directory: false,
            marks_harshly: false,
            errors: 0,
            after: 0,
        }
    }
}

impl NandDevice for Faulty<'_> {
    fn geometry(&self) -> Geometry {
        self.chip.geometry()
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, NandError> {
        if page == self.unreadable && !data.is_empty() {
            return Err(NandError::Uncorrectable { page });
        }
        self.chip.read(page, data, spare)
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<(), NandError> {
        if self.fail_directory && data[0] == 6 {
            self.fail_directory = false;
            return Err(NandError::ProgramFailed { page });
        }
        self.after += u64::from(self.errors > 0);
        self.chip.program(page, data, spare)?;
        if self.error_in == 0 {
            self.errors += 1;
            self.error_in = u64::MAX;
            return Err(NandError::Os { page, errno: 5 });
        }
        self.error_in = self.error_in.saturating_sub(1);
        Ok(())
    }

    fn erase(&mut self, block: u32) -> Result<(), NandError> {
        self.chip.erase(block)
    }

    fn is_bad(&mut self, block: u32) -> Result<bool, NandError> {
        self.chip.is_bad(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), NandError> {
        if self.marks_harshly {
            self.chip.erase(block)?;
            self.chip.mark_bad(block)?;
            self.chip.cut_power_at(0);
            return Ok(());
        }
        self.chip.mark_bad(block)
    }
}

#[test]
fn behind_an_error_of_the_chip_nothing_is_programmed_and_reading_goes_on() {
    let (mut chip, mut memory) = chip(16, 128);
    let mut volume = FlashLight::mount(Faulty::new(&mut chip), &mut memory[..]).unwrap();
    let root = volume.root();
    let files: Vec<_> = (0..6).map(|at| file(&mut volume, root, &format!("f{at}"), b"old")).collect();
    volume.sync().unwrap();
    volume.write(files[0], 0, b"new", NOW).unwrap();
    volume.write(files[1], 0, b"new", NOW).unwrap();
    volume.device().error_in = 0;
    assert!(volume.sync_file(files[0]).is_err() && volume.is_stopped());
    for at in 2..6 {
        assert_eq!(content(&mut volume, root, &format!("f{at}")).as_deref(), Some(&b"old"[..]));
    }
    assert_eq!(volume.write(files[2], 0, b"new", NOW), Err(Error::Stopped));
    assert!(volume.close().is_err());
    assert_eq!(volume.device().after, 0);
    let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
    let root = volume.root();
    assert_eq!(content(&mut volume, root, "f0").as_deref(), Some(&b"new"[..]), "it was programmed after all");
    assert_eq!(content(&mut volume, root, "f1").as_deref(), Some(&b"old"[..]));
}

#[test]
fn a_write_that_fails_in_its_middle_leaks_no_page() {
    let (mut chip, mut memory) = chip(16, 160);
    let mut volume = FlashLight::mount(Faulty::new(&mut chip), &mut memory[..]).unwrap();
    let root = volume.root();
    let large = file(&mut volume, root, "large", &[1; 2048 * 40]);
    volume.sync().unwrap();
    let geometry = volume.geometry();
    let mut spare = [0; 64];
    let mut is_30 = |volume: &mut FlashLight<_, Faulty<'_>>, page: u32| {
        volume.device().chip.read(page, &mut [], &mut spare).unwrap();
        spare[..4] == large.0.to_le_bytes() && spare[4..8] == 30u32.to_le_bytes()
    };
    let lost = (0..geometry.pages()).find(|&page| is_30(&mut volume, page)).unwrap();
    volume.device().unreadable = lost;
    for round in 2..12 {
        let written = volume.write(large, 0, &[round; 2048 * 30 + 100], NOW);
        assert_eq!(written, Err(Error::Nand(NandError::Uncorrectable { page: lost })));
        let mut page = [0; 2048];
        volume.read(large, 29 * 2048, &mut page).unwrap();
        assert_eq!(page, [round; 2048], "what was written before it stays");
    }
    volume.device().unreadable = u32::MAX;
    assert!(volume.check().unwrap().is_sound());
}

#[test]
fn a_block_is_marked_bad_when_no_checkpoint_needs_it() {
    let (mut chip, mut memory) = chip(64, 256);
    {
        let mut volume = FlashLight::mount(Faulty::new(&mut chip), &mut memory[..]).unwrap();
        let root = volume.root();
        file(&mut volume, root, "file", b"precious");
        volume.sync().unwrap();
        file(&mut volume, root, "other", b"");
        (volume.device().fail_directory, volume.device().marks_harshly) = (true, true);
        volume.sync_file(root).unwrap();
        let _ = volume.create(root, b"more", &new_file(0o644));
        let _ = volume.sync();
    }
    chip.power_on().unwrap();
    chip.cut_power_at(u64::MAX);
    for _ in 0..2 {
        let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).unwrap();
        let root = volume.root();
        assert_eq!(content(&mut volume, root, "file").as_deref(), Some(&b"precious"[..]));
        assert!(volume.lookup(root, b"other").is_ok());
    }
}

#[test]
fn on_a_full_chip_files_can_be_deleted() {
    support::full::fill_and_empty(Geometry::new(2048, 64, 64, 256).unwrap(), 400, 1).unwrap();
}
