//! Loop devices: a block device's name for an image file, as `mount -o loop` attaches one. Linux and root only.
//!
//! The numbers and structures are those of `linux/loop.h`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, ioctl};

use crate::block::{DeviceError, Result};

const LOOP_GET_STATUS64: Opcode = 0x4C05;
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// The sectors of a loop device, in bytes: what every image's size is a multiple of.
const SECTOR: u32 = 512;

/// How often to ask for another free device when somebody else takes the one found.
const ATTEMPTS: u32 = 100;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

/// A loop device over an image file. The kernel detaches it when nobody has it open any more: neither this value, nor a mount.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// Keeps the device attached until the mount has it.
    _open: File,
}

impl LoopDevice {
    /// Attaches the next free loop device to `image`. The device takes no part in any lock on the image.
    ///
    /// # Errors
    /// [`DeviceError::Open`], with the words of the operating system: no loop devices here, no right to use them, or no such
    /// image.
    pub fn attach(image: &Path, read_only: bool) -> Result<LoopDevice> {
        let failed = |path: &Path, doing: &str, errno: Errno| DeviceError::Open {
            name: path.display().to_string(),
            reason: format!("{doing}: {errno}"),
            source: Some(errno.into()),
        };
        let control_path = Path::new("/dev/loop-control");
        let control = open(control_path, false)
            .map_err(|errno| failed(control_path, "loop devices cannot be attached", errno))?;
        let backing = open(image, read_only).map_err(|errno| failed(image, "cannot be opened", errno))?;
        for _ in 0..ATTEMPTS {
            let number = free_number(&control).map_err(|errno| failed(control_path, "no free loop device", errno))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open(&path, read_only).map_err(|errno| failed(&path, "cannot be opened", errno))?;
            match configure(&device, &backing, image, read_only) {
                Ok(()) => return Ok(LoopDevice { path, _open: device }),
                // Somebody was faster.
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(failed(image, &format!("cannot be attached to {}", path.display()), errno)),
            }
        }
        Err(failed(control_path, "no free loop device stays free", Errno::BUSY))
    }

    /// The device's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn open(path: &Path, read_only: bool) -> rustix::io::Result<File> {
    let opened = File::options().read(true).write(!read_only).open(path);
    opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// What a loop device is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// Device number of the file system that the file is on.
    pub(crate) device: u64,
    /// The file's inode number there.
    pub(crate) inode: u64,
    /// Where the file is a device node: the number of that device; else 0.
    pub(crate) rdevice: u64,
}

/// Asks a loop device what it is attached to; `ENXIO` where that is nothing.
#[allow(unsafe_code)]
pub(crate) fn status(device: &File) -> rustix::io::Result<Status> {
    // SAFETY: LOOP_GET_STATUS64 stores one `struct loop_info64`, laid out as above, behind its argument.
    let info = unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }?;
    // Major and minor are packed as in the first 32 bits of a dev_t (`huge_encode_dev`).
    Ok(Status { device: info.device, inode: info.inode, rdevice: info.rdevice })
}

/// `LOOP_CTL_GET_FREE`: the number is the call's own result.
struct GetFree;

// SAFETY: LOOP_CTL_GET_FREE has no argument, and the kernel touches no memory of this process.
#[allow(unsafe_code)]
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| Errno::NODEV)
    }
}

#[allow(unsafe_code)]
fn free_number(control: &File) -> rustix::io::Result<u32> {
    // SAFETY: as said at `GetFree`.
    unsafe { ioctl(control, GetFree) }
}

#[allow(unsafe_code)]
fn configure(device: &File, backing: &File, image: &Path, read_only: bool) -> rustix::io::Result<()> {
    // Shown by old tools only; the kernel itself knows the whole path. One zero byte stays at the end.
    let mut file_name = [0; 64];
    let name = image.as_os_str().as_bytes();
    let shown = name.len().min(file_name.len() - 1);
    file_name[..shown].copy_from_slice(&name[..shown]);
    let config = LoopConfig {
        // Descriptors are never negative.
        fd: backing.as_raw_fd().unsigned_abs(),
        block_size: SECTOR,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR | if read_only { LO_FLAGS_READ_ONLY } else { 0 },
            file_name,
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, laid out as above, behind its argument.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attached_until_dropped() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: needs root and loop devices");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(1 << 20).unwrap();

        let device = LoopDevice::attach(&image, false).unwrap();
        let other = LoopDevice::attach(&image, true).unwrap();
        assert_ne!(device.path(), other.path());
        let name = device.path().file_name().unwrap().to_str().unwrap();
        let backing = PathBuf::from(format!("/sys/block/{name}/loop/backing_file"));
        let shown = std::fs::read_to_string(&backing).unwrap();
        assert_eq!(Path::new(shown.trim_end()), image.canonicalize().unwrap());
        drop(device);
        // A program that looks at new devices may have had it open for a moment.
        let gone = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !backing.exists()
        });
        assert!(gone);

        let missing = LoopDevice::attach(Path::new("/nonexistent/image"), false).unwrap_err();
        assert!(missing.to_string().starts_with("/nonexistent/image: cannot be opened"), "{missing}");
    }
}
