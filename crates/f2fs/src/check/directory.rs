//! Directory blocks and inline directories: every entry by itself.

use std::hash::{DefaultHasher, Hash, Hasher};

use basalt_vfs::FileKind;
use zerocopy::FromBytes;

use super::batch::for_each_block;
use super::checker::Checker;
use super::fault::Place;
use super::inode::inline_directory;
use super::kind::FaultKind;
use super::records::{DirectoryBlock, DirectoryRecord, SeenName};
use super::report::Stage;
use crate::blocks::read_blocks;
use crate::dir::entries::{self, file_type};
use crate::dir::hash::hash;
use crate::error::Result;
use crate::layout::dentry::{DentryShape, MAX_DEPTH, RawDentry, SLOT_LEN, slots_for};
use crate::layout::inode::RawInode;
use crate::layout::{Address, BLOCK_SIZE, Ino, NAME_MAX, bit_lsb};

/// Blocks of a bucket near the root of the hash, and from the middle level on.
const BUCKET_BLOCKS: [u64; 2] = [2, 4];
/// Levels after which buckets stop doubling.
const DOUBLING_LEVELS: u32 = MAX_DEPTH / 2;

/// One entry as it was found.
struct Entry<'a> {
    slot: u32,
    raw: RawDentry,
    name: &'a [u8],
}

/// The level of the hash that a directory block belongs to, its bucket there, and how many buckets the level has; `None` for
/// a block that no name can be in. `dir_level` widens the first levels.
fn locate(block: u64, dir_level: u8) -> Option<(u32, u64, u64)> {
    let mut first = 0u64;
    for level in 0..MAX_DEPTH {
        let buckets = 1u64 << (level + u32::from(dir_level)).min(DOUBLING_LEVELS - 1);
        let blocks = BUCKET_BLOCKS[usize::from(level >= DOUBLING_LEVELS)];
        if block < first + buckets * blocks {
            return Some((level, (block - first) / blocks, buckets));
        }
        first += buckets * blocks;
    }
    None
}

