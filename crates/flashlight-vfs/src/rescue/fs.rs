//! What was found, as a file system that can only be read.

use std::ops::Range;
use std::time::Duration;

use basalt_flashlight::InodeNumber as Number;
use basalt_flashlight::inspect::ROOT;
use basalt_nand::{NandDevice, NandError};
use basalt_vfs::{
    Attributes, Background, Caller, DirectoryEntry, Error, FallocateMode, FileKind, FileSystem, InodeFlags,
    InodeNumber, NewNode, RenameFlags, Result, Seek, SetAttributes, StatFs, Time, XattrFlags,
};

use super::Rescued;
use super::content::{Content, Place, Reading};
use super::tree::Child;
use crate::files::{described, ino};

/// How long nothing happens in the background.
const NEVER: Duration = Duration::from_secs(3600);

/// The chip failed otherwise than by flipped bits.
fn chip(error: NandError) -> Error {
    Error::Io(error.to_string())
}

impl<D: NandDevice + Send> Rescued<D> {
    fn children(&self, at: InodeNumber) -> Result<&[Child]> {
        self.tree.children.get(&at).map(Vec::as_slice).ok_or(Error::NotDirectory)
    }

    /// The page of an inode that is a file or a symbolic link, and its size.
    fn file(&self, reading: &mut Reading<D>, at: InodeNumber) -> Result<(u32, u64)> {
        let page = *self.tree.pages.get(&at).ok_or(Error::Stale)?;
        let found = reading.attributes(page).map_err(chip)?.ok_or_else(|| unreadable(page))?;
        if found.is_directory() { Err(Error::IsDirectory) } else { Ok((page, found.size)) }
    }

    /// Looks at the pages of a file from `offset` on, until `look` returns something: each with its first byte and its place.
    fn each_page<R>(
        &self,
        at: InodeNumber,
        offset: u64,
        mut look: impl FnMut(&mut Reading<D>, u64, Place) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let mut reading = self.reading.lock();
        let (inode, size) = self.file(&mut reading, at)?;
        let page_bytes = reading.page_bytes();
        let mut at = offset / page_bytes;
        while at * page_bytes < size {
            let place = match reading.content(inode).map_err(chip)? {
                Content::Inline(_) => return Ok(None),
                Content::Pages(places) => match usize::try_from(at).ok().and_then(|at| places.get(at)) {
                    Some(place) => *place,
                    None => return Ok(None),
                },
            };
            if let Some(found) = look(&mut reading, at * page_bytes, place)? {
                return Ok(Some(found));
            }
            at += 1;
        }
        Ok(None)
    }

    /// Whether the page of a file at byte `first` cannot be had.
    fn is_lost(reading: &mut Reading<D>, at: InodeNumber, first: u64, place: Place) -> Result<bool> {
        let page_bytes = reading.page_bytes();
        let mut bytes = vec![0; page_bytes as usize];
        match place {
            Place::Hole => Ok(false),
            Place::Lost => Ok(true),
            Place::At(page) => {
                let found = reading.data(page, number(at)?, (first / page_bytes) as u32, &mut bytes);
                Ok(!found.map_err(chip)?)
            }
        }
    }

    /// Where the part of a file ends that begins at byte `offset` and cannot be had; `None` if the page at `offset` can be read.
    pub fn missing_until(&self, at: InodeNumber, offset: u64) -> Option<u64> {
        let mut end = None;
        let walked = self.each_page(at, offset, |reading, first, place| {
            if !Self::is_lost(reading, at, first, place)? {
                return Ok(Some(()));
            }
            end = Some(first + reading.page_bytes());
            Ok(None)
        });
        walked.ok()?;
        end
    }

    /// The parts of a file, in bytes, that cannot be had. This reads all of it.
    ///
    /// # Errors
    /// When the inode cannot be read, or the chip fails.
    pub fn lost_ranges(&self, at: InodeNumber) -> Result<Vec<Range<u64>>> {
        let size = self.attributes(at)?.size;
        let mut lost: Vec<Range<u64>> = Vec::new();
        self.each_page(at, 0, |reading, first, place| {
            if Self::is_lost(reading, at, first, place)? {
                let end = (first + reading.page_bytes()).min(size);
                match lost.last_mut() {
                    Some(last) if last.end == first => last.end = end,
                    _ => lost.push(first..end),
                }
            }
            Ok(None::<()>)
        })?;
        Ok(lost)
    }

    fn read_pages(reading: &mut Reading<D>, inode: u32, at: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<()> {
        let page_bytes = reading.page_bytes() as usize;
        let mut page = vec![0; page_bytes];
        let mut done = 0;
        while done < buf.len() {
            let from = offset + done as u64;
            let (which, within) = (from / page_bytes as u64, (from % page_bytes as u64) as usize);
            let length = (page_bytes - within).min(buf.len() - done);
            let part = &mut buf[done..done + length];
            let place = match reading.content(inode).map_err(chip)? {
                Content::Inline(content) => {
                    let content = content.get(from as usize..).unwrap_or_default();
                    let length = content.len().min(part.len());
                    part[..length].copy_from_slice(&content[..length]);
                    part[length..].fill(0);
                    done += part.len();
                    continue;
                }
                Content::Pages(places) => places.get(which as usize).copied().unwrap_or(Place::Hole),
            };
            match place {
                Place::Hole => part.fill(0),
                Place::Lost => return Err(lost(from)),
                Place::At(place) => {
                    if !reading.data(place, number(at)?, which as u32, &mut page).map_err(chip)? {
                        return Err(lost(from));
                    }
                    part.copy_from_slice(&page[within..within + length]);
                }
            }
            done += length;
        }
        Ok(())
    }
}

fn number(at: InodeNumber) -> Result<Number> {
    crate::files::number(at)
}

fn lost(offset: u64) -> Error {
    Error::Io(format!("the page at byte {offset} is lost"))
}

fn unreadable(page: u32) -> Error {
    Error::Io(format!("page {page}: the inode cannot be read any more"))
}

/// A directory that is made up.
fn made_up(at: InodeNumber, children: usize) -> Attributes {
    let time = Time::default();
    Attributes {
        ino: at,
        generation: 0,
        kind: FileKind::Directory,
        permissions: 0o755,
        links: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: children as u64,
        sectors: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: None,
        flags: InodeFlags::empty(),
        project_id: 0,
    }
}

impl<D: NandDevice + Send> FileSystem for Rescued<D> {
    fn root(&self) -> InodeNumber {
        ino(ROOT)
    }

    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        match name {
            b"." => return self.attributes(parent),
            b".." => return self.attributes(self.tree.parents.get(&parent).copied().unwrap_or(parent)),
            _ => {}
        }
        let children = self.children(parent)?;
        let at = children.binary_search_by(|child| (*child.name).cmp(name)).map_err(|_| Error::NotFound)?;
        self.attributes(children[at].ino)
    }

