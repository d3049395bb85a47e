//! Mounting without root: `fusermount3`, which is set-uid root, mounts and hands the connection over a socket.

use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};

use crate::protect::unprotected;

use super::{MountError, MountOptions, SUBTYPE, UnmountError};

const HELPER: &str = "fusermount3";
/// The environment variable that names the socket's descriptor to the helper.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Mounts on `path`; returns the connection.
pub(super) fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if let Some(device) = &options.block_device {
        return Err(MountError::NeedsRoot(device.clone()));
    }
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(MountError::device)?;
    // The helper's end is its standard input: descriptor 0, open in the child and nowhere else.
    let output = unprotected(&mut Command::new(HELPER))
        .env(SOCKET_VARIABLE, "0")
        .args(["-o", &words(options).join(","), "--"])
        .arg(path)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => MountError::NoHelper,
        _ => MountError::Helper(error.to_string()),
    })?;
    if !output.status.success() {
        return Err(MountError::Helper(complaint(&output)));
    }
    receive(&ours).ok_or_else(|| MountError::Helper("it handed no connection over".to_owned()))
}

/// Options for the helper; commas and backslashes in the source are escaped.
fn words(options: &MountOptions) -> Vec<String> {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={source}"), format!("subtype={SUBTYPE}")];
    words.extend(options.common_words());
    let choices = [
        (options.read_only, "ro"),
        (options.noatime, "noatime"),
        (options.noexec, "noexec"),
        (options.sync, "sync"),
        (options.dirsync, "dirsync"),
    ];
    words.extend(choices.into_iter().filter(|(chosen, _)| *chosen).map(|(_, word)| word.to_owned()));
    words
}

/// Takes the descriptor that the helper has sent.
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Unmounts `path`.
pub(super) fn unmount(path: &Path) -> Result<(), UnmountError> {
    let failed = |reason| UnmountError::Failed { path: path.to_path_buf(), reason };
    let output = run(&["-u"], path).map_err(|error| failed(format!("{HELPER}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = complaint(&output);
    Err(if reason.contains("busy") { UnmountError::Busy(path.to_path_buf()) } else { failed(reason) })
}

/// Detaches a dead mount.
pub(super) fn detach(path: &Path) {
    let detached = run(&["-u", "-z"], path).map(|output| output.status.success());
    if !matches!(detached, Ok(true)) {
        tracing::warn!(path = %path.display(), "a dead mount stays");
    }
}

fn run(arguments: &[&str], path: &Path) -> std::io::Result<Output> {
    // In the C locale the helper says "busy" where it means it.
    unprotected(&mut Command::new(HELPER))
        .env("LC_ALL", "C")
        .args(arguments)
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()
}

/// What the helper wrote to its standard error, without its own name.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    let text = text.strip_prefix(HELPER).map_or(text, |rest| rest.trim_start_matches([':', ' ']));
    if text.is_empty() { format!("ended with {}", output.status) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_the_source_does_not_end_it() {
        let options = MountOptions { max_read: Some(4096), ..MountOptions::new("/mnt", r"a,b\c") };
        let words = words(&options);
        assert_eq!(words[0], r"fsname=a\,b\\c");
        assert!(words.contains(&"max_read=4096".to_owned()));
    }
}
