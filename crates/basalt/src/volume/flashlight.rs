//! FlashLight volumes in images of NAND chips: telling them from others, and opening them.
//!
//! An image has the pages of a chip one after the other, each with its spare bytes behind it, as `nanddump --oob` writes it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, DeviceError};
use basalt_f2fs::probe::probe;
use basalt_f2fs::{Clock, SystemClock};
use basalt_flashlight::{FlashLight, SHAPE_BYTES, find_shape, memory_bytes};
use basalt_flashlight_vfs::FlashFs;
use basalt_nand::chip::Backing;
use basalt_nand::presets::{self, PRESETS};
use basalt_nand::{Chip, ChipOptions, Corrected, Geometry, NandDevice};
use serde::Serialize;

use crate::failure::Failure;

/// A chip in an image, with error correction.
pub type ImageChip = Corrected<Chip>;
/// A volume in an image.
pub type ImageVolume = FlashLight<Vec<u8>, ImageChip>;

/// Bytes that tell most volumes: block 0 has a root most of the time.
const FIRST: usize = 4096;
/// What [`probe`] calls a FlashLight volume.
pub const NAME: &str = "flashlight";

/// The shape of the chip in an image, with all its spare bytes, if a FlashLight volume is on it.
///
/// # Errors
/// When the device cannot be read.
pub fn detect(device: &dyn BlockDevice) -> Result<Option<Geometry>, DeviceError> {
    if let Some(shape) = find_shape(&first_bytes(device, FIRST)?, device.size()) {
        return Ok(Some(shape));
    }
    // What is something else is read no further.
    match probe(device) {
        Ok(None | Some(NAME)) => Ok(find_shape(&first_bytes(device, SHAPE_BYTES)?, device.size())),
        Ok(Some(_)) => Ok(None),
        Err(basalt_f2fs::Error::Device(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// As [`detect`], and refuses an image that is no whole chip.
///
/// # Errors
/// When the device cannot be read, or a FlashLight volume begins on it, and it has another length than the volume's chip.
pub fn detect_whole(device: &dyn BlockDevice) -> Result<Option<Geometry>, Failure> {
    let failed = |error| Failure::device(&error);
    let found = detect(device).map_err(failed)?;
    if found.is_none() && matches!(probe(device), Ok(Some(NAME))) {
        let size = device.size();
        return Err(Failure::at(
            device.name(),
            format_args!("holds a FlashLight volume, but {size} bytes are no whole image of its chip: it was cut off, or made longer"),
        )
        .hint("`truncate` takes away what was added; `basalt rescue --nand CHIP` reads what is there"));
    }
    Ok(found)
}

fn first_bytes(device: &dyn BlockDevice, most: usize) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; most.min(usize::try_from(device.size()).unwrap_or(most))];
    device.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// What a chip in an image is like, as commands show it.
#[derive(Debug, Serialize)]
pub struct ChipFacts {
    /// Bytes of the image.
    #[serde(rename = "size")]
    pub image_bytes: u64,
    /// Bytes of data of a page.
    pub page_bytes: u32,
    /// Spare bytes of a page, all of them.
    pub spare_bytes: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Blocks of the chip.
    pub blocks: u32,
    /// Those of them that are bad.
    pub bad_blocks: u32,
    /// Flipped bits that are set right in each 512 bytes.
    pub corrected_bits: u32,
}

impl ChipFacts {
    /// Of a chip of this shape.
    pub fn new(shape: &Geometry, bad_blocks: u32, corrected_bits: u32) -> ChipFacts {
        ChipFacts {
            image_bytes: shape.raw_bytes(),
            page_bytes: shape.page_bytes,
            spare_bytes: shape.spare_bytes,
            pages_per_block: shape.pages_per_block,
            blocks: shape.blocks,
            bad_blocks,
            corrected_bits,
        }
    }

    /// Bytes of data of a block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.pages_per_block)
    }

    /// Bytes of data of the chip.
    pub fn bytes(&self) -> u64 {
        self.block_bytes() * u64::from(self.blocks)
    }
}

/// What happens to changes of a chip in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// They go to the image.
    Kept,
    /// They stay in memory, and are gone with it: also those of a mount behind a power cut.
    Dropped,
}

/// The chip in an image, behind error correction.
///
/// # Errors
/// When the image cannot be read, has another length than the chip with its spare bytes, or its spare bytes have no room for error correction.
pub fn chip(device: Arc<dyn BlockDevice>, shape: Geometry, changes: Changes) -> Result<ImageChip, Failure> {
    let name = device.name().to_owned();
    let (bits, options) = (Box::new(Bits(device)), ChipOptions::new(shape));
    let chip = match changes {
        Changes::Kept => Chip::on(bits, options),
        Changes::Dropped => Chip::beside(bits, options),
    };
    let chip = chip.map_err(|error| Failure::at(&name, error))?;
    Corrected::new(chip).map_err(|_| Failure::at(&name, too_little_spare(&shape)))
}

/// As [`chip`], to be read only, in an image that may be too short: what is missing reads as erased.
///
/// # Errors
/// When the image cannot be read, or the chip's spare bytes have no room for error correction.
pub fn chip_that_may_be_cut_off(device: Arc<dyn BlockDevice>, shape: Geometry) -> Result<ImageChip, Failure> {
    let name = device.name().to_owned();
    let bits = Box::new(CutOff { bits: Bits(device), size: shape.raw_bytes() });
    let chip = Chip::beside(bits, ChipOptions::new(shape)).map_err(|error| Failure::at(&name, error))?;
    Corrected::new(chip).map_err(|_| Failure::at(&name, too_little_spare(&shape)))
}

/// Why nothing is corrected on a chip of this shape.
pub fn too_little_spare(shape: &Geometry) -> String {
    let (spare, page) = (shape.spare_bytes, shape.page_bytes);
    format!("{spare} spare bytes are too few for error correction of a page of {page}, or more than 1024")
}

/// Opens the volume on a chip in an image; `path` is what the user called it.
///
/// # Errors
/// As [`chip`], and when the volume is damaged or of a later version.
pub fn mount(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    shape: Geometry,
    changes: Changes,
) -> Result<ImageVolume, Failure> {
    mount_chip(chip(device, shape, changes)?).map_err(|error| failure(path, &error))
}

/// As [`mount`], of a chip that is open.
///
/// # Errors
/// As [`mount`].
pub fn mount_chip(chip: ImageChip) -> basalt_flashlight::Result<ImageVolume> {
    let memory = vec![0; memory_bytes(&chip.geometry())];
    FlashLight::mount(chip, memory)
}

/// As [`mount`], as a file system; with [`Changes::Dropped`] it takes no changes.
///
/// # Errors
/// As [`mount`].
pub fn open(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    shape: Geometry,
    changes: Changes,
) -> Result<FlashFs<ImageChip>, Failure> {
    let volume = mount(path, device, shape, changes)?;
    let clock = Box::new(|| SystemClock.now());
    Ok(match changes {
        Changes::Kept => FlashFs::new(volume, clock),
        Changes::Dropped => FlashFs::read_only(volume, clock),
    })
}

/// A volume that could not be opened or used.
pub fn failure(path: &Path, error: &basalt_flashlight::Error) -> Failure {
    Failure::at(path.display(), format_args!("FlashLight volume: {error}"))
}

/// The bytes of an image, for the chip.
struct Bits(Arc<dyn BlockDevice>);

impl fmt::Debug for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bits").field(&self.0.name()).finish()
    }
}

