//! What is mounted, from `/proc/self/mountinfo`: which mounts are Basalt's, and of what.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use basalt_device::file::Reach;

/// The types of Basalt's mounts: with a block device (a loop device for an image), and without.
const TYPES: [&[u8]; 2] = [b"fuseblk.basalt", b"fuse.basalt"];

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Device number of what is mounted, `major:minor`.
    pub device: String,
    /// Where.
    pub point: PathBuf,
    /// The file system's type, with subtype.
    pub kind: Vec<u8>,
    /// What: a device, or an image's path.
    pub source: PathBuf,
    /// Whether nothing can be changed through it.
    pub read_only: bool,
    /// The user who mounted it and serves it, for FUSE mounts.
    pub owner: Option<u32>,
}

impl Mount {
    /// Whether Basalt serves it.
    pub fn is_basalt(&self) -> bool {
        TYPES.contains(&self.kind.as_slice())
    }

    /// The image or block device that whoever serves it has open: behind a loop device that goes with the mount, its
    /// backing file.
    pub fn target(&self) -> PathBuf {
        let lent = loop_attribute(&self.source, "autoclear").is_some_and(|flag| flag == b"1");
        backing_file(&self.source).filter(|_| lent).unwrap_or_else(|| self.source.clone())
    }
}

/// All mounts; later ones hide earlier ones at the same place. Empty where /proc is missing.
pub fn all() -> Vec<Mount> {
    parse(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// The mount that one sees at a canonical path, if it is a mount point.
pub fn at(path: &Path) -> Option<Mount> {
    all().into_iter().rev().find(|mount| mount.point == path)
}

/// A mount of the file system with this device number, wherever.
pub fn with_device(number: &str) -> Option<Mount> {
    all().into_iter().find(|mount| mount.device == number)
}

/// Processes in whose mount namespace the file system with this device number is mounted. Those that cannot be looked at are left out.
pub fn processes_with(number: &str) -> Vec<u32> {
    let has_it = |process: &u32| {
        let table = fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        let device = |line: &[u8]| line.split(|&byte| byte == b' ').nth(2) == Some(number.as_bytes());
        table.split(|&byte| byte == b'\n').any(device)
    };
    processes().filter(has_it).collect()
}

/// A mount of an image or block device by anybody.
pub fn of(target: &Path) -> Option<Mount> {
    let wanted = Wanted::new(target)?;
    all().into_iter().rev().find(|mount| wanted.is_mounted_by(mount))
}

/// The process that serves a mount of `target` in another mount namespace, if this user may see that.
pub fn server_elsewhere(target: &Path) -> Option<u32> {
    let wanted = Wanted::new(target)?;
    let own = fs::read_link("/proc/self/ns/mnt").ok()?;
    let serves = |process: &u32| {
        let proc = PathBuf::from(format!("/proc/{process}"));
        let mut files = fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
        fs::read_link(proc.join("ns/mnt")).is_ok_and(|namespace| namespace != own)
            && files.any(|file| fs::read_link(file.path()).is_ok_and(|path| path == Path::new("/dev/fuse")))
            && parse(&fs::read(proc.join("mountinfo")).unwrap_or_default())
                .iter()
                .any(|mount| mount.is_basalt() && wanted.is_mounted_by(mount))
    };
    processes().find(serves)
}

/// An image or block device of which mounts are looked for.
struct Wanted {
    metadata: fs::Metadata,
    reach: Reach,
}

impl Wanted {
    fn new(target: &Path) -> Option<Wanted> {
        let metadata = fs::metadata(target).ok()?;
        let reach = Reach::new(&[metadata.dev()]);
        Some(Wanted { metadata, reach })
    }

    fn is_mounted_by(&self, mount: &Mount) -> bool {
        let wanted = &self.metadata;
        if wanted.file_type().is_block_device() {
            return is_same_device(&mount.source, wanted.rdev());
        }
        // Only paths that can be images are looked at, and none on a mount that may hang.
        let path = backing_file(&mount.source).unwrap_or(mount.source.clone());
        path.is_absolute()
            && self.reach.has(&path)
            && fs::metadata(path)
                .is_ok_and(|other| other.is_file() && other.dev() == wanted.dev() && other.ino() == wanted.ino())
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn is_same_device(path: &Path, number: u64) -> bool {
    path.starts_with("/dev")
        && fs::metadata(path).is_ok_and(|other| other.file_type().is_block_device() && other.rdev() == number)
}

/// The file behind a loop device.
pub fn backing_file(device: &Path) -> Option<PathBuf> {
    loop_attribute(device, "backing_file").map(|path| OsString::from_vec(path).into())
}

/// What the kernel tells about a loop device.
fn loop_attribute(device: &Path, attribute: &str) -> Option<Vec<u8>> {
    let name = device.strip_prefix("/dev").ok()?;
    let mut value = fs::read(Path::new("/sys/block").join(name).join("loop").join(attribute)).ok()?;
    value.pop_if(|last| *last == b'\n');
    Some(value)
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /mnt1 /mnt/parent rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let point = unescape(fields.nth(1)?);
    let read_only = fields.next()?.split(|&byte| byte == b',').any(|option| option == b"ro");
    // Optional fields end with a hyphen.
    fields.find(|field| *field == b"-")?;
    let kind = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let options = fields.next().unwrap_or_default();
    let owner = options.split(|&byte| byte == b',').find_map(|option| {
        let number = option.strip_prefix(b"user_id=")?;
        std::str::from_utf8(number).ok()?.parse().ok()
    });
    Some(Mount {
        device,
        point: OsString::from_vec(point).into(),
        kind,
        source: OsString::from_vec(source).into(),
        read_only,
        owner,
    })
}

/// Undoes the kernel's octal escapes (`\040` for a space).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read() {
        let table = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            40 22 0:50 / /mnt/a\\040b rw,relatime shared:2 master:1 - fuse.basalt /tmp/x\\134y rw,user_id=0\n\
            41 22 7:0 / /mnt/c nosuid,ro - fuseblk.basalt /dev/loop0 rw\n\
            damaged\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 3);
        assert!(!mounts[0].is_basalt());
        assert!(mounts[1].is_basalt());
        assert_eq!(mounts[1].point, Path::new("/mnt/a b"));
        assert_eq!(mounts[1].source, Path::new("/tmp/x\\y"));
        assert!(mounts[2].is_basalt());
        assert!(mounts[2].read_only && !mounts[1].read_only);
        assert_eq!(mounts[2].device, "7:0");
        assert_eq!((mounts[1].owner, mounts[2].owner), (Some(0), None));
    }
}
