//! What a mount does where no option says otherwise: [`OpenOptions::for_class`], and with `logs=2` what is possible.

use basalt_f2fs::{OpenOptions, Reclaim};
use basalt_segments::placement::Policy;
use basalt_segments::slack::{DeviceClass, FlashPage};
use serde::Serialize;

/// The placement of a mount with so many logs. With 2 there is one for all data, so only F2FS's own will do.
pub(super) fn placement(logs: u8) -> &'static Policy {
    if logs == 2 { OpenOptions::default().placement } else { OpenOptions::for_class(DeviceClass::default()).placement }
}

/// Where logs go on when free segments run short, on a device of this class.
pub(super) fn reclaim(class: DeviceClass) -> Reclaim {
    OpenOptions::for_class(class).reclaim
}

/// The flash page that a device of this class is taken to have.
pub(super) fn flash_page(class: DeviceClass) -> FlashPage {
    OpenOptions::for_class(class).flash_page
}

/// What a mount does by default on a device of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountDefaults {
    /// The class, as `-o profile=` names it.
    pub class: &'static str,
    /// The placement.
    pub placement: &'static str,
    /// The victim policy while a writer waits.
    pub victim: String,
    /// The victim policy while the volume is idle.
    pub background_victim: String,
    /// Where logs go on when free segments run short.
    pub reclaim: &'static str,
    /// Bytes of the flash page that the device is taken to have.
    pub flash_page_bytes: u32,
}

impl MountDefaults {
    /// Those of a class.
    #[must_use]
    pub fn of(class: DeviceClass) -> MountDefaults {
        let options = OpenOptions::for_class(class);
        let placement = options.placement;
        MountDefaults {
            class: class.name(),
            placement: placement.name,
            victim: placement.victim.unwrap_or(options.victim).name().to_owned(),
            background_victim: options.background_victim.name().to_owned(),
            reclaim: options.reclaim.name(),
            flash_page_bytes: options.flash_page.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_defaults_that_a_mount_takes() {
        for class in DeviceClass::ALL {
            let MountDefaults { placement, victim, background_victim, reclaim, flash_page_bytes, .. } =
                MountDefaults::of(class);
            let list = format!(
                "placement={placement},victim={victim},background_victim={background_victim},reclaim={reclaim},flash_page={flash_page_bytes}"
            );
            let mut choices = super::super::MountChoices::default();
            choices.apply(&list).and_then(|()| choices.settle()).unwrap_or_else(|error| panic!("{class:?}: {error}"));
        }
        assert_eq!((placement(2).name, placement(4).name, placement(6).name), ("static", "run-length", "run-length"));
    }
}
