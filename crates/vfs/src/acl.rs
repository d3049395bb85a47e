//! POSIX ACLs.
//!
//! An ACL is a list of entries: who, and which of read, write and execute. Three of them say what the permission bits
//! of the mode say (owner, owning group, others); more users and groups may be named, and then a mask bounds
//! everybody but the owner and the others. See acl(5); the rules here are those of Linux (`fs/posix_acl.c`).
//!
//! Two encodings, both little-endian:
//! - **xattr**: the value of `system.posix_acl_access` and `system.posix_acl_default` as programs see it: a version
//!   (2), then 8 bytes an entry.
//! - **compact**: what ext4 and F2FS keep on disk: a version (1), then 8 bytes for a named user or group, 4 bytes for
//!   any other entry.

use crate::error::{Error, Result};

/// Version of the xattr encoding (`POSIX_ACL_XATTR_VERSION`).
const XATTR_VERSION: u32 = 2;

/// Version of the compact encoding (`F2FS_ACL_VERSION`, `EXT4_ACL_VERSION`).
const COMPACT_VERSION: u32 = 1;

/// Bytes of the version in front of the entries, in both encodings.
const HEADER: usize = 4;

/// Bytes of an entry with an id, and of any entry in the xattr encoding.
const LONG_ENTRY: usize = 8;

/// The id in entries that name nobody; no user or group can have it.
const UNDEFINED_ID: u32 = u32::MAX;

const TAG_USER_OBJECT: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJECT: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// Whom an ACL entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// The owner of the file (`ACL_USER_OBJ`).
    Owner,
    /// The user with this id (`ACL_USER`).
    User(u32),
    /// The group of the file (`ACL_GROUP_OBJ`).
    OwningGroup,
    /// The group with this id (`ACL_GROUP`).
    Group(u32),
    /// The most that users, groups and the owning group get (`ACL_MASK`).
    Mask,
    /// Everybody else (`ACL_OTHER`).
    Other,
}

impl Who {
    fn tag(self) -> u16 {
        match self {
            Who::Owner => TAG_USER_OBJECT,
            Who::User(_) => TAG_USER,
            Who::OwningGroup => TAG_GROUP_OBJECT,
            Who::Group(_) => TAG_GROUP,
            Who::Mask => TAG_MASK,
            Who::Other => TAG_OTHER,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            Who::User(id) | Who::Group(id) => Some(id),
            Who::Owner | Who::OwningGroup | Who::Mask | Who::Other => None,
        }
    }

    /// `id` is asked for only if the tag names somebody.
    fn decode(tag: u16, id: impl FnOnce() -> Result<u32>) -> Result<Who> {
        Ok(match tag {
            TAG_USER_OBJECT => Who::Owner,
            TAG_USER => Who::User(id()?),
            TAG_GROUP_OBJECT => Who::OwningGroup,
            TAG_GROUP => Who::Group(id()?),
            TAG_MASK => Who::Mask,
            TAG_OTHER => Who::Other,
            _ => return Err(Error::Invalid("an ACL entry has an unknown tag")),
        })
    }
}

/// One entry of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Whom it is about.
    pub who: Who,
    /// Read 4, write 2, execute 1.
    pub permissions: u16,
}

/// A valid ACL: owner, users, owning group, groups, mask, others, in this order; the mask is there if a user or group
/// is named. Users and groups may be named twice, as Linux allows; the first counts.
///
/// ```
/// use basalt_vfs::acl::{Acl, Entry, Who};
///
/// let entry = |who, permissions| Entry { who, permissions };
/// let mut acl = Acl::new(vec![
///     entry(Who::Owner, 6),
///     entry(Who::User(1000), 6),
///     entry(Who::OwningGroup, 4),
///     entry(Who::Mask, 6),
///     entry(Who::Other, 0),
/// ])?;
/// acl.chmod(0o640);
/// assert_eq!(acl.permissions(), 0o640);
/// assert_eq!(Acl::parse(&acl.to_xattr())?, acl);
/// # Ok::<(), basalt_vfs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// What a new inode gets from its directory's default ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// Its access ACL; None if the mode says it all.
    pub access: Option<Acl>,
    /// Its default ACL, which only a directory has.
    pub default: Option<Acl>,
    /// Its mode: the one asked for, without what the default ACL does not grant.
    pub mode: u32,
}

