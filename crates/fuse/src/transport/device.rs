//! `/dev/fuse`: one read(2) a request, one writev(2) a reply.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{ReceiveError, SendError, Transport};

/// An open `/dev/fuse` that is connected to a mount.
#[derive(Debug)]
pub struct FuseDevice(OwnedFd);

/// The descriptor that mount(2) was given, or that `fusermount3` handed over.
impl From<OwnedFd> for FuseDevice {
    fn from(descriptor: OwnedFd) -> Self {
        FuseDevice(descriptor)
    }
}

impl Transport for FuseDevice {
    const NAME: &'static str = "/dev/fuse";

    fn receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        loop {
            return match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => Ok(len),
                // NOENT: the caller was interrupted before the request was taken.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(Errno::NODEV) => Err(ReceiveError::Unmounted),
                Err(Errno::CONNABORTED) => Err(ReceiveError::Aborted),
                Err(errno) => Err(ReceiveError::Failed(errno)),
            };
        }
    }

    fn send(&self, header: &[u8], payload: &[u8]) -> Result<(), SendError> {
        match rustix::io::writev(&self.0, &[IoSlice::new(header), IoSlice::new(payload)]) {
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => Err(SendError::NotWanted),
            Err(Errno::NODEV) => Err(SendError::Unmounted),
            Err(errno) => Err(SendError::Failed(errno)),
        }
    }

    /// `None` where the kernel or the rights of `/dev/fuse` do not allow that.
    fn channel(&self) -> Option<Self> {
        let clone = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        self.connect(&clone).ok()?;
        Some(FuseDevice(clone))
    }
}

impl FuseDevice {
    /// Connects a newly opened `/dev/fuse` to this connection.
    #[allow(unsafe_code)]
    fn connect(&self, clone: &OwnedFd) -> rustix::io::Result<()> {
        /// `FUSE_DEV_IOC_CLONE`.
        const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
        // Descriptors are not negative.
        let number = self.0.as_fd().as_raw_fd() as u32;
        // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, a descriptor number, through its argument and writes nothing.
        unsafe { rustix::ioctl::ioctl(clone, rustix::ioctl::Setter::<CLONE, u32>::new(number)) }
    }
}
