//! Which paths can be looked at without asking a FUSE server, which may hang, or be gone while the kernel still waits for it. Whoever
//! looks for the users of one image must not wait for the server of another.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev};

use super::behind::{Identity, parse_device_number};
use super::in_use::unescape;

/// The paths that can be looked at: all but those on FUSE mounts of others. The default is all.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Mount points of the others.
    foreign: Vec<PathBuf>,
}

impl Reach {
    /// As of now. `near` are device numbers (`st_dev`) of file systems that have answered already: what is looked for is on one of them.
    pub fn new(near: &[u64]) -> Reach {
        Reach::parse(&fs::read("/proc/self/mountinfo").unwrap_or_default(), near)
    }

    fn parse(mountinfo: &[u8], near: &[u64]) -> Reach {
        let mounts = mountinfo.split(|&byte| byte == b'\n').filter_map(fuse_mount);
        // Without a root nothing works at all.
        let others = mounts.filter(|(device, point)| !near.contains(device) && point != Path::new("/"));
        Reach { foreign: others.map(|(_, point)| point).collect() }
    }

    /// Whether this absolute path can be looked at.
    pub fn has(&self, path: &Path) -> bool {
        !self.foreign.iter().any(|point| path.starts_with(point))
    }

    /// What is at a path, if it is a file or block device that can be looked at.
    pub(super) fn identity(&self, path: &Path) -> Option<Identity> {
        if self.has(path) { known(path) } else { None }
    }
}

/// What a path leads to, if it is a file or block device. Of what is there only that is asked which the kernel knows itself; so this is
/// for links in `/proc/PID/fd`, whatever they lead to, and for paths within [`Reach`].
pub(super) fn known(path: &Path) -> Option<Identity> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::INO).ok()?;
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => Some(Identity::Device(makedev(found.stx_rdev_major, found.stx_rdev_minor))),
        FileType::RegularFile => Some(Identity::File(makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)),
        _ => None,
    }
}

/// Device number and mount point, from a line of mountinfo about a FUSE mount.
fn fuse_mount(line: &[u8]) -> Option<(u64, PathBuf)> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let kind = fields.get(separator + 1)?.split(|&byte| byte == b'.').next()?;
    if kind != b"fuse" && kind != b"fuseblk" {
        return None;
    }
    let device = parse_device_number(std::str::from_utf8(fields.get(2)?).ok()?, 10)?;
    Some((device, OsString::from_vec(unescape(fields.get(4)?)).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fuse_mounts_of_others_are_out_of_reach() {
        let mountinfo = b"\
20 1 0:40 / / rw - fuse.overlay overlay rw\n\
22 20 254:0 / /data rw,relatime - ext4 /dev/vda rw\n\
23 20 0:41 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n\
31 22 0:50 / /data/a\\040b rw shared:5 - fuse.basalt /img rw\n\
32 22 7:0 / /data/blk rw - fuseblk.basalt /dev/loop0 rw\n\
33 32 254:1 / /data/blk/inner rw - ext4 /dev/vdb rw\n\
damaged line\n";
        let reach = Reach::parse(mountinfo, &[]);
        for path in ["/", "/etc/x", "/data/x", "/data/blkx", "/sys/fs/fuse/connections/1/abort"] {
            assert!(reach.has(Path::new(path)), "{path}");
        }
        // Also what is only reached through them.
        for path in ["/data/a b", "/data/a b/x", "/data/blk/x", "/data/blk/inner/x"] {
            assert!(!reach.has(Path::new(path)), "{path}");
        }
        assert!(Reach::parse(mountinfo, &[makedev(7, 0)]).has(Path::new("/data/blk/x")));
    }
}
