//! Where the bits of a chip are: in memory, or in a file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::Geometry;
use crate::device::{NandError, Result};

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
    File(File),
}

impl Store {
    pub(super) fn memory(geometry: Geometry) -> Store {
        Store { geometry, place: Place::Memory(HashMap::new()) }
    }

    pub(super) fn create(path: &Path, geometry: Geometry) -> io::Result<Store> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let mut store = Store { geometry, place: Place::File(file) };
        for block in 0..geometry.blocks {
            store.erase(block).map_err(io::Error::other)?;
        }
        Ok(store)
    }

    pub(super) fn open(path: &Path, geometry: Geometry) -> io::Result<Store> {
        let file = File::options().read(true).write(true).open(path)?;
        let (found, wanted) =
            (file.metadata()?.len(), u64::from(geometry.pages()) * u64::from(geometry.raw_page_bytes()));
        if found != wanted {
            let said = format!("{}: has {found} bytes, and a chip of this geometry {wanted}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        Ok(Store { geometry, place: Place::File(file) })
    }

    /// The same bits in memory.
    pub(super) fn snapshot(&self) -> Result<Store> {
        let pages = match &self.place {
            Place::Memory(pages) => pages.clone(),
            Place::File(_) => {
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
            Place::File(file) => {
                file.read_exact_at(&mut bytes, self.offset(page)).map_err(|error| failed(page, &error))?
            }
        }
        Ok(bytes)
    }

    pub(super) fn write(&mut self, page: u32, bytes: &[u8]) -> Result<()> {
        let offset = self.offset(page);
        match &mut self.place {
            Place::Memory(pages) => {
                pages.insert(page, bytes.into());
                Ok(())
            }
            Place::File(file) => file.write_all_at(bytes, offset).map_err(|error| failed(page, &error)),
        }
    }

    pub(super) fn erase(&mut self, block: u32) -> Result<()> {
        let first = self.geometry.first_page(block);
        let offset = self.offset(first);
        match &mut self.place {
            Place::Memory(pages) => {
                for page in first..first + self.geometry.pages_per_block {
                    pages.remove(&page);
                }
                Ok(())
            }
            Place::File(file) => {
                let length = self.geometry.raw_page_bytes() * self.geometry.pages_per_block;
                file.write_all_at(&vec![0xFF; length as usize], offset).map_err(|error| failed(first, &error))
            }
        }
    }

    fn offset(&self, page: u32) -> u64 {
        u64::from(page) * u64::from(self.geometry.raw_page_bytes())
    }
}

fn failed(page: u32, error: &io::Error) -> NandError {
    NandError::Os { page, errno: error.raw_os_error().unwrap_or(0) }
}