impl Acl {
    /// An ACL of these entries.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless Linux's `posix_acl_valid` accepts them: see [`Acl`].
    pub fn new(entries: Vec<Entry>) -> Result<Acl> {
        validate(&entries)?;
        Ok(Acl { entries })
    }

    /// The ACL that says what the permission bits of `mode` say.
    pub fn from_mode(mode: u32) -> Acl {
        let entry = |who, shift| Entry { who, permissions: bits(mode >> shift) };
        Acl { entries: vec![entry(Who::Owner, 6), entry(Who::OwningGroup, 3), entry(Who::Other, 0)] }
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Decodes the value of a `system.posix_acl_…` attribute. A value for which
    /// [`xattr_means_removal`](Self::xattr_means_removal) holds is no ACL: look at that first.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for another version, [`Error::Invalid`] for anything else that Linux refuses.
    pub fn parse(xattr: &[u8]) -> Result<Acl> {
        let body = body_of(xattr, XATTR_VERSION)?;
        let (entries, rest) = body.as_chunks::<LONG_ENTRY>();
        if !rest.is_empty() {
            return Err(Error::Invalid("an ACL ends within an entry"));
        }
        let decode = |&[t0, t1, p0, p1, id @ ..]: &[u8; LONG_ENTRY]| {
            let who = Who::decode(u16::from_le_bytes([t0, t1]), || Ok(u32::from_le_bytes(id)))?;
            Ok(Entry { who, permissions: u16::from_le_bytes([p0, p1]) })
        };
        Acl::new(entries.iter().map(decode).collect::<Result<_>>()?)
    }

    /// Whether setting this value removes the ACL, as Linux takes an empty value and a version without entries.
    pub fn xattr_means_removal(xattr: &[u8]) -> bool {
        xattr.is_empty() || xattr == XATTR_VERSION.to_le_bytes()
    }

    /// The value of a `system.posix_acl_…` attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut xattr = Vec::with_capacity(HEADER + self.entries.len() * LONG_ENTRY);
        xattr.extend(XATTR_VERSION.to_le_bytes());
        for entry in &self.entries {
            push_entry(&mut xattr, entry);
            xattr.extend(entry.who.id().unwrap_or(UNDEFINED_ID).to_le_bytes());
        }
        xattr
    }

    /// Decodes the compact encoding that ext4 and F2FS keep on disk.
    ///
    /// # Errors
    /// [`Error::Corrupted`] for another version, a length that does not fit the entries, or entries that are
    /// no valid ACL.
    pub fn from_compact(bytes: &[u8]) -> Result<Acl> {
        Acl::parse_compact(bytes).map_err(|error| match error {
            Error::Invalid(why) | Error::NotSupported(why) => Error::Corrupted(format!("ACL: {why}")),
            other => other,
        })
    }

