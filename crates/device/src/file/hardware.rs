//! What sort of hardware a file or device is stored on, as far as the kernel tells.

use std::fs;
use std::path::{Path, PathBuf};

use super::behind::{Ask, Identity, layers, number, sysfs};

/// What stores the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hardware {
    /// It turns.
    Disk,
    /// An SD card at a controller of its own. One in a USB reader looks like [`Solid`](Hardware::Solid).
    SdCard,
    /// eMMC.
    Emmc,
    /// Anything else that does not turn.
    Solid,
}

impl Hardware {
    /// What is below a file or device that was opened at `path`, and is this. `None` where the kernel does not tell: a file system without a device,
    /// or one that spreads over several.
    pub(super) fn of(identity: Identity, path: &Path) -> Option<Hardware> {
        // It is open, so asking a loop device holds nobody up.
        let last = layers(identity, path, Ask::Always).pop()?;
        let device = match last.identity {
            Identity::Device(id) => id,
            Identity::File(file_system, _) => file_system,
        };
        Hardware::of_disk(&disk_of(device)?)
    }

    /// By the directory of a disk in sysfs.
    fn of_disk(directory: &Path) -> Option<Hardware> {
        let is = |attribute: &str, value: &str| {
            fs::read_to_string(directory.join(attribute)).is_ok_and(|text| text.trim() == value)
        };
        if is("device/type", "SD") {
            Some(Hardware::SdCard)
        } else if is("device/type", "MMC") {
            Some(Hardware::Emmc)
        } else if is("queue/rotational", "1") {
            Some(Hardware::Disk)
        } else {
            is("queue/rotational", "0").then_some(Hardware::Solid)
        }
    }
}

/// The directory in sysfs of the disk that a device is, or is a partition of.
fn disk_of(device: u64) -> Option<PathBuf> {
    let directory = fs::canonicalize(sysfs(device)).ok()?;
    if directory.join("partition").exists() { directory.parent().map(Path::to_owned) } else { Some(directory) }
}

/// Where a file or device, opened at `path`, lies on its disk, or in the image that holds it.
pub(super) struct Place {
    /// Bytes in front of it.
    pub offset: u64,
    /// Bytes that the disk erases together, where the kernel tells.
    pub erase_unit: Option<u64>,
}

impl Place {
    pub(super) fn of(identity: Identity, path: &Path) -> Option<Place> {
        let last = layers(identity, path, Ask::Always).pop()?;
        let erase_unit = match last.identity {
            Identity::Device(id) => disk_of(id).and_then(|disk| erase_unit(&disk)),
            // Where in its file system an image lies nobody knows.
            Identity::File(..) => None,
        };
        Some(Place { offset: last.range.start, erase_unit })
    }
}

/// Of the disk with this directory in sysfs: the kernel's driver of SD cards and eMMC tells, for cards their allocation unit.
fn erase_unit(disk: &Path) -> Option<u64> {
    number(&disk.join("device/preferred_erase_size")).filter(|&bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a directory of sysfs with these files.
    fn with<T>(name: &str, attributes: &[(&str, &str)], find: impl Fn(&Path) -> T) -> T {
        let root = std::env::temp_dir().join(format!("basalt-hardware-{name}-{}", std::process::id()));
        for (name, value) in attributes {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let found = find(&root);
        let _ = fs::remove_dir_all(&root);
        found
    }

    #[test]
    fn sysfs_tells_what_cards_erase_together() {
        let unit = |text: &str| with("unit", &[("device/preferred_erase_size", text)], erase_unit);
        assert_eq!([unit("4194304\n"), unit("0\n"), unit("large\n")], [Some(4 << 20), None, None]);
        assert_eq!(with("none", &[("size", "8\n")], erase_unit), None);
    }

    #[test]
    fn sysfs_tells_cards_from_disks() {
        let disk = |attributes: &[(&str, &str)]| with("disk", attributes, Hardware::of_disk);
        assert_eq!(disk(&[("device/type", "SD\n"), ("queue/rotational", "0\n")]), Some(Hardware::SdCard));
        assert_eq!(disk(&[("device/type", "MMC\n"), ("queue/rotational", "0\n")]), Some(Hardware::Emmc));
        // SCSI disks have a number there.
        assert_eq!(disk(&[("device/type", "0\n"), ("queue/rotational", "1\n")]), Some(Hardware::Disk));
        assert_eq!(disk(&[("queue/rotational", "0\n")]), Some(Hardware::Solid));
        assert_eq!(disk(&[("size", "8\n")]), None);
    }
}
