//! Flash translation layers: what a controller does between the host's pages and NAND.
//!
//! | module | what |
//! |---|---|
//! | [`geometry`] | pages, erase blocks, over-provisioning: checked numbers |
//! | [`statistics`] | what a layer did: programs, copies, merges, erases, wear |
//! | [`observer`] | every program and erase, one by one, for those who want to check or time them |
//! | [`page_level`] | one map entry a page, greedy garbage collection |
//! | [`fast`] | FAST: blocks mapped as wholes, log blocks shared by all |
//!
//! Layers keep no data: they decide where pages would go, and count. All numbers of pages are logical or physical page
//! indices from 0; a request in bytes is turned into pages by [`Geometry::touched`] and [`Geometry::within`].

pub mod fast;
pub mod geometry;
pub mod observer;
pub mod page_level;
mod pool;
pub mod statistics;
mod victims;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use fast::{Fast, FastOptions};
pub use geometry::{Geometry, GeometryError, GeometryOptions};
pub use observer::{FlashObserver, Programmed};
pub use page_level::{PageLevel, PageLevelOptions};
pub use statistics::{FtlStatistics, Wear};

/// A request that a layer cannot serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FtlError {
    /// The request reaches past the last logical page.
    #[error("{operation} of {count} pages at page {first} reaches past the {pages} pages of the simulated flash")]
    OutOfRange {
        /// `read`, `write` or `trim`.
        operation: &'static str,
        /// First logical page.
        first: u64,
        /// Logical pages.
        count: u64,
        /// Logical pages there are.
        pages: u64,
    },
}

/// A flash translation layer without the data: it maps, collects garbage, and counts.
pub trait TranslationLayer: Send {
    /// Which one it is.
    fn kind(&self) -> TranslationKind;

    /// The flash it manages.
    fn geometry(&self) -> &Geometry;

    /// The host writes `count` logical pages from page `first`, one after the other.
    ///
    /// # Errors
    /// [`FtlError::OutOfRange`]; nothing is written then.
    fn write(&mut self, first: u64, count: u64) -> Result<(), FtlError>;

    /// The host reads `count` logical pages from page `first`. Only counted: pages never written cost no flash read.
    ///
    /// # Errors
    /// [`FtlError::OutOfRange`].
    fn read(&mut self, first: u64, count: u64) -> Result<(), FtlError>;

    /// The host says that `count` logical pages from page `first` hold nothing of value.
    ///
    /// # Errors
    /// [`FtlError::OutOfRange`]; nothing is trimmed then.
    fn trim(&mut self, first: u64, count: u64) -> Result<(), FtlError>;

    /// The host asks for durability. Neither layer holds pages back, so it is only counted.
    fn flush(&mut self);

    /// What was done so far.
    fn statistics(&self) -> FtlStatistics;

    /// Erases of each physical block.
    fn erase_counts(&self) -> &[u32];

    /// Writes the first `share` (0 to 1) of all logical pages once, in order: the device was in use before.
    fn fill(&mut self, share: f64) {
        let pages = (self.geometry().logical_pages() as f64 * share.clamp(0.0, 1.0)) as u64;
        // Never more pages than exist, which is all that can be wrong.
        let _ = self.write(0, pages);
    }

    /// The physical page that holds a logical page; `None` when it was never written, or trimmed since.
    fn location(&self, page: u64) -> Option<u64>;

    /// Bytes of memory that the tables take once every page was written.
    fn memory(&self) -> u64;

    /// Minimum, mean, maximum and spread of the erase counts.
    fn wear(&self) -> Wear {
        Wear::of(self.erase_counts())
    }
}

/// Which translation layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TranslationKind {
    /// [`PageLevel`].
    PageLevel,
    /// [`Fast`].
    Fast,
}

impl TranslationKind {
    /// All kinds, in the order of reports.
    pub const ALL: [TranslationKind; 2] = [TranslationKind::PageLevel, TranslationKind::Fast];

    /// Its name in files, options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            TranslationKind::PageLevel => "page-level",
            TranslationKind::Fast => "fast",
        }
    }

    /// A fresh layer of this kind with its default options.
    ///
    /// # Errors
    /// When the geometry leaves it too few spare blocks.
    pub fn build(self, geometry: Geometry) -> Result<Box<dyn TranslationLayer>, GeometryError> {
        Ok(match self {
            TranslationKind::PageLevel => Box::new(PageLevel::new(geometry, PageLevelOptions::default())?),
            TranslationKind::Fast => Box::new(Fast::new(geometry, FastOptions::default())?),
        })
    }
}

impl std::fmt::Display for TranslationKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for TranslationKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = TranslationKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("`{text}` is no flash translation layer; there are page-level and fast"))
    }
}

/// Fails unless the pages exist.
fn check(geometry: &Geometry, operation: &'static str, first: u64, count: u64) -> Result<(), FtlError> {
    let pages = geometry.logical_pages();
    match first.checked_add(count) {
        Some(end) if end <= pages => Ok(()),
        _ => Err(FtlError::OutOfRange { operation, first, count, pages }),
    }
}