    fn parse_compact(bytes: &[u8]) -> Result<Acl> {
        let mut rest = body_of(bytes, COMPACT_VERSION)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let tag = take_u16(&mut rest)?;
            let permissions = take_u16(&mut rest)?;
            let who = Who::decode(tag, || take_u32(&mut rest))?;
            entries.push(Entry { who, permissions });
        }
        Acl::new(entries)
    }

    /// The compact encoding that ext4 and F2FS keep on disk.
    pub fn to_compact(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.entries.len() * LONG_ENTRY);
        bytes.extend(COMPACT_VERSION.to_le_bytes());
        for entry in &self.entries {
            push_entry(&mut bytes, entry);
            bytes.extend(entry.who.id().into_iter().flat_map(u32::to_le_bytes));
        }
        bytes
    }

    /// The permission bits (`0o777`) that a file has with this access ACL. The group's are the mask's if there is
    /// one, for they bound what anybody but owner and others gets.
    pub fn permissions(&self) -> u32 {
        self.get(Who::Owner) << 6 | self.get(self.group_class()) << 3 | self.get(Who::Other)
    }

    /// The permission bits that say the same as this ACL; None if it says more than they can.
    pub fn equivalent_mode(&self) -> Option<u32> {
        let says_more = |entry: &Entry| matches!(entry.who, Who::User(_) | Who::Group(_) | Who::Mask);
        (!self.entries.iter().any(says_more)).then(|| self.permissions())
    }

    /// Changes the access ACL as chmod(2) to `mode` does: owner, others, and the mask or else the owning group.
    pub fn chmod(&mut self, mode: u32) {
        let group_class = self.group_class();
        self.set(Who::Owner, mode >> 6);
        self.set(group_class, mode >> 3);
        self.set(Who::Other, mode);
    }

    /// What a new inode that was asked for with `mode` gets from its directory's default ACL. The umask does not count
    /// then. Not for symbolic links, which inherit nothing. Bits of `mode` beyond `0o777` stay.
    pub fn inherit(default: &Acl, mode: u32, is_dir: bool) -> Inherited {
        // What is asked for and what the default ACL grants: each bounds the other.
        let permissions = mode & default.permissions();
        let mut access = default.clone();
        access.chmod(permissions);
        Inherited {
            access: access.equivalent_mode().is_none().then_some(access),
            default: is_dir.then(|| default.clone()),
            mode: mode & !0o777 | permissions,
        }
    }

    /// The entry that stands for the group bits of the mode.
    fn group_class(&self) -> Who {
        let has_mask = self.entries.iter().any(|entry| entry.who == Who::Mask);
        if has_mask { Who::Mask } else { Who::OwningGroup }
    }

    /// The permissions of an entry that a valid ACL has.
    fn get(&self, who: Who) -> u32 {
        self.entries.iter().find(|entry| entry.who == who).map_or(0, |entry| u32::from(entry.permissions))
    }

    fn set(&mut self, who: Who, permissions: u32) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.who == who) {
            entry.permissions = bits(permissions);
        }
    }
}

/// The lowest three bits.
fn bits(mode: u32) -> u16 {
    // Three bits always fit.
    (mode & 0o7) as u16
}

fn push_entry(bytes: &mut Vec<u8>, entry: &Entry) {
    bytes.extend(entry.who.tag().to_le_bytes());
    bytes.extend(entry.permissions.to_le_bytes());
}

/// What follows the version, which must be this one.
fn body_of(bytes: &[u8], version: u32) -> Result<&[u8]> {
    let mut rest = bytes;
    if take_u32(&mut rest)? != version {
        return Err(Error::NotSupported("an ACL of another version"));
    }
    Ok(rest)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk().ok_or(Error::Invalid("an ACL is cut off"))?;
    *rest = behind;
    Ok(*taken)
}

fn take_u16(rest: &mut &[u8]) -> Result<u16> {
    take(rest).map(u16::from_le_bytes)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32> {
    take(rest).map(u32::from_le_bytes)
}

/// Checks what Linux's `posix_acl_valid` checks.
fn validate(entries: &[Entry]) -> Result<()> {
    // The rank of the last entry: users and groups may repeat theirs, all others come once.
    let mut last = 0;
    let mut names_somebody = false;
    for entry in entries {
        if entry.permissions & !0o7 != 0 {
            return Err(Error::Invalid("an ACL entry has permissions beyond read, write and execute"));
        }
        if entry.who.id() == Some(UNDEFINED_ID) {
            return Err(Error::Invalid("an ACL entry names no valid user or group"));
        }
        let (rank, may_repeat) = match entry.who {
            Who::Owner => (1, false),
            Who::User(_) => (2, true),
            Who::OwningGroup => (3, false),
            Who::Group(_) => (4, true),
            Who::Mask => (5, false),
            Who::Other => (6, false),
        };
        if rank < last || rank == last && !may_repeat {
            return Err(Error::Invalid("the entries of an ACL are not in order, or one is there twice"));
        }
        last = rank;
        names_somebody |= may_repeat;
    }
    let has = |who| entries.iter().any(|entry| entry.who == who);
    if !(has(Who::Owner) && has(Who::OwningGroup) && has(Who::Other)) {
        return Err(Error::Invalid("an ACL lacks the entry of the owner, the owning group or the others"));
    }
    if names_somebody && !has(Who::Mask) {
        return Err(Error::Invalid("an ACL names users or groups but has no mask"));
    }
    Ok(())
}
