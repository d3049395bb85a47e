//! Inside the machine: looking at everything there is below a mount point, with Linux's own system calls.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use basalt_vfs::{FileKind, InodeFlags, Time};
use rustix::fs::{OFlags, SeekFrom, ioctl_getflags, lgetxattr, llistxattr, seek};
use rustix::io::Errno;

use crate::meta::{Meta, Times};
use crate::tree::{Node, PAGE, Page, ROOT, Tree};

/// The `chattr(1)` flags that users set; others that Linux shows say how a file is stored.
pub(super) const FLAGS: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJECT_INHERIT);

/// The most that Linux returns for a list of names or a value.
const XATTR_MAX: usize = 65_536;

/// The whole tree below a directory. What Linux does not show (generation, project, flags of what cannot be opened) is zero.
///
/// # Errors
/// When something cannot be read.
pub fn look(directory: &Path) -> io::Result<Tree> {
    let metadata = std::fs::symlink_metadata(directory)?;
    let mut tree = Tree::new(metadata.ino());
    tree.insert(ROOT, node(directory, &metadata)?);
    let mut ids = HashMap::new();
    let mut pending: Vec<(PathBuf, u32)> = vec![(directory.to_owned(), ROOT)];
    while let Some((directory, id)) = pending.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let metadata = std::fs::symlink_metadata(&path).map_err(|error| about(&path, error))?;
            let child = match ids.get(&metadata.ino()) {
                Some(child) => *child,
                None => {
                    let child = tree.adopt(node(&path, &metadata).map_err(|error| about(&path, error))?);
                    ids.insert(metadata.ino(), child);
                    child
                }
            };
            if metadata.is_dir() {
                pending.push((path.clone(), child));
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            tree.name(id, &name, child);
        }
    }
    Ok(tree)
}

fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Everything but its names.
fn node(path: &Path, metadata: &Metadata) -> io::Result<Node> {
    let kind = kind_of(metadata);
    let mut node = Node::new(metadata.ino(), kind, meta(path, metadata)?);
    match kind {
        FileKind::Regular => {
            let file = open(path)?;
            node.meta.flags = flags(&file)?;
            node.size = metadata.size();
            node.pages = pages(&file, node.size)?;
        }
        FileKind::Directory => node.meta.flags = flags(&open(path)?)?,
        FileKind::Symlink => node.target = std::fs::read_link(path)?.into_os_string().into_vec(),
        _ => {}
    }
    node.xattrs = xattrs(path)?;
    Ok(node)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NOATIME.bits().cast_signed()).open(path)
}

fn flags(file: &File) -> io::Result<u32> {
    Ok(ioctl_getflags(file)?.bits() & FLAGS.bits())
}

fn meta(path: &Path, metadata: &Metadata) -> io::Result<Meta> {
    let time = |seconds, nanoseconds: i64| Time { seconds, nanoseconds: nanoseconds as u32 };
    // Before the epoch nothing is created.
    let birth = metadata.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok());
    let birth = birth.map(|birth| Time { seconds: birth.as_secs().cast_signed(), nanoseconds: birth.subsec_nanos() });
    let rdev = u32::try_from(metadata.rdev()).map_err(|_| about(path, io::Error::other("a large device number")))?;
    Ok(Meta {
        permissions: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev,
        times: Times {
            access: time(metadata.atime(), metadata.atime_nsec()),
            modify: time(metadata.mtime(), metadata.mtime_nsec()),
            change: time(metadata.ctime(), metadata.ctime_nsec()),
            birth,
        },
        ..Meta::default()
    })
}

fn kind_of(metadata: &Metadata) -> FileKind {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () => FileKind::Regular,
    }
}

fn pages(file: &File, size: u64) -> io::Result<BTreeMap<u64, Page>> {
    let mut pages = BTreeMap::new();
    let mut at = 0;
    while at < size {
        at = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data / PAGE * PAGE,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let mut page = [0; PAGE as usize];
        let length = (size - at).min(PAGE) as usize;
        file.read_exact_at(&mut page[..length], at)?;
        if page.iter().any(|byte| *byte != 0) {
            pages.insert(at / PAGE, Arc::new(page));
        }
        at += PAGE;
    }
    Ok(pages)
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let (mut names, mut value) = (vec![0; XATTR_MAX], vec![0; XATTR_MAX]);
    let length = llistxattr(path, &mut names)?;
    let one = |name: &[u8]| {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        let size = match lgetxattr(path, name, &mut value) {
            // A user's attribute of a symbolic link or a device.
            Err(Errno::NODATA) if name.to_bytes().starts_with(b"user.") => 0,
            size => size?,
        };
        Ok((name.to_string_lossy().into_owned(), value[..size].to_vec()))
    };
    names[..length].split_inclusive(|byte| *byte == 0).map(one).collect()
}
