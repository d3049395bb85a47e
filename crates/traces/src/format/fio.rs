//! fio's iolog, versions 2 and 3 (fio's manual, "Trace file format").
//!
//! Version 2 has no times but `wait` actions: microseconds since the `wait` before, by the manual; they add up here.
//! Version 3 begins each line with microseconds since the start. Lines about opening files say nothing about requests. The
//! files of a log are the volumes of the trace.

use basalt_device::RequestKind;

use super::field::{number, scaled, shorten};
use super::{Entry, LineParser, Parsed, Reason};

/// Nanoseconds in the unit of both versions.
pub(crate) const NS_PER_TICK: u64 = 1_000;

/// The first line of a log, without its version.
const HEAD: &str = "fio version ";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Version {
    #[default]
    Unknown,
    Two,
    Three,
}

#[derive(Default)]
pub(super) struct Parser {
    version: Version,
    /// Version 2: the sum of all waits, in nanoseconds.
    waited: u64,
}

impl LineParser for Parser {
    fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, Reason> {
        if let Some(rest) = line.strip_prefix(HEAD) {
            self.version = match rest.trim_end() {
                "2 iolog" => Version::Two,
                "3 iolog" => Version::Three,
                other => return Err(format!("iolog version `{}` is not known, only 2 and 3", shorten(other))),
            };
            return Ok(Parsed::Nothing);
        }
        let mut words = line.split_whitespace();
        let time_ns = match self.version {
            Version::Unknown => return Err("the line `fio version 2 iolog` or `fio version 3 iolog` is missing".into()),
            Version::Two => self.waited,
            Version::Three => scaled("time", words.next().unwrap_or_default(), NS_PER_TICK)?,
        };
        let (Some(file), Some(action)) = (words.next(), words.next()) else {
            return Err("a file name and an action are expected".into());
        };
        let (Some(offset), Some(length)) = (words.next(), words.next()) else {
            return match action {
                "add" | "open" | "close" => Ok(Parsed::Nothing),
                _ => Err(format!("action `{}` needs offset and length", shorten(action))),
            };
        };
        if words.next().is_some() {
            return Err("there are words behind the length".into());
        }
        self.act(time_ns, file, action, number("offset", offset)?, number("length", length)?)
    }
}

impl Parser {
    fn act<'a>(
        &mut self,
        time_ns: u64,
        file: &'a str,
        action: &str,
        offset: u64,
        length: u64,
    ) -> Result<Parsed<'a>, Reason> {
        let transfer = |kind| Ok(Parsed::Request(Entry::transfer(time_ns, file, kind, offset, length)));
        match action {
            "read" => transfer(RequestKind::Read),
            "write" => transfer(RequestKind::Write),
            "trim" => transfer(RequestKind::Discard),
            "sync" | "datasync" | "sync_file_range" => Ok(Parsed::Request(Entry::flush(time_ns, file))),
            "wait" if self.version == Version::Two => {
                self.waited = self.waited.saturating_add(offset.saturating_mul(NS_PER_TICK));
                Ok(Parsed::Nothing)
            }
            "wait" => Err("version 3 has no `wait`".into()),
            _ => Err(format!("action `{}` is not known", shorten(action))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_version_2_add_up() {
        let mut parser = Parser::default();
        let mut times = Vec::new();
        for line in
            ["fio version 2 iolog", "a add", "a open", "a read 0 512", "a wait 250 0", "a wait 750 0", "a sync 0 0"]
        {
            if let Parsed::Request(entry) = parser.parse(line).unwrap() {
                times.push((entry.time_ns, entry.transfer.is_none()));
            }
        }
        assert_eq!(times, [(0, false), (1_000_000, true)]);
    }

    #[test]
    fn version_3_has_microseconds() {
        let mut parser = Parser::default();
        parser.parse("fio version 3 iolog").unwrap();
        assert_eq!(parser.parse("0 /dev/x open"), Ok(Parsed::Nothing));
        let expected = Entry::transfer(9_000, "/dev/x", RequestKind::Discard, 4096, 8192);
        assert_eq!(parser.parse("9 /dev/x trim 4096 8192"), Ok(Parsed::Request(expected)));
        for line in [
            "9 /dev/x wait 1 1",
            "/dev/x write 0 512",
            "1 x write 0",
            "1 x write 0 512 9",
            "1 x frob 0 1",
            "1",
            "1 x write -1 1",
        ] {
            assert!(parser.parse(line).is_err(), "{line}");
        }
    }
}
