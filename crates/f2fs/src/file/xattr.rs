//! Extended attributes: a list over the inode's inline range and the xattr node, read whole, changed, written whole.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use basalt_vfs::XattrFlags;
use basalt_vfs::acl::Acl;

use crate::error::{Error, Result};
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::node::XATTR_NODE_OFFSET;
use crate::layout::xattr::{HEADER_SIZE, MAGIC, NAMESPACES, NODE_CAPACITY, RawXattrEntry, RawXattrHeader, VALUE_MAX};
use crate::layout::{Ino, Nid};
use crate::volume::Volume;

const ENTRY_SIZE: usize = size_of::<RawXattrEntry>();
/// Bytes at the end that stay zero: the list's terminator.
const TERMINATOR: usize = 4;
const NAME_MAX: usize = 255;
const INDEX_ACL_ACCESS: u8 = 2;
const INDEX_ACL_DEFAULT: u8 = 3;
/// `system.advise`: the inode's advise byte, not stored as an attribute.
const INDEX_ADVISE: u8 = 7;

/// One attribute: namespace index, name without prefix, value as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Namespace.
    pub index: u8,
    /// Name without its prefix.
    pub name: Vec<u8>,
    /// Value as it lies on disk (ACLs in their compact form).
    pub value: Vec<u8>,
}

/// Splits a full name into namespace index and rest; `None` for namespaces F2FS has not.
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    NAMESPACES.iter().find_map(|(index, prefix, whole)| {
        let rest = full.strip_prefix(prefix.as_bytes())?;
        (rest.is_empty() == *whole).then_some((*index, rest))
    })
}

/// The prefix of a namespace.
fn prefix(index: u8) -> Option<&'static str> {
    NAMESPACES.iter().find(|(known, _, _)| *known == index).map(|(_, prefix, _)| *prefix)
}

/// Bytes of an inode that hold xattrs: none unless the inode says so.
fn inline_range(raw: &RawInode, flexible: bool) -> std::ops::Range<usize> {
    if raw.is_inline(InlineFlags::XATTR) { raw.inline_xattr_range(flexible) } else { 0..0 }
}

/// Bytes an attribute takes in the list.
fn stored_size(name: usize, value: usize) -> usize {
    (ENTRY_SIZE + name + value).next_multiple_of(4)
}

/// Reads the list that follows the header.
pub fn parse_list(bytes: &[u8]) -> std::result::Result<Vec<Attribute>, String> {
    let mut found = Vec::new();
    let mut at = HEADER_SIZE;
    while at + ENTRY_SIZE <= bytes.len() {
        let Ok((entry, rest)) = RawXattrEntry::read_from_prefix(&bytes[at..]) else { break };
        // The end is marked by four zero bytes.
        if bytes[at..at + ENTRY_SIZE] == [0; ENTRY_SIZE] {
            return Ok(found);
        }
        let (name, value) = (usize::from(entry.e_name_len), usize::from(entry.e_value_size.get()));
        if name + value > rest.len() {
            return Err(format!(
                "entry at byte {at} with a name of {name} and a value of {value} bytes reaches past the end"
            ));
        }
        found.push(Attribute {
            index: entry.e_name_index,
            name: rest[..name].to_vec(),
            value: rest[name..name + value].to_vec(),
        });
        at += stored_size(name, value);
    }
    Ok(found)
}

