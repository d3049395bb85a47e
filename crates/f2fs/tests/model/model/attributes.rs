//! Attributes, flags, extended attributes and ACLs.

use basalt_vfs::acl::Acl;
use basalt_vfs::{Attributes, Error, InodeFlags, InodeNumber, Result, SetAttributes, SetTime, Time, XattrFlags};

use super::{Inode, Model};

/// Longest value: what is left of an xattr node behind the list's header and the entry's own.
const VALUE_MAX: usize = 4072 - 24 - 4;
/// Names of the ACLs.
pub const ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Bytes that an attribute takes, by the length of its name without the prefix.
fn stored(name: usize, value: usize) -> usize {
    (4 + name + value).next_multiple_of(4)
}

impl Inode {
    /// Bytes that the list takes with its header and its end, the attribute `without` left out.
    fn list_size(&self, without: &[u8]) -> usize {
        let named = self.xattrs.iter().filter(|(name, _)| name.as_slice() != without).map(|(name, value)| {
            let prefix = name.iter().position(|&byte| byte == b'.').map_or(0, |dot| dot + 1);
            stored(name.len() - prefix, value.len())
        });
        let acls = self.acls.iter().zip(ACL_NAMES).filter(|(_, name)| *name != without);
        let acls = acls.filter_map(|(acl, _)| acl.as_ref()).map(|acl| stored(0, acl.to_compact().len()));
        24 + named.sum::<usize>() + acls.sum::<usize>() + 4
    }
}

impl Model {
    /// Changes attributes.
    pub fn set_attributes(&mut self, ino: InodeNumber, changes: &SetAttributes, now: Time) -> Result<Attributes> {
        let is_now = |time: Option<SetTime>| matches!(time, None | Some(SetTime::Now)) || time == changes.ctime;
        let only_times = changes.permissions.is_none()
            && changes.uid.is_none()
            && changes.gid.is_none()
            && changes.size.is_none()
            && !changes.clear_suid_sgid;
        let inode = self.get(ino)?;
        // A ctime that a cache has kept since before the flags came, and the mtime that there is.
        let late = only_times
            && changes.atime.is_none()
            && changes.ctime.is_some()
            && changes.mtime == Some(SetTime::To(inode.attributes.mtime));
        let marks_now = only_times && is_now(changes.atime) && is_now(changes.mtime);
        let forbidden = inode.has(InodeFlags::IMMUTABLE) || inode.has(InodeFlags::APPEND) && !marks_now;
        if forbidden && !late && !changes.is_due {
            return Err(Error::NotPermitted("flags"));
        }
        if let Some(size) = changes.size {
            self.truncate(ino, size, now)?;
        }
        let inode = self.get(ino)?;
        if let Some(permissions) = changes.permissions {
            inode.attributes.permissions = permissions & 0o7777;
            if let Some(acl) = &mut inode.acls[0] {
                acl.chmod(permissions);
            }
        }
        if changes.clear_suid_sgid && !inode.is_directory() {
            inode.clear_set_ids();
        }
        let attributes = &mut inode.attributes;
        let time = |time: SetTime| if let SetTime::To(time) = time { time } else { now };
        attributes.uid = changes.uid.unwrap_or(attributes.uid);
        attributes.gid = changes.gid.unwrap_or(attributes.gid);
        attributes.atime = changes.atime.map_or(attributes.atime, time);
        attributes.mtime = changes.mtime.map_or(attributes.mtime, time);
        attributes.ctime = changes.ctime.map_or(now, time);
        Ok(*attributes)
    }

    /// Sets the flags that a user may set.
    pub fn set_flags(&mut self, ino: InodeNumber, flags: InodeFlags, now: Time) -> Result<()> {
        let attributes = &mut self.get(ino)?.attributes;
        let settable = InodeFlags::from_bits_retain(0x2001_00F8);
        attributes.flags = (attributes.flags - settable) | (flags & settable);
        attributes.ctime = now;
        Ok(())
    }

