//! Real programs on real trees.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Instant;

use basalt_testkit::Result;
use basalt_testkit::error::Context;

use super::{count, seconds_since, size, sync_volume};
use crate::contender::Contender;
use crate::report::{Sample, Unit};
use crate::sources::{self, Sources};

/// Unpacks the archive, which is in the kernel's cache.
pub fn untar(volume: &mut Contender, sources: &Sources) -> Result<Vec<Sample>> {
    let archive = &sources.archive;
    read_once(archive)?;
    let what = format!("{} files, {}", count(sources.files), size(sources.bytes));
    timed(volume, &format!("untar ({what})"), |volume| sources::unpack(archive, volume.mount_point()))
}

/// Clones the repository, which is in the kernel's cache.
pub fn clone(volume: &mut Contender, sources: &Sources) -> Result<Vec<Sample>> {
    let packs = sources.repository.join("objects/pack");
    for pack in fs::read_dir(&packs).doing("list", &packs)?.flatten() {
        read_once(&pack.path())?;
    }
    let name = format!("git clone (the same {} files)", count(sources.files));
    timed(volume, &name, |volume| sources::clone(&sources.repository, &volume.mount_point().join("clone")))
}

fn read_once(path: &Path) -> Result<()> {
    let copied = File::open(path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    copied.doing("read", path).map(drop)
}

fn timed(volume: &Contender, title: &str, work: impl FnOnce(&Contender) -> Result<()>) -> Result<Vec<Sample>> {
    let start = Instant::now();
    work(volume)?;
    let done = seconds_since(start);
    sync_volume(volume.mount_point())?;
    let durable = seconds_since(start);
    Ok(vec![
        Sample::new(format!("{title}, syncfs included"), Unit::Seconds, durable),
        Sample::new(format!("{title}, before the syncfs"), Unit::Seconds, done),
    ])
}
