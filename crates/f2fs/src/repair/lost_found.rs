//! The root directory, if it is gone, and `lost+found`: where what has no name gets one.

use basalt_vfs::FileKind;
use rustc_hash::FxHashSet;

use super::state::State;
use crate::check::{Fault, FaultKind, Place, Survey};
use crate::dir::entries;
use crate::error::Result;
use crate::layout::{Ino, NAME_MAX, Nid};

/// Name of the directory for what has no name; where it is full, numbered ones follow.
const LOST_FOUND: &str = "lost+found";
/// Most of these directories.
const LOST_FOUND_MAX: u32 = 1000;

impl State {
    /// Repairs a missing root directory, or an inode without a name; says what was done.
    pub(super) fn repair_unreachable(&mut self, survey: &Survey, fault: &Fault) -> Result<Option<String>> {
        match (fault.kind, fault.place) {
            (FaultKind::RootDirectory, Place::Inode(root)) => self.restore_root(survey, root),
            (FaultKind::InodeUnreachable, Place::Inode(ino)) => self.give_name(survey, ino),
            _ => Ok(None),
        }
    }

    fn restore_root(&mut self, survey: &Survey, root: Ino) -> Result<Option<String>> {
        if let Some(inode) = self.inode(root)?.filter(|_| survey.inodes.contains_key(&root))
            && self.looks_like_directory(root, &inode)?
        {
            // Directories are 4 in the upper bits of a mode.
            let mode = FileKind::Directory.mode_bits() as u16 | inode.i_mode.get() & 0o7777;
            self.edit_inode(root, |inode| inode.i_mode.set(mode))?;
            return Ok(Some("made a directory again: it has entries".into()));
        }
        let made = self.make_directory(survey, root, root, 0o755, b"")?;
        Ok(made.then(|| "a new root directory; what was in it goes back there".into()))
    }

    /// Gives an inode the name it remembers; if that cannot be, its number as a name in `lost+found`.
    fn give_name(&mut self, survey: &Survey, ino: Ino) -> Result<Option<String>> {
        let kind = survey.inodes.get(&ino).and_then(|inode| inode.kind).unwrap_or(FileKind::Regular);
        if let Some(action) = self.bring_home(survey, ino, kind)? {
            return Ok(Some(action));
        }
        for _ in 0..LOST_FOUND_MAX {
            let Some(directory) = self.lost_found(survey)? else { return Ok(None) };
            let mut name = format!("#{ino}");
            while self.find(survey, directory, name.as_bytes())?.is_some() {
                name.push('~');
                if name.len() > NAME_MAX {
                    return Ok(None);
                }
            }
            if !self.add_entry(survey, directory, name.as_bytes(), ino, entries::file_type(kind))? {
                self.next_lost_found(survey)?;
                if self.lost_found == Some(directory) {
                    return Ok(None);
                }
                continue;
            }
            self.edit_inode(ino, |inode| {
                inode.i_pino.set(directory.get());
                inode.i_namelen.set(name.len() as u32);
                inode.i_name.fill(0);
                inode.i_name[..name.len()].copy_from_slice(name.as_bytes());
            })?;
            if kind == FileKind::Directory {
                self.set_dots(survey, ino, directory)?;
            }
            let root = self.geometry.root_ino;
            let above = self.names_of(survey, root, directory)?.first().map(|found| found.name.clone());
            let above = above.map_or_else(|| LOST_FOUND.into(), |above| String::from_utf8_lossy(&above).into_owned());
            return Ok(Some(format!("now {above}/{name} (directory {directory})")));
        }
        Ok(None)
    }

    /// The directory in the root that takes what has no name: the last of them that there is, made if there is none.
    pub(super) fn lost_found(&mut self, survey: &Survey) -> Result<Option<Ino>> {
        if self.lost_found.is_none() && !self.is_lost_found_last {
            let names = self.list(survey, self.geometry.root_ino)?;
            let directories = names.into_iter().filter(|found| {
                let ino = found.raw.ino();
                let kind = survey.inodes.get(&ino).and_then(|inode| inode.kind);
                kind == Some(FileKind::Directory) || self.made.contains(&ino)
            });
            let last = directories.filter_map(|entry| Some((number_of(&entry.name)?, entry.raw.ino()))).max();
            match last {
                Some((_, ino)) => self.lost_found = Some(ino),
                None => self.next_lost_found(survey)?,
            }
        }
        Ok(self.lost_found)
    }

    /// Makes one more: the last one is full. Where that cannot be, the last one stays, and this round does not try again.
    fn next_lost_found(&mut self, survey: &Survey) -> Result<()> {
        if !self.is_lost_found_last {
            let made = self.make_lost_found(survey)?;
            self.is_lost_found_last = made.is_none();
            self.lost_found = made.or(self.lost_found);
        }
        Ok(())
    }

    /// Makes one with the first number that is free; `None` if there is no such number or no room.
    fn make_lost_found(&mut self, survey: &Survey) -> Result<Option<Ino>> {
        let root = self.geometry.root_ino;
        let names = self.list(survey, root)?;
        let taken: FxHashSet<u32> = names.iter().filter_map(|found| number_of(&found.name)).collect();
        let Some(number) = (0..LOST_FOUND_MAX).find(|number| !taken.contains(number)) else { return Ok(None) };
        let name = if number == 0 { LOST_FOUND.to_owned() } else { format!("{LOST_FOUND}.{number}") };
        let Some(ino) = self.free_nid(survey)?.map(Nid::as_inode) else { return Ok(None) };
        let is_made = self.make_directory(survey, ino, root, 0o700, name.as_bytes())?
            && self.add_entry(survey, root, name.as_bytes(), ino, entries::file_type(FileKind::Directory))?;
        Ok(is_made.then_some(ino))
    }
}

/// Which of the directories for what has no name this is, if it is one.
pub(super) fn number_of(name: &[u8]) -> Option<u32> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix(LOST_FOUND)?;
    if rest.is_empty() { Some(0) } else { rest.strip_prefix('.')?.parse().ok().filter(|&number| number > 0) }
}
