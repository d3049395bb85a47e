//! One file's name: the entry that was not in the directory at the checkpoint.

use basalt_vfs::FileKind;

use super::forward::as_inode;
use super::scan::Chain;
use crate::dir::lookup::check_name;
use crate::error::{Error, Result};
use crate::layout::Ino;
use crate::layout::inode::Advise;
use crate::node::inode;
use crate::volume::Volume;

impl Volume {
    /// Gives an inode the name it was fsynced under; whatever else has it loses it, as when the name was taken over.
    ///
    /// Source: the kernel's `recover_dentry`.
    pub(super) fn recover_name(&mut self, ino: Ino, chain: &Chain<'_>, at: usize) -> Result<()> {
        let image = self.chain_inode(ino, chain, at)?;
        let raw = as_inode(&image);
        let parent = raw.parent();
        let name = raw.i_name[..(raw.i_namelen.get() as usize).min(raw.i_name.len())].to_vec();
        let bad = |found: &str| Error::damaged("inode", format!("inode {ino}"), format!("fsynced, but {found}"));
        if !self.is_inode(parent)? || !self.is_directory(parent)? || self.inode(parent)?.i_links.get() == 0 {
            return Err(bad(&format!("its directory {parent} is none")));
        }
        // Encrypted names may hold any bytes.
        let encrypted = self.inode(parent)?.i_advise & Advise::ENCRYPT.bits() != 0;
        if name.is_empty() || !encrypted && check_name(&name).is_err() {
            return Err(bad("its name can be none"));
        }
        if let Some(other) = self.find_entry(parent, &name)? {
            if other.ino == ino {
                return Ok(());
            }
            self.expect_inode_of(parent, &other)?;
            let is_directory = self.is_directory(other.ino)?;
            if is_directory && !self.is_empty_directory(other.ino)? {
                return Err(bad("a directory that is not empty has its name"));
            }
            self.remove_entry(parent, &other)?;
            if is_directory {
                self.take_directory(parent, other.ino)?;
            } else {
                self.take_link(other.ino)?;
            }
        }
        self.add_entry(parent, &name, ino, FileKind::Regular)?;
        inode::set_name(self.inode_mut(ino)?, parent, &name);
        Ok(())
    }
}