impl Backing for Bits {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.size())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, bytes).map_err(of_system)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes).map_err(of_system)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().map_err(of_system)
    }
}

/// The bytes of an image that has another length than its chip.
#[derive(Debug)]
struct CutOff {
    bits: Bits,
    size: u64,
}

impl Backing for CutOff {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let there = self.bits.size()?.saturating_sub(offset).min(bytes.len() as u64) as usize;
        bytes[there..].fill(0xFF);
        if there == 0 { Ok(()) } else { self.bits.read_at(offset, &mut bytes[..there]) }
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn of_system(error: DeviceError) -> io::Error {
    match error {
        DeviceError::Io { source, .. } => source,
        other => io::Error::other(other.to_string()),
    }
}

/// What the option for a chip says of itself, with all names.
pub fn chips_help() -> String {
    let shape = |of: &Geometry| {
        let (page, spare) = (of.page_bytes, of.spare_bytes);
        format!("{page}+{spare}x{}x{}", of.pages_per_block, of.blocks)
    };
    let chips: Vec<String> =
        PRESETS.iter().map(|preset| format!("{} ({})", preset.name, shape(&preset.geometry))).collect();
    format!(
        "Of a FlashLight volume, the chip that the image is of: its name, or its shape as PAGE+SPARExPAGESxBLOCKS: data and spare bytes \
         of a page, pages of a block, blocks [default: that of the volume which is there]\n\nNames: {}",
        chips.join(", ")
    )
}

/// A chip by its name or its shape.
///
/// # Errors
/// What a chip can be called.
pub fn parse_chip(text: &str) -> Result<Geometry, String> {
    if let Some(preset) = presets::by_name(text) {
        return Ok(preset.geometry);
    }
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    let expected = || {
        format!(
            "expected a shape as PAGE+SPARExPAGESxBLOCKS, for example 2048+64x64x1024, or one of {}",
            names.join(", ")
        )
    };
    let numbers: Option<Vec<u32>> = text.split(['+', 'x', '×']).map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[page, spare, pages, blocks]) if text.contains('+') => {
            Geometry::new(page, spare, pages, blocks).map_err(|error| error.to_string())
        }
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_have_names_or_shapes() {
        assert_eq!(parse_chip("2048+64x64x1024"), Ok(Geometry::new(2048, 64, 64, 1024).unwrap()));
        assert_eq!(parse_chip("W25N01GV"), parse_chip("2048+64×64×1024"));
        for text in ["", "2048", "2048x64x64x1024", "2048+64x64", "2048+64x64x1024x1", "2000+64x64x1024", "a+bxcxd"] {
            assert!(parse_chip(text).is_err(), "{text}");
        }
    }
}
