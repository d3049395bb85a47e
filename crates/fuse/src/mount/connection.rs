//! The kernel's control file of a FUSE connection, by which it is aborted, also when its server hangs or is gone.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where the control files are, if somebody has mounted `fusectl`.
const USUAL: &str = "/sys/fs/fuse/connections";

/// The connection of a mount. As long as this is held, it is the same one: its number may be another's later.
#[derive(Debug)]
pub struct Connection(File);

impl Connection {
    /// The connection of what is mounted with this device number, `major:minor` in decimal, as in `/proc/self/mountinfo`. Root mounts
    /// `fusectl` for that, where nobody else sees it; others need it on `/sys/fs/fuse/connections`. The mount is not looked at.
    ///
    /// # Errors
    /// `NOENT`: there is no such connection, or `fusectl` is not mounted and the caller is not root. `ACCESS`: the connection belongs to another
    /// user.
    pub fn of(device_number: &str) -> Result<Connection, Errno> {
        let file = format!("{}/abort", connection_number(device_number).ok_or(Errno::INVAL)?);
        open(CWD, &Path::new(USUAL).join(&file))
            .or_else(|errno| open(&control().map_err(|_| errno)?, Path::new(&file)))
            .map(|file| Connection(file.into()))
    }

    /// Aborts it: whoever waits for the server gets an error, and so does every access from then on. Nothing is lost that the server had
    /// taken; what it had not is lost. Does nothing to a connection that has ended.
    ///
    /// # Errors
    /// When the kernel refuses, for which there is no reason known.
    pub fn abort(&self) -> std::io::Result<()> {
        (&self.0).write_all(b"1")
    }
}

/// Its control file: whoever writes to it, aborts the connection.
impl From<Connection> for File {
    fn from(connection: Connection) -> File {
        connection.0
    }
}

/// Whoever has the control file, such as a process that was started with it.
impl From<OwnedFd> for Connection {
    fn from(control: OwnedFd) -> Connection {
        Connection(control.into())
    }
}

fn open(directory: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The root of `fusectl`, mounted nowhere.
fn control() -> Result<OwnedFd, Errno> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// The kernel's own form of a device number, as `fusectl` has it: twenty bits of minor.
fn connection_number(device_number: &str) -> Option<u32> {
    let (major, minor) = device_number.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_the_numbers_of_devices() {
        assert_eq!(connection_number("0:51"), Some(51));
        assert_eq!(connection_number("7:1"), Some(7_340_033));
        for wrong in ["", "7", "7:", "-1:0", "4096:0", "0:1048576", "0:1:2"] {
            assert_eq!(connection_number(wrong), None, "{wrong}");
        }
        assert_eq!(Connection::of("nonsense").unwrap_err(), Errno::INVAL);
    }
}
