//! The root directory, if it is gone, and `lost+found`: where what has no name gets one.

use basalt_segments::SegmentKind;
use basalt_vfs::FileKind;
use zerocopy::{FromZeros, IntoBytes};

use super::state::State;
use crate::check::blocks::Owner;
use crate::check::{Fault, FaultKind, Place, Survey};
use crate::dir::entries;
use crate::error::Result;
use crate::layout::dentry::DentryShape;
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::superblock::Features;
use crate::layout::{BLOCK_SIZE, NAME_MAX};

/// Name of the directory for what has no name; where it is full, numbered ones follow.
const LOST_FOUND: &str = "lost+found";
/// Most of these directories.
const LOST_FOUND_MAX: u32 = 1000;
/// First node id that is nobody's by definition.
const FIRST_NID: u32 = 4;

impl State {
    /// Repairs a missing root directory, or an inode without a name; says what was done.
    pub(super) fn repair_unreachable(&mut self, survey: &Survey, fault: &Fault) -> Result<Option<String>> {
        match (fault.kind, fault.place) {
            (FaultKind::RootDirectory, Place::Inode(root)) => self.restore_root(survey, root),
            (FaultKind::InodeUnreachable, Place::Inode(ino)) => self.give_name(survey, ino),
            _ => Ok(None),
        }
    }

    fn restore_root(&mut self, survey: &Survey, root: u32) -> Result<Option<String>> {
        if let Some(inode) = self.inode(root)?.filter(|_| survey.inodes.contains_key(&root))
            && self.looks_like_directory(root, &inode)?
        {
            // Directories are 4 in the upper bits of a mode.
            let mode = FileKind::Directory.mode_bits() as u16 | inode.i_mode.get() & 0o7777;
            self.edit_inode(root, |inode| inode.i_mode.set(mode))?;
            return Ok(Some("made a directory again: it has entries".into()));
        }
        let made = self.make_directory(survey, root, root, 0o755, b"")?;
        Ok(made.then(|| "a new, empty root directory; what was in it goes to lost+found".into()))
    }

