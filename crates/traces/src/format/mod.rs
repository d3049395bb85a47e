//! The formats that traces come in, one file each.
//!
//! | file | format | where it comes from |
//! |---|---|---|
//! | `fio` | fio's iolog, versions 2 and 3 | `fio --write_iolog`, and what this project records |
//! | `blkparse` | the text that blkparse prints unless told otherwise | blktrace on a running kernel |
//! | `msr` | CSV with Windows file times | Microsoft Research Cambridge, SNIA IOTTA |
//! | `alibaba` | CSV with microseconds | Alibaba's block traces of 2020 |
//! | `mqsim` | columns of numbers with nanoseconds | the simulator MQSim |
//! | `vscsi` | CSV with SCSI operation codes | CloudPhysics' virtual disks, as libCacheSim distributes them |

mod alibaba;
mod blkparse;
mod field;
mod fio;
mod mqsim;
mod msr;
mod vscsi;

use std::fmt;
use std::str::FromStr;

use basalt_device::RequestKind;

pub use blkparse::Event;

/// A trace format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// fio's iolog, version 2 or 3 as its first line says.
    Fio,
    /// blkparse's default text.
    Blkparse,
    /// MSR Cambridge CSV.
    Msr,
    /// Alibaba block CSV.
    Alibaba,
    /// MQSim's text.
    Mqsim,
    /// vscsi CSV.
    Vscsi,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 6] =
        [Format::Fio, Format::Blkparse, Format::Msr, Format::Alibaba, Format::Mqsim, Format::Vscsi];

    /// The name by which users choose it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Fio => "fio",
            Format::Blkparse => "blkparse",
            Format::Msr => "msr",
            Format::Alibaba => "alibaba",
            Format::Mqsim => "mqsim",
            Format::Vscsi => "vscsi-csv",
        }
    }

    /// All names, for messages.
    pub fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }

    pub(crate) fn parser(self, event: Event) -> Box<dyn LineParser> {
        match self {
            Format::Fio => Box::<fio::Parser>::default(),
            Format::Blkparse => Box::new(blkparse::Parser::new(event)),
            Format::Msr => Box::new(msr::Parser),
            Format::Alibaba => Box::new(alibaba::Parser),
            Format::Mqsim => Box::new(mqsim::Parser),
            Format::Vscsi => Box::new(vscsi::Parser),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Format::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| format!("`{name}` is no trace format; known are {}", Format::names()))
    }
}

/// Bytes of a sector, wherever a format counts sectors.
const SECTOR: u64 = 512;

/// What is wrong with a line, in words.
pub(crate) type Reason = String;

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// Nothing that counts as a request: a head line, a comment, an event of another kind.
    Nothing,
    /// A request.
    Request(Entry<'a>),
}

/// A request as a line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Nanoseconds since whatever the format counts from.
    pub(crate) time_ns: u64,
    /// Which of the trace's devices it went to; empty where the format knows only one.
    pub(crate) volume: &'a str,
    /// Earlier writes are to be durable before this one begins.
    pub(crate) flush_before: bool,
    /// The transfer or discard; `None` for a flush alone.
    pub(crate) transfer: Option<Transfer>,
    /// This one is to be durable before it counts as done.
    pub(crate) flush_after: bool,
}

/// A read, write or discard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) kind: RequestKind,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl<'a> Entry<'a> {
    fn transfer(time_ns: u64, volume: &'a str, kind: RequestKind, offset: u64, length: u64) -> Entry<'a> {
        let transfer = Some(Transfer { kind, offset, length });
        Entry { time_ns, volume, flush_before: false, transfer, flush_after: false }
    }

    fn flush(time_ns: u64, volume: &'a str) -> Entry<'a> {
        Entry { time_ns, volume, flush_before: true, transfer: None, flush_after: false }
    }
}

/// Reads the lines of one format, in order.
pub(crate) trait LineParser: Send {
    /// What a line that is not empty says.
    fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, Reason>;
}

/// How many lines are looked at to find out the format.
const SAMPLE: usize = 64;

/// The format of which the most of these lines are, if it is at least half of them.
pub(crate) fn detect<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Format> {
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).take(SAMPLE).collect();
    let score = |format: &Format| {
        let mut parser = format.parser(Event::default());
        lines.iter().filter(|line| parser.parse(line).is_ok()).count()
    };
    // Of several with the same score the first counts; no line is of two formats, except heads and comments.
    let best = Format::ALL.into_iter().rev().max_by_key(score)?;
    (score(&best) * 2 >= lines.len().max(1)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_names() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert!("csv".parse::<Format>().unwrap_err().contains("mqsim"));
    }

    #[test]
    fn formats_are_recognised() {
        for (text, format) in [
            ("fio version 2 iolog\n/dev/sda add\n/dev/sda write 0 4096\n", Format::Fio),
            ("fio version 3 iolog\n0 /dev/sda add\n7 /dev/sda write 0 4096\n", Format::Fio),
            ("  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n", Format::Blkparse),
            ("128166372003061629,usr,0,Read,7014609920,24576,41286\n", Format::Msr),
            ("419,W,8792731648,16384,1577808144360767\n", Format::Alibaba),
            ("938513000 4 264719034 16 0\n", Format::Mqsim),
            ("version,time,op,size,lbn\n1,5633898,2a,512,42932745\n", Format::Vscsi),
            ("garbage\n1,5633898,2a,512,42932745\n1,5633898,28,512,42932745\n", Format::Vscsi),
        ] {
            assert_eq!(detect(text.lines()), Some(format), "{text}");
        }
        for text in ["", "\n\n", "hello\nworld\n", "1 2 3\n", "1,2,3,4,5\n"] {
            assert_eq!(detect(text.lines()), None, "{text}");
        }
    }
}
