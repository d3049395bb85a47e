//! An inode as `ls` and `stat` show it.

use basalt_vfs::{Attributes, FileKind, FileSystem, Time};
use serde::Serialize;

use crate::output::Names;
use crate::time;

/// What is known of a name, for JSON.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    /// The name or path; bytes that are no UTF-8 are replaced.
    pub(super) name: String,
    /// The name's bytes in hexadecimal digits, where `name` does not say it all.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    kind: &'static str,
    inode: u64,
    generation: u32,
    /// Permission bits in octal digits.
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    /// Space taken, in units of 512 bytes.
    sectors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    atime: String,
    mtime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crtime: Option<String>,
    flags: u32,
    project_id: u32,
}

impl Entry {
    pub(super) fn new(name: &[u8], attributes: &Attributes, target: Option<&[u8]>) -> Entry {
        let text = String::from_utf8_lossy(name);
        let is_device = matches!(attributes.kind, FileKind::BlockDevice | FileKind::CharDevice);
        let name_hex = (text.as_bytes() != name).then(|| name.iter().map(|byte| format!("{byte:02x}")).collect());
        Entry {
            name: text.into_owned(),
            name_hex,
            kind: kind_name(attributes.kind),
            inode: attributes.ino,
            generation: attributes.generation,
            mode: format!("{:04o}", attributes.permissions),
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            sectors: attributes.sectors,
            device: is_device.then(|| device(attributes.rdev)).map(|(major, minor)| [major, minor]),
            target: target.map(|target| String::from_utf8_lossy(target).into_owned()),
            atime: iso(attributes.atime),
            mtime: iso(attributes.mtime),
            ctime: iso(attributes.ctime),
            crtime: attributes.crtime.map(iso),
            flags: attributes.flags.bits(),
            project_id: attributes.project_id,
        }
    }
}

/// The target of a symbolic link; of what is none, nothing.
pub(super) fn link_target(fs: &dyn FileSystem, attributes: &Attributes) -> basalt_vfs::Result<Option<Vec<u8>>> {
    (attributes.kind == FileKind::Symlink).then(|| fs.read_link(attributes.ino)).transpose()
}

/// `2026-11-21T05:04:59.000000001Z`
fn iso(at: Time) -> String {
    time::full(at).replace(" UTC", "Z").replace(' ', "T")
}

/// Major and minor number of a device node.
pub(super) fn device(rdev: u32) -> (u32, u32) {
    (rdev >> 8 & 0xFFF, rdev & 0xFF | rdev >> 12 & 0xF_FF00)
}

pub(super) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice => "block device",
        FileKind::CharDevice => "character device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// `drwxr-sr-t`
pub(super) fn mode_text(attributes: &Attributes) -> String {
    let mode = attributes.permissions;
    let kind = match attributes.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// A name, and where a symbolic link points.
pub(super) fn name_text(name: &[u8], target: Option<&[u8]>, names: Names) -> Vec<u8> {
    let mut text = names.show(name);
    if let Some(target) = target {
        text.extend_from_slice(b" -> ");
        text.extend(names.show(target));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        let mut attributes = Attributes {
            ino: 3,
            generation: 0,
            kind: FileKind::Directory,
            permissions: 0o1777,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0x11_032C,
            size: 0,
            sectors: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: None,
            flags: basalt_vfs::InodeFlags::empty(),
            project_id: 0,
        };
        assert_eq!(mode_text(&attributes), "drwxrwxrwt");
        attributes.kind = FileKind::Regular;
        attributes.permissions = 0o6754;
        assert_eq!(mode_text(&attributes), "-rwsr-sr--");
        attributes.permissions = 0o4640;
        assert_eq!(mode_text(&attributes), "-rwSr-----");
        assert_eq!(device(attributes.rdev), (259, 300));
        assert_eq!(iso(Time { seconds: 0, nanoseconds: 5 }), "1970-01-01T00:00:00.000000005Z");
        let entry = Entry::new(b"a\xff", &attributes, None);
        assert_eq!(entry.name_hex.as_deref(), Some("61ff"));
    }
}
