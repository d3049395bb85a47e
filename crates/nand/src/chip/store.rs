//! Where the bits of a chip are: in memory, or in a file.

use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::Geometry;
use crate::device::{NandError, Result};

/// Bytes that outlast the process: a file, or what stands for one.
pub trait Backing: Debug + Send {
    /// How many there are.
    fn size(&self) -> io::Result<u64>;

    /// Reads bytes from `offset` on.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes bytes from `offset` on.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Waits until all that was written outlasts a power cut.
    fn flush(&self) -> io::Result<()>;
}

impl Backing for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Raw pages, each with its spare bytes behind it.
#[derive(Debug)]
pub(super) struct Store {
    geometry: Geometry,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Pages that are not erased.
    Memory(HashMap<u32, Arc<[u8]>>),
    /// A file.
    Backed(Box<dyn Backing>),
    /// A file that stays as it is, and the pages that have changed: `None` if one is erased.
    Aside(Box<dyn Backing>, HashMap<u32, Option<Arc<[u8]>>>),
}

impl Store {
    pub(super) fn memory(geometry: Geometry) -> Store {
        Store { geometry, place: Place::Memory(HashMap::new()) }
    }

    /// The bits in a file. Errors: it has another length than all pages with their spare bytes.
    pub(super) fn open(backing: Box<dyn Backing>, geometry: Geometry, keeps_changes: bool) -> io::Result<Store> {
        let (found, wanted) = (backing.size()?, geometry.raw_bytes());
        if found != wanted {
            let said = format!("{found} bytes, where a chip of this geometry has {wanted} with its spare bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        let place = if keeps_changes { Place::Backed(backing) } else { Place::Aside(backing, HashMap::new()) };
        Ok(Store { geometry, place })
    }

    /// The same bits in memory.
    pub(super) fn snapshot(&self) -> Result<Store> {
        let pages = match &self.place {
            Place::Memory(pages) => pages.clone(),
            Place::Backed(_) | Place::Aside(..) => {
                let mut pages = HashMap::new();
                for page in 0..self.geometry.pages() {
                    let bytes = self.read(page)?;
                    if !crate::is_erased(&bytes) {
                        pages.insert(page, bytes.into());
                    }
                }
                pages
            }
        };
        Ok(Store { geometry: self.geometry, place: Place::Memory(pages) })
    }

    pub(super) fn read(&self, page: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0xFF; self.geometry.raw_page_bytes() as usize];
        match &self.place {
            Place::Memory(pages) => {
                if let Some(found) = pages.get(&page) {
                    bytes.copy_from_slice(found);
                }
            }
            Place::Aside(backing, changed) => match changed.get(&page) {
                Some(Some(found)) => bytes.copy_from_slice(found),
                Some(None) => {}
                None => backing.read_at(self.offset(page), &mut bytes).map_err(|error| failed(page, &error))?,
            },
            Place::Backed(backing) => {
                backing.read_at(self.offset(page), &mut bytes).map_err(|error| failed(page, &error))?;
            }
        }
        Ok(bytes)
    }

    pub(super) fn write(&mut self, page: u32, bytes: &[u8]) -> Result<()> {
        let offset = self.offset(page);
        match &mut self.place {
            Place::Memory(pages) => _ = pages.insert(page, bytes.into()),
            Place::Aside(_, changed) => _ = changed.insert(page, Some(bytes.into())),
            Place::Backed(backing) => backing.write_at(offset, bytes).map_err(|error| failed(page, &error))?,
        }
        Ok(())
    }

    pub(super) fn erase(&mut self, block: u32) -> Result<()> {
        let first = self.geometry.first_page(block);
        let pages_of_block = first..first + self.geometry.pages_per_block;
        let offset = self.offset(first);
        match &mut self.place {
            Place::Memory(pages) => pages_of_block.for_each(|page| _ = pages.remove(&page)),
            Place::Aside(_, changed) => pages_of_block.for_each(|page| _ = changed.insert(page, None)),
            Place::Backed(backing) => {
                let length = self.geometry.raw_page_bytes() * self.geometry.pages_per_block;
                backing.write_at(offset, &vec![0xFF; length as usize]).map_err(|error| failed(first, &error))?;
            }
        }
        Ok(())
    }

    /// What was written outlasts a power cut.
    pub(super) fn flush(&self) -> Result<()> {
        match &self.place {
            Place::Memory(_) | Place::Aside(..) => Ok(()),
            Place::Backed(backing) => backing.flush().map_err(|error| failed(0, &error)),
        }
    }

    fn offset(&self, page: u32) -> u64 {
        u64::from(page) * u64::from(self.geometry.raw_page_bytes())
    }
}

fn failed(page: u32, error: &io::Error) -> NandError {
    NandError::Os { page, errno: error.raw_os_error().unwrap_or(0) }
}
