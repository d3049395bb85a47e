//! Listing a directory. The cursor counts slots: block × 214 + slot, one behind the last entry delivered. A bit above says that a damaged
//! entry or block was left out in front of it: the error comes at the end, so that all other entries are delivered.

use basalt_vfs::{DirectoryEntry, FileKind};

use super::entries;
use super::hash::hash;
use super::lookup::{Place, check_name};
use crate::error::{Error, Result};
use crate::layout::dentry::{DentryShape, ENTRIES_PER_BLOCK, RawDentry, slots_for};
use crate::layout::{Address, FileBlock, Ino, NAME_MAX, Nid, bit_lsb};
use crate::node::path::{Found, Mapped};
use crate::volume::Volume;

/// The bit of a cursor behind what was left out.
const DAMAGED: u64 = 1 << 62;

/// What a list leaves out may cost so much: the volume is locked meanwhile, and a crafted one may have no end of what is damaged.
const BUDGET: u32 = 1024;
/// What a read that fails costs: the device may have tried for long.
const FAILED_READ: u32 = 16;

/// What a list leaves out.
pub(crate) struct Lost {
    /// Why, the first time.
    first: Option<Error>,
    budget: u32,
}

impl Lost {
    /// For who needs every block: the first that is missing is an error.
    pub(crate) const NOTHING: Lost = Lost { first: None, budget: 0 };

    /// Leaves out a block, or all that is below a node. Fails if that was too much, and where looking further makes no sense.
    fn miss(&mut self, error: Error) -> Result<()> {
        let cost = if matches!(error, Error::Device(_)) { FAILED_READ } else { 1 };
        match self.budget.checked_sub(cost) {
            Some(rest) if error.is_from_reading() => self.budget = rest,
            _ => return Err(self.first.take().unwrap_or(error)),
        }
        self.first.get_or_insert(error);
        Ok(())
    }

    fn leave_out_entry(&mut self, dir: Ino) {
        self.first.get_or_insert_with(|| {
            Error::damaged("dentry", format!("directory {dir}"), "damaged entries were left out of the list")
        });
    }

    /// What is set in a cursor.
    fn bit(&self) -> u64 {
        if self.first.is_some() { DAMAGED } else { 0 }
    }
}

/// What tells the entries of a directory from damage.
struct Rules {
    /// Whether a name has its own hash.
    plain: bool,
    /// Whether names are ciphertext: any bytes.
    encrypted: bool,
    node_ids: Nid,
}

impl Rules {
    /// The name and the kind of an entry that can be believed.
    fn believe<'a>(
        &self,
        bytes: &'a [u8],
        shape: &DentryShape,
        slot: usize,
        entry: &RawDentry,
    ) -> Option<(&'a [u8], FileKind)> {
        let name = entries::name(bytes, shape, slot, entry)?;
        let kind = entries::kind_of(entry.file_type)?;
        let is_possible = self.encrypted || check_name(name).is_ok();
        let leads = (Nid::new(1)..self.node_ids).contains(&entry.ino().nid());
        // Of a wrong length, the name takes in what lies behind it, and no look-up finds that: it goes by the hash.
        (is_possible && leads && (!self.plain || entry.hash_code.get() == hash(name))).then_some((name, kind))
    }

    /// Whether the name of an entry in front goes on in a slot: who goes on from a cursor may come to lie there.
    fn is_inside(&self, bytes: &[u8], shape: &DentryShape, slot: usize) -> bool {
        (slot.saturating_sub(slots_for(NAME_MAX) - 1)..slot).any(|at| {
            let entry = entries::entry(bytes, shape, at);
            let reaches = bit_lsb(bytes, at) && at + slots_for(entry.name_len.get().into()) > slot;
            reaches && self.believe(bytes, shape, at, &entry).is_some()
        })
    }
}

