//! The devices and chips that come with Basalt, one TOML file each in `presets/`.

use std::path::Path;

use super::chip::ChipModel;
use super::error::ModelError;
use super::model::DeviceModel;

/// Name and file of each device, in the order of lists.
const DEVICES: [(&str, &str); 10] = [
    ("ssd-h", include_str!("../../presets/ssd-h.toml")),
    ("ssd-m", include_str!("../../presets/ssd-m.toml")),
    ("ssd-l", include_str!("../../presets/ssd-l.toml")),
    ("hdd-m", include_str!("../../presets/hdd-m.toml")),
    ("nvme", include_str!("../../presets/nvme.toml")),
    ("sd-a", include_str!("../../presets/sd-a.toml")),
    ("sd-b", include_str!("../../presets/sd-b.toml")),
    ("sd-l", include_str!("../../presets/sd-l.toml")),
    ("sd-c", include_str!("../../presets/sd-c.toml")),
    ("emmc", include_str!("../../presets/emmc.toml")),
];

/// Name and file of each chip.
const CHIPS: [(&str, &str); 3] = [
    ("nand-slc", include_str!("../../presets/nand-slc.toml")),
    ("nand-mlc", include_str!("../../presets/nand-mlc.toml")),
    ("onenand", include_str!("../../presets/onenand.toml")),
];

fn unknown(name: &str, known: &[(&str, &str)]) -> ModelError {
    let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    ModelError::Unknown { name: name.to_owned(), known: known.join(", ") }
}

/// All devices that come with Basalt.
///
/// # Errors
/// None that a user can meet: the files are part of the program, and tested.
pub fn presets() -> Result<Vec<DeviceModel>, ModelError> {
    DEVICES.iter().map(|(name, text)| DeviceModel::parse(text, name)).collect()
}

/// The device of this name.
///
/// # Errors
/// [`ModelError::Unknown`] lists the names there are.
pub fn preset(name: &str) -> Result<DeviceModel, ModelError> {
    match DEVICES.iter().find(|(known, _)| *known == name) {
        Some((name, text)) => DeviceModel::parse(text, name),
        None => Err(unknown(name, &DEVICES)),
    }
}

/// The TOML file of the device or chip of this name, with its comments.
///
/// # Errors
/// [`ModelError::Unknown`] lists the names there are.
pub fn preset_text(name: &str) -> Result<&'static str, ModelError> {
    let all: Vec<(&str, &'static str)> = DEVICES.iter().chain(&CHIPS).copied().collect();
    match all.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok(text),
        None => Err(unknown(name, &all)),
    }
}

/// A device by the name of a preset or the path of a TOML file, as `basalt lab profile` writes them. A preset's name wins
/// over a file in the current directory; `./name` is always a file.
///
/// # Errors
/// [`ModelError::Unknown`] when it is neither, or what is wrong with the file.
pub fn find(name_or_path: &str) -> Result<DeviceModel, ModelError> {
    match preset(name_or_path) {
        Err(ModelError::Unknown { .. }) if Path::new(name_or_path).exists() => DeviceModel::load(name_or_path),
        found => found,
    }
}

/// All chips that come with Basalt.
///
/// # Errors
/// None that a user can meet: the files are part of the program, and tested.
pub fn chips() -> Result<Vec<ChipModel>, ModelError> {
    CHIPS.iter().map(|(name, text)| ChipModel::parse(text, name)).collect()
}

/// The chip of this name.
///
/// # Errors
/// [`ModelError::Unknown`] lists the names there are.
pub fn chip(name: &str) -> Result<ChipModel, ModelError> {
    match CHIPS.iter().find(|(known, _)| *known == name) {
        Some((name, text)) => ChipModel::parse(text, name),
        None => Err(unknown(name, &CHIPS)),
    }
}
