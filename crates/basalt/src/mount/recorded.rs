//! The device of a mount, recorded or not.

use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice};
use basalt_traces::{RecordOptions, Recorder, ZeroingDevice};
use rustix::fs::SeekFrom;

use crate::failure::Failure;

/// What a volume is on.
#[derive(Clone)]
pub(crate) enum Device {
    /// The device itself.
    Plain(Arc<FileDevice>),
    /// The device behind a recorder of its requests.
    Recorded(Arc<Recorder<ZeroingDevice>>),
}

impl Device {
    /// The device, recorded from now on in the directory, if one is given.
    pub(crate) fn new(file: FileDevice, record: Option<&Path>) -> Result<Device, Failure> {
        match record {
            None => Ok(Device::Plain(Arc::new(file))),
            Some(directory) => Ok(Device::Recorded(Arc::new(recorder(file, directory, true)?))),
        }
    }

    /// What the engine reads and writes.
    pub(crate) fn block_device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Device::Plain(device) => device.clone(),
            Device::Recorded(device) => device.clone(),
        }
    }

    /// The file or device itself.
    pub(crate) fn file(&self) -> &FileDevice {
        match self {
            Device::Plain(device) => device,
            Device::Recorded(device) => device.inner().inner(),
        }
    }

    /// Ends the recording, if there is one: it is complete then.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        match self {
            Device::Plain(_) => Ok(()),
            Device::Recorded(device) => device.finish().map(drop).map_err(Failure::new),
        }
    }

    /// Removes the recording of what never was mounted.
    pub(crate) fn abandon(&self) {
        if let Device::Recorded(device) = self {
            device.abandon();
        }
    }
}

/// Begins a recording. Discarded ranges will read as zeros, so that a replay gives the same content byte for byte.
pub(crate) fn recorder(file: FileDevice, directory: &Path, content: bool) -> Result<Recorder<ZeroingDevice>, Failure> {
    let initial_content = if is_all_hole(&file) {
        ZEROS.to_owned()
    } else {
        format!("what {} held before; a replay begins with a copy of that", file.name())
    };
    let options = RecordOptions { content, initial_content, discards_read_zeros: true, ..RecordOptions::default() };
    Recorder::create(ZeroingDevice::new(file), directory, options).map_err(Failure::new)
}

/// The initial content of a device that holds nothing.
pub(crate) const ZEROS: &str = "zeros";

/// Whether an image file has no data at all.
fn is_all_hole(file: &FileDevice) -> bool {
    !file.is_block_device() && rustix::fs::seek(file, SeekFrom::Data(0)) == Err(rustix::io::Errno::NXIO)
}
