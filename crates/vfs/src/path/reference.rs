//! An inode in use.

use super::SharedFs;
use crate::error::Result;
use crate::fs::FileSystem;
use crate::types::{Attributes, FileKind, InodeNumber};

/// One reference on an inode, as [`FileSystem::lookup`] takes it; given back by [`FileSystem::forget`] when dropped. The inode lives as
/// long as the reference, also when its last name goes.
#[derive(Debug)]
pub struct Reference<F: SharedFs> {
    fs: F,
    /// The inode's attributes when it was found.
    pub attributes: Attributes,
}

impl<F: SharedFs> Reference<F> {
    /// The root directory.
    ///
    /// # Errors
    /// Those of [`FileSystem::attributes`].
    pub fn root(fs: &F) -> Result<Reference<F>> {
        Ok(Reference { fs: fs.clone(), attributes: fs.attributes(fs.root())? })
    }

    /// Takes over a reference that the file system has just given, for example by [`FileSystem::create`].
    pub fn new(fs: &F, attributes: Attributes) -> Reference<F> {
        Reference { fs: fs.clone(), attributes }
    }

    /// Finds a name in this directory.
    ///
    /// # Errors
    /// Those of [`FileSystem::lookup`].
    pub fn lookup(&self, name: &[u8]) -> Result<Reference<F>> {
        Ok(Reference { fs: self.fs.clone(), attributes: self.fs.lookup(self.attributes.ino, name)? })
    }

    /// The inode's number.
    pub fn ino(&self) -> InodeNumber {
        self.attributes.ino
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.attributes.kind
    }

    /// The file system it is in.
    pub fn fs(&self) -> &F {
        &self.fs
    }
}

impl<F: SharedFs> Drop for Reference<F> {
    fn drop(&mut self) {
        // The root has none to give back.
        if self.attributes.ino != self.fs.root() {
            self.fs.forget(self.attributes.ino, 1);
        }
    }
}
