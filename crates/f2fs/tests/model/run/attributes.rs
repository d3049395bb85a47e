//! Attributes, flags, extended attributes, ACLs.

use basalt_testkit::rng::Rng;
use basalt_vfs::acl::{Acl, Entry, Who};
use basalt_vfs::{FileKind, FileSystem, InodeFlags, InodeNumber, SetAttributes, XattrFlags};

use super::{Outcome, PLENTY, World};
use crate::model::ACL_NAMES;

/// A name of an extended attribute.
fn xattr_name(index: u8) -> Vec<u8> {
    match index % 6 {
        0 => b"user.a".to_vec(),
        1 => b"user.with a longer name".to_vec(),
        2 => [b"user.".as_slice(), &[b'n'; 250]].concat(),
        3 => b"trusted.overlay.opaque".to_vec(),
        4 => b"security.capability".to_vec(),
        _ => b"trusted.\xFF".to_vec(),
    }
}

/// A valid ACL, with or without more than permission bits say.
fn random_acl(seed: u64) -> Acl {
    let mut rng = Rng::new(seed);
    let mut entries = Vec::new();
    let mut add = |who, rng: &mut Rng| entries.push(Entry { who, permissions: rng.below(8) as u16 });
    let (users, groups) = if rng.chance(30) { (0, 0) } else { (rng.size(8), rng.size(8)) };
    add(Who::Owner, &mut rng);
    (0..users).for_each(|id| add(Who::User(id as u32 * 1000), &mut rng));
    add(Who::OwningGroup, &mut rng);
    (0..groups).for_each(|id| add(Who::Group(id as u32 * 1000), &mut rng));
    if users + groups > 0 || rng.chance(30) {
        add(Who::Mask, &mut rng);
    }
    add(Who::Other, &mut rng);
    Acl::new(entries).expect("in order, and with all it needs")
}

impl World {
    /// Changes attributes, size included.
    pub fn set_attributes(&mut self, ino: InodeNumber, changes: &SetAttributes) -> Outcome<()> {
        let (free, now) = (self.free()?, self.now());
        let answer = self.fs.set_attributes(ino, changes);
        // Taking away never needs space.
        let size = self.model.inodes[&ino].attributes.size;
        let grows = changes.size.is_some_and(|new| new > size);
        let free = if grows { free } else { PLENTY };
        let done = self.settle(answer, (free, 0), |model| model.set_attributes(ino, changes, now))?;
        done.map_or(Ok(()), |(attributes, _)| self.same_attributes(&attributes))
    }

    pub(super) fn set_flags(&mut self, ino: InodeNumber, flags: InodeFlags) -> Outcome<()> {
        let now = self.now();
        let answer = self.fs.set_flags(ino, flags);
        self.settle(answer, (PLENTY, 0), |model| model.set_flags(ino, flags, now)).map(|_| ())
    }

    pub(super) fn set_project_id(&mut self, ino: InodeNumber, id: u32) -> Outcome<()> {
        let now = self.now();
        let answer = self.fs.set_project_id(ino, id);
        self.settle(answer, (PLENTY, 0), |model| model.set_project_id(ino, id, now)).map(|_| ())
    }

    pub(super) fn set_xattr(
        &mut self,
        ino: InodeNumber,
        name: u8,
        length: usize,
        fill: u64,
        flags: XattrFlags,
    ) -> Outcome<()> {
        let name = xattr_name(name);
        let mut value = vec![0; length];
        Rng::new(fill).fill(&mut value);
        let (free, now) = (self.free()?, self.now());
        let answer = self.fs.set_xattr(ino, &name, &value, flags);
        self.settle(answer, (free, 0), |model| model.set_xattr(ino, &name, &value, flags, now)).map(|_| ())
    }

    pub(super) fn remove_xattr(&mut self, ino: InodeNumber, name: u8) -> Outcome<()> {
        let now = self.now();
        let name = if name >= 4 { ACL_NAMES[usize::from(name) % 2].to_vec() } else { xattr_name(name) };
        let answer = self.fs.remove_xattr(ino, &name);
        self.settle(answer, (PLENTY, 0), |model| model.remove_xattr(ino, &name, now)).map(|_| ())
    }

    pub(super) fn set_acl(&mut self, ino: InodeNumber, default: bool, acl: Option<u64>) -> Outcome<()> {
        // The kernel never asks for one on a symbolic link.
        if self.model.inodes[&ino].attributes.kind == FileKind::Symlink {
            return Ok(());
        }
        let acl = acl.map(random_acl);
        let value = acl.as_ref().map(Acl::to_xattr).unwrap_or_default();
        let (free, now) = (self.free()?, self.now());
        let answer = self.fs.set_xattr(ino, ACL_NAMES[usize::from(default)], &value, XattrFlags::empty());
        self.settle(answer, (free, 0), |model| model.set_acl(ino, default, acl.clone(), now)).map(|_| ())
    }
}