    /// Sets the project id.
    pub fn set_project_id(&mut self, ino: InodeNumber, id: u32, now: Time) -> Result<()> {
        let has_projects = self.shape.has_projects();
        let attributes = &mut self.get(ino)?.attributes;
        if !has_projects {
            return if id == 0 { Ok(()) } else { Err(Error::NotSupported("project ids")) };
        }
        attributes.project_id = id;
        attributes.ctime = now;
        Ok(())
    }

    /// The value of an extended attribute.
    pub fn get_xattr(&mut self, ino: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.get(ino)?;
        if let Some(which) = ACL_NAMES.iter().position(|acl| *acl == name) {
            return inode.acls[which].as_ref().map(Acl::to_xattr).ok_or(Error::NoAttribute);
        }
        inode.xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    /// All names.
    pub fn list_xattrs(&mut self, ino: InodeNumber) -> Result<Vec<Vec<u8>>> {
        let inode = self.get(ino)?;
        let mut names: Vec<Vec<u8>> = inode.xattrs.keys().cloned().collect();
        let acls = inode.acls.iter().zip(ACL_NAMES).filter(|(acl, _)| acl.is_some());
        names.extend(acls.map(|(_, name)| name.to_vec()));
        names.sort();
        Ok(names)
    }

    /// Sets an extended attribute that is no ACL; `name` has one of the three usual prefixes.
    pub fn set_xattr(
        &mut self,
        ino: InodeNumber,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
        now: Time,
    ) -> Result<()> {
        self.expect_changeable(ino)?;
        let inode = self.get(ino)?;
        if value.len() > VALUE_MAX {
            return Err(Error::TooBig);
        }
        let exists = inode.xattrs.contains_key(name);
        if exists && flags.contains(XattrFlags::CREATE) {
            return Err(Error::Exists);
        }
        if !exists && flags.contains(XattrFlags::REPLACE) {
            return Err(Error::NoAttribute);
        }
        let prefix = name.iter().position(|&byte| byte == b'.').map_or(0, |dot| dot + 1);
        if inode.list_size(name) + stored(name.len() - prefix, value.len()) > inode.xattr_room {
            return Err(Error::NoSpace);
        }
        inode.xattrs.insert(name.to_vec(), value.to_vec());
        inode.attributes.ctime = now;
        Ok(())
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&mut self, ino: InodeNumber, name: &[u8], now: Time) -> Result<()> {
        self.expect_changeable(ino)?;
        let inode = self.get(ino)?;
        if let Some(which) = ACL_NAMES.iter().position(|acl| *acl == name) {
            if inode.acls[which].take().is_some() {
                inode.attributes.ctime = now;
            }
            return Ok(());
        }
        inode.xattrs.remove(name).ok_or(Error::NoAttribute)?;
        inode.attributes.ctime = now;
        Ok(())
    }

    /// Sets or removes an ACL.
    pub fn set_acl(&mut self, ino: InodeNumber, default: bool, acl: Option<Acl>, now: Time) -> Result<()> {
        self.expect_changeable(ino)?;
        let inode = self.get(ino)?;
        if default && !inode.is_directory() {
            return Err(Error::Access);
        }
        let permissions = acl.as_ref().filter(|_| !default).map(Acl::permissions);
        let kept = acl.filter(|acl| default || acl.equivalent_mode().is_none());
        let size = kept.as_ref().map_or(0, |acl| stored(0, acl.to_compact().len()));
        if inode.list_size(ACL_NAMES[usize::from(default)]) + size > inode.xattr_room {
            return Err(Error::NoSpace);
        }
        inode.acls[usize::from(default)] = kept;
        if let Some(permissions) = permissions {
            inode.attributes.permissions = inode.attributes.permissions & !0o777 | permissions;
        }
        inode.attributes.ctime = now;
        Ok(())
    }
}
