//! How a command ends badly: one line for the user, one exit code.

use std::fmt::Display;
use std::io;
use std::path::Path;

use basalt_device::DeviceError;
use basalt_f2fs::probe::Content;
use basalt_vfs::path::PathError;
use rustix::io::Errno;

/// A path as a word of a command that a user can copy into a shell.
#[derive(Debug, Clone, Copy)]
pub struct Word<'a>(pub &'a Path);

impl Display for Word<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.0.to_string_lossy();
        f.write_str(&shlex::try_quote(&path).unwrap_or_else(|_| path.clone()))
    }
}

/// Result of a command: its exit code, or why it failed.
pub type Outcome = Result<u8, Failure>;

/// Exit code of a command that did what it was asked to.
pub const DONE: u8 = 0;

/// Why a command failed, in one line: `where: why; what to do`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    line: String,
    kind: Kind,
}

/// Which of its command's exit codes a failure has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What was asked for makes no sense.
    Usage,
    /// It made sense, but could not be done.
    Operation,
    /// The reader of the output has closed it, as `| head` does. This is no failure, and prints nothing.
    Unread,
}

impl Failure {
    /// A failure at a place: a path, a device, an option.
    pub fn at(place: impl Display, why: impl Display) -> Failure {
        Failure { line: format!("{place}: {why}"), kind: Kind::Operation }
    }

    /// A failure that names its place itself.
    pub fn new(line: impl Display) -> Failure {
        Failure { line: line.to_string(), kind: Kind::Operation }
    }

    /// A wrong argument.
    pub fn usage(line: impl Display) -> Failure {
        Failure { line: line.to_string(), kind: Kind::Usage }
    }

    /// Standard output that cannot be written.
    pub fn output(error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { line: String::new(), kind: Kind::Unread };
        }
        Failure::at("standard output", error)
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Display) -> Failure {
        self.line = format!("{}; {hint}", self.line);
        self
    }

    /// A device that could not be opened or used.
    pub fn device(error: &DeviceError) -> Failure {
        let failure = Failure::new(error);
        match error {
            DeviceError::InUse { .. } => failure.hint("unmount it, or wait for the other program, then try again"),
            DeviceError::Open { name, source: Some(source), .. }
                if Errno::from_io_error(source) == Some(Errno::ACCESS) =>
            {
                failure.hint(format_args!("run as root, or change the permissions of {name}"))
            }
            DeviceError::Open { source: Some(source), .. } if Errno::from_io_error(source) == Some(Errno::ROFS) => {
                failure.hint("nothing can be written to it; `basalt mount -o ro`, `ls`, `get` and `fsck` only read")
            }
            _ => failure,
        }
    }

    /// A path in a volume that leads nowhere, or to something else than was needed.
    pub fn path(error: PathError) -> Failure {
        Failure::new(format_args!("volume:{}", error))
    }

    /// A volume that could not be opened or used; `target` is what the user called it.
    pub fn volume(target: &Path, error: &basalt_f2fs::Error) -> Failure {
        use basalt_f2fs::Error;
        let (word, target) = (Word(target), target.display());
        match error {
            Error::Device(DeviceError::Io { operation: "read", .. }) => {
                Failure::new(error).hint(format_args!("`basalt rescue {word} DIR` copies out what can be read"))
            }
            Error::Device(error) => Failure::device(error),
            Error::NotF2fs { content, .. } => match advice(content, &word) {
                Some(advice) => Failure::new(error).hint(advice),
                None => Failure::new(error),
            },
            Error::Truncated { .. } => Failure::new(error).hint(format_args!(
                "copy it again as a whole, or copy out what is there with `basalt rescue {word} DIR`"
            )),
            Error::Damaged { .. } => {
                Failure::at(&target, error).hint(format_args!("`basalt fsck {word}` lists all faults"))
            }
            // Their messages name the device, and say what can be done.
            Error::Unsupported { .. } => Failure::new(error),
            Error::Refused(error) => Failure::at(target, error),
        }
    }

    /// Which of its command's exit codes it has.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The whole message on one line; whatever a name or a device's answer contains cannot break out of it.
    pub fn line(&self) -> String {
        one_line(&without_numbers(&self.line))
    }
}

