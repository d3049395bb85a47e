//! What write(2) took finds room, whatever else takes some: several writers and all kinds of changes on a volume that is nearly full.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;

use basalt_testkit::rng::Rng;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::fixture::Volume;

/// Files of each writer.
const FILES: usize = 6;
/// The longest one, in bytes.
const LONGEST: u64 = 24 << 20;
const STEPS: usize = 160;

/// A file, and what it must hold.
#[derive(Default)]
struct Known {
    path: PathBuf,
    content: Vec<u8>,
}

/// Changes files of its own; nothing but a full volume may be the matter.
struct Writer {
    rng: Rng,
    files: Vec<Known>,
}

fn may_be_full(result: io::Result<()>, what: &str) {
    if let Err(error) = result {
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{what}: {error}");
    }
}

impl Writer {
    fn step(&mut self) {
        let index = self.rng.index(FILES);
        let known = &mut self.files[index];
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&known.path);
        let file = match open() {
            Ok(file) => file,
            Err(error) => return may_be_full(Err(error), "open"),
        };
        let length = known.content.len() as u64;
        match self.rng.below(20) {
            0..13 => {
                for _ in 0..self.rng.between(1, 4) {
                    write(&mut self.rng, &file, &mut known.content);
                }
                if self.rng.chance(20) {
                    file.sync_all().expect("fsync of what write(2) took");
                }
            }
            13..15 => {
                let to = self.rng.below(LONGEST);
                // What a truncation that failed has left is asked for.
                may_be_full(file.set_len(to), "truncate");
                known.content.resize(file.metadata().unwrap().len() as usize, 0);
            }
            15..17 => {
                let (from, take) = (self.rng.below(LONGEST), self.rng.between(1, 12 << 20));
                let result = fallocate(&file, FallocateFlags::empty(), from, take.min(LONGEST - from));
                may_be_full(result.map_err(io::Error::from), "fallocate");
                known.content.resize(file.metadata().unwrap().len() as usize, 0);
            }
            17 if length > 0 => {
                let from = self.rng.below(length);
                let take = self.rng.between(1, length - from);
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                may_be_full(fallocate(&file, how, from, take).map_err(io::Error::from), "punch");
                known.content[from as usize..(from + take) as usize].fill(0);
            }
            _ => {
                fs::remove_file(&known.path).unwrap();
                known.content.clear();
            }
        }
    }
}

/// Writes somewhere; as much as was taken is in `content`.
fn write(rng: &mut Rng, file: &File, content: &mut Vec<u8>) {
    let length = match rng.below(10) {
        0..3 => rng.between(1, 9_000),
        3..8 => rng.between(1, 256 << 10),
        _ => rng.between(1, 3 << 20),
    };
    let end = content.len() as u64;
    let offset = if rng.chance(50) { end } else { rng.below(end + 1) };
    let length = length.min(LONGEST - offset) as usize;
    let seed = rng.next_u64() | 0x0101_0101_0101_0101;
    let data: Vec<u8> = (0..length).map(|at| seed.rotate_left(at as u32 / 8 % 64).to_ne_bytes()[at % 8] | 1).collect();
    match file.write_at(&data, offset) {
        Ok(taken) => {
            let (from, to) = (offset as usize, offset as usize + taken);
            content.resize(content.len().max(to), 0);
            content[from..to].copy_from_slice(&data[..taken]);
        }
        Err(error) => may_be_full(Err(error), "write"),
    }
}

#[test]
fn what_write_took_beside_all_that_takes_space_is_there() {
    let Some(volume) = Volume::new("96M") else { return };
    for seed in 0..2 {
        let writer = |number: u64| {
            let path = |file: usize| volume.path(format!("{seed}-{number}-{file}"));
            let files = (0..FILES).map(|file| Known { path: path(file), ..Known::default() }).collect();
            Writer { rng: Rng::new(seed * 100 + number), files }
        };
        let mut writers: Vec<Writer> = (0..3).map(writer).collect();
        thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| (0..STEPS).for_each(|_| writer.step()));
            }
        });
        volume.remount();
        for known in writers.iter().flat_map(|writer| &writer.files) {
            let found = fs::read(&known.path).unwrap_or_default();
            let same = found.iter().zip(&known.content).position(|(found, expected)| found != expected);
            assert!(
                found.len() == known.content.len() && same.is_none(),
                "seed {seed}: {}: {} bytes, {} expected, the first other one at {same:?}",
                known.path.display(),
                found.len(),
                known.content.len()
            );
            let _ = fs::remove_file(&known.path);
        }
    }
}
