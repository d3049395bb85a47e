//! Checking a volume: everything is walked through, and live pages are counted anew.

use core::cell::Cell;

use basalt_nand::NandDevice;

use crate::cleaning::Room;
use crate::error::{Error, Result};
use crate::layout::NONE;
use crate::layout::Numbers;
use crate::layout::bucket::Pointer;
use crate::layout::header::Area;
use crate::layout::inode::{self, Inode};
use crate::memory::{Buffer, Bytes};
use crate::mount::ROOT;
use crate::table::Located;
use crate::volume::{BAD, FlashLight};

/// What a check has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Directories, the one of deleted files that are open included.
    pub directories: u32,
    /// Files.
    pub files: u32,
    /// Blocks of which more or fewer pages are live than were counted.
    pub wrong_counts: u32,
    /// Inodes that no directory leads to, or that are elsewhere than the inode table says.
    pub lost: u32,
    /// Directories that have more or fewer entries than they say, and files that have more or fewer pages.
    pub wrong_sizes: u32,
}

impl Checked {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.wrong_counts == 0 && self.lost == 0 && self.wrong_sizes == 0
    }
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Writes a checkpoint, then walks through everything. Counts of live pages that are wrong are set right in memory. Errors: a page
    /// cannot be read, or is not what it should be.
    pub fn check(&mut self) -> Result<Checked> {
        self.make_room(Room::Free)?;
        self.checkpoint(false)?;
        let mut checked = Checked::default();
        // Every live page takes one away: what is left, or was missing, was counted wrong.
        self.walk(&mut checked, |volume, page, length| {
            for page in page..page.saturating_add(length).min(volume.geometry.pages()) {
                let block = volume.geometry.block_of(page) as usize;
                let count = &mut volume.memory.counts_mut()[block];
                // One too few ends above all that can be live, and below the mark of a bad block.
                *count = if *count == 0 { TOO_FEW } else { *count - 1 };
            }
        })?;
        for count in self.memory.counts_mut().iter_mut().filter(|count| **count != BAD && **count != 0) {
            checked.wrong_counts += 1;
            *count = 0;
        }
        let mut again = Checked::default();
        self.walk(&mut again, |volume, page, length| volume.live_all(page, length))?;
        Ok(checked)
    }

    /// Visits all live pages.
    fn walk(&mut self, checked: &mut Checked, each: impl Fn(&mut Self, u32, u32) + Copy) -> Result<()> {
        let (entries, pages) = self.table_entries();
        for which in 0..self.state.table.len() {
            if self.state.table[which] != NONE {
                each(self, self.state.table[which], 1);
                for number in 0..pages {
                    let page = self.table_page(which as u32 * pages + number)?;
                    if page != NONE {
                        each(self, page, 1);
                    }
                    if number * entries >= self.state.next_serial {
                        break;
                    }
                }
            }
        }
        for serial in 0..self.state.next_serial {
            match self.located(serial) {
                Ok(Some(Located::Directory(page))) => self.walk_directory(checked, serial, page, each)?,
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn walk_directory(
        &mut self,
        checked: &mut Checked,
        serial: u32,
        page: u32,
        each: impl Fn(&mut Self, u32, u32) + Copy,
    ) -> Result<()> {
        checked.directories += 1;
        each(self, page, 1);
        let slot = self.directory(serial)?;
        let (parent, key) = (self.memory.page(Buffer::Directory(slot)).parent(), self.inode_key(slot));
        self.for_each_bucket(slot, |volume, page| each(volume, page, 1))?;
        let said = self.memory.page(Buffer::Directory(slot)).u64_at(inode::SIZE);
        let (mut from, mut found) = (0, 0);
        loop {
            let slot = self.directory(serial)?;
            let Some(entry) = self.next_entry(slot, from)? else { break };
            found += 1;
            if let Pointer::File(page) = entry.pointer {
                checked.files += 1;
                let slot = self.free_file_slot()?;
                let header = self.read_metadata(page, Buffer::File(slot), Area::FileInode)?;
                self.take_file(slot, page, header.owner)?;
                let inode = self.memory.page(Buffer::File(slot));
                let leads = inode.parent() == serial && inode.u32_at(inode::KEY) == entry.key;
                let said = inode.pages();
                let pages = Cell::new(0);
                self.for_each_page(slot, |volume, page, length| {
                    pages.set(pages.get() + u64::from(length));
                    each(volume, page, length);
                })?;
                checked.wrong_sizes += u32::from(said != pages.get());
                // The file may be in the other slot, too: only one of them would be kept up to date.
                self.files[slot].serial = NONE;
                let located = self.located(header.owner)?;
                checked.lost += u32::from(!leads || located != Some(Located::File { parent: serial, key: entry.key }));
            }
            let Some(next) = entry.key.checked_add(1) else { break };
            from = next;
        }
        checked.wrong_sizes += u32::from(said != found);
        if serial > crate::mount::ORPHANS {
            let leads = match self.directory(parent) {
                Ok(slot) => self.pointer(slot, key)? == Some(Pointer::Directory(serial)),
                Err(Error::NotFound | Error::NotADirectory) => false,
                Err(error) => return Err(error),
            };
            checked.lost += u32::from(!leads);
        }
        checked.lost += u32::from(serial == ROOT && parent != ROOT);
        Ok(())
    }

    fn inode_key(&self, slot: usize) -> u32 {
        self.memory.page(Buffer::Directory(slot)).u32_at(inode::KEY)
    }
}

/// In a count that is taken down: there were fewer pages than are live.
const TOO_FEW: u8 = BAD - 1;
