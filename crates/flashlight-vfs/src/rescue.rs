//! Rescue: what is left of a volume whose roots or checkpoints are gone.
//!
//! 1. `scan`: each page of the chip is read; of each inode the newest page counts. Where no root tells the volume, the checksums do.
//! 2. `standing`: a directory that is newer than an inode knows whether it is still there, and so does the inode table of a directory.
//!    `tree`: each inode says its name and its directory.
//! 3. `content`: where the pages of a file are. A page of data counts if its spare bytes say that it is this file's.
//! 4. `fs`: what was found as a file system that can only be read.
//!
//! Nothing is ever written. What has no place is in `lost+found`: a directory that is gone as `dir-NUMBER`, an inode whose name cannot be as
//! `inode-NUMBER`. Numbers are those that mounts show.
//!
//! Memory: some 200 bytes and the name for each inode, and 4 bytes for each page of the file that is read.

mod content;
mod fs;
mod scan;
mod standing;
mod tree;

use basalt_flashlight::Identity;
use basalt_nand::NandDevice;
use parking_lot::Mutex;
use serde::Serialize;

use content::Reading;
use tree::Tree;

/// What was found on a volume, as a file system that can only be read.
pub struct Rescued<D> {
    reading: Mutex<Reading<D>>,
    tree: Tree,
    report: RescueReport,
}

/// What a search for files has found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RescueReport {
    /// The volume, if one of its roots can be read.
    #[serde(skip)]
    pub identity: Option<Identity>,
    /// Pages that cannot be read; none of erased ones.
    pub unreadable_pages: u32,
    /// Metadata pages of the volume, old ones included.
    pub metadata_pages: u32,
    /// Inodes that are there.
    pub inodes: u64,
    /// Inodes below `lost+found`, but for deleted ones.
    pub without_place: u64,
    /// Inodes of deleted files and directories.
    pub deleted: u64,
    /// Inodes of which only an older page can be read: content may be older too, and deleted files of such a directory may be back.
    pub outdated: u64,
    /// Files and directories that their directory knows, and of which no inode can be read.
    pub lost: u64,
    /// Directories of which entries cannot be read: deleted files of theirs may be back.
    pub damaged_directories: u64,
}

/// Why there is nothing to rescue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RescueError {
    /// There is no page of an inode on the chip.
    #[error("no file of a FlashLight volume is found")]
    NoInode,
    /// The chip fails.
    #[error("{0}")]
    Chip(#[from] basalt_nand::NandError),
}

impl<D: NandDevice> Rescued<D> {
    /// Searches a chip. This reads every page of it once, and then those of directories. `deleted`: deleted files are found too, in
    /// `lost+found/deleted`. `progress` hears of pages that are done, and of all.
    ///
    /// # Errors
    /// When there is not a single inode, or the chip fails otherwise than by flipped bits.
    pub fn search(mut device: D, deleted: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Rescued<D>, RescueError> {
        let mut report = RescueReport::default();
        let found = scan::scan(&mut device, &mut report, progress)?;
        if found.inodes.is_empty() {
            return Err(RescueError::NoInode);
        }
        let mut reading = Reading::new(device, found.seed);
        let standings = standing::judge(&mut reading, &found, &mut report)?;
        let tree = tree::build(&found.inodes, &standings, deleted, &mut report);
        Ok(Rescued { reading: Mutex::new(reading), tree, report })
    }

    /// What was found, and what was not.
    pub fn report(&self) -> &RescueReport {
        &self.report
    }
}
