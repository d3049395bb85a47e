//! `/dev/fuse`: one read(2) a request, one writev(2) a reply.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
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
                Err(Errno::INTR | Errno::NOENT) => continue,
                // Somebody has opened it so, or let it be so.
                Err(Errno::AGAIN) => match self.wait() {
                    Ok(()) | Err(Errno::INTR) => continue,
                    Err(errno) => Err(ReceiveError::Failed(errno)),
                },
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
    /// Waits for a request, or the end of the connection.
    fn wait(&self) -> rustix::io::Result<()> {
        rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None).map(drop)
    }

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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_descriptor_that_does_not_wait_is_waited_for() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let device = FuseDevice::from(reader);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let received = scope.spawn(move || {
                tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                device.receive(&mut [0; 8])
            });
            let thread = told.recv().unwrap();
            let start = Instant::now();
            // The number of the call in which it sleeps comes first; a read that does not wait is none of those.
            let sleeps = || {
                let line = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
                line.starts_with(|first: char| first.is_ascii_digit())
            };
            while !sleeps() {
                assert!(start.elapsed() < Duration::from_secs(60), "it does not sleep");
                std::thread::sleep(Duration::from_millis(1));
            }
            rustix::io::write(&writer, b"abc").unwrap();
            assert_eq!(received.join().unwrap(), Ok(3));
        });
    }
}
