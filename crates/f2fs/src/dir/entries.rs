//! The entries of one directory block or inline directory, on its bytes.

use basalt_vfs::FileKind;
use zerocopy::{FromBytes, IntoBytes};

use super::hash::hash;
use crate::layout::dentry::{DentryShape, RawDentry, SLOT_LEN, slots_for};
use crate::layout::{Ino, NAME_MAX, bit_lsb, set_bit_lsb};

/// The kind of inode as a directory entry stores it.
pub fn file_type(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

/// The inverse of [`file_type`].
pub fn kind_of(file_type: u8) -> Option<FileKind> {
    Some(match file_type {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

/// The entry at `slot`, as stored.
pub fn entry(bytes: &[u8], shape: &DentryShape, slot: usize) -> RawDentry {
    let at = shape.dentries_at + slot * size_of::<RawDentry>();
    RawDentry::read_from_bytes(&bytes[at..at + size_of::<RawDentry>()]).unwrap_or_default()
}

/// The name of the entry at `slot`; `None` if its length is impossible.
pub fn name<'a>(bytes: &'a [u8], shape: &DentryShape, slot: usize, entry: &RawDentry) -> Option<&'a [u8]> {
    let length = usize::from(entry.name_len.get());
    if length == 0 || length > NAME_MAX || slot + slots_for(length) > shape.entries {
        return None;
    }
    let at = shape.names_at + slot * SLOT_LEN;
    Some(&bytes[at..at + length])
}

/// Finds a name.
pub fn find(bytes: &[u8], shape: &DentryShape, hash: u32, wanted: &[u8]) -> Option<usize> {
    let hash = hash.to_le_bytes();
    let dentries = &bytes[shape.dentries_at..][..shape.entries * size_of::<RawDentry>()];
    // Hashes first: nearly all entries differ there, and slots out of use are few.
    dentries.chunks_exact(size_of::<RawDentry>()).enumerate().find_map(|(slot, dentry)| {
        let hit = dentry[..4] == hash && bit_lsb(bytes, slot);
        let same = hit && name(bytes, shape, slot, &entry(bytes, shape, slot)) == Some(wanted);
        same.then_some(slot)
    })
}

/// The first place with `count` free slots in a row.
pub fn find_room(bytes: &[u8], shape: &DentryShape, count: usize) -> Option<usize> {
    let mut free = 0;
    for slot in 0..shape.entries {
        free = if bit_lsb(bytes, slot) { 0 } else { free + 1 };
        if free == count {
            return Some(slot + 1 - count);
        }
    }
    None
}

/// Writes an entry into slots that [`find_room`] found.
pub fn insert(bytes: &mut [u8], shape: &DentryShape, slot: usize, hash: u32, name: &[u8], ino: Ino, file_type: u8) {
    for step in 0..slots_for(name.len()) {
        let mut dentry = RawDentry::default();
        if step == 0 {
            dentry.hash_code.set(hash);
            dentry.ino.set(ino.get());
            dentry.name_len.set(name.len() as u16);
            dentry.file_type = file_type;
        }
        put_entry(bytes, shape, slot + step, &dentry);
        set_bit_lsb(bytes, slot + step, true);
    }
    let at = shape.names_at + slot * SLOT_LEN;
    bytes[at..at + name.len()].copy_from_slice(name);
}

/// Points the entry at `slot` to another inode.
pub fn redirect(bytes: &mut [u8], shape: &DentryShape, slot: usize, ino: Ino, file_type: u8) {
    let mut dentry = entry(bytes, shape, slot);
    dentry.ino.set(ino.get());
    dentry.file_type = file_type;
    put_entry(bytes, shape, slot, &dentry);
}

pub(crate) fn put_entry(bytes: &mut [u8], shape: &DentryShape, slot: usize, dentry: &RawDentry) {
    let at = shape.dentries_at + slot * size_of::<RawDentry>();
    bytes[at..at + size_of::<RawDentry>()].copy_from_slice(dentry.as_bytes());
}

/// Frees the slots of the entry at `slot`.
pub fn remove(bytes: &mut [u8], shape: &DentryShape, slot: usize) {
    let end = end(bytes, shape, slot);
    (slot..end).for_each(|slot| set_bit_lsb(bytes, slot, false));
}

/// Where the entry at `slot` ends: behind the slots that its name takes. If its hash is not of that name, and one of those slots holds
/// another entry whose hash is of its own, the length is wrong, and the entry ends there.
pub fn end(bytes: &[u8], shape: &DentryShape, slot: usize) -> usize {
    let name = name(bytes, shape, slot, &entry(bytes, shape, slot));
    let stated = slot + name.map_or(1, |name| slots_for(name.len()));
    let other = (slot + 1..stated).find(|&other| is_sound(bytes, shape, other));
    other.filter(|_| !is_sound(bytes, shape, slot)).unwrap_or(stated)
}

/// Whether there is an entry at `slot`, and its hash is of its name. Never so in directories that hash another form of it.
pub fn is_sound(bytes: &[u8], shape: &DentryShape, slot: usize) -> bool {
    let raw = entry(bytes, shape, slot);
    let name = name(bytes, shape, slot, &raw).filter(|_| bit_lsb(bytes, slot));
    name.is_some_and(|name| raw.hash_code.get() == hash(name))
}

/// The length of the name at `slot` that its hash is of: in its own slot and those behind it that are in use, and in which no entry begins.
pub fn length_by_hash(bytes: &[u8], shape: &DentryShape, slot: usize) -> Option<usize> {
    let goes_on = |&slot: &usize| bit_lsb(bytes, slot) && entry(bytes, shape, slot).name_len.get() == 0;
    let slots = 1 + (slot + 1..shape.entries).take_while(goes_on).count();
    let at = shape.names_at + slot * SLOT_LEN;
    let name = &bytes[at..at + (slots * SLOT_LEN).min(NAME_MAX)];
    let wanted = entry(bytes, shape, slot).hash_code.get();
    let end = name.iter().position(|byte| matches!(byte, 0 | b'/')).unwrap_or(name.len());
    (1..=end).find(|&length| wanted != 0 && hash(&name[..length]) == wanted)
}

/// The first entry in use at or behind `slot`.
pub fn next_used(bytes: &[u8], shape: &DentryShape, slot: usize) -> Option<usize> {
    (slot..shape.entries).find(|&slot| bit_lsb(bytes, slot))
}

/// Whether nothing but `.` and `..` is there. A damaged entry is something: a file may be behind it.
pub fn is_empty(bytes: &[u8], shape: &DentryShape) -> bool {
    (0..shape.entries).filter(|&slot| bit_lsb(bytes, slot)).all(|slot| {
        let entry = entry(bytes, shape, slot);
        // Of a file that was damaged to look like them, the hash is another.
        entry.hash_code.get() == 0 && matches!(name(bytes, shape, slot, &entry), Some(b"." | b".."))
    })
}

/// Whether no bit is set.
pub fn is_vacant(bytes: &[u8], shape: &DentryShape) -> bool {
    next_used(bytes, shape, 0).is_none()
}
