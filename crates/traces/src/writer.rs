//! Writing fio's iolog.

use std::io::{self, Write};

use basalt_device::RequestKind;

use crate::request::TraceRequest;

/// fio counts the bytes of a request in 32 bits: longer discards are written in pieces of this many.
const LONGEST_PIECE: u64 = 1 << 31;

/// Nanoseconds in a microsecond, the unit of version 3.
const NS_PER_TICK: u64 = 1_000;

/// Version of an iolog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IologVersion {
    /// Without times: what fio before 3.31 reads. Its `wait` actions are left out, because fio's programs and manual do not
    /// agree on what they count from.
    Two,
    /// With microseconds on every line.
    #[default]
    Three,
}

/// Writes requests as an iolog that `fio --read_iolog` replays, with `--replay_redirect` on any device.
pub struct IologWriter<W: Write> {
    out: W,
    version: IologVersion,
    file: String,
    last_ticks: u64,
    requests: u64,
}

impl<W: Write> IologWriter<W> {
    /// Begins a log about one file or device; blanks and control characters in its name become underscores.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn new(mut out: W, version: IologVersion, file: &str) -> io::Result<Self> {
        let blank = |character: char| character.is_whitespace() || character.is_control();
        let mut file = file.replace(blank, "_");
        if file.is_empty() {
            file.push_str("device");
        }
        let number = match version {
            IologVersion::Two => 2,
            IologVersion::Three => 3,
        };
        writeln!(out, "fio version {number} iolog")?;
        let mut writer = IologWriter { out, version, file, last_ticks: 0, requests: 0 };
        writer.line("add")?;
        writer.line("open")?;
        Ok(writer)
    }

    /// Adds a request. Version 3 loses what is below a microsecond, and a time before the last one becomes the last one: fio
    /// wants times that never fall.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn push(&mut self, request: &TraceRequest) -> io::Result<()> {
        self.last_ticks = self.last_ticks.max(request.time_ns / NS_PER_TICK);
        self.requests += 1;
        let action = match request.kind {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Discard => "trim",
            RequestKind::Flush => return self.line("datasync 0 0"),
        };
        let mut at = request.offset;
        while at < request.end() {
            let length = (request.end() - at).min(LONGEST_PIECE);
            self.line(&format!("{action} {at} {length}"))?;
            at += length;
        }
        Ok(())
    }

    /// How many requests were added.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Ends the log, and gives the output back, flushed.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.line("close")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, action: &str) -> io::Result<()> {
        match self.version {
            IologVersion::Two => writeln!(self.out, "{} {action}", self.file),
            IologVersion::Three => writeln!(self.out, "{} {} {action}", self.last_ticks, self.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<TraceRequest> {
        let request = |time_ns, kind, offset, length| TraceRequest { time_ns, kind, offset, length };
        vec![
            request(0, RequestKind::Write, 0, 4096),
            request(1_999, RequestKind::Read, 512, 1024),
            TraceRequest::flush(5_000),
            request(4_000, RequestKind::Discard, 8192, 3 << 31),
        ]
    }

    fn write(version: IologVersion) -> String {
        let mut writer = IologWriter::new(Vec::new(), version, "/dev/my disk").unwrap();
        requests().iter().for_each(|request| writer.push(request).unwrap());
        assert_eq!(writer.requests(), 4);
        String::from_utf8(writer.finish().unwrap()).unwrap()
    }

    #[test]
    fn version_2() {
        assert_eq!(
            write(IologVersion::Two),
            "fio version 2 iolog\n/dev/my_disk add\n/dev/my_disk open\n/dev/my_disk write 0 4096\n/dev/my_disk read 512 \
             1024\n/dev/my_disk datasync 0 0\n/dev/my_disk trim 8192 2147483648\n/dev/my_disk trim 2147491840 \
             2147483648\n/dev/my_disk trim 4294975488 2147483648\n/dev/my_disk close\n"
        );
    }

    #[test]
    fn version_3() {
        assert_eq!(
            write(IologVersion::Three),
            "fio version 3 iolog\n0 /dev/my_disk add\n0 /dev/my_disk open\n0 /dev/my_disk write 0 4096\n1 /dev/my_disk read \
             512 1024\n5 /dev/my_disk datasync 0 0\n5 /dev/my_disk trim 8192 2147483648\n5 /dev/my_disk trim 2147491840 \
             2147483648\n5 /dev/my_disk trim 4294975488 2147483648\n5 /dev/my_disk close\n"
        );
    }
}
