//! 4 KiB overwritten at random places of a volume that is nearly full: a log-structured file system cleans all the time.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use basalt_testkit::error::Context;
use basalt_testkit::rng::Rng;
use basalt_testkit::{Error, Result};

use super::content::{PAGE, percentile, random_bytes, random_place, write_file};
use super::{count, seconds_since};
use crate::contender::Contender;
use crate::options::Scale;
use crate::report::{Aim, Sample, Unit};

/// How much of the space that a new volume offers one file takes, in percent.
const FULL_PERCENT: u64 = 90;
/// An fsync follows every so many writes, and counts as part of the last.
const BATCH: u64 = 32;

/// Fills the volume with one file, overwrites more of it than was left free, and then measures.
pub fn overwrite(volume: &mut Contender, scale: &Scale) -> Result<Vec<Sample>> {
    let path = volume.mount_point().join("full");
    let room = rustix::fs::statvfs(volume.mount_point()).doing("look at", volume.mount_point())?;
    // Both may be 64 bits wide, so the percentage comes first.
    let bytes = (room.f_bavail / 100 * FULL_PERCENT * room.f_frsize) >> 20 << 20;
    if bytes == 0 {
        return Err(Error::Invalid(format!("{} has no room", volume.mount_point().display())));
    }
    write_file(&path, bytes)?.sync_all().doing("sync", &path)?;

    let file = OpenOptions::new().write(true).open(&path).doing("open", &path)?;
    let page = random_bytes(PAGE, 8);
    let mut rng = Rng::new(9);
    let mut write = |number: u64| {
        file.write_all_at(&page, random_place(&mut rng, bytes)).doing("write", &path)?;
        if number.is_multiple_of(BATCH) { file.sync_data().doing("sync", &path) } else { Ok(()) }
    };
    (1..=scale.overwrites).try_for_each(&mut write)?;
    let mut times = Vec::new();
    let start = Instant::now();
    for number in 1..=scale.overwrites {
        let start = Instant::now();
        write(number)?;
        times.push(seconds_since(start) * 1e6);
    }
    let seconds = seconds_since(start);
    times.sort_by(f64::total_cmp);
    let title = format!("overwrite 4 KiB of a full volume, fdatasync after every {BATCH}");
    let share = |name: &str, per_mille: usize| {
        Sample::new(format!("{title}, {name} take at most"), Unit::Microseconds, percentile(&times, per_mille))
    };
    let rate = scale.overwrites as f64 / seconds;
    Ok(vec![
        Sample::new(format!("{title}, {}", count(scale.overwrites)), Unit::PerSecond, rate).aim(Aim::Ratio(1.0)),
        share("50 %", 500),
        share("99 %", 990),
        share("99.9 %", 999),
    ])
}
