//! A sparse volume of 1 TiB: how soon it is mounted, and how much memory the mount takes.

use std::fs;
use std::path::Path;
use std::time::Instant;

use basalt_testkit::command::run;
use basalt_testkit::error::Context;
use basalt_testkit::{Error, Result};

use crate::contender::drop_caches;
use crate::options::Options;
use crate::report::{Aim, Sample, Section, Unit};
use crate::workload;

/// Size of the volume.
const VOLUME: &str = "1T";
/// The mount's cache budget (`-o cache=`), which the memory aims do not count.
const CACHE_MIB: u64 = 64;
/// The load: small files, and 4 KiB at random places of a sparse file, so that many nodes are touched.
const FILES: u32 = 20_000;
const WRITES: u64 = 65_536;
const SPARSE_FILE: u64 = 64 << 30;

/// Measures as often as the options say.
pub fn measure(options: &Options) -> Result<Section> {
    let mut section = Section::new("A sparse volume of 1 TiB", "Basalt", "Basalt");
    section.contenders = vec!["Basalt".to_owned()];
    let volume = Volume {
        basalt: options.basalt.display().to_string(),
        image: options.directory.join("huge.img"),
        mount_point: options.directory.join("mnt-huge"),
    };
    fs::create_dir_all(&volume.mount_point).doing("create", &volume.mount_point)?;
    for number in 1..=options.runs() {
        eprintln!("run {number} of {}: {}", options.runs(), section.title);
        let samples = volume.samples(options.quick);
        let unmounted = if volume.daemon().is_ok() { volume.unmount() } else { Ok(()) };
        let _ = fs::remove_file(&volume.image);
        match samples.and_then(|samples| unmounted.map(|()| samples)) {
            Ok(samples) => samples.into_iter().for_each(|sample| section.add("Basalt", sample)),
            Err(error) => section.fail(format!("run {number}: {error}")),
        }
    }
    Ok(section)
}

struct Volume {
    basalt: String,
    image: std::path::PathBuf,
    mount_point: std::path::PathBuf,
}

impl Volume {
    fn samples(&self, quick: bool) -> Result<Vec<Sample>> {
        let format = self.timed(&["mkfs", "--quiet", "--size", VOLUME], &[&self.image])?;
        drop_caches()?;
        let first_mount = self.mount()?;
        let after_mount = self.memory("VmRSS")?;
        self.load(if quick { 16 } else { 1 })?;
        let after_load = self.memory("VmRSS")?;
        let highest = self.memory("VmHWM")?;
        self.unmount()?;
        drop_caches()?;
        let second_mount = self.mount()?;
        let beyond = |mib: f64| (mib - CACHE_MIB as f64).max(0.0);
        let sample = |title: &str, unit, value| Sample::new(title, unit, value);
        Ok(vec![
            sample("format", Unit::Seconds, format),
            sample("mount, empty", Unit::Seconds, first_mount).aim(Aim::Below(1.0)),
            sample("mount, after the load", Unit::Seconds, second_mount).aim(Aim::Below(1.0)),
            sample("memory after mounting", Unit::Mebibytes, after_mount),
            sample("memory after the load", Unit::Mebibytes, after_load),
            sample("memory at its highest", Unit::Mebibytes, highest),
            sample("memory at its highest, beyond the cache's 64 MiB", Unit::Mebibytes, beyond(highest))
                .aim(Aim::Below(100.0)),
        ])
    }

    /// `part` times less than all of it.
    fn load(&self, part: u32) -> Result<()> {
        workload::create(&self.mount_point, FILES / part)?;
        let path = self.mount_point.join("sparse");
        let file = fs::File::create(&path).doing("create", &path)?;
        workload::scatter(&file, &path, SPARSE_FILE, WRITES / u64::from(part))?;
        rustix::fs::syncfs(&file).doing("sync", &path)
    }

    fn mount(&self) -> Result<f64> {
        let cache = format!("cache={CACHE_MIB}M");
        self.timed(&["mount", "-o", &cache], &[&self.image, &self.mount_point])
    }

    fn unmount(&self) -> Result<()> {
        self.timed(&["umount"], &[&self.mount_point]).map(drop)
    }

    /// Runs `basalt` and says how many seconds it took.
    fn timed(&self, words: &[&str], paths: &[&Path]) -> Result<f64> {
        let arguments = words.iter().map(AsRef::as_ref).chain(paths.iter().map(|path| path.as_os_str()));
        let start = Instant::now();
        run(&self.basalt, arguments)?.success()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// A field of the mount's /proc/PID/status, in MiB.
    fn memory(&self, field: &str) -> Result<f64> {
        let path = self.daemon()?.join("status");
        let status = fs::read_to_string(&path).doing("read", &path)?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.map(|kib| kib / 1024.0).ok_or_else(|| Error::Invalid(format!("no {field} in {}", path.display())))
    }

    /// The directory in /proc of the process that serves the mount: the only `basalt` that has the image open.
    fn daemon(&self) -> Result<std::path::PathBuf> {
        let processes = fs::read_dir("/proc").doing("list", Path::new("/proc"))?;
        let places = processes.flatten().map(|entry| entry.path());
        places
            .filter(|place| fs::read_link(place.join("exe")).is_ok_and(|program| program == Path::new(&self.basalt)))
            .find(|place| {
                let files = fs::read_dir(place.join("fd")).into_iter().flatten().flatten();
                files.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == self.image))
            })
            .ok_or_else(|| Error::Invalid("the process that serves the mount cannot be found".to_owned()))
    }
}