impl Volume {
    /// Emits entries from cursor `from` on until `emit` returns false.
    ///
    /// # Errors
    /// At the end, if something was left out because it is damaged or cannot be read; earlier if that is too much.
    pub(crate) fn list_directory(
        &mut self,
        dir: Ino,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.expect_directory(dir)?;
        self.touch_access(dir)?;
        let (before, from) = (from & DAMAGED, from & !DAMAGED);
        let mut lost = Lost { first: None, budget: BUDGET };
        let mut emit = |entry: DirectoryEntry<'_>| emit(DirectoryEntry { next: before | entry.next, ..entry });
        if self.has_inline_directory(dir)? {
            if !self.list_place(dir, Place::Inline, (0, from as usize), &mut lost, &mut emit)? {
                return Ok(());
            }
            return self.expect_whole(dir, before, lost);
        }
        let per_block = ENTRIES_PER_BLOCK as u64;
        let blocks = FileBlock::behind(self.inode(dir)?.i_size.get());
        let mut index = FileBlock::clamped(from / per_block);
        let mut slot = (from % per_block) as usize;
        while let Some(block) = self.next_directory_block(dir, index, blocks, &mut lost)? {
            if block != index {
                slot = 0;
            }
            let base = u64::from(block) * per_block;
            if !self.list_place(dir, Place::Block(block), (base, slot), &mut lost, &mut emit)? {
                return Ok(());
            }
            index = block + 1;
            slot = 0;
        }
        self.expect_whole(dir, before, lost)
    }

    /// At the end of a list: fails if something was left out now, or in front of where the cursor says so; whoever made that up may be wrong.
    fn expect_whole(&mut self, dir: Ino, before: u64, lost: Lost) -> Result<()> {
        match lost.first {
            Some(error) => Err(error),
            None if before != 0 => self.list_directory(dir, 0, &mut |_| true),
            None => Ok(()),
        }
    }

    fn rules(&mut self, dir: Ino) -> Result<Rules> {
        let node_ids = self.geometry.node_ids();
        let raw = self.inode(dir)?;
        Ok(Rules { plain: raw.has_plain_names(), encrypted: raw.is_encrypted(), node_ids })
    }

    /// Emits the entries of one place, whose first slot is `base`, from slot `from` on; whether to go on.
    fn list_place(
        &mut self,
        dir: Ino,
        place: Place,
        (base, from): (u64, usize),
        lost: &mut Lost,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<bool> {
        let (rules, rescue) = (self.rules(dir)?, self.options.rescue);
        let found = match self.directory_bytes(dir, place) {
            Err(error) if rescue => {
                tracing::warn!("directory {dir} {place:?}: {error}; its names are left out");
                return Ok(true);
            }
            Err(error) => return lost.miss(error).map(|()| true),
            Ok(found) => found,
        };
        let Some((bytes, shape)) = found else { return Ok(true) };
        let mut slot = from;
        while let Some(used) = entries::next_used(bytes, &shape, slot) {
            let entry = entries::entry(bytes, &shape, used);
            let Some((name, kind)) = rules.believe(bytes, &shape, used, &entry) else {
                slot = used + 1;
                // A leftover bit without an entry. Of an entry that only lost its length, the rest is there.
                let is_nothing = entry.name_len.get() == 0 && (entry.ino() == Ino::NONE || entry.hash_code.get() == 0);
                if is_nothing || !rescue && lost.first.is_none() && rules.is_inside(bytes, &shape, used) {
                    continue;
                }
                let RawDentry { ino, name_len, file_type, .. } = entry;
                tracing::warn!(
                    "directory {dir} {place:?} slot {used}: inode {ino}, name of {name_len} bytes, file type {file_type}; left out"
                );
                if !rescue {
                    lost.leave_out_entry(dir);
                }
                continue;
            };
            slot = used + slots_for(name.len());
            if check_name(name).is_err() {
                // Sound ciphertext that no path can hold. Linux shows a coded form of it.
                continue;
            }
            let ino = entry.ino().into();
            if !emit(DirectoryEntry { ino, kind, name, next: lost.bit() | (base + slot as u64) }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first block at or behind `index` and before `end` that is no hole, and not below a node that is lost.
    pub(crate) fn next_directory_block(
        &mut self,
        dir: Ino,
        index: FileBlock,
        end: FileBlock,
        lost: &mut Lost,
    ) -> Result<Option<FileBlock>> {
        let mut index = index;
        while index < end {
            let found = match self.map_damaged_if_rescue(dir, index) {
                Ok(found) => found,
                Err(error) => {
                    lost.miss(error)?;
                    // How far the damage goes.
                    self.map_damaged(dir, index)?
                }
            };
            match found {
                Found::Missing(next) => {
                    tracing::warn!("directory {dir}: blocks {index} to {} cannot be read", next.min(end).get() - 1);
                    index = next;
                }
                Found::Mapped(Mapped::Hole(next)) => index = next,
                Found::Mapped(Mapped::Slot(slot)) => {
                    for step in 0..slot.count.min(end - index) {
                        if self.node(slot.nid)?.address(slot.byte + 4 * step as usize) != Address::NULL {
                            return Ok(Some(index + step));
                        }
                    }
                    index = index + slot.count;
                }
            }
        }
        Ok(None)
    }
}