    fn forget(&self, _: InodeNumber, _: u64) {}

    fn attributes(&self, at: InodeNumber) -> Result<Attributes> {
        let children = self.tree.children.get(&at).map_or(0, Vec::len);
        let Some(&page) = self.tree.pages.get(&at) else {
            return if self.tree.children.contains_key(&at) { Ok(made_up(at, children)) } else { Err(Error::Stale) };
        };
        let found = self.reading.lock().attributes(page).map_err(chip)?.ok_or_else(|| unreadable(page))?;
        described(&found)
    }

    fn set_attributes(&self, _: InodeNumber, _: &SetAttributes) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }

    fn read_link(&self, at: InodeNumber) -> Result<Vec<u8>> {
        let found = self.attributes(at)?;
        if found.kind != FileKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let mut target = vec![0; found.size.min(4096) as usize];
        let length = self.read(at, 0, &mut target)?;
        target.truncate(length);
        Ok(target)
    }

    fn create(&self, _: InodeNumber, _: &[u8], _: &NewNode<'_>, _: &Caller) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }

    fn create_unnamed(&self, _: InodeNumber, _: u32, _: &Caller) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }

    fn link(&self, _: InodeNumber, _: InodeNumber, _: &[u8]) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }

    fn unlink(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_directory(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn rename(&self, _: InodeNumber, _: &[u8], _: InodeNumber, _: &[u8], _: RenameFlags, _: &Caller) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn read(&self, at: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut reading = self.reading.lock();
        let (inode, size) = self.file(&mut reading, at)?;
        let length = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        Self::read_pages(&mut reading, inode, at, offset, &mut buf[..length])?;
        Ok(length)
    }

    fn write(&self, _: InodeNumber, _: u64, _: &[u8], _: bool) -> Result<usize> {
        Err(Error::ReadOnly)
    }

    fn fallocate(&self, _: InodeNumber, _: FallocateMode, _: u64, _: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// What is lost counts as data: no reader takes it for zeros.
    fn seek(&self, at: InodeNumber, offset: u64, whence: Seek) -> Result<u64> {
        let mut reading = self.reading.lock();
        let (inode, size) = self.file(&mut reading, at)?;
        if offset >= size {
            return Err(Error::NoData);
        }
        let page_bytes = reading.page_bytes();
        let (first, places) = match reading.content(inode).map_err(chip)? {
            Content::Inline(_) => return Ok(if whence == Seek::Data { offset } else { size }),
            Content::Pages(places) => (offset / page_bytes, places),
        };
        let rest = usize::try_from(first).ok().and_then(|first| places.get(first..)).unwrap_or_default();
        let wanted = |place: &Place| (*place == Place::Hole) == (whence == Seek::Hole);
        match rest.iter().position(wanted) {
            Some(ahead) => Ok(((first + ahead as u64) * page_bytes).max(offset)),
            None if whence == Seek::Hole => Ok(((first + rest.len() as u64) * page_bytes).clamp(offset, size)),
            None => Err(Error::NoData),
        }
    }

    fn read_directory(
        &self,
        at: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let children = self.children(at)?;
        let parent = self.tree.parents.get(&at).copied().unwrap_or(at);
        let dots = [(b".".as_slice(), at), (b"..", parent)];
        let dots = dots.into_iter().map(|(name, ino)| (name, ino, FileKind::Directory));
        let all = dots.chain(children.iter().map(|child| (&*child.name, child.ino, child.kind)));
        for (next, (name, ino, kind)) in (1..).zip(all).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            if !emit(DirectoryEntry { ino, kind, name, next }) {
                break;
            }
        }
        Ok(())
    }

    fn sync_file(&self, _: InodeNumber, _: bool) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn stat_fs(&self) -> Result<StatFs> {
        let reading = self.reading.lock();
        let (block_size, blocks) = (reading.page_bytes() as u32, reading.pages().into());
        Ok(StatFs { block_size, blocks, files: self.report.inodes, name_max: 255, ..StatFs::default() })
    }

    fn get_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<Vec<u8>> {
        Err(Error::NoAttribute)
    }

    fn set_xattr(&self, _: InodeNumber, _: &[u8], _: &[u8], _: XattrFlags) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn list_xattrs(&self, _: InodeNumber) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn remove_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn set_flags(&self, _: InodeNumber, _: InodeFlags) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn set_project_id(&self, _: InodeNumber, _: u32) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn trim(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        Err(Error::ReadOnly)
    }

    fn tick(&self, _: Time) -> Background {
        Background { next: NEVER }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
