//! How much flash there is, and in what units.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A geometry that makes no sense, or that a layer cannot work with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("flash geometry: {0}")]
pub struct GeometryError(pub(crate) String);

/// What to build a [`Geometry`] from. The defaults are those of the SFS paper's simulator (section 4.4): 4 KiB pages,
/// 512 KiB erase blocks, 10 % over-provisioning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeometryOptions {
    /// Bytes that the host sees.
    pub logical_bytes: u64,
    /// Bytes of a page, the unit of programming.
    pub page_bytes: u32,
    /// Bytes of an erase block.
    pub block_bytes: u32,
    /// Physical space beyond the logical, in percent of the *logical*: physical = logical × (1 + this / 100).
    pub over_provisioning_percent: f64,
}

impl Default for GeometryOptions {
    fn default() -> Self {
        GeometryOptions {
            logical_bytes: 1 << 30,
            page_bytes: 4096,
            block_bytes: 512 << 10,
            over_provisioning_percent: 10.0,
        }
    }
}

/// A checked flash geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Geometry {
    page_bytes: u32,
    pages_per_block: u32,
    logical_pages: u32,
    physical_blocks: u32,
}

/// A block has at most this many pages: counts of live pages fit 16 bits.
const MAX_PAGES_PER_BLOCK: u32 = 1 << 15;

/// Spare blocks below which no layer can work: one being written, one being copied to, one being freed.
const MIN_SPARE_BLOCKS: u64 = 4;

impl Geometry {
    /// Checks the options. Logical bytes are rounded up to whole pages, physical space up to whole blocks.
    ///
    /// # Errors
    /// [`GeometryError`] says which number is wrong: a size that is 0 or no power of two, a block smaller than two pages
    /// or larger than 32,768, no more than 3 spare blocks, or more than 2³² − 2 physical pages.
    pub fn new(options: &GeometryOptions) -> Result<Geometry, GeometryError> {
        let GeometryOptions { logical_bytes, page_bytes, block_bytes, over_provisioning_percent } = *options;
        let wrong = |reason: String| Err(GeometryError(reason));
        if !page_bytes.is_power_of_two() || page_bytes < 512 {
            return wrong(format!("page_bytes is {page_bytes}; it must be a power of two of at least 512"));
        }
        if !block_bytes.is_multiple_of(page_bytes) || block_bytes / page_bytes < 2 {
            return wrong(format!("block_bytes is {block_bytes}; it must be two or more pages of {page_bytes} bytes"));
        }
        let pages_per_block = block_bytes / page_bytes;
        if pages_per_block > MAX_PAGES_PER_BLOCK {
            return wrong(format!("a block of {pages_per_block} pages is more than {MAX_PAGES_PER_BLOCK}"));
        }
        if !(0.0..=10_000.0).contains(&over_provisioning_percent) {
            return wrong(format!("over_provisioning_percent is {over_provisioning_percent}; it must be 0 to 10000"));
        }
        let logical_pages = logical_bytes.div_ceil(u64::from(page_bytes));
        if logical_pages == 0 {
            return wrong("logical_bytes is 0".to_owned());
        }
        // Exact enough: below 2^53 pages, and rounded up to a block.
        let physical_pages = (logical_pages as f64 * (1.0 + over_provisioning_percent / 100.0)).ceil();
        let physical_blocks = (physical_pages / f64::from(pages_per_block)).ceil();
        if physical_blocks * f64::from(pages_per_block) >= f64::from(u32::MAX) {
            return wrong(format!("{logical_bytes} bytes are more than 2^32 pages of {page_bytes} bytes"));
        }
        let geometry = Geometry {
            page_bytes,
            pages_per_block,
            logical_pages: logical_pages as u32,
            physical_blocks: physical_blocks as u32,
        };
        geometry.need_spare(MIN_SPARE_BLOCKS)?;
        Ok(geometry)
    }

    /// The default geometry (4 KiB pages, 512 KiB blocks, 10 % over-provisioning) for this many logical bytes.
    ///
    /// # Errors
    /// [`GeometryError`] when that is too little (below about 20 MiB) or too much (above about 14 TiB).
    pub fn for_bytes(logical_bytes: u64) -> Result<Geometry, GeometryError> {
        Geometry::new(&GeometryOptions { logical_bytes, ..GeometryOptions::default() })
    }

    /// Fails unless there are `blocks` more physical blocks than logical ones.
    pub(crate) fn need_spare(&self, blocks: u64) -> Result<(), GeometryError> {
        let spare = u64::from(self.physical_blocks).saturating_sub(self.logical_blocks());
        if spare >= blocks {
            return Ok(());
        }
        Err(GeometryError(format!(
            "{spare} spare blocks of {} bytes are too few, {blocks} are needed; raise over_provisioning_percent, or \
             logical_bytes",
            u64::from(self.pages_per_block) * u64::from(self.page_bytes)
        )))
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Pages of an erase block.
    pub fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// Pages that the host sees.
    pub fn logical_pages(&self) -> u64 {
        u64::from(self.logical_pages)
    }

    /// Erase blocks that the logical pages would fill, the last perhaps in part.
    pub fn logical_blocks(&self) -> u64 {
        u64::from(self.logical_pages.div_ceil(self.pages_per_block))
    }

    /// Erase blocks there are.
    pub fn physical_blocks(&self) -> u64 {
        u64::from(self.physical_blocks)
    }

    /// Pages there are.
    pub fn physical_pages(&self) -> u64 {
        self.physical_blocks() * u64::from(self.pages_per_block)
    }

    /// Bytes that the host sees.
    pub fn logical_bytes(&self) -> u64 {
        self.logical_pages() * u64::from(self.page_bytes)
    }

    /// Share of the *physical* space that is spare: what the theory of garbage collection calls the spare factor.
    pub fn spare_factor(&self) -> f64 {
        1.0 - self.logical_pages() as f64 / self.physical_pages() as f64
    }

    /// The pages that a request of `length` bytes at byte `offset` touches, in part or wholly: what a write programs.
    pub fn touched(&self, offset: u64, length: u64) -> Range<u64> {
        let page = u64::from(self.page_bytes);
        let first = offset / page;
        if length == 0 { first..first } else { first..offset.saturating_add(length).div_ceil(page) }
    }

    /// The pages that lie wholly within `length` bytes at byte `offset`: what a trim may forget.
    pub fn within(&self, offset: u64, length: u64) -> Range<u64> {
        let page = u64::from(self.page_bytes);
        let first = offset.div_ceil(page);
        first..(offset.saturating_add(length) / page).max(first)
    }
}
