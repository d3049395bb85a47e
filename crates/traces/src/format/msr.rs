//! MSR Cambridge CSV (Narayanan, Donnelly, Rowstron: "Write off-loading", FAST 2008; SNIA IOTTA's text about the traces).
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: times are Windows file times, 100 ns each, offsets and sizes
//! are bytes.

use basalt_device::RequestKind;

use super::field::{number, scaled, shorten, values};
use super::{Entry, LineParser, Parsed, Reason};

/// Nanoseconds in the unit of Windows file times.
const NS_PER_TICK: u64 = 100;

pub(super) struct Parser;

impl LineParser for Parser {
    fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, Reason> {
        let [time, host, disk, kind, offset, size, response] = values(line)?;
        if time.eq_ignore_ascii_case("timestamp") {
            return Ok(Parsed::Nothing);
        }
        let time_ns = scaled("time", time, NS_PER_TICK)?;
        number("disk", disk)?;
        number("response time", response)?;
        let kind = match kind {
            "Read" => RequestKind::Read,
            "Write" => RequestKind::Write,
            other => return Err(format!("type `{}` is neither Read nor Write", shorten(other))),
        };
        let volume = joined(line, host, disk);
        Ok(Parsed::Request(Entry::transfer(time_ns, volume, kind, number("offset", offset)?, number("size", size)?)))
    }
}

/// The piece of the line from host to disk, `usr,0`, which names a volume.
fn joined<'a>(line: &'a str, host: &str, disk: &str) -> &'a str {
    let position = |piece: &str| (piece.as_ptr() as usize).wrapping_sub(line.as_ptr() as usize);
    line.get(position(host)..position(disk) + disk.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let parsed = Parser.parse("128166372003061629,usr,0,Read,7014609920,24576,41286");
        let expected = Entry::transfer(12_816_637_200_306_162_900, "usr,0", RequestKind::Read, 7_014_609_920, 24_576);
        assert_eq!(parsed, Ok(Parsed::Request(expected)));
        for line in
            ["1,usr,0,Flush,0,0,0", "1,usr,0,Read,0,512", "1,usr,0,Read,x,512,1", "999999999999999999,u,0,Read,0,1,1"]
        {
            assert!(Parser.parse(line).is_err(), "{line}");
        }
    }
}
