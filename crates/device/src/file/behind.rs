//! What lies behind a device: the disk of a partition, the file of a loop device, and so on down. Whoever writes to one of them
//! writes to all, and the kernel's exclusive claims do not know that of loop devices.
//!
//! Facts come from sysfs, and from loop devices themselves, where this process may ask them: they know their file also when it has no
//! name any more, or one in another mount namespace.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, makedev, minor};

use super::reach::Reach;
use crate::loopdev;

/// Devices stacked higher than this are looked at no further.
const DEEPEST: usize = 8;
/// The unit of sizes in sysfs, whatever the device's sectors.
const SYSFS_SECTOR: u64 = 512;

/// What a file or device is known by, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// A file: the device number of its file system, and its inode number.
    File(u64, u64),
    /// A block device: its number.
    Device(u64),
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Identity {
        if metadata.file_type().is_block_device() {
            return Identity::Device(metadata.rdev());
        }
        Identity::File(metadata.dev(), metadata.ino())
    }
}

/// How a layer was reached from the one above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// It is the file or device itself.
    Itself,
    /// It is the disk of a partition.
    Partition,
    /// It is behind this loop device.
    Loop(u64),
}

/// A range of bytes of a file or device, that is what the one above it consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) identity: Identity,
    /// What it is called here. What is there may be something else.
    pub(super) path: PathBuf,
    pub(super) range: Range<u64>,
    pub(super) via: Via,
}

impl Layer {
    fn overlaps(&self, other: &Layer) -> bool {
        self.identity == other.identity && overlap(&self.range, &other.range)
    }
}

pub(super) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Whether a loop device may be opened to ask what it is attached to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ask<'a> {
    /// Yes: this process has it open anyway.
    Always,
    /// Only where its file cannot be found by name: a device that is open cannot be detached, which would hold others up. What is out of
    /// reach is not looked at, either way: the kernel asks the file's server to answer.
    Nameless(&'a Reach),
}

/// All layers of a file or device, itself first.
pub(super) fn layers(itself: Identity, path: &Path, ask: Ask<'_>) -> Vec<Layer> {
    let mut found = vec![Layer { identity: itself, path: path.to_owned(), range: 0..u64::MAX, via: Via::Itself }];
    while let Some(next) = found.last().and_then(|layer| below(layer, ask)).filter(|_| found.len() < DEEPEST) {
        found.push(next);
    }
    found
}

/// Whether both consist of some of the same bytes.
pub(super) fn share(one: &[Layer], other: &[Layer]) -> bool {
    one.iter().any(|layer| other.iter().any(|another| layer.overlaps(another)))
}

/// What a device consists of.
fn below(layer: &Layer, ask: Ask<'_>) -> Option<Layer> {
    let Identity::Device(id) = layer.identity else { return None };
    let directory = sysfs(id);
    if directory.join("partition").exists() {
        let own = fs::canonicalize(&directory).ok()?;
        let disk = device_number(own.parent()?)?;
        let start = number(&directory.join("start"))?.saturating_mul(SYSFS_SECTOR);
        let length = number(&directory.join("size"))?.saturating_mul(SYSFS_SECTOR);
        let range = within(&layer.range, start, start.saturating_add(length));
        return Some(Layer { identity: Identity::Device(disk), path: node(disk), range, via: Via::Partition });
    }
    let backing = Backing::of(&directory, ask)?;
    let range = within(&layer.range, backing.range.start, backing.range.end);
    Some(Layer { identity: backing.identity?, path: backing.path, range, via: Via::Loop(id) })
}

/// A range of what is at `start` to `end` of the layer below.
fn within(range: &Range<u64>, start: u64, end: u64) -> Range<u64> {
    start.saturating_add(range.start).min(end)..start.saturating_add(range.end).min(end)
}

/// What a loop device is attached to.
#[derive(Debug)]
pub(super) struct Backing {
    /// `None` where nobody tells.
    pub(super) identity: Option<Identity>,
    /// As the kernel calls it.
    pub(super) path: PathBuf,
    pub(super) range: Range<u64>,
}

