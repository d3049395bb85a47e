//! 4 KiB overwritten at random places of a volume that is nearly full: a log-structured file system cleans all the time.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use basalt_testkit::error::Context;
use basalt_testkit::rng::Rng;
use basalt_testkit::{Error, Result};

use super::content::{PAGE, percentile, random_bytes, random_place, write_file};
use super::{count, seconds_since, sync_volume};
use crate::contender::Contender;
use crate::options::Scale;
use crate::report::{Aim, Sample, Unit};

/// An fsync follows every so many writes, and counts as part of the last.
const BATCH: u64 = 32;
/// Size of many small files, and how many are in one directory.
const SMALL_BYTES: u64 = 48 << 10;
const IN_DIRECTORY: u64 = 1000;

/// Fills the volume with one file, overwrites more of it than was left free, and then measures.
pub fn one_file(volume: &mut Contender, scale: &Scale) -> Result<Vec<Sample>> {
    let path = volume.mount_point().join("full");
    let bytes = (room(volume.mount_point())? / 100 * scale.full_percent) >> 20 << 20;
    write_file(&path, bytes)?.sync_all().doing("sync", &path)?;
    let file = OpenOptions::new().write(true).open(&path).doing("open", &path)?;
    let page = random_bytes(PAGE, 8);
    let mut rng = Rng::new(9);
    measure("a full volume", scale, |is_last| {
        file.write_all_at(&page, random_place(&mut rng, bytes)).doing("write", &path)?;
        if is_last { file.sync_data().doing("sync", &path) } else { Ok(()) }
    })
}

/// Fills the volume with small files; each write opens and closes one.
pub fn many_files(volume: &mut Contender, scale: &Scale) -> Result<Vec<Sample>> {
    let root = volume.mount_point().to_owned();
    let files = room(&root)? / 100 * scale.full_percent / SMALL_BYTES;
    let content = random_bytes(SMALL_BYTES as usize, 10);
    for number in 0..files {
        let path = small(&root, number);
        if number.is_multiple_of(IN_DIRECTORY)
            && let Some(directory) = path.parent()
        {
            fs::create_dir(directory).doing("create", directory)?;
        }
        File::create(&path).and_then(|file| file.write_all_at(&content, 0)).doing("write", &path)?;
    }
    sync_volume(&root)?;
    let page = random_bytes(PAGE, 8);
    let mut rng = Rng::new(9);
    let scale = Scale { overwrites: scale.overwrites / 2, ..*scale };
    measure("small files that fill a volume", &scale, |is_last| {
        let path = small(&root, rng.below(files));
        let file = OpenOptions::new().write(true).open(&path).doing("open", &path)?;
        file.write_all_at(&page, random_place(&mut rng, SMALL_BYTES)).doing("write", &path)?;
        if is_last { file.sync_data().doing("sync", &path) } else { Ok(()) }
    })
}

fn small(root: &Path, number: u64) -> PathBuf {
    root.join(format!("{:03}", number / IN_DIRECTORY)).join(format!("{:03}", number % IN_DIRECTORY))
}

/// Bytes that a user may write to a volume.
fn room(mount_point: &Path) -> Result<u64> {
    let room = rustix::fs::statvfs(mount_point).doing("look at", mount_point)?;
    if room.f_bavail < 1000 {
        return Err(Error::Invalid(format!("{} has no room", mount_point.display())));
    }
    Ok(room.f_bavail * room.f_frsize)
}

/// Measures writes after as many that are not measured; `write` is told whether an fsync has to follow.
fn measure(place: &str, scale: &Scale, mut write: impl FnMut(bool) -> Result<()>) -> Result<Vec<Sample>> {
    (1..=scale.overwrites).try_for_each(|number| write(number.is_multiple_of(BATCH)))?;
    let mut times = Vec::new();
    let start = Instant::now();
    for number in 1..=scale.overwrites {
        let start = Instant::now();
        write(number.is_multiple_of(BATCH))?;
        times.push(seconds_since(start) * 1e6);
    }
    let seconds = seconds_since(start);
    let mut batches: Vec<f64> = times.chunks(BATCH as usize).map(|batch| batch.iter().sum()).collect();
    times.sort_by(f64::total_cmp);
    batches.sort_by(f64::total_cmp);
    let title = format!("overwrite 4 KiB of {place}, fdatasync after every {BATCH}");
    let share = |what: &str, times: &[f64], per_mille: usize| {
        let name = format!("{title}, {} % {what}", per_mille as f64 / 10.0);
        Sample::new(name, Unit::Microseconds, percentile(times, per_mille))
    };
    let rate = scale.overwrites as f64 / seconds;
    let mut samples =
        vec![Sample::new(format!("{title}, {}", count(scale.overwrites)), Unit::PerSecond, rate).aim(Aim::Ratio(1.0))];
    let mut slowest = share("take at most", &times, 990);
    if let Some(aim) = scale.slowest_aim {
        slowest = slowest.aim(Aim::Ratio(aim));
    }
    samples.extend([share("take at most", &times, 500), slowest, share("take at most", &times, 999)]);
    samples
        .extend([500, 950, 990].map(|per_mille| share(&format!("of all {BATCH} take at most"), &batches, per_mille)));
    Ok(samples)
}
