//! MQSim's text traces (Tavakkol and others, FAST 2018; MQSim's manual).
//!
//! `time device sector sectors type`: nanoseconds, sectors of 512 bytes, type 0 writes and 1 reads.

use basalt_device::RequestKind;

use super::field::{columns, number, scaled, shorten};
use super::{Entry, LineParser, Parsed, Reason, SECTOR};

pub(super) struct Parser;

impl LineParser for Parser {
    fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, Reason> {
        let [time, device, sector, sectors, kind] = columns(line)?;
        let time_ns = number("time", time)?;
        number("device", device)?;
        let kind = match kind {
            "0" => RequestKind::Write,
            "1" => RequestKind::Read,
            other => return Err(format!("type `{}` is neither 0 (write) nor 1 (read)", shorten(other))),
        };
        let (offset, length) = (scaled("sector", sector, SECTOR)?, scaled("sectors", sectors, SECTOR)?);
        Ok(Parsed::Request(Entry::transfer(time_ns, device, kind, offset, length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let expected = Entry::transfer(938_513_000, "4", RequestKind::Write, 264_719_034 * 512, 8_192);
        assert_eq!(Parser.parse("938513000 4 264719034 16 0"), Ok(Parsed::Request(expected)));
        for line in ["1 4 2 16 2", "1 4 2 16", "1 4 99999999999999999 16 0", "1 x 2 16 0", "1.5 4 2 16 0"] {
            assert!(Parser.parse(line).is_err(), "{line}");
        }
    }
}
