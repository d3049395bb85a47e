//! Names from what inodes remember: each has its own, and the number of the directory it is in.

use basalt_vfs::FileKind;

use super::entry::Found;
use super::state::State;
use crate::check::Survey;
use crate::check::records::InodeRecord;
use crate::dir::entries;
use crate::dir::hash::hash;
use crate::dir::lookup::{bucket_blocks, bucket_start};
use crate::error::Result;
use crate::layout::NAME_MAX;
use crate::layout::dentry::{MAX_DEPTH, RawDentry};
use crate::layout::inode::{Advise, InlineFlags, RawInode};
use crate::layout::{Address, Ino, Nid};

/// The name that an inode remembers, if it can be one.
fn own_name(inode: &RawInode) -> Option<&[u8]> {
    let name = inode.i_name.get(..inode.i_namelen.get() as usize).filter(|name| name.len() <= NAME_MAX)?;
    let is_name = !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0));
    is_name.then_some(name)
}

/// Whether an inode says that the directory it remembers may be wrong, as after a rename by Linux.
fn has_lost_parent(inode: &RawInode) -> bool {
    Advise::from_bits_retain(inode.i_advise).contains(Advise::LOST_PINO)
}

impl State {
    /// Gives an inode without a name the one it remembers, in the directory it remembers; with its number behind it if another has it.
    /// `None` if it remembers none.
    pub(super) fn bring_home(&mut self, survey: &Survey, ino: Ino, kind: FileKind) -> Result<Option<String>> {
        let Some(inode) = self.inode(ino)? else { return Ok(None) };
        let own = own_name(&inode).filter(|_| !has_lost_parent(&inode));
        let Some(name) = own.map(<[u8]>::to_vec) else { return Ok(None) };
        let parent = inode.parent();
        // Without a name, it is the top of all that is below it.
        if self.top(survey, parent).is_none_or(|top| top == ino) {
            return Ok(None);
        }
        if !self.is_directory(survey, parent) && !self.remake_lost(survey, parent)? {
            return Ok(None);
        }
        let Some(name) = self.enter(survey, parent, name, ino, entries::file_type(kind))? else { return Ok(None) };
        if kind == FileKind::Directory {
            self.set_dots(survey, ino, parent)?;
        }
        let shown = String::from_utf8_lossy(&name);
        Ok(Some(format!("back in directory {parent} as {shown:?}, which it remembers")))
    }

    /// Enters an inode into a directory under its name, or if another has that by right, with its number behind it; the name it has then.
    fn enter(
        &mut self,
        survey: &Survey,
        directory: Ino,
        name: Vec<u8>,
        ino: Ino,
        file_type: u8,
    ) -> Result<Option<Vec<u8>>> {
        let mut name = name;
        if let Some(found) = self.find_by_hash(survey, directory, &name)? {
            if self.is_borrowed(survey, directory, &found)? || self.was_entered_after(ino, found.raw.ino()) {
                self.put_entry(survey, directory, &found, RawDentry { ino: ino.into(), file_type, ..found.raw })?;
                return Ok(Some(name));
            }
            let suffix = format!("~{ino}");
            name.truncate(NAME_MAX - suffix.len());
            name.extend_from_slice(suffix.as_bytes());
            if self.find_by_hash(survey, directory, &name)?.is_some() {
                return Ok(None);
            }
        }
        Ok(self.add_entry(survey, directory, &name, ino, file_type)?.then_some(name))
    }

    /// Whether fsync wrote an inode since the checkpoint, and its name with it, after it did so with `holder`: whatever had that name before
    /// was replaced.
    fn was_entered_after(&self, ino: Ino, holder: Ino) -> bool {
        let order = |ino: Ino| self.entered.get(&ino);
        order(ino).is_some() && order(ino) > order(holder)
    }

    fn is_directory(&self, survey: &Survey, ino: Ino) -> bool {
        survey.directories.contains_key(&ino) || self.made.contains(&ino)
    }

    /// The top of what a directory is below, as far as names are known; `None` in a circle.
    fn top(&mut self, survey: &Survey, directory: Ino) -> Option<Ino> {
        let (mut at, mut path) = (directory, Vec::new());
        let top = loop {
            if let Some(&top) = self.tops.get(&at) {
                break top;
            }
            // Whoever comes here again meanwhile is in a circle.
            self.tops.insert(at, None);
            path.push(at);
            match survey.parents.get(&at) {
                Some(&parent) if parent != at => at = parent,
                _ => break Some(at),
            }
        };
        self.tops.extend(path.into_iter().map(|at| (at, top)));
        top
    }

