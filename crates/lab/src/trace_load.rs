//! The writes of a block trace, on a volume that is as large as they need.
//!
//! A trace names a few places of a large device. What is simulated holds the pieces of 4 MiB that the trace writes to, one behind the
//! other, so that what was sequential stays so.
//!
//! Flash is programmed in whole pages, and a log writes whole blocks: a write of 512 bytes costs as much as one of a page. So what is
//! written to a page is measured against the bytes that the trace has.

use std::ops::Range;

use basalt_device::RequestKind;
use basalt_simulator::BLOCK_SIZE;
use basalt_traces::{TraceError, TraceRequest};
use rustc_hash::FxHashMap;

/// What writes begin and end at, in bytes.
const SECTOR: u64 = 512;
/// Size of a piece, in bytes and sectors.
const PIECE: u64 = 4 << 20;
const PIECE_SECTORS: u64 = PIECE / SECTOR;
/// Blocks of a log in a piece.
const PIECE_BLOCKS: u64 = PIECE / BLOCK_SIZE;
/// Most pieces that are simulated: 1 TiB.
const MOST_PIECES: usize = 1 << 18;
/// Writes that are kept; a longer trace is used up to here.
const MOST_WRITES: usize = 50_000_000;

/// What one write writes, in sectors.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    first: u32,
    count: u32,
}

impl Span {
    /// Its first byte.
    #[must_use]
    pub fn offset(self) -> u64 {
        u64::from(self.first) * SECTOR
    }

    /// Its bytes.
    #[must_use]
    pub fn length(self) -> u64 {
        u64::from(self.count) * SECTOR
    }

    /// Blocks of 4 KiB that it touches.
    #[must_use]
    pub fn blocks(self) -> Range<u32> {
        (self.offset() / BLOCK_SIZE) as u32..(self.offset() + self.length()).div_ceil(BLOCK_SIZE) as u32
    }
}

/// The writes of a trace, on a volume that is as large as they need.
pub struct TraceLoad {
    /// In order.
    writes: Vec<Span>,
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
        let sectors = request.pages(SECTOR);
        let mut sector = sectors.start;
        while sector < sectors.end {
            let end = sectors.end.min((sector / PIECE_SECTORS + 1) * PIECE_SECTORS);
            let next = pieces.len() as u64;
            let piece = *pieces.entry(sector / PIECE_SECTORS).or_insert(next);
            if pieces.len() > MOST_PIECES {
                return Err(format!("the trace writes to more than {} GiB", (MOST_PIECES as u64 * PIECE) >> 30));
            }
            // 2^18 pieces of 2^13 sectors.
            let first = (piece * PIECE_SECTORS + sector % PIECE_SECTORS) as u32;
            self.writes.push(Span { first, count: (end - sector) as u32 });
            sector = end;
        }
        Ok(())
    }

    /// All writes, in order.
    #[must_use]
    pub fn writes(&self) -> &[Span] {
        &self.writes
    }

    /// Blocks of 4 KiB that are written, in whole or in part.
    #[must_use]
    pub fn blocks_written(&self) -> u64 {
        self.writes.iter().map(|write| write.blocks().len() as u64).sum()
    }

    /// Bytes that are written to, in whole pieces of 4 MiB.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.pieces * PIECE
    }

    /// Blocks of 4 KiB that are written to, in whole pieces.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        // 2^18 pieces of 2^10 blocks.
        (self.pieces * PIECE_BLOCKS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace lasts until its last request, whatever that is: the bytes of a day are counted from it.
    #[test]
    fn reads_count_for_how_long_a_trace_lasts() {
        let request = |time_ns, kind| Ok(TraceRequest { time_ns, kind, offset: 0, length: 4096 });
        let requests = [request(0, RequestKind::Write), request(9_000_000_000, RequestKind::Read)];
        let load = TraceLoad::read(requests.into_iter()).unwrap();
        assert_eq!((load.duration_ns, load.written_bytes, load.writes().len()), (9_000_000_000, 4096, 1));
    }
}
