//! Opening and creating, and every reason why not, in words for the user.

use std::fs::{File, FileType};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use super::{FileDevice, Kind, Lock, direct, early, ioctl, lock};
use crate::block::{DeviceError, Result};

/// Sector size given to image files that are read through the page cache.
const IMAGE_SECTOR: u32 = 512;

/// Alignment assumed for direct I/O on an image file when its file system does not tell.
const UNKNOWN_ALIGNMENT: u32 = 4096;

/// Largest sector size that is believed.
const MAX_SECTOR: u32 = 64 << 10;

/// How to open a [`FileDevice`]. The default: read and write, nobody else, no waiting.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Refuse writes and discards; needs no write permission.
    pub read_only: bool,
    /// Whether to bypass the page cache; by default for block devices only.
    pub direct: Option<bool>,
    /// How far to keep others off.
    pub lock: Lock,
    /// The loop device that the caller attached itself to the image file; any other one counts as somebody else's.
    pub allow_loop: Option<PathBuf>,
    /// Make an image file this many bytes long once it is locked, by a hole at its end or by cutting it off. Block
    /// devices refuse this.
    pub resize: Option<u64>,
}

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<FileDevice> {
    let kind = kind_of(path, std::fs::metadata(path).map_err(|error| refused(path, options, error))?.file_type())?;
    let (file, direct) = open_file(path, kind, options)?;
    let lock::Held { claim, behind } = lock::take(&file, path, kind, options.lock, options.allow_loop.as_deref())?;
    if let Some(size) = options.resize {
        resize(&file, path, kind, size)?;
    }
    let (size, sector_size) = geometry(&file, path, kind, direct)?;
    if !options.read_only && kind == Kind::BlockDevice && ioctl::is_write_protected(&file).unwrap_or(false) {
        return Err(refused(path, options, Errno::ROFS.into()));
    }
    Ok(FileDevice {
        name: path.display().to_string(),
        path: path.to_owned(),
        kind,
        file,
        claim: Mutex::new(claim),
        _behind: behind,
        size,
        sector_size,
        read_only: options.read_only,
        direct,
        can_discard: AtomicBool::new(true),
        bounce: direct::Pool::default(),
        early: early::EarlyWriteback::default(),
        partial_sectors: Mutex::new(()),
    })
}

pub(super) fn create(path: &Path, size: u64) -> Result<FileDevice> {
    let created = File::options().read(true).write(true).create_new(true).open(path);
    created.map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::AlreadyExists => "exists already".to_owned(),
            io::ErrorKind::NotFound => "no such directory".to_owned(),
            io::ErrorKind::PermissionDenied => "no permission to make files there".to_owned(),
            io::ErrorKind::ReadOnlyFilesystem => "the file system there is read-only".to_owned(),
            _ => format!("cannot be made: {error}"),
        };
        open_error(path, reason, Some(error))
    })?;
    let device = open(path, &OpenOptions { resize: Some(size), ..OpenOptions::default() });
    if device.is_err() {
        // It was made above and is of no use. That it cannot be opened is what the caller needs to know.
        let _ = std::fs::remove_file(path);
    }
    device
}

fn kind_of(path: &Path, file_type: FileType) -> Result<Kind> {
    let what = if file_type.is_file() {
        return Ok(Kind::Image);
    } else if file_type.is_block_device() {
        return Ok(Kind::BlockDevice);
    } else if file_type.is_dir() {
        "a directory"
    } else if file_type.is_char_device() {
        "a character device"
    } else if file_type.is_fifo() {
        "a named pipe"
    } else {
        "a socket"
    };
    Err(open_error(path, format!("is {what}, not an image file or block device"), None))
}

