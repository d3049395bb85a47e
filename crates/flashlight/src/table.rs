//! The inode table: where each inode is.
//!
//! Of a file it has the directory and the key there, which change when it is made or renamed only; of a directory the page of its inode.
//! A file that was deleted keeps its entry, which then leads nowhere.

use basalt_nand::NandDevice;

use crate::error::{Error, Result};
use crate::layout::header::Area;
use crate::layout::leaf::{INDEXES, TABLE_FIRST};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::volume::{FlashLight, Log};

/// The header's flag of a page of the index.
pub(crate) const INDEX: u8 = 1;

/// Bytes of an entry.
pub(crate) const TABLE_ENTRY: usize = 8;

/// Where an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// A file: its directory, and its key there.
    File { parent: u32, key: u32 },
    /// A directory: the page of its inode.
    Directory(u32),
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Numbers that inodes can have.
    pub(crate) fn most_inodes(&self) -> u32 {
        let (entries, pages) = self.table_entries();
        entries * pages * INDEXES as u32
    }

    /// Where an inode is, or was.
    pub(crate) fn located(&mut self, serial: u32) -> Result<Option<Located>> {
        if serial >= self.state.next_serial {
            return Ok(None);
        }
        let (entries, _) = self.table_entries();
        self.load_table(serial / entries)?;
        let at = TABLE_FIRST + TABLE_ENTRY * (serial % entries) as usize;
        let page = self.memory.page(Buffer::Table);
        Ok(match (page.u32_at(at), page.u32_at(at + 4)) {
            (NONE, NONE) => None,
            (page, NONE) => Some(Located::Directory(page)),
            (parent, key) => Some(Located::File { parent, key }),
        })
    }

    /// Says where an inode is.
    pub(crate) fn set_located(&mut self, serial: u32, located: Option<Located>) -> Result<()> {
        let (entries, _) = self.table_entries();
        self.load_table(serial / entries)?;
        let at = TABLE_FIRST + TABLE_ENTRY * (serial % entries) as usize;
        let (first, second) = match located {
            None => (NONE, NONE),
            Some(Located::Directory(page)) => (page, NONE),
            Some(Located::File { parent, key }) => (parent, key),
        };
        let page = self.memory.page_mut(Buffer::Table);
        if (page.u32_at(at), page.u32_at(at + 4)) == (first, second) {
            return Ok(());
        }
        page.set_u32(at, first);
        page.set_u32(at + 4, second);
        self.table.dirty = true;
        Ok(())
    }

    fn load_table(&mut self, number: u32) -> Result<()> {
        if self.table.number == number {
            return Ok(());
        }
        self.flush_table()?;
        self.table.number = NONE;
        match self.table_page(number)? {
            NONE => self.memory.page_mut(Buffer::Table).fill(0xFF),
            page => {
                self.read_metadata(page, Buffer::Table, Area::Table)?;
            }
        }
        self.table.number = number;
        Ok(())
    }

    /// Where a page of the table is.
    pub(crate) fn table_page(&mut self, number: u32) -> Result<u32> {
        let (_, pages) = self.table_entries();
        let index = *self.state.table.get((number / pages) as usize).ok_or(Error::NoSpace)?;
        if index == NONE {
            return Ok(NONE);
        }
        self.load_work(index, Area::Table)?;
        Ok(self.memory.page(Buffer::Work).u32_at(TABLE_FIRST + 4 * (number % pages) as usize))
    }

    /// Writes a page of the table once more, elsewhere.
    pub(crate) fn rewrite_table(&mut self, number: u32) -> Result<()> {
        self.load_table(number)?;
        self.table.dirty = true;
        self.flush_table()
    }

    /// Writes the table's page in memory, and the index that leads to it.
    pub(crate) fn flush_table(&mut self) -> Result<()> {
        if !self.table.dirty {
            return Ok(());
        }
        let number = self.table.number;
        let (_, pages) = self.table_entries();
        let which = (number / pages) as usize;
        let old_index = self.state.table[which];
        let old = self.table_page(number)?;
        let page = self.append(Log::Table, Buffer::Table, Area::Table, 0, 0, number)?;
        if old_index == NONE {
            self.work_mut().fill(0xFF);
        } else {
            self.load_work(old_index, Area::Table)?;
        }
        self.work_mut().set_u32(TABLE_FIRST + 4 * (number % pages) as usize, page);
        let index = self.append(Log::Table, Buffer::Work, Area::Table, INDEX, 0, which as u32)?;
        self.state.table[which] = index;
        self.dead_if_any(old);
        self.dead_if_any(old_index);
        self.table.dirty = false;
        Ok(())
    }
}
