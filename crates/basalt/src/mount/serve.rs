//! From target and directory to a served mount to a clean volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use basalt_device::{BlockDevice, FileDevice, Lock, LoopDevice, OpenOptions};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Atime, F2fs, Reclaim, SystemClock};
use basalt_fuse::{Losses, MountError, MountOptions, Session, SessionError, Unmounter};
use basalt_nand::Geometry;
use basalt_vfs::{Engine, FileSystem, Live};
use rustix::io::Errno;

use super::counters::Counters;
use super::recorded::Device;
use super::watcher::Watcher;
use super::{MountChoices, Profile, class_of, signals};
use crate::failure::{Failure, Word};
use crate::mounts;
use crate::output::tell;
use crate::size::human;
use crate::statistics::MountFacts;
use crate::statistics::farewell::End;
use crate::target;
use crate::volume::flashlight::{self, Changes};

/// What to mount where.
#[derive(Debug, Clone)]
pub struct Job {
    /// Image file or block device; an absolute path.
    pub target: PathBuf,
    /// Where; an absolute path.
    pub directory: PathBuf,
    /// How.
    pub choices: MountChoices,
    /// How long to wait for a target that is about to be released.
    pub wait: Duration,
    /// Whether messages go to the system log, so that the user has to be told as well.
    pub background: bool,
}

impl Job {
    fn warn(&self, message: &str) {
        if self.background {
            tell(format_args!("basalt: {message}"));
        }
        tracing::warn!("{message}");
    }
}

/// Mounts the volume on the target, says so by `ready`, and serves until the mount is gone and the volume closed.
///
/// # Errors
/// When the target cannot be opened or mounted; `ready` has not been called then. And when the volume could not be closed cleanly.
pub fn serve(job: &Job, ready: impl FnOnce()) -> Result<(), Failure> {
    serve_with(job, |device, profile| open_volume(job, device, profile), ready)
}

/// As [`serve`], with the engine that `open` opens on the target; it is told what the device is like.
///
/// # Errors
/// As [`serve`]; those of `open` among them.
pub fn serve_with(
    job: &Job,
    open: impl FnOnce(Arc<dyn BlockDevice>, &Profile) -> Result<Opened, Failure>,
    ready: impl FnOnce(),
) -> Result<(), Failure> {
    // First: threads inherit it.
    basalt_fuse::protect_server();
    let device = Device::new(open_device(job)?, job.choices.record.as_deref())?;
    let profile = profile(job, &device);
    let opened = open(profile.watch(device.block_device()), &profile).inspect_err(|_| device.abandon())?;
    opened.warnings().iter().for_each(|warning| job.warn(&format!("{}: {warning}", job.target.display())));
    let mounted = mount(job, device.file(), &opened);
    let (fs, engine, is_planned) = (opened.file_system(), opened.engine(), !matches!(opened, Opened::OnRawFlash(_)));
    drop(opened);
    let (session, loop_device) = match mounted {
        Ok(mounted) => mounted,
        Err(failure) => {
            // Nothing has changed on the volume, so an error of closing it is left out: the reason why there is no mount counts.
            let _ = fs.close();
            device.abandon();
            return Err(failure);
        }
    };
    let watcher = watch(&session.unmounter());
    let counters = Arc::new(serve_counters(job, engine.clone(), is_planned.then_some(&profile), &session.unmounter()));
    let (recorded, served) = (device.clone(), Arc::clone(&counters));
    let finish = Box::new(move || {
        // Do not wait for the end of a mount that other programs use.
        drop(served.stop());
        recorded.finish()
    });
    signals::watch(Arc::clone(&fs), session.unmounter(), finish)
        .map_err(|error| Failure::at("waiting for signals", error))?;
    tracing::info!("{} mounted on {}", job.target.display(), job.directory.display());
    ready();
    let losses = session.losses();
    let served = session.run();
    drop(watcher);
    let waiting = counters.stop();
    let recorded = device.finish();
    // Detached before the lock is released with the device: a process that waits for the lock then finds the image free.
    drop(loop_device);
    let end = outcome(served, &losses, engine.map(|engine| engine.live()));
    waiting.tell(&end);
    match end {
        End::Failed(reason) | End::Lost(reason) => {
            tracing::error!("{}: {reason}", job.target.display());
            Err(Failure::at(job.target.display(), reason))
        }
        _ => {
            tracing::info!("{} unmounted from {}, clean", job.target.display(), job.directory.display());
            recorded.inspect_err(|failure| tracing::error!("{}", failure.line()))
        }
    }
}

