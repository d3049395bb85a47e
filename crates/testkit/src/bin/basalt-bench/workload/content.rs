//! One large file: sequential and random access, and writes that must be durable at once.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use basalt_testkit::error::Context;
use basalt_testkit::rng::Rng;
use basalt_testkit::{Error, Result};

use super::{count, seconds_since, size};
use crate::contender::Contender;
use crate::options::Scale;
use crate::report::{Aim, Sample, Unit};

/// Bytes of a sequential request.
const CHUNK: usize = 1 << 20;
/// Bytes of a random request.
pub const PAGE: usize = 4096;

/// Writes a large file and syncs it; reads it cold and warm.
pub fn sequential(volume: &mut Contender, scale: &Scale) -> Result<Vec<Sample>> {
    let path = volume.mount_point().join("large");
    let mib = (scale.file_bytes >> 20) as f64;
    let what = size(scale.file_bytes);

    let start = Instant::now();
    let file = write_file(&path, scale.file_bytes)?;
    let written = seconds_since(start);
    file.sync_all().doing("sync", &path)?;
    let durable = seconds_since(start);
    drop(file);

    volume.start_cold()?;
    let cold = read_file(&path, scale.file_bytes)?;
    let warm = read_file(&path, scale.file_bytes)?;
    let sample =
        |title: &str, seconds: f64| Sample::new(format!("{title} {what}"), Unit::MebibytesPerSecond, mib / seconds);
    Ok(vec![
        sample("sequential write, fsync included,", durable).aim(Aim::Ratio(0.9)),
        sample("sequential write, before the fsync,", written),
        sample("sequential read, cold,", cold).aim(Aim::Ratio(0.9)),
        sample("sequential read, warm,", warm),
    ])
}

/// Writes 4 KiB at random places of an existing file and syncs it; reads at random places, cold.
pub fn random(volume: &mut Contender, scale: &Scale) -> Result<Vec<Sample>> {
    let path = volume.mount_point().join("large");
    write_file(&path, scale.file_bytes)?.sync_all().doing("sync", &path)?;
    volume.start_cold()?;

    let file = OpenOptions::new().read(true).write(true).open(&path).doing("open", &path)?;
    let start = Instant::now();
    scatter(&file, &path, scale.file_bytes, scale.random_writes)?;
    let written = seconds_since(start);
    file.sync_all().doing("sync", &path)?;
    let durable = seconds_since(start);
    drop(file);

    volume.start_cold()?;
    let file = File::open(&path).doing("open", &path)?;
    let mut rng = Rng::new(2);
    let mut page = [0; PAGE];
    let start = Instant::now();
    for _ in 0..scale.random_reads {
        file.read_exact_at(&mut page, random_place(&mut rng, scale.file_bytes)).doing("read", &path)?;
    }
    let read = seconds_since(start);
    let sample = |title: &str, requests: u64, seconds: f64| {
        Sample::new(format!("{title}, {} × 4 KiB", count(requests)), Unit::PerSecond, requests as f64 / seconds)
    };
    Ok(vec![
        sample("random write, fsync included", scale.random_writes, durable).aim(Aim::Ratio(1.0)),
        sample("random write, before the fsync", scale.random_writes, written),
        sample("random read, cold", scale.random_reads, read),
    ])
}

/// Appends 4 KiB and syncs, again and again.
pub fn fsyncs(volume: &mut Contender, scale: &Scale) -> Result<Vec<Sample>> {
    let path = volume.mount_point().join("log");
    let file = File::create(&path).doing("create", &path)?;
    let page = random_bytes(PAGE, 3);
    let mut times = Vec::new();
    for number in 0..scale.fsyncs {
        let start = Instant::now();
        file.write_all_at(&page, u64::from(number) * PAGE as u64).doing("write", &path)?;
        file.sync_all().doing("sync", &path)?;
        times.push(seconds_since(start) * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let sample = |percent: usize| {
        let time = percentile(&times, 10 * percent);
        Sample::new(format!("append 4 KiB + fsync, {percent} % take at most"), Unit::Microseconds, time)
    };
    // One sequential write and one flush, where ext4 needs two of each.
    Ok(vec![sample(50).aim(Aim::Ratio(1.0 / 0.6)), sample(99)])
}

/// What so many of a thousand take at most; no number where there are no times. They rise.
pub fn percentile(times: &[f64], per_mille: usize) -> f64 {
    times.get(times.len() * per_mille / 1000).copied().unwrap_or(f64::NAN)
}

/// Writes 4 KiB at `requests` random places below `bytes`; the same places every time.
pub fn scatter(file: &File, path: &Path, bytes: u64, requests: u64) -> Result<()> {
    let page = random_bytes(PAGE, 4);
    let mut rng = Rng::new(1);
    for _ in 0..requests {
        file.write_all_at(&page, random_place(&mut rng, bytes)).doing("write", path)?;
    }
    Ok(())
}

/// A block of a file of `bytes` bytes, by its offset.
pub fn random_place(rng: &mut Rng, bytes: u64) -> u64 {
    rng.below(bytes / PAGE as u64) * PAGE as u64
}

/// Makes a file of so many bytes, not yet durable.
pub fn write_file(path: &Path, bytes: u64) -> Result<File> {
    let file = File::create(path).doing("create", path)?;
    let chunk = random_bytes(CHUNK, 5);
    for at in (0..bytes).step_by(CHUNK) {
        file.write_all_at(&chunk, at).doing("write", path)?;
    }
    Ok(file)
}

/// Seconds that reading a file takes, which must be as long as it was written.
fn read_file(path: &Path, bytes: u64) -> Result<f64> {
    let mut chunk = vec![0; CHUNK];
    let start = Instant::now();
    let file = File::open(path).doing("open", path)?;
    let mut total = 0;
    loop {
        match file.read_at(&mut chunk, total).doing("read", path)? {
            0 => break,
            length => total += length as u64,
        }
    }
    let seconds = seconds_since(start);
    if total == bytes {
        return Ok(seconds);
    }
    Err(Error::Invalid(format!("{} has {total} bytes, not the {bytes} that were written", path.display())))
}

/// Bytes that no file system can compress or recognize.
pub fn random_bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten().take(length).collect()
}
