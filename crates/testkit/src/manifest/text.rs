//! The text form: one line an entry, `path kind field=value…`, and a last line with the count, so that a text cut short
//! is noticed. Bytes that could be mistaken are written `\xNN`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{Entry, Kind, Manifest};
use crate::error::{Error, Result};

const END: &str = "# entries ";

const KINDS: [(Kind, &str); 7] = [
    (Kind::File, "file"),
    (Kind::Directory, "directory"),
    (Kind::Symlink, "symlink"),
    (Kind::CharacterDevice, "character-device"),
    (Kind::BlockDevice, "block-device"),
    (Kind::Fifo, "fifo"),
    (Kind::Socket, "socket"),
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS.iter().find(|(kind, _)| kind == self).map_or("?", |(_, name)| name);
        f.write_str(name)
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, entry) in &self.entries {
            write!(f, "{} {}", escape(path), entry.kind)?;
            for (name, value) in entry.fields() {
                write!(f, " {name}={value}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{END}{}", self.entries.len())
    }
}

impl FromStr for Manifest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Manifest> {
        let mut manifest = Manifest::default();
        for line in text.lines() {
            if let Some(count) = line.strip_prefix(END) {
                let complete = count.parse() == Ok(manifest.entries.len());
                return if complete { Ok(manifest) } else { Err(invalid("not as many entries as it says", line)) };
            }
            let (path, entry) = parse_line(line).ok_or_else(|| invalid("not an entry of a manifest", line))?;
            manifest.entries.insert(path, entry);
        }
        Err(Error::Invalid("a manifest without its last line: it was cut short".to_owned()))
    }
}

impl Entry {
    /// Every known field by name, in the order of the text form.
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            fields.extend(value.map(|value| (name.to_owned(), value)));
        };
        add("mode", self.mode.map(|mode| format!("{mode:04o}")));
        add("owner", self.owner.map(|(user, group)| format!("{user}:{group}")));
        add("links", self.links.map(|links| links.to_string()));
        add("same-as", self.same_as.as_ref().map(|path| escape(path)));
        add("size", self.size.map(|size| size.to_string()));
        add("mtime", self.mtime.map(|(seconds, nanoseconds)| format!("{seconds}.{nanoseconds:09}")));
        add("target", self.target.as_ref().map(|target| escape(target)));
        add("device", self.device.map(|(major, minor)| format!("{major}:{minor}")));
        add("content", self.content.map(|hash| format!("{hash:016x}")));
        add("flags", self.flags.map(|flags| format!("{flags:#x}")));
        add("blocks", self.blocks.map(|blocks| blocks.to_string()));
        add("xattrs", self.xattrs.as_ref().map(|xattrs| xattrs.len().to_string()));
        for (name, value) in self.xattrs.iter().flatten() {
            fields.push((format!("xattr:{}", escape(name)), escape(value)));
        }
        fields
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "mode" => self.mode = Some(u32::from_str_radix(value, 8).ok()?),
            "owner" => self.owner = Some(pair(value, ':')?),
            "links" => self.links = Some(value.parse().ok()?),
            "same-as" => self.same_as = Some(unescape(value)?),
            "size" => self.size = Some(value.parse().ok()?),
            "mtime" => self.mtime = Some(pair(value, '.')?),
            "target" => self.target = Some(unescape(value)?),
            "device" => self.device = Some(pair(value, ':')?),
            "content" => self.content = Some(u64::from_str_radix(value, 16).ok()?),
            "flags" => self.flags = Some(u32::from_str_radix(value.strip_prefix("0x")?, 16).ok()?),
            "blocks" => self.blocks = Some(value.parse().ok()?),
            "xattrs" => self.xattrs = Some(BTreeMap::new()),
            _ => {
                let name = unescape(name.strip_prefix("xattr:")?)?;
                self.xattrs.as_mut()?.insert(name, unescape(value)?);
            }
        }
        Some(())
    }
}

fn parse_line(line: &str) -> Option<(Vec<u8>, Entry)> {
    let mut words = line.split(' ');
    let path = unescape(words.next()?)?;
    let kind_name = words.next()?;
    let (kind, _) = KINDS.iter().find(|(_, name)| *name == kind_name)?;
    let mut entry = Entry::new(*kind);
    for word in words {
        let (name, value) = word.split_once('=')?;
        entry.set(name, value)?;
    }
    Some((path, entry))
}

fn pair<A: FromStr, B: FromStr>(text: &str, separator: char) -> Option<(A, B)> {
    let (first, second) = text.split_once(separator)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

fn invalid(what: &str, line: &str) -> Error {
    Error::Invalid(format!("{what}: {line}"))
}

/// Bytes as a word without blanks, `=` or control characters.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' | b'=' | b'#' => text.push_str(&format!("\\x{byte:02x}")),
            b'!'..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'\\' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = after.strip_prefix(b"x")?.get(..2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &after[3..];
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_escaping() {
        let all: Vec<u8> = (0..=255).collect();
        let text = escape(&all);
        assert!(!text.contains([' ', '=', '\n', '#']));
        assert_eq!(unescape(&text).unwrap(), all);
        assert_eq!(unescape("a\\x4"), None);
        assert_eq!(unescape("\\y00"), None);
    }

    #[test]
    fn text_form_round_trips_and_notices_a_cut() {
        let mut entry = Entry::new(Kind::File);
        entry.mode = Some(0o4755);
        entry.owner = Some((0, 65534));
        entry.links = Some(2);
        entry.same_as = Some(b"./a b".to_vec());
        entry.size = Some(7);
        entry.mtime = Some((-5, 999_999_999));
        entry.content = Some(1);
        entry.flags = Some(0x10);
        entry.blocks = Some(8);
        entry.xattrs = Some(BTreeMap::from([(b"user.x=\xff".to_vec(), b"".to_vec())]));
        let mut link = Entry::new(Kind::Symlink);
        link.target = Some(b"\n\xfe".to_vec());
        let mut device = Entry::new(Kind::CharacterDevice);
        device.device = Some((1, 3));
        let manifest = Manifest {
            entries: [(b"./a b".to_vec(), entry), (b"./l".to_vec(), link), (b"./n".to_vec(), device)].into(),
        };
        let text = manifest.to_string();
        assert_eq!(text.parse::<Manifest>().unwrap(), manifest);
        let cut = &text[..text.rfind("./n").unwrap()];
        assert!(cut.parse::<Manifest>().is_err());
        assert!(format!("{cut}# entries 3\n").parse::<Manifest>().is_err());
        assert!("./a what\n# entries 1\n".parse::<Manifest>().is_err());
    }
}
