//! Modes, owners, extended attributes and ACLs.

use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, lsetxattr, utimensat,
};

use crate::error::{Context, Result};
use crate::rng::Rng;
use crate::skip::is_root;

/// Every kind of permission, as root; each leaves the owner what a walk needs, otherwise.
const ROOT_MODES: [u32; 10] = [0o644, 0o755, 0o600, 0o400, 0o000, 0o777, 0o4755, 0o2711, 0o1777, 0o6070];
const USER_MODES: [u32; 4] = [0o700, 0o755, 0o777, 0o750];

/// The most that one attribute of the tree's own has; all of them together fit F2FS's and ext4's one block.
const MAX_VALUE: u64 = 400;

/// What an inode that holds attributes may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, a device node, a FIFO, a socket: no `user` attributes.
    Other,
}

/// Sets a random mode.
pub fn set_mode(path: &Path, rng: &mut Rng) -> Result<()> {
    let modes: &[u32] = if is_root() { &ROOT_MODES } else { &USER_MODES };
    let mode = modes[rng.index(modes.len())];
    chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty()).doing("change the mode of", path)
}

/// Sets a random owner and group; does nothing but draw when not root.
pub fn set_owner(path: &Path, rng: &mut Rng) -> Result<()> {
    const OWNERS: [u32; 6] = [0, 1, 1000, 65_534, 100_000, 4_294_967_294];
    let user = Uid::from_raw(OWNERS[rng.index(OWNERS.len())]);
    let group = Gid::from_raw(OWNERS[rng.index(OWNERS.len())]);
    if !is_root() {
        return Ok(());
    }
    chownat(CWD, path, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW).doing("change the owner of", path)
}

/// Sets or replaces one of a few attributes.
pub fn set_xattr(path: &Path, target: Target, rng: &mut Rng) -> Result<()> {
    let number = rng.below(3);
    let mut value = vec![0; rng.size(MAX_VALUE) as usize];
    rng.fill(&mut value);
    let space = rng.below(4);
    let name = match (target, space) {
        (Target::Other, _) | (_, 0) if is_root() => format!("trusted.basalt{number}"),
        (_, 1) if is_root() => "security.basalt".to_owned(),
        (Target::Other, _) => return Ok(()),
        _ => format!("user.basalt{number}"),
    };
    lsetxattr(path, name.as_str(), &value, XattrFlags::empty()).doing("set an extended attribute of", path)
}

/// Gives a program a file capability (root only): the kernel takes it away again when the file is written.
pub fn set_capability(path: &Path, rng: &mut Rng) -> Result<()> {
    // vfs_cap_data of revision 2 (linux/capability.h): magic with the effective bit, then permitted and inheritable sets.
    let mut value = [0; 20];
    value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    value[4] = rng.between(1, 255) as u8;
    if !is_root() {
        return Ok(());
    }
    lsetxattr(path, "security.capability", &value, XattrFlags::empty()).doing("set a capability of", path)
}

/// Sets a random access ACL, or a default ACL on a directory.
pub fn set_acl(path: &Path, target: Target, rng: &mut Rng) -> Result<()> {
    if target == Target::Other {
        return Ok(());
    }
    let default = target == Target::Directory && rng.chance(50);
    let name = if default { "system.posix_acl_default" } else { "system.posix_acl_access" };
    lsetxattr(path, name, &acl(rng), XattrFlags::empty()).doing("set an ACL of", path)
}

/// An ACL in the kernel's extended-attribute form (linux/posix_acl_xattr.h): a version, then tag, permissions and id of
/// every entry, ordered by tag and id. The owner keeps every right, so that the tree stays usable without root.
fn acl(rng: &mut Rng) -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let mut entries: Vec<(u16, u16, u32)> = vec![(0x01, 7, NO_ID)];
    let mut named = |tag: u16, entries: &mut Vec<(u16, u16, u32)>| {
        let mut id = 0;
        for _ in 0..rng.below(4) {
            id += 1 + rng.below(1000) as u32;
            entries.push((tag, rng.below(8) as u16, id));
        }
    };
    named(0x02, &mut entries);
    entries.push((0x04, 5, NO_ID));
    named(0x08, &mut entries);
    entries.push((0x10, rng.below(8) as u16, NO_ID));
    entries.push((0x20, rng.below(8) as u16, NO_ID));
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Sets both times of a file without following a symbolic link.
pub fn set_time(path: &Path, time: Timespec) -> Result<()> {
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).doing("set the times of", path)
}