/// How a mount ended. Data is lost that the kernel handed over in vain, or that the engine still has in memory.
fn outcome(served: Result<(), SessionError>, losses: &Losses, live: Option<Live>) -> End {
    let (refused, beyond) = (losses.bytes(), losses.bytes_beyond());
    let failed = live.filter(|live| live.failed.is_some());
    let unwritten = failed.map_or(0, |live| live.dirty_data_blocks * u64::from(live.block_size));
    let amount = match refused + unwritten {
        0 => String::new(),
        bytes => format!(", {} or more", human(bytes)),
    };
    let lost = format!("data that was not fsynced or synced before is lost{amount}");
    match served {
        Ok(()) if refused > 0 => End::Failed(format!("not everything could be written back: {lost}")),
        Ok(()) if beyond > 0 => End::Lost(format!(
            "{} that programs wrote beyond the largest file size (3.94 TiB) are lost; everything else is there",
            human(beyond)
        )),
        Ok(()) => End::Closed,
        Err(SessionError::Close(reason)) => End::Failed(format!("{reason}: {lost}")),
        Err(error) => End::Failed(error.to_string()),
    }
}

fn open_device(job: &Job) -> Result<FileDevice, Failure> {
    let read_only = job.choices.engine.read_only || job.choices.engine.rescue;
    let lock = if read_only { Lock::Shared } else { Lock::default() };
    target::open(&job.target, &OpenOptions { read_only, lock, ..OpenOptions::default() }, job.wait)
}

/// What the device is taken for. Where plans are made by it and nobody has said what it is, better is learned in use.
fn profile(job: &Job, device: &Device) -> Profile {
    if let Some(profile) = &job.choices.profile {
        return profile.clone().on(class_of(device.file()));
    }
    let (profile, engine) = (Profile::of(device.file()), &job.choices.engine);
    let is_planned = job.choices.reclaim_on(&profile) == Reclaim::Partial && !engine.read_only && !engine.rescue;
    // A recorder takes time of its own.
    if is_planned && matches!(device, Device::Plain(_)) { profile.learning(device.file()) } else { profile }
}

/// What is open.
pub enum Opened {
    /// A volume.
    Volume(Arc<dyn Engine>),
    /// A volume on raw flash: what mounts choose for F2FS (placements, profiles and the like) means nothing to it.
    OnRawFlash(Arc<dyn Engine>),
    /// The files that a search found in a damaged volume. They cannot be changed, and nothing is counted.
    Found(Arc<dyn FileSystem>),
}

impl Opened {
    fn file_system(&self) -> Arc<dyn FileSystem> {
        match self {
            Opened::Volume(engine) | Opened::OnRawFlash(engine) => Arc::<dyn Engine>::clone(engine),
            Opened::Found(fs) => Arc::clone(fs),
        }
    }

    fn engine(&self) -> Option<Arc<dyn Engine>> {
        match self {
            Opened::Volume(engine) | Opened::OnRawFlash(engine) => Some(Arc::clone(engine)),
            Opened::Found(_) => None,
        }
    }

    fn is_writable(&self) -> bool {
        self.engine().is_some_and(|engine| engine.is_writable())
    }

    fn warnings(&self) -> Vec<String> {
        self.engine().map(|engine| engine.warnings()).unwrap_or_default()
    }
}

