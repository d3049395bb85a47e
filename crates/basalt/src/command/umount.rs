//! `basalt umount`: unmounts, and waits until the volume is clean.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use basalt_device::file::process_state;
use basalt_device::{FileDevice, Lock, OpenOptions};
use basalt_f2fs::{F2fs, SystemClock};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::abandoned;
use crate::failure::{DONE, Failure, Outcome, Word};
use crate::mount::serve::true_path;
use crate::mounts::{self, Mount};
use crate::output::tell;
use crate::size;
use crate::statistics::AskError;
use crate::statistics::farewell::{End, Farewell};
use crate::target;

/// Unmount a volume, and wait until it is clean
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 unmounted and clean, 1 failed or something was lost, 2 wrong arguments.")]
pub struct Args {
    /// Mount point, or the image or device of a mounted volume
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::AnyPath, required = true)]
    places: Vec<PathBuf>,

    /// Maximum time to wait until the volume is written and closed
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = size::seconds)]
    wait: Duration,
}

/// Runs the command.
///
/// # Errors
/// When nothing of Basalt's is mounted there, it is in use, or the volume was not closed cleanly. The others are unmounted all the same.
pub fn run(args: &Args) -> Outcome {
    let mut failures = args.places.iter().filter_map(|place| unmount(place, args.wait).err());
    let Some(mut last) = failures.next() else { return Ok(DONE) };
    for next in failures {
        tell(format_args!("basalt: umount: {}", last.line()));
        last = next;
    }
    Err(last)
}

fn unmount(place: &Path, wait: Duration) -> Result<(), Failure> {
    let mount = find(place)?;
    let target = mount.target();
    // A server that was killed and hangs does not answer.
    let is_abandoned = abandoned::release(&mount)?;
    let gone = || AskError::Gone(mount.point.clone());
    let farewell = if is_abandoned { Err(gone()) } else { Farewell::of(&mount) };
    // The socket of one that was killed may have been tidied away by another that began.
    let farewell = farewell.map_err(|error| if is_dead(&mount) { gone() } else { error });
    if let Some(process) = farewell.as_ref().ok().and_then(Farewell::server).filter(|&process| is_stopped(process)) {
        let what = format_args!("its serving process ({process}) is stopped");
        return Err(
            Failure::at(mount.point.display(), what).hint(format_args!("continue it with `kill -CONT {process}`"))
        );
    }
    take_away(&mount)?;
    // It may stay mounted elsewhere. Another volume may have got the number meanwhile, and the loop device.
    if mounts::with_device(&mount.device).is_some_and(|other| other.is_basalt() && other.target() == target) {
        return Ok(());
    }
    let late = || tell(format_args!("basalt: {}", waiting(&target, &mount.device)));
    match farewell.map(|farewell| farewell.wait(wait, late)) {
        Ok(End::Closed) => Ok(()),
        Ok(End::Lost(what)) => Err(Failure::at(target.display(), format_args!("unmounted and clean, but {what}"))),
        Ok(End::Failed(reason)) => Err(not_clean(&target, &reason)),
        Ok(End::Late) => Err(Failure::at(target.display(), format_args!("unmounted, but not closed after {wait:?}"))),
        // A read-only mount loses nothing.
        Ok(End::Silent) | Err(AskError::Gone(_)) if !mount.read_only => {
            Err(not_clean(&target, "its serving process ended without closing it"))
        }
        Ok(End::Silent) | Err(_) => look_for_end(&mount, &target, wait),
    }
}

/// Whether a process is stopped, by a signal or a debugger: unmounting would wait for it in the kernel, where nothing ends that.
fn is_stopped(process: u32) -> bool {
    matches!(process_state(process), Some('T' | 't'))
}

/// Whether the serving process of a mount is gone. Called only if the server does not answer.
fn is_dead(mount: &Mount) -> bool {
    matches!(rustix::fs::statvfs(&mount.point), Err(Errno::NOTCONN))
}

