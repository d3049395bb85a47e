//! Measuring a real device or file, and writing what was found as a [`DeviceModel`].
//!
//! Requests are made one at a time, so that the points contain the device's latency. Every size is measured in sequence and
//! at random places, in both directions if writing is allowed; sizes that the time does not suffice for are left out.
//! Whoever opens the device decides whether the page cache is measured along: direct I/O goes past it.

use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, DeviceError};
use basalt_random::Rng;

use crate::device::{Curve, DeviceKind, DeviceModel, Direction, FlashModel};
use crate::ftl::TranslationKind;

/// Request sizes that are measured.
const SIZES: [usize; 8] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 32 << 20];

/// A point needs so many requests, where the time suffices for more than one.
const MIN_REQUESTS: u32 = 3;

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub struct ProfileOptions {
    /// Time for everything. A request that has begun is waited for.
    pub limit: Duration,
    /// Also measure writes, which destroys what the device holds.
    pub write: bool,
    /// Seed of the places and the content.
    pub seed: u64,
}

/// Why a device was not measured.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A request failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is too small to measure.
    #[error("{name} holds {size} bytes; at least {least} are needed to measure it")]
    TooSmall {
        /// The device.
        name: String,
        /// Its bytes.
        size: u64,
        /// The bytes it should have.
        least: u64,
    },
}

/// Devices smaller than this have no two random places for the sizes that matter.
const LEAST: u64 = 16 << 20;

/// What is measured: 4 curves and the flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    SequentialRead,
    RandomRead,
    SequentialWrite,
    RandomWrite,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Pattern::SequentialRead => "sequential read",
            Pattern::RandomRead => "random read",
            Pattern::SequentialWrite => "sequential write",
            Pattern::RandomWrite => "random write",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Pattern::SequentialWrite | Pattern::RandomWrite)
    }
}

/// Measures a device and makes a model of it. `progress` is told what is measured and how many of how many steps are
/// done.
///
/// Without [`ProfileOptions::write`] nothing is written, and the model's write curves are those of the reads: its source
/// says so.
///
/// # Errors
/// When a request fails, or the device is too small.
pub fn measure(
    device: &dyn BlockDevice,
    name: &str,
    options: &ProfileOptions,
    progress: &mut dyn FnMut(&str, u64, u64),
) -> Result<DeviceModel, ProfileError> {
    let size = device.size();
    if size < LEAST {
        return Err(ProfileError::TooSmall { name: device.name().to_owned(), size, least: LEAST });
    }
    let mut run = Run::new(device, options);
    let steps = if options.write { 4 * SIZES.len() as u64 + 1 } else { 2 * SIZES.len() as u64 };
    let mut done = 0;
    let mut curve = |pattern: Pattern| run.curve(pattern, steps, &mut done, progress);
    // Writes first: what is read then was written, and is not a hole in a file or never-written flash.
    let writes =
        if options.write { Some((curve(Pattern::SequentialWrite)?, curve(Pattern::RandomWrite)?)) } else { None };
    let (sequential, random) = (curve(Pattern::SequentialRead)?, curve(Pattern::RandomRead)?);
    let flush_us = if options.write {
        progress("flush", steps - 1, steps);
        run.flush_us()?
    } else {
        0.0
    };
    progress("done", steps, steps);
    let read = Direction { streams: STREAMS, sequential, random };
    let write = match writes {
        Some((sequential, random)) => Direction { streams: STREAMS, sequential, random },
        None => read.clone(),
    };
    let measured = if options.write {
        "reads, writes and flushes, one request at a time"
    } else {
        "reads only, one request at a time: writes are taken to cost what reads cost, and flushes nothing"
    };
    Ok(DeviceModel {
        name: name.to_owned(),
        description: format!("{} as measured", device.name().replace(char::is_control, "?")),
        source: format!(
            "Measured by `basalt lab profile` in at most {} s: {measured}. Assumed: {STREAMS} streams, and flash of \
             4 KiB pages and 512 KiB blocks with 10 % spare space under a page-level layer.",
            options.limit.as_secs_f64()
        ),
        kind: DeviceKind::Other,
        capacity_bytes: Some(size),
        flush_us,
        discard_us: 0.0,
        parallelism: None,
        read,
        write,
        flash: Some(FlashModel {
            translation: TranslationKind::PageLevel,
            page_bytes: 4096,
            block_bytes: 512 << 10,
            over_provisioning_percent: 10.0,
            rated_cycles: None,
            erase_us: None,
            allocation_unit_bytes: None,
        }),
    })
}

