//! Simulated flash: devices in virtual time, and flash translation layers.
//!
//! | module | what |
//! |---|---|
//! | [`ftl`] | page-level and FAST translation layers: write amplification, erases, wear |

pub mod ftl;

pub use ftl::{
    Fast, FastOptions, FtlError, FtlStatistics, Geometry, GeometryError, GeometryOptions, PageLevel, PageLevelOptions,
    TranslationKind, TranslationLayer, Wear,
};
