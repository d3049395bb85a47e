//! Listing a directory. The cursor counts slots: block × 214 + slot, one behind the last entry delivered. A bit above says that a damaged
//! entry was left out in front of it: the error comes at the end, so that all other entries are delivered.

use basalt_vfs::DirectoryEntry;

use super::entries;
use super::lookup::{Place, check_name};
use crate::error::{Error, Result};
use crate::layout::dentry::{ENTRIES_PER_BLOCK, slots_for};
use crate::node::path::{Found, Mapped};
use crate::volume::Volume;

/// The bit of a cursor behind a damaged entry.
const DAMAGED: u64 = 1 << 62;

impl Volume {
    /// Emits entries from cursor `from` on until `emit` returns false.
    ///
    /// # Errors
    /// At the end, if entries were left out because they are damaged.
    pub(crate) fn list_directory(
        &mut self,
        dir: u32,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.expect_directory(dir)?;
        self.touch_access(dir)?;
        let (before, from, mut damaged) = (from & DAMAGED, from & !DAMAGED, 0);
        let mut emit = |entry: DirectoryEntry<'_>| emit(DirectoryEntry { next: before | entry.next, ..entry });
        if self.has_inline_directory(dir)? {
            self.list_place(dir, Place::Inline, (0, from as usize), &mut damaged, &mut emit)?;
            return self.expect_whole(dir, before, damaged);
        }
        let per_block = ENTRIES_PER_BLOCK as u64;
        let blocks = Self::blocks_for(self.inode(dir)?.i_size.get());
        let mut index = from / per_block;
        let mut slot = (from % per_block) as usize;
        while let Some(block) = self.next_directory_block(dir, index, blocks)? {
            if u64::from(block) != index {
                slot = 0;
            }
            let base = u64::from(block) * per_block;
            if !self.list_place(dir, Place::Block(block), (base, slot), &mut damaged, &mut emit)? {
                return Ok(());
            }
            index = u64::from(block) + 1;
            slot = 0;
        }
        self.expect_whole(dir, before, damaged)
    }

    /// At the end of a list: fails if a damaged entry was left out now, or in front of where the cursor says so; whoever made that up may be wrong.
    fn expect_whole(&mut self, dir: u32, before: u64, damaged: u64) -> Result<()> {
        if before != 0 && damaged == 0 {
            return self.list_directory(dir, 0, &mut |_| true);
        }
        if damaged == 0 {
            return Ok(());
        }
        Err(Error::damaged("dentry", format!("directory {dir}"), "damaged entries were left out of the list"))
    }

    /// Emits the entries of one place, whose first slot is `base`, from slot `from` on; whether to go on.
    fn list_place(
        &mut self,
        dir: u32,
        place: Place,
        (base, from): (u64, usize),
        damaged: &mut u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<bool> {
        let node_ids = self.geometry.node_ids();
        let rescue = self.options.rescue;
        let found = match self.directory_bytes(dir, place) {
            Err(error) if rescue => {
                tracing::warn!("directory {dir} {place:?}: {error}; its names are left out");
                return Ok(true);
            }
            found => found?,
        };
        let Some((bytes, shape)) = found else { return Ok(true) };
        let mut slot = from;
        while let Some(used) = entries::next_used(bytes, &shape, slot) {
            let entry = entries::entry(bytes, &shape, used);
            let ino = entry.ino.get();
            let (Some(name), Some(kind), true) = (
                entries::name(bytes, &shape, used, &entry).filter(|name| check_name(name).is_ok()),
                entries::kind_of(entry.file_type),
                ino != 0 && ino < node_ids,
            ) else {
                if entry.name_len.get() == 0 {
                    // Linux steps over these too: a leftover bit without an entry.
                    slot = used + 1;
                    continue;
                }
                let error = Error::damaged(
                    "dentry",
                    format!("directory {dir} {place:?} slot {used}"),
                    format!("inode {ino}, name of {} bytes, file type {}", entry.name_len, entry.file_type),
                );
                tracing::warn!("{error}; left out");
                if !rescue {
                    *damaged = DAMAGED;
                }
                slot = used + 1;
                continue;
            };
            slot = used + slots_for(name.len());
            if !emit(DirectoryEntry { ino: u64::from(ino), kind, name, next: *damaged | (base + slot as u64) }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first block at or behind `index` and before `end` that is no hole.
    pub(crate) fn next_directory_block(&mut self, dir: u32, index: u64, end: u64) -> Result<Option<u32>> {
        let mut index = index;
        while index < end {
            match self.map_damaged_if_rescue(dir, index)? {
                Found::Missing(next) => {
                    tracing::warn!("directory {dir}: blocks {index} to {} cannot be read", next.min(end) - 1);
                    index = next;
                }
                Found::Mapped(Mapped::Hole(next)) => index = next,
                Found::Mapped(Mapped::Slot(slot)) => {
                    for step in 0..u64::from(slot.count).min(end - index) {
                        if self.node(slot.nid)?.pointer(slot.byte + 4 * step as usize) != 0 {
                            return Ok(u32::try_from(index + step).ok());
                        }
                    }
                    index += u64::from(slot.count);
                }
            }
        }
        Ok(None)
    }
}
