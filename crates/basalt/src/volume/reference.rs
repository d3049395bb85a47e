//! An inode in use.

use basalt_vfs::{Attributes, FileSystem, InodeNumber, Result};

/// A reference on an inode, as every look-up gives one; given back when dropped.
pub struct Reference<'a> {
    fs: &'a dyn FileSystem,
    /// The inode's attributes when it was found.
    pub attributes: Attributes,
}

impl<'a> Reference<'a> {
    /// The root directory.
    pub fn root(fs: &'a dyn FileSystem) -> Result<Reference<'a>> {
        Ok(Reference { fs, attributes: fs.attributes(fs.root())? })
    }

    /// Takes over a reference that the file system has just given.
    pub fn new(fs: &'a dyn FileSystem, attributes: Attributes) -> Reference<'a> {
        Reference { fs, attributes }
    }

    /// Finds a name in this directory.
    pub fn lookup(&self, name: &[u8]) -> Result<Reference<'a>> {
        Ok(Reference { fs: self.fs, attributes: self.fs.lookup(self.attributes.ino, name)? })
    }

    /// The inode's number.
    pub fn ino(&self) -> InodeNumber {
        self.attributes.ino
    }
}

impl Drop for Reference<'_> {
    fn drop(&mut self) {
        // The root has none to give back.
        if self.attributes.ino != self.fs.root() {
            self.fs.forget(self.attributes.ino, 1);
        }
    }
}