fn open_volume(job: &Job, device: Arc<dyn BlockDevice>, profile: &Profile) -> Result<Opened, Failure> {
    let path = job.target.display();
    let engine = job.choices.engine_on(profile);
    let rescues = engine.rescue;
    if let Some(shape) = flashlight::detect_whole(&*device)? {
        return open_flashlight(job, device, shape);
    }
    match F2fs::open(device.clone(), engine, Arc::new(SystemClock)) {
        Ok(fs) => Ok(Opened::Volume(Arc::new(fs))),
        Err(error) if rescues => {
            let error = error.to_string();
            // Errors of the device begin with its name.
            let place = if error.starts_with(&*path.to_string()) { String::new() } else { format!("{path}: ") };
            job.warn(&format!("{place}{error}; rescue: searching the whole volume for files, which takes a while"));
            search(job, device)
        }
        Err(error) => Err(Failure::volume(&job.target, &error)),
    }
}

fn open_flashlight(job: &Job, device: Arc<dyn BlockDevice>, shape: Geometry) -> Result<Opened, Failure> {
    let engine = &job.choices.engine;
    let changes = if engine.read_only || engine.rescue { Changes::Dropped } else { Changes::Kept };
    match flashlight::open(&job.target, Arc::clone(&device), shape, changes) {
        Ok(fs) => Ok(Opened::OnRawFlash(Arc::new(fs.with_commit_interval(engine.commit_interval)))),
        Err(error) if engine.rescue => {
            let error = error.line();
            job.warn(&format!("{error}; rescue: searching the whole volume for files, which takes a while"));
            search_flashlight(job, device, shape)
        }
        Err(error) => Err(error),
    }
}

/// Shows what a search for inodes finds.
fn search_flashlight(job: &Job, device: Arc<dyn BlockDevice>, shape: Geometry) -> Result<Opened, Failure> {
    let path = job.target.display();
    let chip = flashlight::chip(device, shape, Changes::Dropped)?;
    let found = basalt_flashlight_vfs::Rescued::search(chip, false, &mut |_, _| ())
        .map_err(|error| Failure::at(path, error))?;
    let report = found.report();
    job.warn(&format!(
        "{}: rescue: {} inodes found, {} files and directories lost, {} pages unreadable",
        job.target.display(),
        report.inodes,
        report.lost,
        report.unreadable_pages
    ));
    Ok(Opened::Found(Arc::new(found)))
}

/// Shows what a search for nodes finds.
fn search(job: &Job, device: Arc<dyn BlockDevice>) -> Result<Opened, Failure> {
    let path = job.target.display();
    let found = Rescued::open(device, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ())
        .map_err(|error| Failure::volume(&job.target, &error))?;
    let report = found.report();
    report.notes.iter().for_each(|note| job.warn(&format!("{path}: {note}")));
    job.warn(&format!(
        "{path}: rescue: {} inodes found, {} names lost, {} bytes unreadable",
        report.inodes, report.lost_names, report.unreadable_bytes
    ));
    Ok(Opened::Found(Arc::new(found)))
}

/// Has the connection aborted if this process is killed. The mount goes on without where that is not possible: `basalt umount` by root does
/// the same later.
fn watch(unmounter: &Unmounter) -> Option<Watcher> {
    let number = unmounter.device_number()?;
    let started = Watcher::start(number, unmounter.mount_point());
    started
        .inspect_err(|error| {
            tracing::info!("no watcher process; the mount can hang if this process is killed: {error}")
        })
        .ok()
}

/// Serves the counters of a mount. Where that is not possible, the mount goes on without.
fn serve_counters(
    job: &Job,
    engine: Option<Arc<dyn Engine>>,
    profile: Option<&Profile>,
    unmounter: &Unmounter,
) -> Counters {
    let Some(engine) = engine else {
        tracing::info!("no live counters for `basalt stats`: a mount of rescued files has none");
        return Counters::none();
    };
    let Some(number) = unmounter.device_number() else {
        job.warn("no live counters for `basalt stats`: /proc/self/mountinfo does not show the mount");
        return Counters::none();
    };
    let mount = MountFacts {
        mount_point: unmounter.mount_point().display().to_string(),
        target: job.target.display().to_string(),
        device_number: number.to_owned(),
        process: std::process::id(),
        ..profile.map(|profile| policies(job, profile)).unwrap_or_default()
    };
    Counters::serve(&engine, mount, profile.cloned()).unwrap_or_else(|error| {
        job.warn(&format!("no live counters for `basalt stats`: {error}"));
        Counters::none()
    })
}

