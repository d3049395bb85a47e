//! Mounting as root: mount(2), with device nodes and set-uid as the options say.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::{MountError, MountOptions, SUBTYPE};

/// `S_IFDIR`: the kind of every root. Its permissions come with the first GETATTR.
const ROOT_MODE: u32 = 0o040_000;

/// Mounts on `path`; returns the connection.
pub(super) fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(open_error)?;
    let kind = format!("{}.{SUBTYPE}", if options.block_device.is_some() { "fuseblk" } else { "fuse" });
    let source = match &options.block_device {
        Some(device) => device.as_path(),
        None => Path::new(&options.source),
    };
    let data = CString::new(data(&device, options)).map_err(|_| MountError::device(Errno::INVAL))?;
    rustix::mount::mount(source, path, kind.as_str(), flags(options), data.as_c_str()).map_err(
        |errno| match errno {
            Errno::NODEV => MountError::NoFuse,
            errno => MountError::Refused {
                source_name: source.display().to_string(),
                path: path.to_path_buf(),
                kind: kind.clone(),
                errno,
            },
        },
    )?;
    Ok(device)
}

fn open_error(errno: Errno) -> MountError {
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoFuse,
        errno => MountError::device(errno),
    }
}

/// The options that FUSE itself reads.
fn data(device: &OwnedFd, options: &MountOptions) -> String {
    let mut words = vec![
        format!("fd={}", device.as_raw_fd()),
        format!("rootmode={ROOT_MODE:o}"),
        format!("user_id={}", rustix::process::geteuid().as_raw()),
        format!("group_id={}", rustix::process::getegid().as_raw()),
    ];
    words.extend(options.common_words());
    if options.block_device.is_some() {
        words.push(format!("blksize={}", options.block_size));
    }
    words.join(",")
}

fn flags(options: &MountOptions) -> MountFlags {
    let choices = [
        (options.read_only, MountFlags::RDONLY),
        (options.noatime, MountFlags::NOATIME),
        (options.nodiratime, MountFlags::NODIRATIME),
        (options.relatime, MountFlags::RELATIME),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.sync, MountFlags::SYNCHRONOUS),
        (options.dirsync, MountFlags::DIRSYNC),
    ];
    choices.into_iter().filter_map(|(chosen, flag)| chosen.then_some(flag)).collect()
}
