//! Directories: their blocks, and entries that are wrong, in the wrong place or twice.

use super::entry::Found;
use super::level::Level;
use super::state::State;
use crate::check::{Fault, FaultKind, Place, Survey};
use crate::dir::entries;
use crate::dir::hash::hash;
use crate::error::Result;
use crate::layout::dentry::{DentryShape, RawDentry, SLOT_LEN};
use crate::layout::{Ino, bit_lsb, set_bit_lsb};

impl State {
    /// Repairs a fault of an entry or of what entries say about a directory; says what was done.
    pub(super) fn repair_entry(&mut self, survey: &Survey, fault: &Fault) -> Result<Option<String>> {
        match (fault.kind, fault.place) {
            (FaultKind::DentryDots, Place::Inode(ino)) => self.restore_dots(survey, ino).map(Some),
            (FaultKind::DirectoryParents, Place::Inode(ino)) => {
                // The check says which directory the second name is in.
                let Some(second) = fault.right.and_then(|right| u32::try_from(right).ok()).map(Ino::new) else {
                    return Ok(None);
                };
                self.remove_second_name(survey, ino, second)
            }
            (FaultKind::DirectoryCycle, Place::Inode(ino)) => {
                let Some(&parent) = survey.parents.get(&ino) else { return Ok(None) };
                let removed = self.remove_names_of(survey, parent, ino, 0)?;
                Ok((removed > 0).then(|| format!("name in directory {parent} removed")))
            }
            (kind, Place::Dentry { directory, block, slot }) => {
                self.repair_at(survey, kind, directory, block, slot as usize)
            }
            _ => Ok(None),
        }
    }

    fn repair_at(
        &mut self,
        survey: &Survey,
        kind: FaultKind,
        directory: Ino,
        block: Option<u64>,
        slot: usize,
    ) -> Result<Option<String>> {
        let Some((content, shape)) = self.entries_of(survey, directory, block)? else { return Ok(None) };
        if slot >= shape.entries || !bit_lsb(&content, slot) {
            return Ok(None);
        }
        let raw = entries::entry(&content, &shape, slot);
        if kind == FaultKind::DentryNameLength {
            return self.mend_length(survey, directory, block, slot, &content, &shape).map(Some);
        }
        let Some(mut name) = entries::name(&content, &shape, slot, &raw).map(<[u8]>::to_vec) else { return Ok(None) };
        // What belongs to entries behind it is no part of its name.
        name.truncate((entries::end(&content, &shape, slot) - slot) * SLOT_LEN);
        let found = Found { block, slot, name, raw };
        let action = match kind {
            FaultKind::DentryName => {
                let own = self.name_with_hash(survey, directory, raw.ino(), raw.hash_code.get())?;
                let name = own.unwrap_or_else(|| {
                    found.name.iter().map(|&byte| if matches!(byte, 0 | b'/') { b'_' } else { byte }).collect()
                });
                self.rename(survey, directory, &found, &name)?
            }
            FaultKind::DentryDuplicate => {
                // Its name may have been mended meanwhile.
                if !self.is_twice(survey, directory, &found.name)? {
                    return Ok(None);
                }
                let is_directory = survey.directories.contains_key(&found.raw.ino());
                if is_directory && self.is_there_again(survey, directory, &found)? {
                    // As where a block of long ago is in place of another. A directory has one name: the right one stays.
                    self.remove_entry(survey, directory, &found)?;
                    "taken out: the other one leads to the same directory".to_owned()
                } else {
                    self.rename(survey, directory, &found, &found.name)?
                }
            }
            FaultKind::DentryBucket => match self.mend_level(survey, directory)? {
                Level::Set(action) => return Ok(Some(action)),
                Level::SetBefore => return Ok(None),
                Level::Right => self.move_entry(survey, directory, &found)?,
            },
            FaultKind::DentryHash => {
                if raw.hash_code.get() == hash(&found.name) {
                    // Mended together with another one.
                    return Ok(None);
                }
                if let Some(own) = self.remembered_name(survey, directory, &found)? {
                    return self.rename_back(survey, directory, found, own).map(Some);
                }
                let code = hash(&found.name);
                let other = match self.name_with_hash(survey, directory, raw.ino(), code)? {
                    Some(own) if own == found.name => None,
                    _ => self.nameless(survey, directory, &found.name)?,
                };
                let ino = other.map_or(raw.ino, Into::into);
                let name_len = (found.name.len() as u16).into();
                self.put_entry(survey, directory, &found, RawDentry { hash_code: code.into(), ino, name_len, ..raw })?;
                other.map_or("hash computed anew".into(), |ino| {
                    format!("hash computed anew, and now inode {ino}, which remembers this name")
                })
            }
            FaultKind::DentryType => {
                let dot = found.name == b"." || found.name == b"..";
                let inode = survey.inodes.get(&raw.ino()).and_then(|inode| inode.kind);
                let kind = if dot { Some(basalt_vfs::FileKind::Directory) } else { inode };
                let Some(kind) = kind else { return Ok(None) };
                let file_type = entries::file_type(kind);
                self.put_entry(survey, directory, &found, RawDentry { file_type, ..raw })?;
                format!("now type {file_type}, as the inode")
            }
            FaultKind::DentryIno => match self.nameless(survey, directory, &found.name)? {
                Some(ino) => {
                    self.put_entry(survey, directory, &found, RawDentry { ino: ino.into(), ..raw })?;
                    format!("now inode {ino}, which remembers this name")
                }
                None if self.remake_directory(survey, directory, &found.name, &raw)? => {
                    "a new directory of this number, for root alone: files remember that they were in it".into()
                }
                None => {
                    self.remove_entry(survey, directory, &found)?;
                    format!("entry {:?} removed", String::from_utf8_lossy(&found.name))
                }
            },
            FaultKind::DentryDots => {
                self.remove_entry(survey, directory, &found)?;
                "second entry removed".into()
            }
            _ => return Ok(None),
        };
        Ok(Some(action))
    }

