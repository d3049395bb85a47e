//! The text that blkparse prints unless told otherwise (blkparse(1), "OUTPUT DESCRIPTION AND FORMATTING").
//!
//! ```text
//!   8,0    3       11     0.009507758   697  D   W 223490 + 56 [kjournald]
//!   device cpu sequence   seconds       pid  | RWBS sector + sectors [process]
//!                                          event
//! ```
//!
//! One request leaves several events. Three show requests as a whole: queued (`Q`, as the file system asked), dispatched (`D`, as
//! the device got it: merged and in order) and completed (`C`). The default is `D`, because a simulated device stands in the
//! place of the real one. Devices without a request queue (device mapper, RAM disks) have no `D` events: then choose `Q`.
//!
//! RWBS letters are those of the kernel's `blk_fill_rwbs`: an `F` in front asks that earlier writes be durable first
//! (preflush), one behind the `W` that this one is (force unit access). The latter becomes a write and a flush, as the
//! kernel itself does for devices that know no forced writes.

use basalt_device::RequestKind;

use super::field::{number, scaled, shorten};
use super::{Entry, LineParser, Parsed, Reason, SECTOR, Transfer};

/// Which of blkparse's events count as requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Event {
    /// `Q`: queued, as the file system asked.
    Queued,
    /// `D`: dispatched, as the device got it.
    #[default]
    Dispatched,
    /// `C`: completed.
    Completed,
}

impl Event {
    /// The letter that blkparse prints.
    pub const fn letter(self) -> char {
        match self {
            Event::Queued => 'Q',
            Event::Dispatched => 'D',
            Event::Completed => 'C',
        }
    }
}

/// Every event that blkparse knows; some are of two letters.
const EVENTS: &[&str] = &[
    "A", "B", "C", "D", "F", "G", "I", "M", "P", "Q", "R", "S", "T", "U", "UT", "W", "X", "a", "m", "fq", "i", "r",
    "c", "n",
];

pub(super) struct Parser {
    event: Event,
    /// Within the summary at the end.
    in_summary: bool,
}

impl Parser {
    pub(super) fn new(event: Event) -> Parser {
        Parser { event, in_summary: false }
    }
}

impl LineParser for Parser {
    fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, Reason> {
        // `CPU0 (8,0):` or `Total (8,0):` begins the summary, which reaches to the end or to the next trace.
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let is_event = is_device(first);
        if self.in_summary && !is_event || first.starts_with("CPU") || first == "Total" {
            self.in_summary = true;
            return Ok(Parsed::Nothing);
        }
        self.in_summary = false;
        if !is_event {
            return Err(format!("`{}` is no device number, as in `8,0`", shorten(first)));
        }
        number("cpu", words.next().unwrap_or_default())?;
        number("sequence", words.next().unwrap_or_default())?;
        let time_ns = seconds(words.next().unwrap_or_default())?;
        number("pid", words.next().unwrap_or_default())?;
        let event = words.next().unwrap_or_default();
        if !EVENTS.contains(&event) {
            return Err(format!("event `{}` is not known", shorten(event)));
        }
        if !event.starts_with(self.event.letter()) {
            return Ok(Parsed::Nothing);
        }
        let flags = Flags::parse(words.next().unwrap_or_default())?;
        entry(time_ns, first, &flags, words)
    }
}

/// Whether a word is `major,minor`.
fn is_device(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once(',').is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// Nanoseconds of `12.345678901`.
fn seconds(text: &str) -> Result<u64, Reason> {
    let wrong = || format!("time `{}` is not seconds with nine decimals", shorten(text));
    let (whole, fraction) = text.split_once('.').ok_or_else(wrong)?;
    if fraction.len() != 9 {
        return Err(wrong());
    }
    let whole = scaled("time", whole, 1_000_000_000)?;
    whole.checked_add(number("time", fraction)?).ok_or_else(wrong)
}

fn entry<'a>(
    time_ns: u64,
    device: &'a str,
    flags: &Flags,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<Parsed<'a>, Reason> {
    let range = match (words.next(), words.next(), words.next()) {
        (Some(sector), Some("+"), Some(count)) => {
            Some((scaled("sector", sector, SECTOR)?, scaled("sectors", count, SECTOR)?))
        }
        _ => None,
    };
    let transfer = match (flags.kind, range) {
        (Some(kind), Some((offset, length))) if length > 0 => Some(Transfer { kind, offset, length }),
        // A flush alone may be written as a write of nothing.
        (None, _) | (Some(_), Some(_)) => None,
        (Some(kind), None) if !flags.preflush => {
            return Err(format!("a {} needs `sector + sectors`", kind.operation()));
        }
        (Some(_), None) => None,
    };
    if transfer.is_none() && !flags.preflush {
        // A request that moves no blocks, such as a query of the device.
        return Ok(Parsed::Nothing);
    }
    let flush_after = flags.force_unit_access && transfer.is_some();
    Ok(Parsed::Request(Entry { time_ns, volume: device, flush_before: flags.preflush, transfer, flush_after }))
}

