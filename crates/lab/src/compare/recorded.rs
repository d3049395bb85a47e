//! The requests of a recording as a device would have got them.

use std::path::Path;

use basalt_device::RequestKind;
use basalt_traces::TraceRequest;
use basalt_uml::{Request, RequestKind as Kind, Requests};

/// The longest read or write that pieces are put together to, in bytes: what common devices take.
const LONGEST: u64 = 1 << 20;
/// How long a piece of a discard or of zeros is that the driver of User-Mode Linux cut off, in bytes.
const CUT_DISCARD: u64 = 32 << 10;

/// A request, and whether it belongs to the measured phase.
pub(super) struct Marked {
    pub request: TraceRequest,
    pub measured: bool,
}

/// Reads a recording, and puts together what a driver cut up.
///
/// The driver of User-Mode Linux takes so few bytes at once that it cuts long requests into pieces, which follow one another without gap
/// and without another request between them; all but the last are as long as it takes. Such pieces are one request here, of
/// at most 1 MiB unless it is a discard. Zeros that the kernel asks for without sending them are written: flash has no other way.
pub(super) struct Recorded {
    requests: Requests,
    /// How long a piece of a read or write is that was cut off; `None` where nothing is cut.
    cut: Option<u64>,
    /// The first request of the measured phase.
    measured_from: u64,
    /// Requests read so far.
    count: u64,
    pending: Option<Pending>,
}

struct Pending {
    marked: Marked,
    /// Whether its last piece was as long as those that are cut off.
    cut: bool,
}

impl Recorded {
    /// Opens a recording.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) fn open(path: &Path, cut: Option<u64>, measured_from: u64) -> basalt_uml::Result<Recorded> {
        Ok(Recorded { requests: Requests::open(path)?, cut, measured_from, count: 0, pending: None })
    }

    fn piece(&mut self, request: &Request) -> Pending {
        let (kind, cut) = match request.kind {
            Kind::Read => (RequestKind::Read, self.cut),
            Kind::Write => (RequestKind::Write, self.cut),
            Kind::Zero => (RequestKind::Write, self.cut.map(|_| CUT_DISCARD)),
            Kind::Discard => (RequestKind::Discard, self.cut.map(|_| CUT_DISCARD)),
            Kind::Flush => (RequestKind::Flush, None),
        };
        let measured = self.count >= self.measured_from;
        self.count += 1;
        let &Request { time_ns, offset, length, .. } = request;
        let request = TraceRequest { time_ns, kind, offset, length };
        Pending { marked: Marked { request, measured }, cut: cut == Some(length) }
    }
}

impl Iterator for Recorded {
    type Item = basalt_uml::Result<Marked>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let piece = match self.requests.next() {
                None => return self.pending.take().map(|pending| Ok(pending.marked)),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(request)) => self.piece(&request),
            };
            let Some(pending) = &mut self.pending else {
                self.pending = Some(piece);
                continue;
            };
            if !joins(pending, &piece.marked) {
                return Some(Ok(std::mem::replace(pending, piece).marked));
            }
            pending.marked.request.length += piece.marked.request.length;
            pending.cut = piece.cut;
        }
    }
}

/// Whether the piece is the next one of the same request.
fn joins(pending: &Pending, next: &Marked) -> bool {
    let (request, piece) = (&pending.marked.request, &next.request);
    pending.cut
        && request.kind == piece.kind
        && pending.marked.measured == next.measured
        && request.end() == piece.offset
        && (request.kind == RequestKind::Discard || request.length + piece.length <= LONGEST)
}

#[cfg(test)]
mod tests {
    use basalt_uml::RequestsWriter;

    use super::*;

    const CUT: u64 = 124 << 10;

    fn recorded(requests: &[(Kind, u64, u64)], cut: Option<u64>, from: u64) -> Vec<(RequestKind, u64, u64, bool)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = RequestsWriter::create(file.path()).unwrap();
        for &(kind, offset, length) in requests {
            writer.write(&Request { time_ns: 0, kind, offset, length }).unwrap();
        }
        writer.finish().unwrap();
        let recorded = Recorded::open(file.path(), cut, from).unwrap().map(Result::unwrap);
        recorded.map(|Marked { request: r, measured }| (r.kind, r.offset, r.length, measured)).collect()
    }

    #[test]
    fn pieces_that_were_cut_off_are_put_together() {
        let requests = [
            (Kind::Write, 0, CUT),
            (Kind::Write, CUT, CUT),
            (Kind::Write, 2 * CUT, 4096),
            (Kind::Write, 2 * CUT + 4096, 4096),
            (Kind::Discard, 1 << 20, CUT_DISCARD),
            (Kind::Discard, (1 << 20) + CUT_DISCARD, 8192),
            (Kind::Flush, 0, 0),
        ];
        let expected = [
            (RequestKind::Write, 0, 2 * CUT + 4096, true),
            (RequestKind::Write, 2 * CUT + 4096, 4096, true),
            (RequestKind::Discard, 1 << 20, CUT_DISCARD + 8192, true),
            (RequestKind::Flush, 0, 0, true),
        ];
        assert_eq!(recorded(&requests, Some(CUT), 0), expected);
        assert_eq!(recorded(&requests, None, 0).len(), requests.len());
    }

    #[test]
    fn requests_end_at_their_limit_and_at_the_mark() {
        let pieces: Vec<_> = (0..10).map(|piece| (Kind::Write, piece * CUT, CUT)).collect();
        let lengths: Vec<_> = recorded(&pieces, Some(CUT), 9).iter().map(|r| (r.2 / CUT, r.3)).collect();
        assert_eq!(lengths, [(8, false), (1, false), (1, true)]);
    }
}
