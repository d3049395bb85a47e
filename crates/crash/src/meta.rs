//! What an inode says about itself besides its content and its names.

use basalt_vfs::{Attributes, Time};

/// The times of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Last read.
    pub access: Time,
    /// Last content change.
    pub modify: Time,
    /// Last attribute change.
    pub change: Time,
    /// Creation, where the volume records it.
    pub birth: Option<Time>,
}

/// The fields of an inode that are neither content nor names. Ordered as they are told in complaints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// Permission bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// `chattr(1)` flags.
    pub flags: u32,
    /// Project id.
    pub project: u32,
    /// Tells inodes apart that had the same number one after the other.
    pub generation: u32,
    /// Its times.
    pub times: Times,
}

impl Meta {
    /// What a file system says of an inode.
    pub fn of(attributes: &Attributes) -> Meta {
        let Attributes { permissions, uid, gid, rdev, project_id, generation, .. } = *attributes;
        let Attributes { atime: access, mtime: modify, ctime: change, crtime: birth, .. } = *attributes;
        let times = Times { access, modify, change, birth };
        Meta { permissions, uid, gid, rdev, flags: attributes.flags.bits(), project: project_id, generation, times }
    }

    /// The first field besides the times in which `found` differs.
    pub fn difference(&self, found: &Meta) -> Option<String> {
        let fields = [
            ("owner", self.uid, found.uid),
            ("group", self.gid, found.gid),
            ("device number", self.rdev, found.rdev),
            ("project", self.project, found.project),
            ("generation", self.generation, found.generation),
        ];
        let number = |(what, expected, found): (&str, u32, u32)| {
            (expected != found).then(|| format!("{what} {found}, expected {expected}"))
        };
        let bits = |what: &str, expected: u32, found: u32| {
            (expected != found).then(|| format!("{what} {found:o}, expected {expected:o}"))
        };
        bits("permissions", self.permissions, found.permissions)
            .or_else(|| bits("flags", self.flags, found.flags))
            .or_else(|| fields.into_iter().find_map(number))
    }
}

impl Times {
    /// The first time in which `found` differs.
    pub fn difference(&self, found: &Times) -> Option<String> {
        let say = |time: Time| format!("{}.{:09}", time.seconds, time.nanoseconds);
        let times = [
            ("access time", self.access, found.access),
            ("modification time", self.modify, found.modify),
            ("change time", self.change, found.change),
            ("birth time", self.birth.unwrap_or_default(), found.birth.unwrap_or_default()),
        ];
        let differs = times.into_iter().find(|(_, expected, found)| expected != found);
        differs.map(|(what, expected, found)| format!("{what} {}, expected {}", say(found), say(expected)))
    }
}
