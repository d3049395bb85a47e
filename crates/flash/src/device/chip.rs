//! Bare NAND chips.

use serde::{Deserialize, Serialize};

use super::error::ModelError;

/// A NAND chip without a controller: what one operation takes, moving the bytes to or from the host included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChipModel {
    /// Short name, as used in options.
    pub name: String,
    /// What it is, in a few words.
    pub description: String,
    /// Where the numbers come from, and which are assumed.
    pub source: String,
    /// Bytes of a page, without the spare area.
    pub page_bytes: u32,
    /// Bytes of a page's spare (out-of-band) area.
    pub oob_bytes: u32,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Erase blocks of the chip.
    pub blocks: u32,
    /// Nanoseconds to read a page.
    pub read_ns: u64,
    /// Nanoseconds to program a page.
    pub program_ns: u64,
    /// Nanoseconds to erase a block.
    pub erase_ns: u64,
    /// Program/erase cycles that a block is rated for.
    pub rated_cycles: u32,
}

impl ChipModel {
    /// Reads a chip from TOML; `place` is what messages call it.
    ///
    /// # Errors
    /// [`ModelError::Syntax`] with the line, [`ModelError::Field`] with the field that makes no sense.
    pub fn parse(text: &str, place: &str) -> Result<ChipModel, ModelError> {
        let chip: ChipModel = toml::from_str(text).map_err(|error| ModelError::syntax(place, text, &error))?;
        let sizes = [
            ("page_bytes", u64::from(chip.page_bytes), 512, 1 << 16),
            ("oob_bytes", u64::from(chip.oob_bytes), 0, 1 << 14),
            ("pages_per_block", u64::from(chip.pages_per_block), 2, 1 << 15),
            ("blocks", u64::from(chip.blocks), 1, 1 << 24),
            ("read_ns", chip.read_ns, 1, 1 << 40),
            ("program_ns", chip.program_ns, 1, 1 << 40),
            ("erase_ns", chip.erase_ns, 1, 1 << 40),
            ("rated_cycles", u64::from(chip.rated_cycles), 1, 1 << 31),
        ];
        match sizes.iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
            Some((field, value, low, high)) => {
                Err(ModelError::field(place, field, format!("{value} is not from {low} to {high}")))
            }
            None => Ok(chip),
        }
    }

    /// Bytes of an erase block, without spare areas.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.pages_per_block)
    }

    /// Bytes of the chip, without spare areas.
    pub fn capacity_bytes(&self) -> u64 {
        self.block_bytes() * u64::from(self.blocks)
    }
}
