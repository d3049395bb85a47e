//! Lines of bounded length out of bytes of any kind.

use std::io::{self, BufRead};

/// The longest line in bytes; no format comes near it.
pub(crate) const LONGEST_LINE: usize = 16 << 10;

/// What stands on a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// Text, without its line end.
    Text(&'a str),
    /// Longer than [`LONGEST_LINE`]; skipped.
    TooLong,
    /// Not UTF-8.
    NotText,
}

/// Cuts a stream into lines; keeps one line in memory.
pub(crate) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Lines { input, buffer: Vec::new() }
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let mut too_long = false;
        let mut any = false;
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                break;
            }
            any = true;
            let end = available.iter().position(|&byte| byte == b'\n');
            let piece = &available[..end.unwrap_or(available.len())];
            too_long |= self.buffer.len() + piece.len() > LONGEST_LINE;
            if !too_long {
                self.buffer.extend_from_slice(piece);
            }
            let taken = piece.len() + usize::from(end.is_some());
            self.input.consume(taken);
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        if too_long {
            return Ok(Some(Line::TooLong));
        }
        let text = self.buffer.strip_suffix(b"\r").unwrap_or(&self.buffer);
        Ok(Some(std::str::from_utf8(text).map_or(Line::NotText, Line::Text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds() {
        let long = "x".repeat(LONGEST_LINE + 1);
        let mut bytes = format!("one\r\n\n{long}\n").into_bytes();
        bytes.extend_from_slice(b"\xff\nlast");
        // A small buffer, so that lines span several of its fills.
        let mut lines = Lines::new(io::BufReader::with_capacity(7, &bytes[..]));
        assert_eq!(lines.next().unwrap(), Some(Line::Text("one")));
        assert_eq!(lines.next().unwrap(), Some(Line::Text("")));
        assert_eq!(lines.next().unwrap(), Some(Line::TooLong));
        assert_eq!(lines.next().unwrap(), Some(Line::NotText));
        assert_eq!(lines.next().unwrap(), Some(Line::Text("last")));
        assert_eq!(lines.next().unwrap(), None);
        assert!(lines.buffer.capacity() <= 2 * LONGEST_LINE);
    }
}
