//! Chips on the market, by name. Source: the tables of Linux's SPI NAND drivers, and the FlashLight paper for its chip.

use crate::Geometry;

/// A chip on the market.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name, in lower case: of a part, or of what it is known by.
    pub name: &'static str,
    /// Its shape, with all spare bytes.
    pub geometry: Geometry,
    /// Bits of 512 bytes that have to be corrected, as its data sheet says.
    pub bits: u32,
}

const fn chip(name: &'static str, (page, spare): (u32, u32), (pages, blocks): (u32, u32), bits: u32) -> Preset {
    let geometry = Geometry { page_bytes: page, spare_bytes: spare, pages_per_block: pages, blocks };
    Preset { name, geometry, bits }
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    chip("w25n01gv", (2048, 64), (64, 1024), 1),
    chip("w25n01kv", (2048, 96), (64, 1024), 4),
    chip("w25n02kv", (2048, 128), (64, 2048), 8),
    chip("w35n01jw", (4096, 128), (64, 512), 1),
    chip("mx35lf1ge4ab", (2048, 64), (64, 1024), 4),
    chip("mt29f1g01abafd", (2048, 128), (64, 1024), 8),
    chip("mt29f2g01abagd", (2048, 128), (64, 2048), 8),
    chip("mt29f4g01abafd", (4096, 256), (64, 2048), 8),
    chip("gd5f1gq5uexxg", (2048, 128), (64, 1024), 4),
    chip("gd5f4gm8uexxg", (2048, 128), (64, 4096), 8),
    chip("tc58cvg0s3hraij", (2048, 128), (64, 1024), 8),
    chip("th58cvg3s0hraij", (4096, 256), (64, 4096), 8),
    // The chip of the FlashLight paper, table I.
    chip("kfg4g16q2m", (2048, 64), (64, 2048), 1),
    // nandsim of Linux, with first_id_byte=0x20 second_id_byte=0xaa third_id_byte=0x00 fourth_id_byte=0x15.
    chip("nandsim", (2048, 64), (64, 2048), 1),
];

/// The chip of this name, in upper or lower case.
pub fn by_name(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chip_has_a_shape_that_chips_have_and_a_name_of_its_own() {
        for (at, preset) in PRESETS.iter().enumerate() {
            let Geometry { page_bytes, spare_bytes, pages_per_block, blocks } = preset.geometry;
            assert_eq!(Geometry::new(page_bytes, spare_bytes, pages_per_block, blocks), Ok(preset.geometry));
            assert!(preset.bits <= 8 && preset.name.to_ascii_lowercase() == preset.name, "{}", preset.name);
            assert_eq!(PRESETS.iter().position(|other| other.name == preset.name), Some(at), "{}", preset.name);
        }
        assert_eq!(by_name("W25N01GV").map(|preset| preset.geometry.bytes()), Some(128 << 20));
        assert_eq!(by_name("w25n"), None);
    }
}
