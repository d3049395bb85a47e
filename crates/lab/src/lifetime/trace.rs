//! A block trace as the load: as recorded, or as a log-structured volume would write it.
//!
//! A trace names a few places of a large device. The simulated flash holds the pieces of 4 MiB that the trace writes to, one
//! behind the other, so that what was sequential stays so. All of it is full of data at the start; the trace is then written
//! again and again until the flash has been programmed several times over, and the second half counts.

use basalt_device::RequestKind;
use basalt_flash::device::DeviceModel;
use basalt_flash::ftl::{TranslationKind, TranslationLayer};
use basalt_segments::{BLOCKS_PER_SEGMENT, CostBenefit, Greedy, VictimPolicy};
use basalt_simulator::{BLOCK_SIZE, Options, Volume};
use basalt_traces::{TraceError, TraceRequest};
use rustc_hash::FxHashMap;

use super::{Amplification, unevenness};

/// Size of a piece, in bytes and pages.
const PIECE: u64 = 4 << 20;
const PIECE_PAGES: u64 = PIECE / BLOCK_SIZE;
/// Most pieces that are simulated: 1 TiB.
const MOST_PIECES: usize = 1 << 18;
/// Writes that are kept; a longer trace is used up to here.
const MOST_WRITES: usize = 50_000_000;
/// How often the flash is programmed over before it is measured, and while it is.
const ROUNDS: u64 = 2;
/// Most pages written in one simulation, so that a trace of few writes ends all the same.
const MOST_PAGES: u64 = 400_000_000;
/// Smallest volume of a log, in segments: logs, reserve and something to clean.
const LEAST_SEGMENTS: u64 = 32;

/// The writes of a trace, on flash that is as large as they need.
pub struct TraceLoad {
    /// First page and pages of each write, in order.
    writes: Vec<(u32, u32)>,
    pieces: u64,
    /// Bytes written by the trace.
    pub written_bytes: u64,
    /// Nanoseconds from its first request to its last.
    pub duration_ns: u64,
    /// Whether it was longer than what is kept.
    pub is_cut: bool,
}

impl TraceLoad {
    /// Reads the writes of a trace. Bad lines are left out: the reader counts them.
    ///
    /// # Errors
    /// In words, when the trace cannot be read or writes nothing, or to more than can be simulated.
    pub fn read(requests: impl Iterator<Item = Result<TraceRequest, TraceError>>) -> Result<TraceLoad, String> {
        let mut load = TraceLoad { writes: Vec::new(), pieces: 0, written_bytes: 0, duration_ns: 0, is_cut: false };
        let mut pieces = FxHashMap::default();
        for request in requests {
            let request = match request {
                Ok(request) => request,
                Err(TraceError::BadLine(_)) => continue,
                Err(error) => return Err(error.to_string()),
            };
            if load.writes.len() >= MOST_WRITES {
                load.is_cut = true;
                break;
            }
            load.duration_ns = load.duration_ns.max(request.time_ns);
            if request.kind == RequestKind::Write {
                load.written_bytes += request.length;
                load.add(&request, &mut pieces)?;
            }
        }
        load.pieces = pieces.len() as u64;
        if load.writes.is_empty() { Err("the trace writes nothing".into()) } else { Ok(load) }
    }

    /// Adds a write, cut at the borders of pieces.
    fn add(&mut self, request: &TraceRequest, pieces: &mut FxHashMap<u64, u64>) -> Result<(), String> {
        let pages = request.pages(BLOCK_SIZE);
        let mut page = pages.start;
        while page < pages.end {
            let end = pages.end.min((page / PIECE_PAGES + 1) * PIECE_PAGES);
            let next = pieces.len() as u64;
            let piece = *pieces.entry(page / PIECE_PAGES).or_insert(next);
            if pieces.len() > MOST_PIECES {
                return Err(format!("the trace writes to more than {} GiB", (MOST_PIECES as u64 * PIECE) >> 30));
            }
            // 2^18 pieces of 2^10 pages.
            self.writes.push(((piece * PIECE_PAGES + page % PIECE_PAGES) as u32, (end - page) as u32));
            page = end;
        }
        Ok(())
    }

    /// Bytes that are written to.
    pub fn footprint(&self) -> u64 {
        self.pieces * PIECE
    }
}

