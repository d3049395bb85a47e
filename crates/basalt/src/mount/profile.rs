//! What the device of a mount is like: a class of devices, or a model of this one that `basalt lab profile` has written.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use basalt_device::{BlockDevice, FileDevice, Hardware, StopwatchDevice};
use basalt_f2fs::Learner;
use basalt_flash::{DeviceModel, ModelError};
use basalt_lab::engine::{flash_page, run_times};
use basalt_segments::BLOCKS_PER_SEGMENT;
use basalt_segments::slack::{DeviceClass, DeviceTimes, FlashPage};

use super::{defaults, policies};
use crate::statistics::PlannedBy;

/// How long a device takes for runs of blocks, and who says so.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The class, or the file, as the option names it.
    pub name: String,
    /// The class: what a mount does by default.
    pub class: DeviceClass,
    /// The times.
    pub times: DeviceTimes,
    /// The flash page, as the file says, or as is assumed of the class.
    pub flash_page: FlashPage,
    /// Who says so: a class of devices, or a file.
    from: &'static str,
    /// Who learns better times in use.
    pub learner: Option<Arc<Learner>>,
}

impl From<DeviceClass> for Profile {
    fn from(class: DeviceClass) -> Profile {
        let (times, flash_page) = (class.device_times(), defaults::flash_page(class));
        Profile { name: class.name().to_owned(), class, times, flash_page, from: "class", learner: None }
    }
}

impl Profile {
    /// What the option says for a device that the kernel is asked about.
    pub(super) const AUTO: &str = "auto";
    /// A file says it.
    const FILE: &str = "file";

    /// That of the class that the kernel says a device is of.
    pub(super) fn of(device: &FileDevice) -> Profile {
        class_of(device).into()
    }

    /// What a file says, for a device of this class. `basalt lab profile` measures no flash page: no smaller one is taken than that of the class.
    pub(super) fn on(self, class: DeviceClass) -> Profile {
        if self.from != Profile::FILE {
            return self;
        }
        let flash_page = std::cmp::max_by_key(self.flash_page, defaults::flash_page(class), |page| page.blocks());
        Profile { class, flash_page, ..self }
    }

    /// Learns how long requests to the device take, from now on, where they go to the device itself: those to an image file are over when the page
    /// cache has them.
    pub(super) fn learning(self, device: &FileDevice) -> Profile {
        let start = Instant::now();
        // 584 years.
        let clock = move || start.elapsed().as_nanos() as u64;
        let learner = device.is_direct().then(|| Arc::new(Learner::new(self.times.clone(), clock)));
        Profile { learner, ..self }
    }

    /// The device, which tells the learner how long its requests take, if there is one.
    pub(super) fn watch(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        match &self.learner {
            Some(learner) => Arc::new(StopwatchDevice::new(device, learner.clone())),
            None => device,
        }
    }

    /// What plans are made by now.
    pub(super) fn planned_by(&self) -> PlannedBy {
        let learned = self.learner.as_ref().and_then(|learner| learner.times());
        let (from, times) = learned.as_ref().map_or((self.from, &self.times), |times| ("requests", times));
        PlannedBy { from: from.to_owned(), write_1_ns: times.write(1), write_512_ns: times.write(BLOCKS_PER_SEGMENT) }
    }

    /// The class of this name, or what a file says. A file's name has a `/`, or ends in `.toml`: so no file hides a class.
    ///
    /// # Errors
    /// A text for the user, without the option.
    pub(super) fn parse(value: &str) -> Result<Profile, String> {
        if let Some(class) = DeviceClass::by_name(value) {
            return Ok(class.into());
        }
        let path = Path::new(value);
        if value.contains('/') || path.extension().is_some_and(|extension| extension == "toml") {
            let model = Arc::new(load(path)?);
            let (times, flash_page) = (run_times(&model), flash_page(&model));
            // Until it is known what it is used on.
            let class = DeviceClass::default();
            return Ok(Profile {
                name: value.to_owned(),
                class,
                times,
                flash_page,
                from: Profile::FILE,
                learner: None,
            });
        }
        let classes = DeviceClass::ALL.map(DeviceClass::name);
        let classes = policies::expected(&[&[Profile::AUTO], &classes[..]].concat());
        Err(format!("{classes}, or a file of `basalt lab profile`, whose name has a `/` or ends in `.toml`"))
    }
}

/// What the kernel says that a device is; of an image file, what its file system is on. A solid-state drive where it says nothing.
#[must_use]
pub fn class_of(device: &FileDevice) -> DeviceClass {
    match device.hardware() {
        Some(Hardware::Disk) => DeviceClass::Hdd,
        Some(Hardware::SdCard) => DeviceClass::Sd,
        Some(Hardware::Emmc) => DeviceClass::Emmc,
        Some(Hardware::Solid) | None => DeviceClass::Ssd,
    }
}