/// What the RWBS letters say.
struct Flags {
    preflush: bool,
    /// `None` for requests that move no blocks.
    kind: Option<RequestKind>,
    force_unit_access: bool,
}

impl Flags {
    fn parse(letters: &str) -> Result<Flags, Reason> {
        if letters.is_empty() || !letters.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(format!("`{}` are no RWBS letters", shorten(letters)));
        }
        let (preflush, rest) = letters.strip_prefix('F').map_or((false, letters), |rest| (true, rest));
        let kind = match rest.chars().next() {
            Some('R') => Some(RequestKind::Read),
            Some('W') => Some(RequestKind::Write),
            Some('D') => Some(RequestKind::Discard),
            _ => None,
        };
        let force_unit_access = kind == Some(RequestKind::Write) && rest[1..].contains('F');
        Ok(Flags { preflush, kind, force_unit_access })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(event: Event, rest: &str) -> Result<Parsed<'static>, Reason> {
        let line = format!("  8,0    3       11     1.009507758   697  {rest}");
        Parser::new(event).parse(line.leak())
    }

    fn transfer(kind: RequestKind, flush_before: bool, flush_after: bool) -> Result<Parsed<'static>, Reason> {
        let entry = Entry::transfer(1_009_507_758, "8,0", kind, 223_490 * 512, 56 * 512);
        Ok(Parsed::Request(Entry { flush_before, flush_after, ..entry }))
    }

    #[test]
    fn only_the_event_asked_for_counts() {
        let line = |event| format!("{event}   W 223490 + 56 [kjournald]");
        assert_eq!(parse(Event::Dispatched, &line("D")), transfer(RequestKind::Write, false, false));
        assert_eq!(parse(Event::Queued, &line("Q")), transfer(RequestKind::Write, false, false));
        assert_eq!(parse(Event::Completed, "C   R 223490 + 56 [0]"), transfer(RequestKind::Read, false, false));
        for event in ["Q", "C", "G", "I", "M"] {
            assert_eq!(parse(Event::Dispatched, &line(event)), Ok(Parsed::Nothing));
        }
        assert_eq!(parse(Event::Dispatched, "m   N cfq697 insert_request"), Ok(Parsed::Nothing));
        assert_eq!(parse(Event::Dispatched, "A  WS 123 + 8 <- (8,1) 456"), Ok(Parsed::Nothing));
    }

    #[test]
    fn flags_ask_for_flushes() {
        let dispatched = |letters| parse(Event::Dispatched, &format!("D {letters} 223490 + 56 [x]"));
        assert_eq!(dispatched("WS"), transfer(RequestKind::Write, false, false));
        assert_eq!(dispatched("WFS"), transfer(RequestKind::Write, false, true));
        assert_eq!(dispatched("FWFSM"), transfer(RequestKind::Write, true, true));
        assert_eq!(dispatched("FWS"), transfer(RequestKind::Write, true, false));
        assert_eq!(dispatched("RA"), transfer(RequestKind::Read, false, false));
        assert_eq!(dispatched("DS"), transfer(RequestKind::Discard, false, false));
        let flush = Ok(Parsed::Request(Entry::flush(1_009_507_758, "8,0")));
        for rest in ["D  FN [kworker/0:1H]", "D FF 0 [x]", "D FWS [x]", "D F 0 + 0 [x]"] {
            assert_eq!(parse(Event::Dispatched, rest), flush, "{rest}");
        }
        assert_eq!(parse(Event::Dispatched, "D   N 36 (12 01 00 00 24 00 ..) [udevd]"), Ok(Parsed::Nothing));
    }

    #[test]
    fn the_summary_is_no_trace() {
        let mut parser = Parser::new(Event::Dispatched);
        for line in
            ["CPU0 (8,0):", " Reads Queued:  0,  0KiB  Writes Queued:  8, 4KiB", "Throughput (R/W): 0KiB/s / 0KiB/s"]
        {
            assert_eq!(parser.parse(line), Ok(Parsed::Nothing));
        }
        assert!(matches!(parser.parse("8,0 1 1 0.000000000 1 D R 0 + 8 [x]"), Ok(Parsed::Request(_))));
    }

    #[test]
    fn wrong_lines() {
        for line in [
            "hello",
            "8,0 x 1 0.000000000 1 D R 0 + 8 [x]",
            "8,0 1 1 0.0 1 D R 0 + 8 [x]",
            "8,0 1 1 0.000000000 1 ? R 0 + 8 [x]",
            "8,0 1 1 0.000000000 1 D R 0 [x]",
            "8,0 1 1 0.000000000 1 D R 0 + x [x]",
            "8,0 1 1 0.000000000 1 D",
            "8,0 1 1 99999999999999.000000000 1 D R 0 + 8 [x]",
        ] {
            assert!(Parser::new(Event::Dispatched).parse(line).is_err(), "{line}");
        }
    }
}
