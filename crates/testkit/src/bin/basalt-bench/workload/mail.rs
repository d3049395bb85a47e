//! A mail server's spool: many threads that create, append to, read and remove small files, with an fsync after each write.
//! Source: filebench's personality `varmail` (its files, sizes, threads and flow of operations).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use basalt_testkit::error::Context;
use basalt_testkit::rng::Rng;
use basalt_testkit::{Error, Result};

use super::content::random_bytes;
use super::seconds_since;
use crate::contender::Contender;
use crate::options::Scale;
use crate::report::{Aim, Sample, Unit};

/// Threads at work.
const THREADS: u64 = 16;
/// Files in the spool.
const FILES: u64 = 1_000;
/// Mean of a file's length, and of what is appended, in bytes; lengths are between nothing and twice that.
const MEAN: u64 = 16 << 10;
/// Operations in one turn of the flow: remove; create, append, fsync; open, read, append, fsync; open, read.
const OPERATIONS: u64 = 13;

/// Fills the spool, then all threads take turns until each has done its share.
pub fn varmail(volume: &mut Contender, scale: &Scale) -> Result<Vec<Sample>> {
    let spool = volume.mount_point().join("spool");
    fs::create_dir(&spool).doing("create", &spool)?;
    let content = random_bytes(2 * MEAN as usize, 6);
    let mut rng = Rng::new(7);
    // As filebench does, four of five files are there when it starts.
    for number in (0..FILES).filter(|number| number % 5 != 0) {
        append(&message(&spool, number), &content, &mut rng, false)?;
    }
    super::sync_volume(volume.mount_point())?;

    let turns = u64::from(scale.mail_turns).div_ceil(THREADS);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (spool, content) = (&spool, &content);
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || work(spool, content, seed, turns))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::Invalid("a thread of the mail server panicked".to_owned())))
        })
    })?;
    let seconds = seconds_since(start);
    let operations = turns * THREADS * OPERATIONS;
    let title = format!("varmail, {THREADS} threads, operations");
    Ok(vec![Sample::new(title, Unit::PerSecond, operations as f64 / seconds).aim(Aim::Ratio(1.0))])
}

/// One thread's turns.
fn work(spool: &Path, content: &[u8], seed: u64, turns: u64) -> Result<()> {
    let mut rng = Rng::new(1_000 + seed);
    for _ in 0..turns {
        let path = message(spool, rng.below(FILES));
        missing_is_fine(fs::remove_file(&path)).doing("remove", &path)?;
        append(&message(spool, rng.below(FILES)), content, &mut rng, true)?;
        let path = message(spool, rng.below(FILES));
        read(&path)?;
        append(&path, content, &mut rng, true)?;
        read(&message(spool, rng.below(FILES)))?;
    }
    Ok(())
}

fn message(spool: &Path, number: u64) -> PathBuf {
    spool.join(format!("{number:08}"))
}

/// Appends to a file, which is created if need be.
fn append(path: &Path, content: &[u8], rng: &mut Rng, durable: bool) -> Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path).doing("open", path)?;
    file.write_all(&content[..rng.below(2 * MEAN) as usize]).doing("write", path)?;
    if durable {
        file.sync_all().doing("sync", path)?;
    }
    Ok(())
}

/// Reads a whole file, if it is there.
fn read(path: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    missing_is_fine(File::open(path).and_then(|mut file| file.read_to_end(&mut bytes).map(|_| ()))).doing("read", path)
}

/// Another thread may have removed it.
fn missing_is_fine(outcome: std::io::Result<()>) -> std::io::Result<()> {
    match outcome {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