    /// Whether an entry is not by right that of the inode it leads to: this has more names than links and remembers another one, or it
    /// remembers another directory, which has lost names, and where its own is free. The name alone says less: Linux leaves it when it
    /// renames over another file.
    fn is_borrowed(&mut self, survey: &Survey, directory: Ino, found: &Found) -> Result<bool> {
        let ino = found.raw.ino();
        let Some(&InodeRecord { names, links, .. }) = survey.inodes.get(&ino) else { return Ok(false) };
        let Some(inode) = self.inode(ino)? else { return Ok(false) };
        let (parent, own) = (inode.parent(), own_name(&inode));
        if names > links.max(1) {
            return Ok(parent != directory || own != Some(&found.name));
        }
        let Some(own) = own.filter(|_| links <= 1 && parent != directory && !has_lost_parent(&inode)) else {
            return Ok(false);
        };
        // A file whose first of several names was removed remembers that one: but there the directory has lost none.
        self.find_nameless(survey)?;
        let has_lost_names = self.remembered.contains(&parent);
        Ok(has_lost_names && self.is_directory(survey, parent) && self.find_by_hash(survey, parent, own)?.is_none())
    }

    /// The name that an inode remembers in this directory, if this is its hash.
    pub(super) fn name_with_hash(
        &self,
        survey: &Survey,
        directory: Ino,
        ino: Ino,
        wanted: u32,
    ) -> Result<Option<Vec<u8>>> {
        let Some(inode) = self.inode(ino)?.filter(|_| survey.inodes.contains_key(&ino)) else { return Ok(None) };
        let own = own_name(&inode).filter(|name| inode.parent() == directory && hash(name) == wanted);
        Ok(own.map(<[u8]>::to_vec))
    }

    /// Makes the directory that an entry leads to and that is gone, if inodes without a name remember it.
    pub(super) fn remake_directory(
        &mut self,
        survey: &Survey,
        directory: Ino,
        name: &[u8],
        raw: &RawDentry,
    ) -> Result<bool> {
        let ino = raw.ino();
        let is_directory = raw.file_type == entries::file_type(FileKind::Directory);
        if !is_directory || !self.is_missed(survey, ino)? {
            return Ok(false);
        }
        self.make_directory(survey, ino, directory, 0o700, name)
    }

    /// Makes a directory that is gone, and its name too, in `lost+found`.
    fn remake_lost(&mut self, survey: &Survey, ino: Ino) -> Result<bool> {
        if !self.is_missed(survey, ino)? {
            return Ok(false);
        }
        let Some(parent) = self.lost_found(survey)? else { return Ok(false) };
        let name = format!("#{ino}");
        let kind = entries::file_type(FileKind::Directory);
        Ok(self.find_by_hash(survey, parent, name.as_bytes())?.is_none()
            && self.add_entry(survey, parent, name.as_bytes(), ino, kind)?
            && self.make_directory(survey, ino, parent, 0o700, name.as_bytes())?)
    }

    /// Whether a number is free and inodes without a name remember it as their directory's.
    fn is_missed(&mut self, survey: &Survey, ino: Ino) -> Result<bool> {
        self.find_nameless(survey)?;
        let is_free = (Nid::FIRST_FREE..self.geometry.node_ids()).contains(&ino.nid())
            && survey.nat.get(ino.nid()).address() == Address::NULL
            && self.nat(ino.nid())?.address() == Address::NULL;
        Ok(is_free && self.remembered.contains(&ino))
    }

    /// Finds a name where its hash leads: for directories whose entries are where they belong.
    fn find_by_hash(&mut self, survey: &Survey, directory: Ino, name: &[u8]) -> Result<Option<Found>> {
        let Some(inode) = self.inode(directory)? else { return Ok(None) };
        let code = hash(name);
        let mut blocks = vec![None];
        if !inode.is_inline(InlineFlags::DENTRY) {
            let levels = 0..inode.i_current_depth.get().min(MAX_DEPTH);
            let starts = levels.map(|level| (level, bucket_start(level, inode.i_dir_level.into(), code)));
            blocks = starts.flat_map(|(level, start)| (start..start + bucket_blocks(level)).map(Some)).collect();
        }
        for block in blocks {
            let Some((content, shape)) = self.entries_of(survey, directory, block)? else { continue };
            if let Some(slot) = entries::find(&content, &shape, code, name) {
                let raw = entries::entry(&content, &shape, slot);
                return Ok(Some(Found { block, slot, name: name.to_vec(), raw }));
            }
        }
        Ok(None)
    }
}
