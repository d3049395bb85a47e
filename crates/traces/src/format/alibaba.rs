//! Alibaba block CSV (Li, Wang, Lee, Liu: "An In-Depth Analysis of Cloud Block Storage Workloads", IISWC 2020, and the text that
//! comes with the traces).
//!
//! `device_id,opcode,offset,length,timestamp`: opcodes are R and W, offsets and lengths bytes, times microseconds.

use basalt_device::RequestKind;

use super::field::{number, scaled, shorten, values};
use super::{Entry, LineParser, Parsed, Reason};

/// Nanoseconds in the unit of the times.
const NS_PER_TICK: u64 = 1_000;

pub(super) struct Parser;

impl LineParser for Parser {
    fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, Reason> {
        let [device, opcode, offset, length, time] = values(line)?;
        if device == "device_id" {
            return Ok(Parsed::Nothing);
        }
        let kind = match opcode {
            "R" => RequestKind::Read,
            "W" => RequestKind::Write,
            other => return Err(format!("opcode `{}` is neither R nor W", shorten(other))),
        };
        number("device", device)?;
        let time_ns = scaled("time", time, NS_PER_TICK)?;
        Ok(Parsed::Request(Entry::transfer(
            time_ns,
            device,
            kind,
            number("offset", offset)?,
            number("length", length)?,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let expected = Entry::transfer(1_577_808_144_360_767_000, "419", RequestKind::Write, 8_792_731_648, 16_384);
        assert_eq!(Parser.parse("419,W,8792731648,16384,1577808144360767"), Ok(Parsed::Request(expected)));
        assert_eq!(Parser.parse("device_id,opcode,offset,length,timestamp"), Ok(Parsed::Nothing));
        for line in ["419,X,0,1,1", "a,W,0,1,1", "419,W,0,1", "419,W,0,,1", ""] {
            assert!(Parser.parse(line).is_err(), "{line}");
        }
    }
}