    /// Puts an inode into `lost+found`, under its number.
    fn give_name(&mut self, survey: &Survey, ino: u32) -> Result<Option<String>> {
        let kind = survey.inodes.get(&ino).and_then(|inode| inode.kind).unwrap_or(FileKind::Regular);
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
                self.lost_found = None;
                self.next_lost_found(survey)?;
                continue;
            }
            self.edit_inode(ino, |inode| {
                inode.i_pino.set(directory);
                inode.i_namelen.set(name.len() as u32);
                inode.i_name.fill(0);
                inode.i_name[..name.len()].copy_from_slice(name.as_bytes());
            })?;
            if kind == FileKind::Directory {
                self.set_dots(survey, ino, directory)?;
            }
            return Ok(Some(format!("now {LOST_FOUND}/{name} (directory {directory})")));
        }
        Ok(None)
    }

    /// The directory in the root that takes what has no name: the last of them that there is, made if there is none.
    fn lost_found(&mut self, survey: &Survey) -> Result<Option<u32>> {
        if self.lost_found.is_none() {
            let root = self.geometry.root_ino;
            let names = self.list(survey, root)?;
            let directories = names.into_iter().filter(|found| {
                let ino = found.raw.ino.get();
                let kind = survey.inodes.get(&ino).and_then(|inode| inode.kind);
                kind == Some(FileKind::Directory) || self.made.contains(&ino)
            });
            let mut found: Vec<(u32, u32)> = directories
                .filter_map(|entry| number_of(&entry.name).map(|number| (number, entry.raw.ino.get())))
                .collect();
            found.sort_unstable();
            match found.last() {
                Some(&(_, ino)) => self.lost_found = Some(ino),
                None => self.make_lost_found(survey, 0)?,
            }
        }
        Ok(self.lost_found)
    }

    /// Makes one more: the last one is full.
    fn next_lost_found(&mut self, survey: &Survey) -> Result<()> {
        let names = self.list(survey, self.geometry.root_ino)?;
        let last = names.iter().filter_map(|found| number_of(&found.name)).max();
        self.make_lost_found(survey, last.map_or(0, |last| last + 1))
    }

    fn make_lost_found(&mut self, survey: &Survey, number: u32) -> Result<()> {
        let root = self.geometry.root_ino;
        let name = if number == 0 { LOST_FOUND.to_owned() } else { format!("{LOST_FOUND}.{number}") };
        let Some(ino) = self.free_nid(survey)? else { return Ok(()) };
        if number < LOST_FOUND_MAX
            && self.find(survey, root, name.as_bytes())?.is_none()
            && self.make_directory(survey, ino, root, 0o700, name.as_bytes())?
            && self.add_entry(survey, root, name.as_bytes(), ino, entries::file_type(FileKind::Directory))?
        {
            self.lost_found = Some(ino);
        }
        Ok(())
    }

    fn free_nid(&self, survey: &Survey) -> Result<Option<u32>> {
        for nid in FIRST_NID..self.geometry.node_ids() {
            if survey.nat.get(nid).block_addr.get() == 0 && self.nat(nid)?.block_addr.get() == 0 {
                return Ok(Some(nid));
            }
        }
        Ok(None)
    }

    /// Makes a directory with nothing but `.` and `..`; its name is added by the caller. False if there is no room.
    fn make_directory(
        &mut self,
        survey: &Survey,
        ino: u32,
        parent: u32,
        permissions: u16,
        name: &[u8],
    ) -> Result<bool> {
        let version = self.nat(ino)?.version;
        let owner = Owner::Data { nid: ino, slot: 0, version };
        let Some(data) = self.allocate(survey, SegmentKind::HotData, owner.summary())? else { return Ok(false) };
        let Some(node) = self.allocate(survey, SegmentKind::HotNode, Owner::Node(ino).summary())? else {
            return Ok(false);
        };
        let (mut block, shape) = (vec![0; BLOCK_SIZE], DentryShape::BLOCK);
        let directory = entries::file_type(FileKind::Directory);
        entries::insert(&mut block, &shape, 0, 0, b".", ino, directory);
        entries::insert(&mut block, &shape, 1, 0, b"..", parent, directory);
        self.put(data, &block)?;
        let inode = self.new_directory(ino, parent, permissions, name, data)?;
        let mut block = inode.as_bytes().to_vec();
        self.seal(&mut block);
        self.put(node, &block)?;
        self.edit_nat(ino, |entry| {
            entry.ino.set(ino);
            entry.block_addr.set(node);
        })?;
        self.made.insert(ino);
        Ok(true)
    }

    fn new_directory(&self, ino: u32, parent: u32, permissions: u16, name: &[u8], data: u32) -> Result<Box<RawInode>> {
        let mut inode = Box::new(RawInode::new_zeroed());
        inode.i_mode.set(FileKind::Directory.mode_bits() as u16 | permissions);
        inode.i_links.set(2);
        inode.i_size.set(BLOCK_SIZE as u64);
        inode.i_blocks.set(2);
        inode.i_current_depth.set(1);
        inode.i_pino.set(parent);
        inode.i_namelen.set(name.len() as u32);
        inode.i_name[..name.len()].copy_from_slice(name);
        if let Some(root) = self.inode(self.geometry.root_ino)? {
            (inode.i_atime, inode.i_ctime, inode.i_mtime) = (root.i_atime, root.i_ctime, root.i_mtime);
        }
        let features = self.geometry.features;
        if features.contains(Features::EXTRA_ATTR) {
            inode.i_inline = InlineFlags::EXTRA_ATTR.bits();
            inode.extra_mut().i_extra_isize.set(crate::format::root::extra_size(features));
        }
        let first = inode.extra_size() as usize / 4;
        inode.slots[first].set(data);
        inode.footer.nid.set(ino);
        inode.footer.ino.set(ino);
        Ok(inode)
    }
}

/// Which of the directories for what has no name this is, if it is one.
fn number_of(name: &[u8]) -> Option<u32> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix(LOST_FOUND)?;
    if rest.is_empty() { Some(0) } else { rest.strip_prefix('.')?.parse().ok().filter(|&number| number > 0) }
}