impl Backing {
    /// By the directory of the loop device in sysfs. `None` for what is none, or is not attached.
    pub(super) fn of(sysfs: &Path, ask: Ask<'_>) -> Option<Backing> {
        let mut path = fs::read(sysfs.join("loop/backing_file")).ok()?;
        path.pop_if(|last| *last == b'\n');
        let path = PathBuf::from(OsString::from_vec(path));
        let start = number(&sysfs.join("loop/offset")).unwrap_or(0);
        let limit = number(&sysfs.join("loop/sizelimit")).filter(|&limit| limit > 0);
        let end = limit.map_or(u64::MAX, |limit| start.saturating_add(limit));
        let range = start..end;
        let named = match ask {
            Ask::Nameless(reach) if !reach.has(&path) => return Some(Backing { identity: None, path, range }),
            Ask::Nameless(reach) => reach.identity(&path),
            Ask::Always => fs::metadata(&path).ok().map(|found| Identity::of(&found)),
        };
        let is_asked = matches!(ask, Ask::Always) || named.is_none();
        let told = if is_asked { device_number(sysfs).and_then(told_by) } else { None };
        Some(Backing { identity: told.or(named), path, range })
    }
}

/// What a loop device itself says that it is attached to. `None` where it may not be asked.
fn told_by(id: u64) -> Option<Identity> {
    let device = File::open(node(id)).ok()?;
    if Identity::of(&device.metadata().ok()?) != Identity::Device(id) {
        return None;
    }
    let status = loopdev::status(&device).ok()?;
    Some(match status.rdevice {
        0 => Identity::File(status.device, status.inode),
        device => Identity::Device(device),
    })
}

/// The attached loop devices, each with its directory in sysfs and its number.
pub(super) fn loop_devices() -> Vec<(PathBuf, u64)> {
    let names = directory_names(Path::new("/sys/block")).into_iter().filter(|name| name.starts_with("loop"));
    let directories = names.map(|name| Path::new("/sys/block").join(name));
    let attached = directories.filter(|directory| directory.join("loop").exists());
    attached.filter_map(|directory| device_number(&directory).map(|id| (directory, id))).collect()
}

/// The partitions of a disk, each with its number and the bytes of the disk that it consists of.
pub(super) fn partitions(disk: u64) -> Vec<(u64, Range<u64>)> {
    let directory = sysfs(disk);
    let children = directory_names(&directory).into_iter().map(|name| directory.join(name));
    let partitions = children.filter(|child| child.join("partition").exists());
    let facts = partitions.filter_map(|child| {
        let start = number(&child.join("start"))?.saturating_mul(SYSFS_SECTOR);
        let length = number(&child.join("size"))?.saturating_mul(SYSFS_SECTOR);
        Some((device_number(&child)?, start..start.saturating_add(length)))
    });
    facts.collect()
}

/// The directory of a block device in sysfs.
pub(super) fn sysfs(id: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(id), minor(id)))
}

/// The path of a block device, as the kernel names it.
pub(super) fn node(id: u64) -> PathBuf {
    let facts = fs::read_to_string(sysfs(id).join("uevent")).unwrap_or_default();
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    name.map_or_else(
        || PathBuf::from(format!("/dev/block/{}:{}", major(id), minor(id))),
        |name| Path::new("/dev").join(name),
    )
}

/// The device number that a directory of a block device in sysfs gives.
pub(super) fn device_number(sysfs: &Path) -> Option<u64> {
    parse_device_number(fs::read_to_string(sysfs.join("dev")).ok()?.trim(), 10)
}

/// Reads `MAJOR:MINOR`.
pub(super) fn parse_device_number(text: &str, radix: u32) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(u32::from_str_radix(major, radix).ok()?, u32::from_str_radix(minor, radix).ok()?))
}

/// The number in a file of sysfs.
pub(super) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The names in a directory, in order; none where it cannot be read.
pub(super) fn directory_names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(inode: u64, range: Range<u64>) -> Layer {
        Layer { identity: Identity::File(1, inode), path: PathBuf::new(), range, via: Via::Itself }
    }

    #[test]
    fn ranges_go_through_what_lies_between() {
        // A partition from 1000 to 3000 of a device that begins at 500 of its file.
        assert_eq!(within(&(0..u64::MAX), 1000, 3000), 1000..3000);
        assert_eq!(within(&(1000..3000), 500, u64::MAX), 1500..3500);
        // A device that ends before its partition does.
        assert_eq!(within(&(1000..3000), 500, 2000), 1500..2000);
        assert_eq!(within(&(4000..5000), 500, 2000), 2000..2000);
    }

    #[test]
    fn what_shares_bytes() {
        let disk = layer(7, 0..u64::MAX);
        let (first, second) = (layer(7, 0..1000), layer(7, 1000..2000));
        assert!(share(&[layer(1, 0..10), first.clone()], std::slice::from_ref(&disk)));
        assert!(!share(std::slice::from_ref(&first), std::slice::from_ref(&second)));
        assert!(share(&[second], &[disk]));
        assert!(!share(&[first], &[layer(8, 0..1000)]));
    }
}
