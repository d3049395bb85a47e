//! What is left of a FlashLight volume.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice};
use basalt_flashlight_vfs::{RescueError, RescueReport, Rescued, label_text, uuid_text};
use basalt_nand::Geometry;
use basalt_vfs::{FileSystem, InodeNumber};
use serde::Serialize;

use super::{Args, Search};
use crate::failure::{Failure, one_line};
use crate::progress::{Progress, Unit};
use crate::size::human;
use crate::volume::flashlight::{ImageChip, chip_that_may_be_cut_off};

/// What was found, and on what.
struct Found {
    rescued: Rescued<ImageChip>,
    /// Bytes that the image has fewer than the chip.
    truncated_bytes: u64,
}

/// The report for programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    uuid: Option<String>,
    label: Option<String>,
    truncated_bytes: u64,
    #[serde(flatten)]
    found: &'a RescueReport,
}

/// Searches a FlashLight volume on a chip of that shape.
///
/// # Errors
/// There is no inode, or the image cannot be read.
pub(super) fn search(args: &Args, device: FileDevice, shape: Geometry) -> Result<Box<dyn Search>, Failure> {
    let path = &args.target.path;
    if args.nodes_only || args.main_block.is_some() {
        return Err(Failure::usage(format_args!("{}: holds a FlashLight volume, which has no nodes", path.display()))
            .hint("--nodes-only and --main-block are for F2FS volumes"));
    }
    let truncated_bytes = shape.raw_bytes().saturating_sub(device.size());
    let chip = chip_that_may_be_cut_off(Arc::new(device), shape)?;
    let mut bar = Progress::new("searching pages", Unit::Things, args.quiet);
    let rescued = Rescued::search(chip, args.deleted, &mut |done, total| bar.update(done, total));
    drop(bar);
    let rescued = rescued.map_err(|error| {
        let failure = Failure::at(path.display(), &error);
        if error == RescueError::NoInode {
            failure.hint("is it an image of such a chip? --nand CHIP says of which")
        } else {
            failure
        }
    })?;
    Ok(Box::new(Found { rescued, truncated_bytes }))
}

impl Search for Found {
    fn files(&self) -> &dyn FileSystem {
        &self.rescued
    }

    fn missing_until(&self, ino: InodeNumber, offset: u64) -> Option<u64> {
        self.rescued.missing_until(ino, offset)
    }

    fn lost_ranges(&self, ino: InodeNumber) -> basalt_vfs::Result<Vec<Range<u64>>> {
        self.rescued.lost_ranges(ino)
    }

    fn json(&self) -> serde_json::Value {
        let found = self.rescued.report();
        let (uuid, label) = (found.identity.as_ref().map(uuid_text), found.identity.as_ref().map(label_text));
        let document = Document { uuid, label, truncated_bytes: self.truncated_bytes, found };
        serde_json::to_value(document).unwrap_or_default()
    }

    fn lines(&self, path: &Path) -> Vec<String> {
        let (found, path) = (self.rescued.report(), path.display());
        let volume = match &found.identity {
            Some(identity) => {
                format!("volume {} `{}`", uuid_text(identity), one_line(&label_text(identity)))
            }
            None => "no root can be read: the volume is told by its checksums".to_owned(),
        };
        let mut lines = vec![format!(
            "{path}: {volume}; {} pages of metadata, {} pages cannot be read",
            found.metadata_pages, found.unreadable_pages
        )];
        if self.truncated_bytes > 0 {
            lines.push(format!("{path}: truncated: {} of the chip are missing", human(self.truncated_bytes)));
        }
        lines.push(format!(
            "{} inodes: {} in lost+found; {} deleted; {} older than they were at last; {} directories damaged",
            found.inodes, found.without_place, found.deleted, found.outdated, found.damaged_directories
        ));
        lines
    }

    /// A file's name is in its inode only.
    fn lost(&self) -> Vec<String> {
        Vec::new()
    }

    fn lost_names(&self) -> u64 {
        self.rescued.report().lost
    }

    fn is_whole(&self) -> bool {
        let found = self.rescued.report();
        // What the missing part of an image had is not known.
        let is_cut_off = self.truncated_bytes > 0;
        !is_cut_off && (found.lost, found.outdated, found.damaged_directories, found.without_place) == (0, 0, 0, 0)
    }
}