impl Checker<'_> {
    /// Notes a block to be read later.
    pub(super) fn add_directory_block(&mut self, address: Address, directory: Ino, block: Option<u64>) {
        self.directory_blocks.push(DirectoryBlock { address, directory, block });
    }

    /// Reads every directory entry. All inodes must have been read.
    pub(super) fn scan_directories(&mut self) -> Result<()> {
        let mut blocks = std::mem::take(&mut self.directory_blocks);
        blocks.sort_unstable_by_key(|block| (block.address, block.directory));
        let total = blocks.len() as u64;
        let mut index = 0;
        for_each_block(
            self.device,
            &blocks,
            |block| block.address,
            |at, bytes| {
                self.step(Stage::Directories, index.into(), total);
                self.scan_block(index, at, bytes);
                index += 1;
                Ok(())
            },
        )?;
        self.find_duplicates(&blocks)
    }

    fn scan_block(&mut self, index: u32, at: &DirectoryBlock, bytes: &[u8]) {
        let Some(mut directory) = self.directories.remove(&at.directory) else { return };
        let (content, shape) = self.content(at, bytes);
        let mut slot = 0;
        while slot < shape.entries {
            let Some(read) = read_entry(content, &shape, slot) else {
                slot += 1;
                continue;
            };
            let length = if directory.casefold { None } else { wrong_length(content, &shape, slot) };
            let (entry, next) = match (read, length) {
                (read, Some(length)) => {
                    let found = read.map_or_else(|found| found, |entry| name_of(entry.name.len()));
                    let expected = format_args!("{length} bytes, of which the hash is");
                    self.findings.add(FaultKind::DentryNameLength, at.place(slot as u32), found, expected);
                    (Some(Entry::of(content, &shape, slot, length)), slot + slots_for(length))
                }
                (Ok(entry), None) => (Some(entry), entries::end(content, &shape, slot)),
                (Err(found), None) => {
                    let expected = "1 to 255 bytes in slots marked as used";
                    self.findings.add(FaultKind::DentryNameLength, at.place(slot as u32), found, expected);
                    (None, slot + 1)
                }
            };
            if let Some(entry) = entry {
                self.check_entry(index, at, &mut directory, &entry);
            }
            slot = next;
        }
        self.directories.insert(at.directory, directory);
    }

    fn content<'b>(&self, at: &DirectoryBlock, bytes: &'b [u8]) -> (&'b [u8], DentryShape) {
        // Blocks have the size of the structure.
        match RawInode::ref_from_bytes(bytes) {
            Ok(inode) if at.block.is_none() => inline_directory(self.geometry, inode, bytes),
            _ => (bytes, DentryShape::BLOCK),
        }
    }

    fn check_entry(&mut self, index: u32, at: &DirectoryBlock, directory: &mut DirectoryRecord, entry: &Entry<'_>) {
        directory.last_block = directory.last_block.max(at.block);
        if entry.name == b"." || entry.name == b".." {
            self.check_dots(at, directory, entry);
            return;
        }
        let place = at.place(entry.slot);
        if !directory.encrypted && entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            let name = String::from_utf8_lossy(entry.name);
            self.findings.add(FaultKind::DentryName, place, format_args!("name {name:?}"), "no `/` and no zero byte");
        }
        self.check_hash(at, directory, entry);
        self.check_target(at, entry);
        let mut hasher = DefaultHasher::new();
        (at.directory, entry.name).hash(&mut hasher);
        // Directory blocks are blocks of the main area, fewer than 2^32; a block has 214 slots.
        self.seen_names.push(SeenName { hash: hasher.finish(), block: index, slot: entry.slot as u16 });
    }

    fn check_dots(&mut self, at: &DirectoryBlock, directory: &mut DirectoryRecord, entry: &Entry<'_>) {
        let ino = entry.raw.ino();
        let seen = if entry.name.len() == 1 { &mut directory.dot } else { &mut directory.dot_dot };
        if let Some(other) = seen {
            let found = format_args!("`{}` again (inode {ino})", if entry.name.len() == 1 { "." } else { ".." });
            self.findings.add(FaultKind::DentryDots, at.place(entry.slot), found, format_args!("once, inode {other}"));
            return;
        }
        *seen = Some(ino);
        if entry.raw.hash_code.get() != 0 {
            self.findings.add(FaultKind::DentryHash, at.place(entry.slot), entry.raw.hash_code, "0, as a dot");
        }
        if entry.raw.file_type != file_type(FileKind::Directory) {
            self.findings.add(FaultKind::DentryType, at.place(entry.slot), entry.raw.file_type, "2 (directory)");
        }
    }

    fn check_hash(&mut self, at: &DirectoryBlock, directory: &mut DirectoryRecord, entry: &Entry<'_>) {
        let found = entry.raw.hash_code.get();
        // The hash of a case-insensitive name is that of its folded form, which needs Unicode's tables.
        if !directory.casefold && found != hash(entry.name) {
            let expected = format_args!("{:#010x}", hash(entry.name));
            self.findings.add(FaultKind::DentryHash, at.place(entry.slot), format_args!("{found:#010x}"), expected);
            return;
        }
        let Some(block) = at.block else { return };
        match locate(block, directory.level) {
            Some((level, bucket, buckets)) => {
                directory.deepest = directory.deepest.max(Some(level));
                let expected = u64::from(found) % buckets;
                if expected != bucket {
                    self.findings.add(
                        FaultKind::DentryBucket,
                        at.place(entry.slot),
                        format_args!("bucket {bucket} of level {level}"),
                        format_args!("bucket {expected}"),
                    );
                }
            }
            None => self.findings.add(
                FaultKind::DentryBucket,
                at.place(entry.slot),
                format_args!("block {block}, past the deepest level"),
                "a block where names can be",
            ),
        }
    }

    /// Checks the inode of an entry, and counts the name.
    fn check_target(&mut self, at: &DirectoryBlock, entry: &Entry<'_>) {
        let (ino, kind) = (entry.raw.ino(), entry.raw.file_type);
        let place = at.place(entry.slot);
        if !(1..=7).contains(&kind) {
            self.findings.add(FaultKind::DentryType, place, format_args!("type {kind}"), "1 to 7");
        }
        let Some(inode) = self.inodes.get_mut(&ino) else {
            if self.unreadable.contains(&ino.nid()) {
                // Reported already. It counts as what the entry says it is.
                self.count_subdirectory(at.directory, kind == file_type(FileKind::Directory));
            } else {
                self.findings.add(FaultKind::DentryIno, place, format_args!("inode {ino}"), "an inode in use");
            }
            return;
        };
        inode.names = inode.names.saturating_add(1);
        let Some(found) = inode.kind else {
            self.typeless.insert(ino, kind);
            return;
        };
        if (1..=7).contains(&kind) && kind != file_type(found) {
            self.mistyped.insert(ino, kind);
            let expected = format_args!("{} ({found:?}, as inode {ino} says)", file_type(found));
            self.findings.add(FaultKind::DentryType, place, format_args!("type {kind}"), expected);
        }
        if found == FileKind::Directory {
            self.count_subdirectory(at.directory, true);
            self.set_parent(ino, at);
        }
    }

    fn count_subdirectory(&mut self, directory: Ino, is_directory: bool) {
        *self.subdirectories.entry(directory).or_default() += u32::from(is_directory);
    }

    fn set_parent(&mut self, ino: Ino, at: &DirectoryBlock) {
        match self.parents.get(&ino) {
            None => {
                self.parents.insert(ino, at.directory);
            }
            Some(other) => {
                let found = format_args!("a name in directory {} and one in {other}", at.directory);
                let right = Some(u64::from(at.directory));
                self.findings.add_with(FaultKind::DirectoryParents, Place::Inode(ino), found, "one name", right);
            }
        }
    }

    /// Looks for the same name twice in a directory, among the names with the same hash.
    fn find_duplicates(&mut self, blocks: &[DirectoryBlock]) -> Result<()> {
        let mut names = std::mem::take(&mut self.seen_names);
        names.sort_unstable();
        for pair in names.windows(2) {
            let [first, second] = pair else { continue };
            if first.hash != second.hash || self.findings.truncated {
                continue;
            }
            let (at, other) = (blocks[second.block as usize], blocks[first.block as usize]);
            let (name, other_name) = (self.name_at(&at, second.slot)?, self.name_at(&other, first.slot)?);
            if at.directory == other.directory && name == other_name {
                let name = String::from_utf8_lossy(&name).into_owned();
                let found = format_args!("name {name:?}, which is also at {}", other.place(first.slot.into()));
                self.findings.add(FaultKind::DentryDuplicate, at.place(second.slot.into()), found, "each name once");
            }
        }
        Ok(())
    }

    /// Reads a name again.
    fn name_at(&self, at: &DirectoryBlock, slot: u16) -> Result<Vec<u8>> {
        let bytes = read_blocks(self.device, at.address, 1)?;
        let (content, shape) = self.content(at, &bytes);
        Ok(match read_entry(content, &shape, slot.into()) {
            Some(Ok(entry)) => entry.name.to_vec(),
            _ => Vec::new(),
        })
    }
}