/// The inverse of [`parse_list`], header included.
fn encode_list(attributes: &[Attribute]) -> Vec<u8> {
    let header = RawXattrHeader { h_magic: U32::new(MAGIC), h_refcount: U32::new(1), h_reserved: [U32::new(0); 4] };
    let mut bytes = header.as_bytes().to_vec();
    for attribute in attributes {
        let entry = RawXattrEntry {
            e_name_index: attribute.index,
            e_name_len: attribute.name.len() as u8,
            e_value_size: U16::new(attribute.value.len() as u16),
        };
        bytes.extend_from_slice(entry.as_bytes());
        bytes.extend_from_slice(&attribute.name);
        bytes.extend_from_slice(&attribute.value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

impl Volume {
    /// All attributes of an inode, as stored.
    pub(crate) fn load_xattrs(&mut self, ino: Ino) -> Result<Vec<Attribute>> {
        let flexible = self.geometry.flexible_inline_xattr();
        let raw = self.inode(ino)?;
        let xattr_nid = raw.xattr_nid();
        let inline = inline_range(raw, flexible);
        if xattr_nid == Nid::NONE && inline.is_empty() {
            return Ok(Vec::new());
        }
        let mut bytes = self.node(ino.nid())?.bytes()[inline].to_vec();
        if xattr_nid != Nid::NONE {
            self.check_xattr_node(ino)?;
            let node = self.node(xattr_nid)?;
            bytes.extend_from_slice(&node.bytes()[..NODE_CAPACITY]);
        }
        // Without the magic the space was never used.
        let used = bytes.len() > HEADER_SIZE && bytes[..4] == MAGIC.to_le_bytes();
        if !used {
            return Ok(Vec::new());
        }
        parse_list(&bytes).map_err(|found| Error::damaged("xattr", format!("inode {ino}"), found))
    }

    /// Fails if an inode's xattr node, where it has one, is another node.
    pub(crate) fn check_xattr_node(&mut self, ino: Ino) -> Result<()> {
        match self.inode(ino)?.xattr_nid() {
            Nid::NONE => Ok(()),
            nid => self.check_child(ino, nid, XATTR_NODE_OFFSET).map(|_| ()),
        }
    }

    /// Writes all attributes of an inode. `NoSpace` if they do not fit, with nothing changed.
    fn store_xattrs(&mut self, ino: Ino, attributes: &[Attribute]) -> Result<()> {
        let flexible = self.geometry.flexible_inline_xattr();
        let raw = self.inode(ino)?;
        let mut xattr_nid = raw.xattr_nid();
        let inline = inline_range(raw, flexible);
        let bytes = if attributes.is_empty() { Vec::new() } else { encode_list(attributes) };
        // The terminator must fit as well.
        let fits_inline = bytes.is_empty() || bytes.len() + TERMINATOR <= inline.len();
        if !fits_inline && bytes.len() + TERMINATOR > inline.len() + NODE_CAPACITY {
            return Err(basalt_vfs::Error::NoSpace.into());
        }
        if !fits_inline && xattr_nid == Nid::NONE {
            self.counts.expect_room(1)?;
            let cold = !self.is_directory(ino)?;
            xattr_nid = self.new_node(Some(ino), XATTR_NODE_OFFSET, cold)?;
            self.inode_mut(ino)?.i_xattr_nid.set(xattr_nid.get());
            self.add_blocks(ino, 1)?;
        }
        if self.is_directory(ino)? {
            self.checkpoint.since_mut().note_reshaped(ino);
        }
        let (front, back) = bytes.split_at(bytes.len().min(inline.len()));
        let space = &mut self.node_mut(ino.nid())?.bytes_mut()[inline];
        space.fill(0);
        space[..front.len()].copy_from_slice(front);
        if xattr_nid != Nid::NONE && fits_inline {
            self.free_node(xattr_nid)?;
            self.inode_mut(ino)?.i_xattr_nid.set(0);
            self.add_blocks(ino, -1)?;
        } else if xattr_nid != Nid::NONE {
            let space = &mut self.node_mut(xattr_nid)?.bytes_mut()[..NODE_CAPACITY];
            space.fill(0);
            space[..back.len()].copy_from_slice(back);
        }
        Ok(())
    }

    fn load_xattr(&mut self, ino: Ino, index: u8, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut all = self.load_xattrs(ino)?;
        let at = all.iter().position(|attribute| attribute.index == index && attribute.name == name);
        Ok(at.map(|at| all.swap_remove(at).value))
    }

    fn store_xattr(&mut self, ino: Ino, index: u8, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut all = self.load_xattrs(ino)?;
        all.retain(|attribute| attribute.index != index || attribute.name != name);
        if let Some(value) = value {
            all.push(Attribute { index, name: name.to_vec(), value: value.to_vec() });
        }
        self.store_xattrs(ino, &all)
    }

    /// The value of an attribute by its full name.
    pub(crate) fn get_xattr(&mut self, ino: Ino, full: &[u8]) -> Result<Vec<u8>> {
        let (index, name) = split_name(full).ok_or(basalt_vfs::Error::NotSupported("xattr namespace"))?;
        match index {
            INDEX_ADVISE => Ok(vec![self.inode(ino)?.i_advise]),
            INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT => {
                let acl = self.load_acl(ino, index == INDEX_ACL_DEFAULT)?;
                Ok(acl.ok_or(basalt_vfs::Error::NoAttribute)?.to_xattr())
            }
            _ => Ok(self.load_xattr(ino, index, name)?.ok_or(basalt_vfs::Error::NoAttribute)?),
        }
    }

    /// Sets an attribute by its full name; an access ACL changes the mode with it.
    pub(crate) fn set_xattr(&mut self, ino: Ino, full: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.expect_changeable(ino)?;
        let (index, name) = split_name(full).ok_or(basalt_vfs::Error::NotSupported("xattr namespace"))?;
        if name.len() > NAME_MAX {
            return Err(basalt_vfs::Error::Range.into());
        }
        if index == INDEX_ADVISE {
            return Err(basalt_vfs::Error::NotSupported("setting system.advise").into());
        }
        if index == INDEX_ACL_ACCESS || index == INDEX_ACL_DEFAULT {
            return self.set_acl_xattr(ino, index == INDEX_ACL_DEFAULT, value);
        }
        if value.len() > VALUE_MAX {
            return Err(basalt_vfs::Error::TooBig.into());
        }
        let old = self.load_xattr(ino, index, name)?;
        match (&old, flags) {
            (Some(_), flags) if flags.contains(XattrFlags::CREATE) => return Err(basalt_vfs::Error::Exists.into()),
            (None, flags) if flags.contains(XattrFlags::REPLACE) => return Err(basalt_vfs::Error::NoAttribute.into()),
            (Some(old), _) if old == value => {}
            _ => self.store_xattr(ino, index, name, Some(value))?,
        }
        self.touch_change(ino)
    }

    /// Removes an attribute by its full name.
    pub(crate) fn remove_xattr(&mut self, ino: Ino, full: &[u8]) -> Result<()> {
        self.expect_changeable(ino)?;
        let (index, name) = split_name(full).ok_or(basalt_vfs::Error::NotSupported("xattr namespace"))?;
        if self.load_xattr(ino, index, name)?.is_none() {
            // Removing an ACL that is not there succeeds, as with every file system.
            let is_acl = index == INDEX_ACL_ACCESS || index == INDEX_ACL_DEFAULT;
            return if is_acl { Ok(()) } else { Err(basalt_vfs::Error::NoAttribute.into()) };
        }
        self.store_xattr(ino, index, name, None)?;
        self.touch_change(ino)
    }

    /// The full names of all attributes, each with a zero byte behind it.
    pub(crate) fn list_xattrs(&mut self, ino: Ino) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        for attribute in self.load_xattrs(ino)? {
            let Some(prefix) = prefix(attribute.index) else { continue };
            names.extend_from_slice(prefix.as_bytes());
            names.extend_from_slice(&attribute.name);
            names.push(0);
        }
        Ok(names)
    }

    /// An inode's access or default ACL.
    pub(crate) fn load_acl(&mut self, ino: Ino, default: bool) -> Result<Option<Acl>> {
        let index = if default { INDEX_ACL_DEFAULT } else { INDEX_ACL_ACCESS };
        match self.load_xattr(ino, index, b"")? {
            Some(value) => Ok(Some(Acl::from_compact(&value)?)),
            None => Ok(None),
        }
    }

    /// Stores an inode's access or default ACL, or removes it.
    pub(crate) fn store_acl(&mut self, ino: Ino, acl: Option<&Acl>, default: bool) -> Result<()> {
        let index = if default { INDEX_ACL_DEFAULT } else { INDEX_ACL_ACCESS };
        let value = acl.map(Acl::to_compact);
        self.store_xattr(ino, index, b"", value.as_deref())
    }

    fn set_acl_xattr(&mut self, ino: Ino, default: bool, value: &[u8]) -> Result<()> {
        let is_directory = self.is_directory(ino)?;
        if default && !is_directory {
            return Err(basalt_vfs::Error::Access.into());
        }
        let acl = if Acl::xattr_means_removal(value) { None } else { Some(Acl::parse(value)?) };
        let permissions = acl.as_ref().filter(|_| !default).map(Acl::permissions);
        // What the permission bits say needs no ACL.
        let kept = acl.filter(|acl| default || acl.equivalent_mode().is_none());
        // The ACL first: it may not fit, and then the permissions stay as they are.
        self.store_acl(ino, kept.as_ref(), default)?;
        if let Some(permissions) = permissions {
            let raw = self.inode_mut(ino)?;
            let mode = u32::from(raw.i_mode.get()) & !0o777 | permissions;
            raw.i_mode.set(mode as u16);
        }
        self.touch_change(ino)
    }
}