/// Opens the file; returns whether with direct I/O.
fn open_file(path: &Path, kind: Kind, options: &OpenOptions) -> Result<(File, bool)> {
    let open = |direct: bool| {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        // The flag's bits are far below the sign bit.
        File::options().read(true).write(!options.read_only).custom_flags(flags.bits() as i32).open(path)
    };
    let direct = options.direct.unwrap_or(kind == Kind::BlockDevice);
    let (file, direct) = match open(direct) {
        Err(error) if direct && Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            if options.direct.is_some() {
                return Err(open_error(path, "does not support direct I/O".to_owned(), Some(error)));
            }
            (open(false), false)
        }
        opened => (opened, direct),
    };
    let file = file.map_err(|error| refused(path, options, error))?;
    // The path may have been replaced since it was looked at.
    let opened = file.metadata().map_err(|error| refused(path, options, error))?;
    if kind_of(path, opened.file_type())? != kind {
        return Err(open_error(path, "was replaced while being opened".to_owned(), None));
    }
    Ok((file, direct))
}

fn resize(file: &File, path: &Path, kind: Kind, size: u64) -> Result<()> {
    if kind == Kind::BlockDevice {
        return Err(open_error(path, "is a block device; its size cannot be set".to_owned(), None));
    }
    file.set_len(size).map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => {
                format!("the file system there cannot hold a file of {size} bytes")
            }
            _ => format!("cannot be made {size} bytes long: {error}"),
        };
        open_error(path, reason, Some(error))
    })
}

/// Size and sector size in bytes.
fn geometry(file: &File, path: &Path, kind: Kind, direct: bool) -> Result<(u64, u32)> {
    let unknown = |error: io::Error| open_error(path, format!("its size cannot be found out: {error}"), Some(error));
    let (size, sector_size) = match kind {
        Kind::BlockDevice => {
            let size = ioctl::size(file).map_err(|error| unknown(error.into()))?;
            (size, ioctl::sector_size(file).map_err(|error| unknown(error.into()))?)
        }
        Kind::Image => {
            let size = file.metadata().map_err(unknown)?.len();
            (size, if direct { direct_alignment(file) } else { IMAGE_SECTOR })
        }
    };
    let problem = if size == 0 && kind == Kind::BlockDevice {
        "has size 0 (no medium, or a loop device without a file)".to_owned()
    } else if size == 0 {
        "is empty".to_owned()
    } else if !sector_size.is_power_of_two() || !(512..=MAX_SECTOR).contains(&sector_size) {
        format!("has sectors of {sector_size} bytes, which no supported device has")
    } else if direct && !size.is_multiple_of(u64::from(sector_size)) {
        format!("direct I/O needs a size that is a multiple of {sector_size} bytes, not {size}")
    } else {
        return Ok((size, sector_size));
    };
    Err(open_error(path, problem, None))
}

/// The alignment that direct I/O on an image file needs, in memory and in the file.
fn direct_alignment(file: &File) -> u32 {
    match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if stat.stx_dio_offset_align > 0 => {
            stat.stx_dio_offset_align.max(stat.stx_dio_mem_align).max(IMAGE_SECTOR)
        }
        _ => UNKNOWN_ALIGNMENT,
    }
}

/// Puts into words why the operating system did not open `path`.
fn refused(path: &Path, options: &OpenOptions, error: io::Error) -> DeviceError {
    let reason = match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR) => "no such file or device".to_owned(),
        Some(Errno::ACCESS | Errno::PERM) if options.read_only => "no permission to read it".to_owned(),
        Some(Errno::ACCESS | Errno::PERM) => "no permission to read and write it".to_owned(),
        Some(Errno::ROFS) => "write-protected; it can only be opened read-only".to_owned(),
        Some(Errno::NOMEDIUM) => "no medium in the drive".to_owned(),
        Some(Errno::NXIO | Errno::NODEV) => "no device behind this device file".to_owned(),
        _ => format!("cannot be opened: {error}"),
    };
    open_error(path, reason, Some(error))
}

fn open_error(path: &Path, reason: String, source: Option<io::Error>) -> DeviceError {
    DeviceError::Open { name: path.display().to_string(), reason, source }
}