/// Where direct I/O wants buffers to begin.
const ALIGNMENT: usize = 4096;

/// Streams of a device nobody asked: as many as a small SSD follows.
const STREAMS: u32 = 16;

/// The device, the time, and a buffer for all requests.
struct Run<'a> {
    device: &'a dyn BlockDevice,
    rng: Rng,
    buffer: Vec<u8>,
    /// Where in `buffer` a page begins: direct I/O wants aligned memory, and copies what is not.
    aligned: usize,
    /// Bytes of the largest request.
    largest: usize,
    /// Time for one point: an even share of what is allowed.
    slice: Duration,
    end: Instant,
    /// Where the next sequential request begins.
    next: u64,
}

impl<'a> Run<'a> {
    fn new(device: &'a dyn BlockDevice, options: &ProfileOptions) -> Run<'a> {
        let mut rng = Rng::new(options.seed);
        // No larger than leaves 4 places to write to; content that does not compress.
        let largest = SIZES.into_iter().rfind(|&size| size as u64 * 4 <= device.size()).unwrap_or(SIZES[0]);
        let mut buffer = vec![0; largest + ALIGNMENT];
        rng.fill(&mut buffer);
        let aligned = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let points = SIZES.len() as u32 * if options.write { 4 } else { 2 } + 1;
        let slice = options.limit / points;
        Run { device, rng, buffer, aligned, largest, slice, end: Instant::now() + options.limit, next: 0 }
    }

    fn curve(
        &mut self,
        pattern: Pattern,
        steps: u64,
        done: &mut u64,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Curve, ProfileError> {
        let mut points = Vec::new();
        for size in SIZES {
            progress(pattern.name(), *done, steps);
            *done += 1;
            // A slow first point must not keep the curve from having one.
            if size > self.largest || (!points.is_empty() && Instant::now() >= self.end) {
                continue;
            }
            points.push((size as u64, self.point(pattern, size)?));
        }
        Ok(Curve { latency_us: 0.0, points: repaired(points) })
    }

    /// MB/s of requests of one size, of which one is made at least.
    fn point(&mut self, pattern: Pattern, size: usize) -> Result<f64, ProfileError> {
        let places = (self.device.size() / size as u64).max(1);
        self.next = self.rng.below(places) * size as u64;
        let start = Instant::now();
        let mut requests = 0;
        loop {
            let offset = match pattern {
                Pattern::RandomRead | Pattern::RandomWrite => self.rng.below(places) * size as u64,
                Pattern::SequentialRead | Pattern::SequentialWrite => {
                    let offset = if self.next + size as u64 > self.device.size() { 0 } else { self.next };
                    self.next = offset + size as u64;
                    offset
                }
            };
            let buffer = &mut self.buffer[self.aligned..][..size];
            if pattern.writes() {
                self.device.write_at(offset, buffer)?
            } else {
                self.device.read_at(offset, buffer)?
            }
            requests += 1;
            let late = Instant::now() >= self.end;
            if late || requests >= MIN_REQUESTS && start.elapsed() >= self.slice {
                break;
            }
        }
        if pattern.writes() {
            // What a cache took must be paid for by those who filled it.
            self.device.flush()?;
        }
        let seconds = start.elapsed().as_secs_f64().max(1e-9);
        let bandwidth = f64::from(requests) * size as f64 / 1e6 / seconds;
        // Five digits, within what a model may say.
        Ok((bandwidth.clamp(1e-5, 1e6) * 1e5).round() / 1e5)
    }

    /// The median of flushes after a small write, in microseconds.
    fn flush_us(&mut self) -> Result<f64, ProfileError> {
        let places = self.device.size() / SIZES[0] as u64;
        let start = Instant::now();
        let mut times = Vec::new();
        while times.len() < 101 && (times.len() < 3 || start.elapsed() < self.slice && Instant::now() < self.end) {
            let offset = self.rng.below(places) * SIZES[0] as u64;
            self.device.write_at(offset, &self.buffer[self.aligned..][..SIZES[0]])?;
            let begun = Instant::now();
            self.device.flush()?;
            times.push(begun.elapsed());
        }
        times.sort();
        Ok((times[times.len() / 2].as_secs_f64() * 1e7).round() / 10.0)
    }
}

/// Lets no larger request take less time than a smaller one: such points are noise, and a plan made by them would prefer
/// nonsense.
fn repaired(mut points: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    let mut longest: f64 = 0.0;
    for (bytes, bandwidth) in &mut points {
        longest = longest.max(*bytes as f64 / *bandwidth);
        *bandwidth = *bytes as f64 / longest;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_device::{MemoryDevice, RecordingDevice, RequestKind};

    fn options(write: bool) -> ProfileOptions {
        ProfileOptions { limit: Duration::from_millis(300), write, seed: 1 }
    }

    #[test]
    fn a_model_comes_out_that_is_read_back() {
        let device = MemoryDevice::new(64 << 20, 512);
        let mut steps = Vec::new();
        let model = measure(&device, "memory", &options(true), &mut |what, done, of| {
            steps.push((what.to_owned(), done, of));
        });
        let model = model.unwrap();
        assert!(model.knows_writes());
        assert_eq!(DeviceModel::parse(&model.to_toml().unwrap(), "test").unwrap(), model);
        assert_eq!(steps.last(), Some(&("done".to_owned(), 33, 33)));
        assert!(steps.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        for curve in [&model.read.sequential, &model.read.random, &model.write.sequential, &model.write.random] {
            assert_eq!(curve.points.first().map(|point| point.0), Some(4096));
            assert!(curve.points.windows(2).all(|pair| {
                let time = |point: (u64, f64)| point.0 as f64 / point.1;
                time(pair[0]) <= time(pair[1]) * 1.000_001
            }));
        }
    }

    #[test]
    fn nothing_is_written_unless_asked_for() {
        let device = RecordingDevice::new(MemoryDevice::new(16 << 20, 512), false);
        let model = measure(&device, "memory", &options(false), &mut |_, _, _| {}).unwrap();
        assert!(device.take().iter().all(|request| request.kind == RequestKind::Read));
        assert_eq!((&model.write, model.knows_writes()), (&model.read, false));
        assert!(model.source.contains("reads only"));
    }

    #[test]
    fn no_time_still_gives_the_smallest_requests() {
        let device = MemoryDevice::new(16 << 20, 512);
        let none = ProfileOptions { limit: Duration::ZERO, ..options(true) };
        let model = measure(&device, "memory", &none, &mut |_, _, _| {}).unwrap();
        assert_eq!(model.write.random.points.len(), 1);
        let small = MemoryDevice::new(1 << 20, 512);
        assert!(measure(&small, "memory", &none, &mut |_, _, _| {}).unwrap_err().to_string().contains("1048576 bytes"));
    }

    #[test]
    fn larger_requests_never_take_less_time() {
        assert_eq!(repaired(vec![(4, 2.0), (8, 8.0), (32, 8.0)]), [(4, 2.0), (8, 4.0), (32, 8.0)]);
    }
}
