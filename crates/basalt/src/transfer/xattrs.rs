//! Extended attributes of the host's files.

use std::fs::File;

use rustix::io::{Errno, Result};

/// Most that the kernel gives as a list of names, and as a value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MAX_LENGTH: usize = 64 << 10;

/// What carries attributes: an open file, or the path of something that cannot be opened without consequences.
pub(super) enum Carrier<'a> {
    Open(&'a File),
    Path(&'a [u8]),
}

impl Carrier<'_> {
    /// The attributes that mean something on another file system too.
    pub(super) fn read(&self, space: &mut Vec<u8>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        space.resize(MAX_LENGTH, 0);
        let length = match self.list(space) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => 0,
            Err(errno) => return Err(errno),
        };
        if length == 0 {
            return Ok(Vec::new());
        }
        let list = space[..length].to_vec();
        let mut found = Vec::new();
        for name in list.split(|&byte| byte == 0).filter(|name| is_portable(name)) {
            match self.get(name, space) {
                Ok(length) => found.push((name.to_vec(), space[..length].to_vec())),
                // Taken away meanwhile.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(found)
    }

    fn list(&self, space: &mut [u8]) -> Result<usize> {
        match self {
            Carrier::Open(file) => rustix::fs::flistxattr(file, space),
            Carrier::Path(path) => rustix::fs::llistxattr(*path, space),
        }
    }

    fn get(&self, name: &[u8], space: &mut [u8]) -> Result<usize> {
        match self {
            Carrier::Open(file) => rustix::fs::fgetxattr(file, name, space),
            Carrier::Path(path) => rustix::fs::lgetxattr(*path, name, space),
        }
    }
}

/// Whether other file systems know an attribute as well; the rest (`btrfs.compression`, `system.nfs4_acl`) is private to its own.
pub(super) fn is_portable(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
