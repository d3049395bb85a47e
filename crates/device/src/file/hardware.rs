//! What sort of hardware a file or device is stored on, as far as the kernel tells.

use std::fs;
use std::path::Path;

use super::behind::{Ask, Identity, layers, sysfs};

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
        let directory = fs::canonicalize(sysfs(device)).ok()?;
        let disk = if directory.join("partition").exists() { directory.parent()? } else { &directory };
        Hardware::of_disk(disk)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysfs_tells_cards_from_disks() {
        let root = std::env::temp_dir().join(format!("basalt-hardware-{}", std::process::id()));
        let disk = |attributes: &[(&str, &str)]| {
            for (name, value) in attributes {
                let path = root.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, value).unwrap();
            }
            let found = Hardware::of_disk(&root);
            let _ = fs::remove_dir_all(&root);
            found
        };
        assert_eq!(disk(&[("device/type", "SD\n"), ("queue/rotational", "0\n")]), Some(Hardware::SdCard));
        assert_eq!(disk(&[("device/type", "MMC\n"), ("queue/rotational", "0\n")]), Some(Hardware::Emmc));
        // SCSI disks have a number there.
        assert_eq!(disk(&[("device/type", "0\n"), ("queue/rotational", "1\n")]), Some(Hardware::Disk));
        assert_eq!(disk(&[("queue/rotational", "0\n")]), Some(Hardware::Solid));
        assert_eq!(disk(&[("size", "8\n")]), None);
    }
}
