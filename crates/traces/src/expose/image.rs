//! A file system with one file, `image`, whose content is a block device.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use basalt_device::{BlockDevice, DeviceError};
use basalt_vfs::{
    Attributes, Background, Caller, DirectoryEntry, Error, FallocateMode, FileKind, FileSystem, InodeFlags,
    InodeNumber, NewNode, OpenFlags, RenameFlags, Result, Seek, SetAttributes, StatFs, Time, XattrFlags,
};

/// The name of the file.
pub const IMAGE_NAME: &str = "image";

const ROOT: InodeNumber = 1;
const IMAGE: InodeNumber = 2;

/// Zeros are written in pieces of this many bytes.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Shows a device as the file `image`, readable and writable by its owner only, whose size never changes.
///
/// fsync flushes the device, a punched hole is a discard. **A punched hole reads as zeros**, so the device's
/// [discards must leave zeros](crate::ZeroingDevice).
pub struct ImageFile {
    device: Arc<dyn BlockDevice>,
    started: Time,
    uid: u32,
    gid: u32,
}

impl ImageFile {
    /// Shows this device.
    pub fn new(device: Arc<dyn BlockDevice>) -> ImageFile {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ImageFile {
            device,
            started: Time { seconds: i64::try_from(now.as_secs()).unwrap_or(0), nanoseconds: now.subsec_nanos() },
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// The device.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn stat(&self, ino: InodeNumber) -> Result<Attributes> {
        let (kind, permissions, links, size) = match ino {
            ROOT => (FileKind::Directory, 0o755, 2, 0),
            IMAGE if self.device.is_read_only() => (FileKind::Regular, 0o400, 1, self.device.size()),
            IMAGE => (FileKind::Regular, 0o600, 1, self.device.size()),
            _ => return Err(Error::Stale),
        };
        Ok(Attributes {
            ino,
            generation: 0,
            kind,
            permissions,
            links,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            size,
            sectors: size / 512,
            atime: self.started,
            mtime: self.started,
            ctime: self.started,
            crtime: None,
            flags: InodeFlags::empty(),
            project_id: 0,
        })
    }

    fn is_image(ino: InodeNumber) -> Result<()> {
        match ino {
            IMAGE => Ok(()),
            ROOT => Err(Error::IsDirectory),
            _ => Err(Error::Stale),
        }
    }

    /// Fails unless the range is one that may be changed.
    fn check_change(&self, ino: InodeNumber, offset: u64, length: u64) -> Result<()> {
        Self::is_image(ino)?;
        if self.device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.device.size() => Ok(()),
            _ => Err(Error::NoSpace),
        }
    }

    fn write_zeros(&self, offset: u64, length: u64) -> Result<()> {
        let mut at = offset;
        while at < offset + length {
            // At most the length of the array.
            let piece = (offset + length - at).min(ZEROS.len() as u64) as usize;
            self.device.write_at(at, &ZEROS[..piece]).map_err(failed)?;
            at += piece as u64;
        }
        Ok(())
    }
}

fn failed(error: DeviceError) -> Error {
    Error::Io(error.to_string())
}

/// Nothing can be made or removed here.
fn fixed<T>() -> Result<T> {
    Err(Error::NotPermitted("this directory shows one device, and nothing else"))
}