/// The flash page that a device is taken to have, by its class.
#[must_use]
pub fn flash_page_of(device: &FileDevice) -> FlashPage {
    defaults::flash_page(class_of(device))
}

fn load(path: &Path) -> Result<DeviceModel, String> {
    // A pipe would be waited for, and is empty when the server reads it.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err("is no file".to_owned());
    }
    // The option names the file already.
    let model = DeviceModel::load(path).map_err(|error| match error {
        ModelError::Read { source, .. } if source.kind() == ErrorKind::InvalidData => {
            "is no model of a device".to_owned()
        }
        ModelError::Read { source, .. } => source.to_string(),
        ModelError::Syntax { line, reason, .. } => format!("is no model of a device: line {line}: {reason}"),
        ModelError::Field { field, reason, .. } => format!("is no model of a device: {field}: {reason}"),
        error @ ModelError::Unknown { .. } => error.to_string(),
    })?;
    if let Some(bytes) =
        model.flash.as_ref().map(|flash| flash.page_bytes).filter(|bytes| *bytes > FlashPage::MAX_BYTES)
    {
        let most = FlashPage::MAX_BYTES >> 10;
        return Err(format!(
            "has flash pages of {} KiB, and slack is aligned to {most} KiB at most: make page_bytes smaller",
            bytes >> 10
        ));
    }
    if !model.knows_writes() {
        return Err("knows reads only; measure writes, too, with `basalt lab profile --write`, which destroys what the device holds".to_owned());
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use basalt_flash::preset;

    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (directory, path)
    }

    #[test]
    fn a_file_gives_the_times_that_the_lab_takes_for_its_model() {
        let model = preset("sd-b").unwrap();
        let (_kept, path) = file("card", &model.to_toml().unwrap());
        let profile = Profile::parse(&path).unwrap();
        assert_eq!((profile.name, profile.from, &profile.times), (path, "file", &run_times(&Arc::new(model))));
        assert_ne!(profile.times, DeviceClass::Sd.device_times());
        assert_eq!(profile.flash_page, FlashPage::BLOCK);
        let (_kept, path) =
            file("card", &preset("sd-b").unwrap().with_flash_page(16 << 10).unwrap().to_toml().unwrap());
        assert_eq!(Profile::parse(&path).unwrap().flash_page.bytes(), 16 << 10);
    }

    #[test]
    fn no_file_makes_the_flash_page_smaller_than_that_of_the_class() {
        let page_on = |class: DeviceClass, model: &DeviceModel| {
            let (_kept, path) = file("card", &model.to_toml().unwrap());
            let profile = Profile::parse(&path).unwrap().on(class);
            (profile.class, profile.flash_page.bytes() >> 10)
        };
        // As `basalt lab profile` writes it.
        let measured = preset("sd-b").unwrap();
        assert_eq!(page_on(DeviceClass::Emmc, &measured), (DeviceClass::Emmc, 16));
        assert_eq!(page_on(DeviceClass::Ssd, &measured), (DeviceClass::Ssd, 4));
        assert_eq!(page_on(DeviceClass::Sd, &measured.with_flash_page(64 << 10).unwrap()), (DeviceClass::Sd, 64));
    }

    #[test]
    fn what_is_no_file_of_a_measured_device_is_refused_in_one_line() {
        let refused = |text: &str| {
            let (_kept, path) = file("x.toml", text);
            let error = Profile::parse(&path).unwrap_err();
            assert!(!error.contains('\n'), "{error}");
            error
        };
        assert!(refused("hello").contains("is no model of a device: line 1: "));
        assert!(refused("").contains("missing field"));
        let model = preset("sd-b").unwrap();
        let reads_only = DeviceModel { write: model.read.clone(), flush_us: 0.0, ..model.clone() };
        assert!(refused(&reads_only.to_toml().unwrap()).contains("reads only"));
        let endless = model.to_toml().unwrap().replace("streams = 6", "streams = 6000");
        assert!(refused(&endless).contains("write.streams: 6000"));
        let wide = model.clone().with_flash_page(512 << 10).unwrap().to_toml().unwrap();
        assert!(refused(&wide).contains("has flash pages of 512 KiB"), "{}", refused(&wide));
        assert_eq!(Profile::parse("/").unwrap_err(), "is no file");
        assert!(Profile::parse("missing.toml").unwrap_err().contains("No such file"));
    }

    #[test]
    fn names_of_classes_are_no_files() {
        let emmc = Profile::parse("emmc").unwrap();
        assert_eq!((&*emmc.name, emmc.from, emmc.times), ("emmc", "class", DeviceClass::Emmc.device_times()));
        // The lab has a device of this name, which can be printed to a file.
        assert!(
            Profile::parse("sd-b").unwrap_err().starts_with("expected auto or ssd or emmc or sd or hdd, or a file")
        );
    }
}
