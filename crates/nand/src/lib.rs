//! Raw NAND flash: the interface of a chip, error correction, and a chip that enforces the rules of real ones.
//!
//! | module | what |
//! |---|---|
//! | [`geometry`] | how many pages and blocks a chip has, and how large they are |
//! | [`device`] | the [`NandDevice`] trait and its errors: the only thing an engine sees |
//! | [`bch`] | BCH codes over GF(2¹³): they correct 1 to 9 flipped bits of about 1,000 bytes |
//! | [`ecc`] | a chip without error correction, corrected in software |
//! | [`presets`] | chips on the market, by name |
//! | [`chip`] | a chip in memory or in a file, which refuses what real ones do not bear, wears out, and loses power (feature `std`) |
//!
//! A *page* is what is read and programmed at once, with its *spare* bytes. A *block* is what is erased at once: an erase block. Pages
//! and blocks are counted from the beginning of the chip.
//!
//! Without the feature `std` the crate needs neither the standard library nor a heap.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod bch;
#[cfg(feature = "std")]
pub mod chip;
pub mod device;
pub mod ecc;
pub mod geometry;
pub mod presets;

pub use bch::{Bch, Uncorrectable};
#[cfg(feature = "std")]
pub use chip::{Chip, ChipOptions};
pub use device::{NandDevice, NandError, ReadStatus, Result, Rule, check_block, check_page, check_program, is_erased};
pub use ecc::{Corrected, Ecc, EccError};
pub use geometry::{Geometry, GeometryError};