impl FileSystem for ImageFile {
    fn root(&self) -> InodeNumber {
        ROOT
    }

    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        match (parent, name) {
            (ROOT, name) if name == IMAGE_NAME.as_bytes() => self.stat(IMAGE),
            (ROOT, b"." | b"..") => self.stat(ROOT),
            (ROOT, _) => Err(Error::NotFound),
            _ => Err(Error::NotDirectory),
        }
    }

    fn forget(&self, _: InodeNumber, _: u64) {}

    fn attributes(&self, ino: InodeNumber) -> Result<Attributes> {
        self.stat(ino)
    }

    fn set_attributes(&self, ino: InodeNumber, changes: &SetAttributes) -> Result<Attributes> {
        let now = self.stat(ino)?;
        if changes.size.is_some_and(|size| size != now.size) {
            return Err(Error::NotPermitted("the size of a device cannot be changed"));
        }
        let is_other = |wanted: Option<u32>, is: u32| wanted.is_some_and(|wanted| wanted != is);
        if is_other(changes.permissions, now.permissions)
            || is_other(changes.uid, now.uid)
            || is_other(changes.gid, now.gid)
        {
            return fixed();
        }
        // Times are not kept: nobody needs them, and a writer must not fail for them.
        Ok(now)
    }

    fn read_link(&self, _: InodeNumber) -> Result<Vec<u8>> {
        Err(Error::Invalid("not a symbolic link"))
    }

    fn create(&self, _: InodeNumber, _: &[u8], _: &NewNode<'_>, _: &Caller) -> Result<Attributes> {
        fixed()
    }

    fn create_unnamed(&self, _: InodeNumber, _: u32, _: &Caller) -> Result<Attributes> {
        fixed()
    }

    fn link(&self, _: InodeNumber, _: InodeNumber, _: &[u8]) -> Result<Attributes> {
        fixed()
    }

    fn unlink(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        fixed()
    }

    fn remove_directory(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        fixed()
    }

    fn rename(&self, _: InodeNumber, _: &[u8], _: InodeNumber, _: &[u8], _: RenameFlags, _: &Caller) -> Result<()> {
        fixed()
    }

    fn open(&self, ino: InodeNumber, how: OpenFlags) -> Result<()> {
        Self::is_image(ino)?;
        if how.contains(OpenFlags::WRITE) && self.device.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    fn read(&self, ino: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Self::is_image(ino)?;
        let there = self.device.size().saturating_sub(offset);
        let length = usize::try_from(there).map_or(buf.len(), |there| there.min(buf.len()));
        if length > 0 {
            self.device.read_at(offset, &mut buf[..length]).map_err(failed)?;
        }
        Ok(length)
    }

    fn write(&self, ino: InodeNumber, offset: u64, data: &[u8], _: bool) -> Result<usize> {
        self.check_change(ino, offset, data.len() as u64)?;
        self.device.write_at(offset, data).map_err(failed)?;
        Ok(data.len())
    }

    fn fallocate(&self, ino: InodeNumber, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.check_change(ino, offset, length)?;
        let what = mode - FallocateMode::KEEP_SIZE;
        if what.is_empty() {
            // Everything is allocated.
            Ok(())
        } else if what == FallocateMode::PUNCH_HOLE {
            self.device.discard(offset, length).map_err(failed)
        } else if what == FallocateMode::ZERO_RANGE {
            self.write_zeros(offset, length)
        } else {
            Err(Error::NotSupported("moving ranges of a device"))
        }
    }

    fn seek(&self, ino: InodeNumber, offset: u64, whence: Seek) -> Result<u64> {
        Self::is_image(ino)?;
        let size = self.device.size();
        match whence {
            _ if offset >= size => Err(Error::NoData),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn read_directory(
        &self,
        ino: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        if ino != ROOT {
            return Err(Error::NotDirectory);
        }
        let all: [(InodeNumber, FileKind, &[u8]); 3] = [
            (ROOT, FileKind::Directory, b"."),
            (ROOT, FileKind::Directory, b".."),
            (IMAGE, FileKind::Regular, IMAGE_NAME.as_bytes()),
        ];
        for (next, (ino, kind, name)) in (1..).zip(all) {
            if next > from && !emit(DirectoryEntry { ino, kind, name, next }) {
                break;
            }
        }
        Ok(())
    }

    fn sync_file(&self, _: InodeNumber, _: bool) -> Result<()> {
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        self.device.flush().map_err(failed)
    }

    fn stat_fs(&self) -> Result<StatFs> {
        let blocks = self.device.size() / 4096;
        Ok(StatFs { block_size: 4096, blocks, files: 2, name_max: 255, ..StatFs::default() })
    }

    fn get_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<Vec<u8>> {
        Err(Error::NoAttribute)
    }

    fn set_xattr(&self, _: InodeNumber, _: &[u8], _: &[u8], _: XattrFlags) -> Result<()> {
        fixed()
    }

    fn list_xattrs(&self, _: InodeNumber) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn remove_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::NoAttribute)
    }

    fn set_flags(&self, _: InodeNumber, _: InodeFlags) -> Result<()> {
        fixed()
    }

    fn set_project_id(&self, _: InodeNumber, _: u32) -> Result<()> {
        fixed()
    }

    fn trim(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        Ok(0)
    }

    fn tick(&self, _: Time) -> Background {
        Background { next: Duration::from_secs(60) }
    }

    fn close(&self) -> Result<()> {
        // What the kernel flushed is durable; the rest is the image's own matter, and no request of those above.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_device::{MemoryDevice, RecordingDevice, RequestKind};

    fn image() -> (Arc<RecordingDevice<MemoryDevice>>, ImageFile) {
        let device = Arc::new(RecordingDevice::new(MemoryDevice::new(8 << 20, 512), false));
        (Arc::clone(&device), ImageFile::new(device))
    }

    #[test]
    fn requests_arrive_as_they_are() {
        let (device, file) = image();
        let ino = file.lookup(file.root(), b"image").unwrap().ino;
        assert_eq!(file.write(ino, 4096, &[7; 1024], false).unwrap(), 1024);
        let mut buf = [0; 2048];
        assert_eq!(file.read(ino, (8 << 20) - 512, &mut buf).unwrap(), 512);
        assert_eq!(file.read(ino, 8 << 20, &mut buf).unwrap(), 0);
        file.sync_file(ino, true).unwrap();
        file.fallocate(ino, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 4096, 512).unwrap();
        file.fallocate(ino, FallocateMode::ZERO_RANGE, 0, (1 << 20) + 512).unwrap();
        let requests: Vec<_> =
            device.take().iter().map(|request| (request.kind, request.offset, request.length)).collect();
        assert_eq!(
            requests,
            [
                (RequestKind::Write, 4096, 1024),
                (RequestKind::Read, (8 << 20) - 512, 512),
                (RequestKind::Flush, 0, 0),
                (RequestKind::Discard, 4096, 512),
                (RequestKind::Write, 0, 1 << 20),
                (RequestKind::Write, 1 << 20, 512),
            ]
        );
    }

    #[test]
    fn nothing_else_can_be_done() {
        let (device, file) = image();
        let ino = file.lookup(file.root(), b"image").unwrap().ino;
        assert!(matches!(file.write(ino, (8 << 20) - 1, &[0; 2], false), Err(Error::NoSpace)));
        assert!(matches!(file.write(ino, u64::MAX, &[0; 2], false), Err(Error::NoSpace)));
        let shrink = SetAttributes { size: Some(1), ..SetAttributes::default() };
        assert!(matches!(file.set_attributes(ino, &shrink), Err(Error::NotPermitted(_))));
        assert!(matches!(file.unlink(file.root(), b"image"), Err(Error::NotPermitted(_))));
        assert!(matches!(file.lookup(file.root(), b"other"), Err(Error::NotFound)));
        assert!(matches!(file.read(file.root(), 0, &mut [0]), Err(Error::IsDirectory)));
        let collapse = file.fallocate(ino, FallocateMode::COLLAPSE_RANGE, 0, 4096);
        assert!(matches!(collapse, Err(Error::NotSupported(_))));
        assert_eq!(device.take(), []);
        let mut names = Vec::new();
        file.read_directory(file.root(), 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .unwrap();
        assert_eq!(names, [".", "..", "image"]);
    }
}
