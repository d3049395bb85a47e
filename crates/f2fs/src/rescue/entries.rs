//! The entries of a directory as far as they can be read and believed.

use basalt_vfs::FileKind;

use crate::dir::entries::{entry, kind_of, name, next_used};
use crate::dir::hash::hash;
use crate::dir::lookup::Place;
use crate::layout::dentry::{DentryShape, slots_for};
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::node::path::{Found, Mapped};
use crate::volume::Volume;

/// One entry.
pub(super) struct Entry {
    pub(super) name: Box<[u8]>,
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
}

/// What a directory holds.
pub(super) struct Listing {
    pub(super) entries: Vec<Entry>,
    /// Whether every entry that the directory has is there.
    pub(super) whole: bool,
    directory: Ino,
    /// Whether an entry's hash follows from its name alone.
    plain: bool,
    node_ids: Nid,
}

impl Listing {
    /// Reads a directory. `.` and `..` are left out.
    pub(super) fn read(volume: &mut Volume, directory: Ino) -> Listing {
        let node_ids = volume.geometry.node_ids();
        let mut listing = Listing { entries: Vec::new(), whole: true, directory, plain: true, node_ids };
        if listing.read_all(volume).is_err() {
            listing.whole = false;
        }
        listing
    }

    fn read_all(&mut self, volume: &mut Volume) -> crate::error::Result<()> {
        let raw = volume.inode(self.directory)?;
        self.plain = raw.has_plain_names();
        let blocks = FileBlock::behind(raw.i_size.get());
        if volume.has_inline_directory(self.directory)? {
            if let Some((bytes, shape)) = volume.directory_bytes(self.directory, Place::Inline)? {
                self.read_block(bytes, &shape, true);
            }
            return Ok(());
        }
        let mut index = FileBlock::FIRST;
        while index < blocks {
            index = match volume.map_damaged(self.directory, index)? {
                Found::Mapped(Mapped::Hole(next)) => next,
                Found::Missing(next) => {
                    self.whole = false;
                    next
                }
                Found::Mapped(Mapped::Slot(slot)) => {
                    for step in 0..slot.count.min(blocks - index) {
                        let address = volume.node(slot.nid)?.address(slot.byte + 4 * step as usize);
                        self.read_at(volume, address, index + step == FileBlock::FIRST);
                    }
                    index + slot.count
                }
            };
        }
        Ok(())
    }

    fn read_at(&mut self, volume: &Volume, address: Address, first: bool) {
        if matches!(address, Address::NULL | Address::NEW) {
            return;
        }
        match volume.check_data_address(self.directory, address).and_then(|()| volume.read_block(address)) {
            Ok(block) => self.read_block(&block.0, &DentryShape::BLOCK, first),
            Err(_) => self.whole = false,
        }
    }

    fn read_block(&mut self, bytes: &[u8], shape: &DentryShape, first: bool) {
        // Removing the last entry of a block leaves its bytes; only damage leaves none.
        if bytes.iter().all(|&byte| byte == 0) {
            self.whole = false;
            return;
        }
        let mut slot = 0;
        let mut has_itself = false;
        let before = self.entries.len();
        while let Some(used) = next_used(bytes, shape, slot) {
            let raw = entry(bytes, shape, used);
            slot = used + 1;
            let (ino, kind) = (raw.ino(), kind_of(raw.file_type));
            let (Some(name), Some(kind), true) =
                (name(bytes, shape, used, &raw), kind, (Nid::FIRST..self.node_ids).contains(&ino.nid()))
            else {
                self.whole = false;
                continue;
            };
            // Garbage hardly has the hash of what it says is a name.
            if self.plain && raw.hash_code.get() != hash(name) {
                self.whole = false;
                continue;
            }
            slot = used + slots_for(name.len());
            match name {
                b"." => has_itself = ino == self.directory,
                b".." => {}
                name if name.iter().any(|byte| matches!(byte, b'/' | 0)) => self.whole = false,
                name => self.entries.push(Entry { name: name.into(), ino, kind }),
            }
        }
        if first && !has_itself {
            // The block belongs to another directory by now, or is gone.
            self.entries.truncate(before);
            self.whole = false;
        }
    }
}
