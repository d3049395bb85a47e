//! Loop devices that detach themselves. Root only.

use std::path::{Path, PathBuf};

use crate::command::run;
use crate::error::Result;

/// A loop device over an image file; detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches the next free loop device, with sectors of 512 bytes.
    ///
    /// # Errors
    /// When `losetup` fails: no root, no free device, no file.
    pub fn attach(image: &Path) -> Result<LoopDevice> {
        LoopDevice::attach_with(image, &[])
    }

    /// Attaches with additional `losetup` arguments, for example `["--sector-size", "4096"]` or `["--read-only"]`.
    ///
    /// # Errors
    /// As [`LoopDevice::attach`].
    pub fn attach_with(image: &Path, arguments: &[&str]) -> Result<LoopDevice> {
        let all = arguments.iter().chain(&["--find", "--show"]).map(|word| (*word).as_ref());
        let finished = run("losetup", all.chain([image.as_os_str()]))?.success()?;
        Ok(LoopDevice { path: finished.output.trim().into() })
    }

    /// The device's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A device that is still mounted is detached by the kernel at its last close; nothing better can be done here.
        let _ = run("losetup", ["--detach".as_ref(), self.path.as_os_str()]);
    }
}
