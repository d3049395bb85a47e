//! Any bytes as a block trace: the first byte chooses the format, or to find it out. Included by the fuzz target and, with its seed
//! corpus, by the tests of `basalt-traces`.

use std::io::Cursor;

use basalt_device::RequestKind;
use basalt_traces::{Event, Format, ReadOptions, TraceError, TraceReader};

/// Lines that one input may have: packed bytes can unpack to a thousand times as many.
const MOST_LINES: u64 = 20_000;

/// Reads a trace to its end, and holds what comes out against what the reader promises.
pub fn trace(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let choice = usize::from(choice);
    let events = [Event::Queued, Event::Dispatched, Event::Completed];
    let options = ReadOptions {
        format: Format::ALL.get(choice % (Format::ALL.len() + 1)).copied(),
        event: events[choice % events.len()],
        strict: choice >= 128,
        volume: None,
    };
    let Ok(mut reader) = TraceReader::new("fuzz", Cursor::new(bytes.to_vec()), &options) else { return };
    let (mut requests, mut bad) = (0, 0);
    while let Some(request) = reader.next() {
        match request {
            Ok(request) => {
                requests += 1;
                assert!(i64::try_from(request.end()).is_ok());
                assert_eq!(request.length == 0, request.kind == RequestKind::Flush);
            }
            Err(TraceError::BadLine(line)) => {
                bad += 1;
                assert_eq!(line.line, reader.counts().lines);
                assert!(line.reason.len() < 400, "{}", line.reason);
            }
            Err(_) => break,
        }
        if reader.counts().lines > MOST_LINES {
            break;
        }
    }
    let counts = reader.counts();
    assert_eq!((counts.requests, counts.bad_lines), (requests, bad));
    assert!(bad + counts.other_lines + counts.other_volume_lines <= counts.lines);
    assert!(requests <= 3 * counts.lines);
    assert!(bad <= 1 || !options.strict);
}
