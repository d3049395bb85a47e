//! Many small files.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use basalt_testkit::error::Context;
use basalt_testkit::{Error, Result};

use super::content::random_bytes;
use super::{count, seconds_since, sync_volume};
use crate::contender::Contender;
use crate::options::Scale;
use crate::report::{Aim, Sample, Unit};

/// Bytes of a small file.
const BYTES: usize = 1024;
/// Files of a directory.
const CROWD: u32 = 200;

/// Creates, stats and unlinks.
pub fn files(volume: &mut Contender, scale: &Scale) -> Result<Vec<Sample>> {
    let root = volume.mount_point().to_owned();
    let start = Instant::now();
    create(&root, scale.files)?;
    let created = seconds_since(start);
    sync_volume(&root)?;
    let created_durably = seconds_since(start);

    volume.start_cold()?;
    let cold = stat(&root, scale.files)?;
    let warm = stat(&root, scale.files)?;

    let start = Instant::now();
    for number in 0..scale.files {
        let path = place(&root, number);
        fs::remove_file(&path).doing("remove", &path)?;
    }
    let removed = seconds_since(start);
    sync_volume(&root)?;
    let removed_durably = seconds_since(start);

    let files = count(u64::from(scale.files));
    let sample = |title: &str, seconds: f64| {
        Sample::new(format!("{title}, {files}"), Unit::PerSecond, f64::from(scale.files) / seconds)
    };
    Ok(vec![
        sample("create files of 1 KiB, syncfs included", created_durably).aim(Aim::Ratio(0.5)),
        sample("create files of 1 KiB, before the syncfs", created).aim(Aim::Ratio(0.5)),
        sample("stat files, cold", cold),
        sample("stat files, warm", warm),
        sample("unlink files, syncfs included", removed_durably).aim(Aim::Ratio(0.5)),
        sample("unlink files, before the syncfs", removed).aim(Aim::Ratio(0.5)),
    ])
}

/// Creates that many small files in directories below `root`.
pub fn create(root: &Path, files: u32) -> Result<()> {
    let bytes = random_bytes(BYTES, 6);
    for number in 0..files {
        let path = place(root, number);
        if let (true, Some(directory)) = (number.is_multiple_of(CROWD), path.parent()) {
            fs::create_dir(directory).doing("create", directory)?;
        }
        let file = fs::File::create_new(&path).doing("create", &path)?;
        file.write_all_at(&bytes, 0).doing("write", &path)?;
    }
    Ok(())
}

/// Seconds that looking at every file takes.
fn stat(root: &Path, files: u32) -> Result<f64> {
    let start = Instant::now();
    for number in 0..files {
        let path = place(root, number);
        let length = fs::symlink_metadata(&path).doing("stat", &path)?.len();
        if length != BYTES as u64 {
            return Err(Error::Invalid(format!("{} has {length} bytes, not {BYTES}", path.display())));
        }
    }
    Ok(seconds_since(start))
}

fn place(root: &Path, number: u32) -> PathBuf {
    root.join(format!("directory-{:04}/file-{number:06}", number / CROWD))
}