/// What each policy and translation layer makes of a trace whose data takes `utilization` percent of the device; `say` hears
/// which one is simulated.
///
/// # Errors
/// In words, when the flash or volume cannot be simulated.
pub fn of_trace(
    load: &TraceLoad,
    device: &DeviceModel,
    utilization: u8,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Amplification>, String> {
    let mut all = Vec::new();
    for kind in TranslationKind::ALL {
        say(&format!("as recorded, {kind}"));
        all.push(as_recorded(load, device, kind, utilization)?);
    }
    let policies: [&'static dyn VictimPolicy; 2] = [&Greedy, &CostBenefit];
    for policy in policies {
        say(&format!("log, {}", policy.name()));
        all.push(logged(load, policy, utilization)?);
    }
    Ok(all)
}

fn as_recorded(
    load: &TraceLoad,
    device: &DeviceModel,
    kind: TranslationKind,
    utilization: u8,
) -> Result<Amplification, String> {
    let logical = load.footprint() * 100 / u64::from(utilization.clamp(1, 100));
    let geometry = device.geometry(logical).map_err(|error| error.to_string())?;
    let mut layer = kind.build(geometry).map_err(|error| error.to_string())?;
    overwrite(layer.as_mut(), &[(0, (load.pieces * PIECE_PAGES) as u32)])?;
    let rounds = rounds(load, geometry.physical_pages() * u64::from(geometry.page_bytes()) / BLOCK_SIZE);
    (0..rounds).try_for_each(|_| overwrite(layer.as_mut(), &load.writes))?;
    let before = layer.statistics();
    (0..rounds).try_for_each(|_| overwrite(layer.as_mut(), &load.writes))?;
    let (after, wear) = (layer.statistics(), layer.wear());
    Ok(Amplification {
        policy: "as recorded".into(),
        layer: Some(kind),
        waf: 1.0,
        wa: after.since(&before).write_amplification(),
        unevenness: unevenness(&wear),
    })
}

/// How often the trace is written so that flash of `pages` pages of 4 KiB is programmed over [`ROUNDS`] times.
fn rounds(load: &TraceLoad, pages: u64) -> u64 {
    let each = load.writes.iter().map(|&(_, count)| u64::from(count)).sum::<u64>().max(1);
    (pages * ROUNDS).min(MOST_PAGES / 2).div_ceil(each)
}

/// Writes pages of 4 KiB to flash whose pages may be smaller or larger.
fn overwrite(layer: &mut dyn TranslationLayer, writes: &[(u32, u32)]) -> Result<(), String> {
    let page_bytes = u64::from(layer.geometry().page_bytes());
    writes.iter().try_for_each(|&(first, count)| {
        let first_page = u64::from(first) * BLOCK_SIZE / page_bytes;
        let end = (u64::from(first) + u64::from(count)) * BLOCK_SIZE;
        layer.write(first_page, end.div_ceil(page_bytes) - first_page).map_err(|error| error.to_string())
    })
}

/// Segments are whole erase blocks and are discarded when they are empty: the layer below copies nothing.
fn logged(load: &TraceLoad, policy: &'static dyn VictimPolicy, utilization: u8) -> Result<Amplification, String> {
    let text = |error: basalt_simulator::Error| error.to_string();
    let blocks = load.pieces * PIECE_PAGES;
    let segment = u64::from(BLOCKS_PER_SEGMENT);
    let segments = (blocks * 100 / u64::from(utilization.clamp(1, 99))).div_ceil(segment).max(LEAST_SEGMENTS);
    let mut options =
        Options { policy, ..Options::of(segments * segment * BLOCK_SIZE, utilization.clamp(1, 99)).map_err(text)? };
    // Not more than the share allows: pieces were rounded up.
    options.blocks = options.blocks.max(blocks as u32);
    let mut volume = Volume::new(options).map_err(text)?;
    (0..blocks as u32).try_for_each(|block| volume.write(block)).map_err(text)?;
    let rounds = rounds(load, segments * segment);
    let replay = |volume: &mut Volume| {
        let _ = volume.take_statistics();
        (0..rounds).try_for_each(|_| {
            load.writes
                .iter()
                .try_for_each(|&(first, count)| (first..first + count).try_for_each(|block| volume.write(block)))
        })
    };
    replay(&mut volume).map_err(text)?;
    replay(&mut volume).map_err(text)?;
    let statistics = volume.take_statistics();
    Ok(Amplification {
        policy: format!("log, {}", policy.name()),
        layer: None,
        waf: statistics.write_amplification(),
        wa: 1.0,
        unevenness: 1.0,
    })
}
