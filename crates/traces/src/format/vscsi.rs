//! vscsi CSV: CloudPhysics' traces of virtual disks (Waldspurger and others: "Efficient MRC Construction with SHARDS", FAST 2015),
//! as libCacheSim distributes them.
//!
//! `version,time,op,size,lbn`: times are whole seconds (the one public file covers 7,200 of them, two hours, with 114 thousand
//! requests; as microseconds that would be 16 million requests a second), operations are hexadecimal SCSI codes, sizes bytes,
//! and logical block numbers count 512 bytes.

use basalt_device::RequestKind;

use super::field::{number, scaled, shorten, values};
use super::{Entry, LineParser, Parsed, Reason, SECTOR};

/// Nanoseconds in the unit of the times.
const NS_PER_TICK: u64 = 1_000_000_000;

pub(super) struct Parser;

impl LineParser for Parser {
    fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, Reason> {
        let [version, time, operation, size, block] = values(line)?;
        if version == "version" {
            return Ok(Parsed::Nothing);
        }
        number("version", version)?;
        let time_ns = scaled("time", time, NS_PER_TICK)?;
        // READ and WRITE with commands of 6, 10, 12 and 16 bytes, and SYNCHRONIZE CACHE with 10 and 16 (SCSI SBC).
        let kind = match operation.to_ascii_lowercase().as_str() {
            "8" | "08" | "28" | "a8" | "88" => RequestKind::Read,
            "a" | "0a" | "2a" | "aa" | "8a" => RequestKind::Write,
            "35" | "91" => return Ok(Parsed::Request(Entry::flush(time_ns, ""))),
            other => return Err(format!("SCSI operation `{}` is neither a read, a write nor a flush", shorten(other))),
        };
        let (offset, length) = (scaled("block number", block, SECTOR)?, number("size", size)?);
        Ok(Parsed::Request(Entry::transfer(time_ns, "", kind, offset, length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let expected = Entry::transfer(5_633_898_000_000_000, "", RequestKind::Write, 40_409_911 * 512, 6_656);
        assert_eq!(Parser.parse("1,5633898,2a,6656,40409911"), Ok(Parsed::Request(expected)));
        assert_eq!(Parser.parse("1,2,35,0,0"), Ok(Parsed::Request(Entry::flush(2_000_000_000, ""))));
        for line in ["1,2,42,0,0", "1,2,zz,0,0", "1,2,28,512", "1,2,28,512,99999999999999999999", "x,2,28,1,1"] {
            assert!(Parser.parse(line).is_err(), "{line}");
        }
    }
}
