//! What is left of an F2FS volume.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use basalt_device::FileDevice;
use basalt_f2fs::SystemClock;
use basalt_f2fs::rescue::{RescueOptions, RescueStage, Rescued, TableState};
use basalt_vfs::{FileSystem, InodeNumber};

use super::{Args, Search};
use crate::failure::{Failure, one_line};
use crate::progress::{Progress, Unit};
use crate::size::human;

/// Names without a file that are shown.
const SHOWN: usize = 1000;

/// Searches an F2FS volume.
///
/// # Errors
/// There is no node, or the device fails.
pub(super) fn search(args: &Args, device: FileDevice) -> Result<Box<dyn Search>, Failure> {
    let options = RescueOptions { deleted: args.deleted, nodes_only: args.nodes_only, main_block: args.main_block };
    let mut bar: Option<(RescueStage, Progress)> = None;
    let found = Rescued::open(Arc::new(device), &options, Arc::new(SystemClock), &mut |progress| {
        if bar.as_ref().is_none_or(|(stage, _)| *stage != progress.stage) {
            let label = match progress.stage {
                RescueStage::Nodes => "searching segments",
                RescueStage::Names => "reading inodes",
            };
            // The old bar goes before the new one comes.
            bar = None;
            bar = Some((progress.stage, Progress::new(label, Unit::Things, args.quiet)));
        }
        if let Some((_, bar)) = &mut bar {
            bar.update(progress.done, progress.total);
        }
    })
    .map_err(|error| match error {
        basalt_f2fs::Error::NotF2fs { .. } => Failure::new(error).hint("the search found no file"),
        error => Failure::volume(&args.target.path, &error),
    })?;
    Ok(Box::new(found))
}

impl Search for Rescued {
    fn files(&self) -> &dyn FileSystem {
        self
    }

    fn missing_until(&self, ino: InodeNumber, offset: u64) -> Option<u64> {
        self.missing_until(ino, offset)
    }

    fn lost_ranges(&self, ino: InodeNumber) -> basalt_vfs::Result<Vec<Range<u64>>> {
        self.lost_ranges(ino)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::to_value(self.report()).unwrap_or_default()
    }

    fn lines(&self, path: &Path) -> Vec<String> {
        let (search, path) = (self.report(), path.display());
        let table = |state| match state {
            TableState::Whole => "whole",
            TableState::Partial => "damaged",
            TableState::Gone => "gone",
        };
        let mut lines: Vec<String> = search.notes.iter().map(|note| format!("note: {}", one_line(note))).collect();
        let checkpoint =
            search.checkpoint.map_or("no checkpoint".to_owned(), |version| format!("checkpoint {version}"));
        let source = format!("{:?}", search.geometry).to_lowercase();
        lines.push(format!(
            "{path}: layout from {source}, {checkpoint}, NAT {}, SIT {}; {} node blocks, {} nodes in use",
            table(search.nat),
            table(search.sit),
            search.node_blocks,
            search.nodes
        ));
        if search.truncated_bytes > 0 {
            lines.push(format!("{path}: truncated: {} of the volume are missing", human(search.truncated_bytes)));
        }
        if search.unreadable_bytes > 0 {
            lines.push(format!("{path}: {} could not be read", human(search.unreadable_bytes)));
            let ranges = search.unreadable.iter().take(20);
            lines.extend(ranges.map(|range| format!("  {} bytes at {}", range.length, range.offset)));
        }
        lines.push(format!(
            "{} inodes: {} named, {} placed by their inode, {} in lost+found; {} deleted; {} directories damaged",
            search.inodes,
            search.named,
            search.placed_by_inode,
            search.without_place,
            search.deleted,
            search.damaged_directories
        ));
        lines
    }

    fn lost(&self) -> Vec<String> {
        let lost = self.report().lost.iter().take(SHOWN);
        lost.map(|lost| {
            let name = one_line(&lost.name);
            format!("lost: `{name}` in directory {}: inode {} is gone", lost.directory, lost.ino)
        })
        .collect()
    }

    fn lost_names(&self) -> u64 {
        self.report().lost_names
    }

    fn is_whole(&self) -> bool {
        let report = self.report();
        report.lost_names == 0 && report.lost_nodes == 0
    }
}