/// What the user can do with a target that is not an F2FS volume. `mkfs` is suggested only if the target holds no data.
fn advice(content: &Content, target: &impl Display) -> Option<String> {
    let rescue = format!("`basalt rescue {target} DIR`");
    Some(match *content {
        Content::Empty => "`basalt mkfs` makes a volume".to_owned(),
        Content::Zeros => format!("{rescue} searches the whole device"),
        Content::Other { was_f2fs: true, .. } => format!("{rescue} copies out what is left of it"),
        Content::Other { name, .. } if name.contains("partition table") => {
            "use one of its partitions (for an image file, `losetup --partscan --find --show` creates devices of them)"
                .to_owned()
        }
        Content::Other { name: "LUKS", .. } => {
            "open it with `cryptsetup open`, and use the device that this creates".to_owned()
        }
        Content::Other { name: "bitlocker", .. } => {
            "open it with `cryptsetup open --type bitlk`, and use the device that this creates".to_owned()
        }
        Content::Other { name: "LVM2 physical volume", .. } => {
            "activate its volumes with `vgchange -ay`, and use one of them".to_owned()
        }
        Content::Other { name: "Linux RAID member", .. } => {
            "assemble the array with `mdadm --assemble --scan`, and use that".to_owned()
        }
        Content::Other { .. } => return None,
        Content::Headless => format!("{rescue} copies out the files"),
        Content::Part { .. } => "Basalt serves only volumes on one device, and whole images".to_owned(),
        Content::Shifted { offset } => {
            format!("`losetup --offset {offset} --find --show {target}` creates a device of it; use that")
        }
        Content::Short { .. } | Content::Unreadable => return None,
        Content::Unknown => format!("if there was a volume, {rescue} searches for its files"),
    })
}

/// Leaves out the numbers that errors of the system have behind their words.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut line = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.parse::<u32>().is_ok() => line.push_str(rest),
            _ => line.extend([" (os error ", part]),
        }
    }
    line
}

/// Shows control characters as escapes, so that a text stays on its line and cannot steer a terminal.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}

/// A name of any bytes, for a message or a listing on a terminal.
pub fn printable(name: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(name))
}

/// A name of any bytes on one line, so that no two names look the same: backslashes, control characters and bytes that are no UTF-8 are
/// escaped as in C.
pub fn escaped(name: &[u8]) -> String {
    let mut line = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => line.push_str("\\\\"),
                '\n' => line.push_str("\\n"),
                '\t' => line.push_str("\\t"),
                '\r' => line.push_str("\\r"),
                character if character.is_control() => octal(&mut line, character.encode_utf8(&mut [0; 4]).as_bytes()),
                character => line.push(character),
            }
        }
        octal(&mut line, chunk.invalid());
    }
    line
}

fn octal(line: &mut String, bytes: &[u8]) {
    line.extend(bytes.iter().map(|byte| format!("\\{byte:03o}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_one_line() {
        let failure = Failure::at("a\nb", "\x1b[31mred").hint("do\tthis");
        assert_eq!(failure.line(), "a\\nb: \\u{1b}[31mred; do\\tthis");
        assert_eq!(printable(b"caf\xc3\xa9 \xff"), "café \u{fffd}");
    }

    #[test]
    fn no_two_names_look_the_same() {
        for (name, shown) in [
            (&b"a\\nb"[..], "a\\\\nb"),
            (b"a\nb", "a\\nb"),
            (b"\x1b[31m", "\\033[31m"),
            ("caf\u{e9} \u{85}".as_bytes(), "caf\u{e9} \\302\\205"),
            (b"\xff\\377", "\\377\\\\377"),
        ] {
            assert_eq!(escaped(name), shown);
        }
    }

    #[test]
    fn errors_of_the_system_have_words_only() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(Failure::at("/nodir", error).hint("make it").line(), "/nodir: No such file or directory; make it");
        assert_eq!(Failure::new("a (os error b) c (os error").line(), "a (os error b) c (os error");
    }

    #[test]
    fn what_is_in_use_says_what_to_do() {
        let error = DeviceError::InUse { name: "/dev/sdb1".into(), reason: "mounted on /mnt".into() };
        let line = Failure::device(&error).line();
        assert!(line.starts_with("/dev/sdb1 is in use: mounted on /mnt; unmount it"), "{line}");
    }
}
