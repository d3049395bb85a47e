//! The whole volume: closing, checking, opening again, comparing everything.

use std::fs::File;
use std::os::unix::fs::FileExt;

use basalt_device::BlockDevice;
use basalt_f2fs::check::{CheckOptions, Severity, check};
use basalt_testkit::hash::Hasher;
use basalt_vfs::{FileKind, FileSystem};

use super::{Outcome, World, failed};

/// Bytes of the device looked at in one go; every volume is a multiple.
const PIECE: usize = 1 << 20;

impl World {
    /// Closes the volume, checks it, opens it again and compares everything.
    pub fn reopen(&mut self) -> Outcome<()> {
        self.close()?;
        self.check_volume()?;
        self.open()?;
        self.same_tree()
    }

    /// Closes the volume.
    pub fn close(&mut self) -> Outcome<()> {
        self.fs.close().map_err(failed("close"))?;
        self.model.end_references();
        Ok(())
    }

    /// Leaves the volume as if the power had gone, and opens it again.
    pub fn crash(&mut self) -> Outcome<()> {
        // What is not closed writes nothing when it goes.
        self.fs =
            self.shape.open(self.through.clone(), &self.clock).map_err(|error| format!("after a crash: {error}"))?;
        Ok(())
    }

    /// Opens the volume that was closed.
    pub fn open(&mut self) -> Outcome<()> {
        self.fs = self.shape.open(self.through.clone(), &self.clock).map_err(|error| format!("open again: {error}"))?;
        let warnings = self.fs.warnings();
        if warnings.is_empty() { Ok(()) } else { Err(format!("warnings on opening again: {warnings:?}")) }
    }

    /// Checks the closed volume, and that it holds as many inodes as the model.
    pub fn check_volume(&self) -> Outcome<()> {
        let report =
            check(&*self.device, &CheckOptions { max_faults: 8 }, &mut |_| {}).map_err(|e| format!("check: {e}"))?;
        let faults: Vec<String> = report
            .faults
            .iter()
            .filter(|fault| fault.severity != Severity::Note)
            .map(|fault| fault.to_string())
            .collect();
        if !faults.is_empty() {
            return Err(format!("the volume is damaged:\n  {}", faults.join("\n  ")));
        }
        let count = |kind: FileKind| self.model.select(|inode| inode.attributes.kind == kind).len() as u64;
        let (files, directories) = (count(FileKind::Regular), count(FileKind::Directory));
        let counts = report.counts;
        if (counts.files, counts.directories, counts.inodes()) != (files, directories, self.model.inodes.len() as u64) {
            return Err(format!(
                "{counts:?}, expected {files} files and {directories} directories, {} in all",
                self.model.inodes.len()
            ));
        }
        Ok(())
    }

    /// Has `fsck.f2fs` check the closed volume.
    pub fn fsck(&self) -> Outcome<()> {
        let scratch = basalt_testkit::scratch::directory().map_err(|error| error.to_string())?;
        let path = scratch.path().join("volume.img");
        let image = File::create(&path).map_err(|error| error.to_string())?;
        image.set_len(self.device.size()).map_err(|error| error.to_string())?;
        self.each_piece(|offset, piece| {
            let empty = piece.iter().all(|&byte| byte == 0);
            if empty { Ok(()) } else { image.write_all_at(piece, offset).map_err(|error| error.to_string()) }
        })?;
        let report = basalt_testkit::images::fsck_f2fs(&path).map_err(|error| error.to_string())?;
        if report.is_clean() { Ok(()) } else { Err(report.to_string()) }
    }

    /// A hash of everything on the device.
    pub fn hash(&self) -> Outcome<u64> {
        let mut hasher = Hasher::new();
        self.each_piece(|_, piece| {
            hasher.update(piece);
            Ok(())
        })?;
        Ok(hasher.finish())
    }

    fn each_piece(&self, mut work: impl FnMut(u64, &[u8]) -> Outcome<()>) -> Outcome<()> {
        let mut piece = vec![0; PIECE];
        for offset in (0..self.device.size()).step_by(PIECE) {
            self.device.read_at(offset, &mut piece).map_err(|error| error.to_string())?;
            work(offset, &piece)?;
        }
        Ok(())
    }
}
