//! From a target to an open volume, and back to a clean one.

use std::path::PathBuf;
use std::sync::Arc;

use basalt_device::FileDevice;
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Engine, FileSystem};

use super::flashlight::{self, Changes};
use crate::failure::Failure;
use crate::mount::flash_page_of;
use crate::output::tell;
use crate::target::Target;

/// A volume that this command has open.
pub struct OpenVolume {
    engine: Box<dyn Engine>,
    /// What the user called it.
    pub target: PathBuf,
}

/// Opens a volume to look at it; others may look at the same time.
///
/// # Errors
/// When the target is no device, in use, or holds no volume that can be read.
pub fn open_to_read(target: &Target) -> Result<OpenVolume, Failure> {
    let device = target.open_shared()?;
    let volume = open(target, device, OpenOptions { read_only: true, ..OpenOptions::default() })?;
    volume.warn();
    Ok(volume)
}

/// Opens a volume to change it.
///
/// # Errors
/// When the target is no device, in use, or holds no volume that can be written.
pub fn open_to_write(target: &Target) -> Result<OpenVolume, Failure> {
    let device = target.open_exclusive()?;
    // Whether all of it is there or nothing new is told by the exit code: flushes on the way gain nothing.
    let defaults = OpenOptions::default();
    let flash_page = flash_page_of(&device);
    let options = OpenOptions { commit_interval: defaults.checkpoint_interval, flash_page, ..defaults };
    let volume = open(target, device, options)?;
    if volume.engine.is_writable() {
        volume.warn();
        return Ok(volume);
    }
    let reasons = volume.engine.warnings().join("; ");
    Err(Failure::at(target.path.display(), format_args!("cannot be changed: {reasons}")))
}

fn open(target: &Target, device: FileDevice, options: OpenOptions) -> Result<OpenVolume, Failure> {
    let path = &target.path;
    let engine: Box<dyn Engine> = match flashlight::detect_whole(&device)? {
        Some(shape) => {
            let changes = if options.read_only { Changes::Dropped } else { Changes::Kept };
            Box::new(flashlight::open(path, Arc::new(device), shape, changes)?)
        }
        None => {
            let opened = F2fs::open(Arc::new(device), options, Arc::new(SystemClock));
            Box::new(opened.map_err(|error| Failure::volume(path, &error))?)
        }
    };
    Ok(OpenVolume { engine, target: path.clone() })
}

impl OpenVolume {
    /// Its files.
    pub fn files(&self) -> &dyn FileSystem {
        &*self.engine
    }

    /// Says what was unusual.
    fn warn(&self) {
        for warning in self.engine.warnings() {
            tell(format_args!("basalt: {}: {warning}", self.target.display()));
        }
    }

    /// Writes everything back; the volume is clean then.
    ///
    /// # Errors
    /// When the device fails.
    pub fn close(self) -> Result<(), Failure> {
        self.engine.close().map_err(|error| Failure::at(self.target.display(), error))
    }
}
