//! What is mounted where, from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// `major:minor` of what is mounted.
    pub(super) device: String,
    /// Its source.
    pub(super) source: String,
}

/// The mount that one sees at `path` (a canonical path), if it is a mount point.
pub(super) fn mounted_at(path: &Path) -> Option<Entry> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    find(&table, path)
}

/// Later mounts hide earlier ones at the same place, and come later in the table.
fn find(table: &[u8], path: &Path) -> Option<Entry> {
    table.split(|&byte| byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let device = fields.nth(2)?;
        let place = unescape(fields.nth(1)?);
        if place.as_bytes() != path.as_os_str().as_bytes() {
            return None;
        }
        // Optional fields, then a hyphen, then type and source.
        fields.find(|field| *field == b"-")?;
        let source = fields.nth(1)?;
        let text = |bytes: OsString| bytes.to_string_lossy().into_owned();
        Some(Entry { device: text(unescape(device)), source: text(unescape(source)) })
    })
}

/// Undoes the kernel's octal escapes of blanks and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        let code = digits.map(|digits| digits.iter().fold(0_u32, |code, digit| code * 8 + u32::from(digit - b'0')));
        match code.and_then(|code| u8::try_from(code).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_at_a_place_is_the_one_seen() {
        let table = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            40 22 0:50 / /mnt/a\\040b rw,relatime - fuse.basalt first rw\n\
            41 40 0:51 / /mnt/a\\040b rw,relatime master:1 - fuse.basalt with\\134slash rw\n";
        let entry = find(table, Path::new("/mnt/a b")).unwrap();
        assert_eq!(entry, Entry { device: "0:51".into(), source: "with\\slash".into() });
        assert_eq!(find(table, Path::new("/mnt")), None);
        assert_eq!(find(b"garbage\n\n", Path::new("/")), None);
    }
}