/// What a mount of an F2FS volume goes by.
fn policies(job: &Job, profile: &Profile) -> MountFacts {
    let engine = &job.choices.engine;
    MountFacts {
        placement: engine.placement.name.to_owned(),
        groups: engine.groups,
        touches: engine.touches.map(|touches| touches.name().to_owned()).unwrap_or_default(),
        victim: engine.victim.name().to_owned(),
        background_victim: engine.background_victim.name().to_owned(),
        keep_free: engine.keep_free.name().to_owned(),
        reclaim: job.choices.reclaim_on(profile).name().to_owned(),
        profile: profile.name.clone(),
        flash_page_bytes: Some(job.choices.engine_on(profile).flash_page.bytes()),
        ..MountFacts::default()
    }
}

/// Mounts; an image through a loop device where that is possible. The loop device only lends its name: the engine reads and writes
/// the image itself.
fn mount(job: &Job, device: &FileDevice, opened: &Opened) -> Result<(Session, Option<LoopDevice>), Failure> {
    let mut options = options(job, opened);
    let served = || opened.file_system();
    let is_root = rustix::process::geteuid().is_root();
    if device.is_block_device() && is_root {
        options.block_device = Some(job.target.clone());
        // The kernel claims the device for the mount; the lock stays.
        device.release_exclusive();
        return Ok((Session::mount(served(), &options).map_err(|error| failure(&error))?, None));
    }
    let asked = job.choices.through_loop;
    let mut attached = None;
    if !device.is_block_device() && asked.unwrap_or(is_root) {
        match LoopDevice::attach(&job.target, options.read_only) {
            Ok(device) => attached = Some(device),
            Err(error) if asked == Some(true) => return Err(Failure::device(&error)),
            Err(error) => {
                job.warn(&format!(
                    "{error}; mounted without a loop device, so sync(2) does not wait; use `basalt sync`"
                ));
            }
        }
    }
    options.block_device = attached.as_ref().map(|device| device.path().to_path_buf());
    Ok((Session::mount(served(), &options).map_err(|error| failure(&error))?, attached))
}

fn options(job: &Job, opened: &Opened) -> MountOptions {
    let choices = &job.choices;
    let defaults = MountOptions::new(&job.directory, job.target.display().to_string());
    MountOptions {
        read_only: choices.engine.read_only || !opened.is_writable(),
        allow_other: choices.allow_other.unwrap_or(defaults.allow_other),
        noatime: choices.engine.atime == Atime::Noatime,
        relatime: choices.engine.atime == Atime::Relatime,
        nodiratime: choices.nodiratime,
        nosuid: choices.nosuid,
        nodev: choices.nodev,
        noexec: choices.noexec,
        sync: choices.sync,
        dirsync: choices.dirsync,
        threads: choices.threads.unwrap_or(defaults.threads),
        wakeful: choices.wakeful,
        ..defaults
    }
}

fn failure(error: &MountError) -> Failure {
    let failure = Failure::new(error);
    match error {
        MountError::Missing(path) => failure.hint(format_args!("create it with `mkdir {}`", Word(path))),
        MountError::Occupied { path, .. } => failure.hint(format_args!("unmount {} first", path.display())),
        MountError::Refused { errno: Errno::PERM | Errno::ACCESS, .. } => failure.hint("run as root"),
        _ => failure,
    }
}

/// The true path of something, also when it is the root of a mount that is dead, which cannot be looked at, or one that hangs: mount
/// points are not looked at.
///
/// # Errors
/// When there is nothing.
pub fn true_path(path: &Path) -> std::io::Result<PathBuf> {
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let place = std::fs::canonicalize(parent).map(|parent| parent.join(name));
        if let Ok(place) = place
            && mounts::at(&place).is_some()
        {
            return Ok(place);
        }
    }
    let found = std::fs::canonicalize(path);
    match (&found, path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if Errno::from_io_error(error) == Some(Errno::NOTCONN) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(std::fs::canonicalize(parent)?.join(name))
        }
        _ => found,
    }
}