impl DirectoryBlock {
    fn place(&self, slot: u32) -> Place {
        Place::Dentry { directory: self.directory, block: self.block, slot }
    }
}

/// The entry in a slot: `None` if the slot is free, an error in words if the entry cannot be.
fn read_entry<'a>(
    content: &'a [u8],
    shape: &DentryShape,
    slot: usize,
) -> Option<std::result::Result<Entry<'a>, String>> {
    if content.len() < shape.size || slot >= shape.entries || !bit_lsb(content, slot) {
        return None;
    }
    let length = usize::from(entries::entry(content, shape, slot).name_len.get());
    if length == 0 || length > NAME_MAX {
        return Some(Err(name_of(length)));
    }
    let end = slot + slots_for(length);
    if end > shape.entries || (slot..end).any(|slot| !bit_lsb(content, slot)) {
        return Some(Err(format!("{}, longer than its room", name_of(length))));
    }
    Some(Ok(Entry::of(content, shape, slot, length)))
}

impl<'a> Entry<'a> {
    /// The entry in a slot, with so many bytes of name.
    fn of(content: &'a [u8], shape: &DentryShape, slot: usize, length: usize) -> Entry<'a> {
        let at = shape.names_at + slot * SLOT_LEN;
        // 214 slots at most.
        Entry { slot: slot as u32, raw: entries::entry(content, shape, slot), name: &content[at..at + length] }
    }
}

fn name_of(length: usize) -> String {
    format!("a name of {length} bytes")
}

/// The length of the name in a slot that its hash is of, where it has another one.
fn wrong_length(content: &[u8], shape: &DentryShape, slot: usize) -> Option<usize> {
    if entries::is_sound(content, shape, slot) { None } else { entries::length_by_hash(content, shape, slot) }
}

const _: () = assert!(DentryShape::BLOCK.size == BLOCK_SIZE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_belong_to_levels() {
        assert_eq!(locate(0, 0), Some((0, 0, 1)));
        assert_eq!(locate(1, 0), Some((0, 0, 1)));
        assert_eq!(locate(2, 0), Some((1, 0, 2)));
        assert_eq!(locate(5, 0), Some((1, 1, 2)));
        assert_eq!(locate(6, 0), Some((2, 0, 4)));
        assert_eq!(locate(13, 0), Some((2, 3, 4)));
        assert_eq!(locate(3, 3), Some((0, 1, 8)));
        assert_eq!(locate(16, 3), Some((1, 0, 16)));
        assert_eq!(locate(u64::MAX, 255), None);
    }
}
