//! Reading a manifest from a mounted tree.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, OsStr};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{OFlags, lgetxattr, llistxattr, major, minor};

use super::{Entry, Kind, Manifest, Parts};
use crate::error::{Context, Error, Result};
use crate::hash::Hasher;

/// The most that Linux returns for a list of names or a value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const XATTR_MAX: usize = 65_536;
/// How much of a file is read at a time.
const READ_SIZE: usize = 256 * 1024;

impl Manifest {
    /// Reads everything that `Parts::default()` says of a tree.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn of(directory: impl AsRef<Path>) -> Result<Manifest> {
        Manifest::read(directory.as_ref(), &Parts::default())
    }

    /// Reads the chosen parts of a tree. Other file systems mounted inside it are read too.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn read(directory: &Path, parts: &Parts) -> Result<Manifest> {
        let mut reader = Reader { parts, manifest: Manifest::default(), inodes: HashMap::new() };
        let metadata = std::fs::symlink_metadata(directory).doing("look at", directory)?;
        if !metadata.is_dir() {
            return Err(Error::Invalid(format!("{} is not a directory", directory.display())));
        }
        if parts.top {
            reader.add(directory, b".".to_vec(), &metadata)?;
        }
        reader.walk(directory)?;
        Ok(reader.finish())
    }
}

struct Reader<'a> {
    parts: &'a Parts,
    manifest: Manifest,
    /// The names of every file with more than one link, by device and inode number.
    inodes: HashMap<(u64, u64), Vec<Vec<u8>>>,
}

impl Reader<'_> {
    /// Walks without recursion, since trees may be deeper than a stack.
    fn walk(&mut self, top: &Path) -> Result<()> {
        let mut pending = vec![(top.to_owned(), b".".to_vec())];
        while let Some((directory, name)) = pending.pop() {
            for entry in std::fs::read_dir(&directory).doing("list", &directory)? {
                let path = entry.doing("list", &directory)?.path();
                // A path from read_dir always ends in a name.
                let own_name = path.file_name().unwrap_or(OsStr::new(""));
                if name == b"." && self.parts.without.iter().any(|without| own_name == without.as_str()) {
                    continue;
                }
                let relative = [&name, b"/".as_slice(), own_name.as_bytes()].concat();
                let metadata = std::fs::symlink_metadata(&path).doing("look at", &path)?;
                if metadata.is_dir() {
                    pending.push((path.clone(), relative.clone()));
                }
                self.add(&path, relative, &metadata)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, name: Vec<u8>, metadata: &Metadata) -> Result<()> {
        let parts = self.parts;
        let kind = kind_of(metadata);
        let regular = kind == Kind::File;
        let device = matches!(kind, Kind::CharacterDevice | Kind::BlockDevice);
        let links = if kind == Kind::Directory { parts.directory_links } else { parts.links };
        let mut entry = Entry::new(kind);
        entry.mode = parts.modes.then(|| metadata.mode() & 0o7777);
        entry.owner = parts.owners.then(|| (metadata.uid(), metadata.gid()));
        entry.links = links.then(|| metadata.nlink());
        entry.size = matches!(kind, Kind::File | Kind::Symlink).then(|| metadata.size());
        // The kernel's nanoseconds are always below 10⁹.
        entry.mtime = parts.times.then(|| (metadata.mtime(), metadata.mtime_nsec() as u32));
        entry.blocks = parts.blocks.then(|| metadata.blocks());
        entry.device = device.then(|| (major(metadata.rdev()), minor(metadata.rdev())));
        if kind == Kind::Symlink {
            entry.target = Some(std::fs::read_link(path).doing("read the link", path)?.into_os_string().into_vec());
        }
        if regular && parts.content {
            entry.content = Some(hash_file(path)?);
        }
        if parts.flags && (regular || kind == Kind::Directory) {
            entry.flags = Some(flags_of(path)?);
        }
        if parts.xattrs {
            entry.xattrs = Some(xattrs_of(path)?);
        }
        if parts.links && kind != Kind::Directory && metadata.nlink() > 1 {
            self.inodes.entry((metadata.dev(), metadata.ino())).or_default().push(name.clone());
        }
        self.manifest.entries.insert(name, entry);
        Ok(())
    }

    fn finish(mut self) -> Manifest {
        for names in self.inodes.into_values().filter(|names| names.len() > 1) {
            let first = names.iter().min().cloned();
            for name in names {
                if let Some(entry) = self.manifest.entries.get_mut(&name) {
                    entry.same_as.clone_from(&first);
                }
            }
        }
        self.manifest
    }
}

fn kind_of(metadata: &Metadata) -> Kind {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => Kind::Directory,
        () if kind.is_symlink() => Kind::Symlink,
        () if kind.is_char_device() => Kind::CharacterDevice,
        () if kind.is_block_device() => Kind::BlockDevice,
        () if kind.is_fifo() => Kind::Fifo,
        () if kind.is_socket() => Kind::Socket,
        () => Kind::File,
    }
}

fn hash_file(path: &Path) -> Result<u64> {
    let mut file = File::open(path).doing("open", path)?;
    let mut buffer = vec![0; READ_SIZE];
    let mut hasher = Hasher::new();
    loop {
        let length = file.read(&mut buffer).doing("read", path)?;
        if length == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&buffer[..length]);
    }
}

fn flags_of(path: &Path) -> Result<u32> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).doing("open", path)?;
    Ok(rustix::fs::ioctl_getflags(&file).doing("read the flags of", path)?.bits())
}

fn xattrs_of(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut buffer = vec![0; XATTR_MAX];
    let length = match llistxattr(path, &mut buffer) {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        other => other.doing("list the extended attributes of", path)?,
    };
    let mut values = BTreeMap::new();
    let mut value = vec![0; if length > 0 { XATTR_MAX } else { 0 }];
    for name in buffer[..length].split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name)
            .map_err(|_| Error::Invalid(format!("{}: a list of extended attributes without an end", path.display())))?;
        let size = lgetxattr(path, name, &mut value).doing("read an extended attribute of", path)?;
        values.insert(name.to_bytes().to_vec(), value[..size].to_vec());
    }
    Ok(values)
}