    /// An entry whose name has an impossible length: the length is the one that fits the hash, if one does.
    fn mend_length(
        &mut self,
        survey: &Survey,
        directory: Ino,
        block: Option<u64>,
        slot: usize,
        content: &[u8],
        shape: &DentryShape,
    ) -> Result<String> {
        let raw = entries::entry(content, shape, slot);
        let found = Found { block, slot, name: Vec::new(), raw };
        if let Some(length) = entries::length_by_hash(content, shape, slot) {
            self.put_entry(survey, directory, &found, RawDentry { name_len: (length as u16).into(), ..raw })?;
            return Ok(format!("length {length}, which fits the hash"));
        }
        self.edit_entries(survey, directory, block, |content, _| set_bit_lsb(content, slot, false))?;
        Ok("entry removed".into())
    }

    fn remove_entry(&mut self, survey: &Survey, directory: Ino, found: &Found) -> Result<bool> {
        self.edit_entries(survey, directory, found.block, |content, shape| entries::remove(content, shape, found.slot))
    }

    /// Removes the names of an inode from a directory, all but the first `keep`; how many.
    fn remove_names_of(&mut self, survey: &Survey, directory: Ino, ino: Ino, keep: usize) -> Result<usize> {
        let names = self.names_of(survey, directory, ino)?;
        for found in names.iter().skip(keep) {
            self.remove_entry(survey, directory, found)?;
        }
        Ok(names.len().saturating_sub(keep))
    }

    fn remove_second_name(&mut self, survey: &Survey, ino: Ino, second: Ino) -> Result<Option<String>> {
        let first = survey.parents.get(&ino).copied().unwrap_or(second);
        let points_to = survey.directories.get(&ino).and_then(|directory| directory.dot_dot);
        let is_root = ino == self.geometry.root_ino;
        let (from, keep) = match points_to {
            _ if is_root => (second, 0),
            _ if first == second => (second, 1),
            Some(parent) if parent == second => (first, 0),
            _ => (second, 0),
        };
        let removed = self.remove_names_of(survey, from, ino, keep)?;
        Ok((removed > 0).then(|| format!("name in directory {from} removed")))
    }

    /// `.` and `..` as they should be.
    fn restore_dots(&mut self, survey: &Survey, ino: Ino) -> Result<String> {
        let parent = if ino == self.geometry.root_ino { Some(ino) } else { survey.parents.get(&ino).copied() };
        let parent = parent.unwrap_or(self.geometry.root_ino);
        self.set_dots(survey, ino, parent)?;
        Ok(format!("`.` leads to {ino}, `..` to {parent}"))
    }

    /// Gives an entry a name that the directory does not have yet.
    fn rename(&mut self, survey: &Survey, directory: Ino, found: &Found, name: &[u8]) -> Result<String> {
        let new = self.free_name(survey, directory, name)?;
        let moved = Found { name: new, ..found.clone() };
        self.move_entry(survey, directory, &moved)?;
        Ok(format!("renamed to {:?}", String::from_utf8_lossy(&moved.name)))
    }

    /// The name that the inode of an entry remembers and the hash is of, where the entry has another one.
    fn remembered_name(&self, survey: &Survey, directory: Ino, found: &Found) -> Result<Option<Vec<u8>>> {
        let (ino, wanted) = (found.raw.ino(), found.raw.hash_code.get());
        if wanted == hash(&found.name) {
            return Ok(None);
        }
        Ok(self.name_with_hash(survey, directory, ino, wanted)?.filter(|own| *own != found.name))
    }

    /// Gives an entry its name back. An entry that has come to that name as wrongly makes room first, for a name of its own.
    fn rename_back(&mut self, survey: &Survey, directory: Ino, found: Found, own: Vec<u8>) -> Result<String> {
        let mut out = Vec::new();
        let mut next = Some((found, own));
        while let Some((found, own)) = next {
            self.remove_entry(survey, directory, &found)?;
            let holder = self.find(survey, directory, &own)?;
            out.push((found, own));
            next = match holder {
                Some(holder) => self.remembered_name(survey, directory, &holder)?.map(|name| (holder, name)),
                None => None,
            };
        }
        let mut done = Vec::new();
        for (found, own) in out.into_iter().rev() {
            let name = self.free_name(survey, directory, &own)?;
            let added = self.add_entry(survey, directory, &name, found.raw.ino(), found.raw.file_type)?;
            let name = String::from_utf8_lossy(&name).into_owned();
            done.push(if added { format!("renamed to {name:?}") } else { format!("taken out: no room for {name:?}") });
        }
        done.reverse();
        Ok(format!("{}, as the inode remembers it and the hash is of it", done.join(", and who had that name ")))
    }

    /// Moves an entry to where its name belongs. Without room its inode is left without a name, and a later round cares for it.
    fn move_entry(&mut self, survey: &Survey, directory: Ino, found: &Found) -> Result<String> {
        self.remove_entry(survey, directory, found)?;
        let added = self.add_entry(survey, directory, &found.name, found.raw.ino(), found.raw.file_type)?;
        Ok(if added { "moved to where its name belongs" } else { "taken out: no room where its name belongs" }.into())
    }
}