/// What is waited for. A mount ends when no mount namespace has it any more; a container or service may have one of its own.
fn waiting(target: &Path, device: &str) -> String {
    let target = target.display();
    match mounts::processes_with(device).first() {
        Some(process) => format!("{target}: waiting for process {process}, which has it in another mount namespace"),
        None => format!("{target}: waiting for it to be written and closed"),
    }
}

fn not_clean(target: &Path, reason: &str) -> Failure {
    let what = format_args!("unmounted, but the volume was not closed cleanly: {reason}").to_string();
    let hint = format_args!("see the system log, and check it with `basalt fsck {}`", target.display()).to_string();
    Failure::at(target.display(), what).hint(hint)
}

/// For a mount whose server does not say how it ended: waits for its lock, and looks at the volume.
fn look_for_end(mount: &Mount, target: &Path, wait: Duration) -> Result<(), Failure> {
    let Some(device) = wait_for_close(target, wait)? else { return Ok(()) };
    if mount.read_only { Ok(()) } else { check_clean(target, device) }
}

fn find(place: &Path) -> Result<Mount, Failure> {
    let path = true_path(place).map_err(|error| Failure::at(place.display(), error))?;
    let mount = mounts::at(&path).or_else(|| mounts::of(&path).filter(Mount::is_basalt));
    match mount {
        Some(mount) if mount.is_basalt() => Ok(mount),
        Some(mount) => {
            let kind = String::from_utf8_lossy(&mount.kind).into_owned();
            Err(Failure::at(place.display(), format_args!("is a {kind} mount, not one of Basalt"))
                .hint("use umount(8)"))
        }
        None => Err(Failure::at(place.display(), "not mounted")),
    }
}

fn take_away(mount: &Mount) -> Result<(), Failure> {
    let (point, word) = (mount.point.display(), Word(&mount.point));
    let in_use = || {
        Failure::at(&point, "in use")
            .hint(format_args!("`fuser -vm {word}` or `lsof +f -- {word}` shows the processes that use it"))
    };
    if rustix::process::geteuid().is_root() {
        return rustix::mount::unmount(&mount.point, UnmountFlags::NOFOLLOW).map_err(|errno| match errno {
            Errno::BUSY => in_use(),
            errno => Failure::at(&point, errno),
        });
    }
    if let Some(owner) = mount.owner.filter(|owner| *owner != rustix::process::geteuid().as_raw()) {
        let who = if owner == 0 { "root".to_owned() } else { format!("user {owner} and root") };
        return Err(Failure::at(&point, format_args!("only {who} may unmount it")));
    }
    let output = Command::new("fusermount3").env("LC_ALL", "C").args(["-u", "--"]).arg(&mount.point).output();
    let output = output.map_err(|error| Failure::at("fusermount3", error).hint("install the package fuse3"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(if said.contains("busy") { in_use() } else { Failure::new(said.trim()) })
}

/// Waits for the lock that the serving process holds until the volume is closed. `None` when that cannot be told, or the volume
/// stays mounted elsewhere.
fn wait_for_close(target: &Path, wait: Duration) -> Result<Option<FileDevice>, Failure> {
    let readable = std::fs::File::open(target).is_ok();
    if !readable || mounts::of(target).is_some() {
        return Ok(None);
    }
    let options = OpenOptions { read_only: true, lock: Lock::Shared, ..OpenOptions::default() };
    target::open(target, &options, wait).map(Some).map_err(|failure| failure.hint("unmounted, but not closed yet"))
}

/// The last checkpoint says whether it was written at the end.
fn check_clean(target: &Path, device: FileDevice) -> Result<(), Failure> {
    let options = basalt_f2fs::OpenOptions { read_only: true, ..basalt_f2fs::OpenOptions::default() };
    let fs = match F2fs::open(Arc::new(device), options, Arc::new(SystemClock)) {
        Ok(fs) => fs,
        // An image that was shown as a file to be recorded holds whatever was made on it.
        Err(basalt_f2fs::Error::NotF2fs { .. }) => return Ok(()),
        Err(error) => return Err(Failure::volume(target, &error)),
    };
    if fs.info().checkpoint.clean {
        return Ok(());
    }
    Err(not_clean(target, "its last checkpoint is not that of a closed volume"))
}
