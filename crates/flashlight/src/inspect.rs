//! What a page says of itself: for tools that read a chip without its checkpoint.

use crate::layout::bucket::{self, Pointer};
use crate::layout::extents::{self, Extent};
use crate::layout::header::{Area, Header, checksum};
use crate::layout::inode::{self, EXTENT, Inode, SLOTS};
use crate::layout::leaf::{self, MAGIC, MAGIC_AT, ROOT_GENERATION, TABLE_FIRST};
use crate::layout::tag::{TAG, Tag};
use crate::layout::{LEAST_PAGE, NONE, Numbers};
use crate::mount;
use crate::operations::{Attributes, InodeNumber};
use crate::places::{COUNT, FIRST};
use crate::table::{self, TABLE_ENTRY};
use crate::volume::Identity;

/// A metadata page that is whole.
#[derive(Clone, Copy, Debug)]
pub struct MetadataPage<'a> {
    bytes: &'a [u8],
    header: Header,
}

/// What a metadata page is.
#[derive(Clone, Copy, Debug)]
pub enum PageKind<'a> {
    /// A file's inode.
    File(InodePage<'a>),
    /// A directory's inode.
    Directory(InodePage<'a>),
    /// Anything else.
    Other,
}

/// Pages of a file, one after the other in the file and on the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first page of the file.
    pub offset: u32,
    /// The first page of the chip; `None`: a hole, whatever an older part of the index says.
    pub page: Option<u32>,
    /// How many pages.
    pub length: u32,
}

/// What the inode table says of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEntry {
    /// There is no such inode.
    Nothing,
    /// It is a file, or was one.
    File,
    /// It is a directory: the page that its inode was in when the table was written.
    Directory(u32),
}

/// What an entry of a directory leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file: the page of the chip that its inode is in.
    File(u32),
    /// A file whose inode was never programmed.
    Unwritten,
    /// A directory.
    Directory(InodeNumber),
    /// Nothing: the entry that a bucket has is gone.
    Nothing,
}

impl<'a> MetadataPage<'a> {
    /// What is in a page, if it is a metadata page with that seed ([`Identity::seed`]), and whole.
    pub fn of(bytes: &'a [u8], seed: u32) -> Option<MetadataPage<'a>> {
        (bytes.len() >= LEAST_PAGE as usize)
            .then(|| Header::of(bytes, seed))?
            .map(|header| MetadataPage { bytes, header })
    }

    /// Its sequence number: what was programmed later has a higher one.
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// The inode that it belongs to.
    pub fn owner(&self) -> InodeNumber {
        InodeNumber(self.header.owner)
    }

    /// What it is.
    pub fn kind(&self) -> PageKind<'a> {
        let inode = InodePage { bytes: self.bytes };
        match (self.header.area, self.bytes.is_sound(), self.bytes.is_directory()) {
            (Area::FileInode, true, false) => PageKind::File(inode),
            (Area::DirInode, true, true) => PageKind::Directory(inode),
            _ => PageKind::Other,
        }
    }

    /// If it is a page of the inode table: the number of its first inode, and what it says of each: an inode that is there is a directory, whose
    /// inode is in a page of the chip, or a file, of which it says nothing here.
    pub fn table(&self) -> Option<(u32, impl Iterator<Item = TableEntry> + use<'a>)> {
        let entries = &self.bytes[TABLE_FIRST..];
        let count = entries.len() / TABLE_ENTRY;
        let entry = |at: usize| match (entries.u32_at(at * TABLE_ENTRY), entries.u32_at(at * TABLE_ENTRY + 4)) {
            (NONE, NONE) => TableEntry::Nothing,
            (page, NONE) => TableEntry::Directory(page),
            _ => TableEntry::File,
        };
        let is_table = self.header.area == Area::Table && self.header.flags & table::INDEX == 0;
        is_table.then(|| (self.header.which.saturating_mul(count as u32), (0..count).map(entry)))
    }

    /// If it is the extent map of that number: the place of each page of its part of the file.
    pub fn extent_map(&self, which: u32) -> Option<impl Iterator<Item = Option<u32>> + use<'a>> {
        let bytes = self.bytes;
        let places = (FIRST..=bytes.len() - 4).step_by(4).map(|at| some(bytes.u32_at(at)));
        (self.header.area == Area::ExtentMap && self.header.which == which).then_some(places)
    }

    /// If it is the extent log of the region of that number: the runs that it has.
    pub fn extent_log(&self, which: u32) -> Option<impl Iterator<Item = Run> + use<'a>> {
        let (list, count) = (&self.bytes[FIRST..], usize::from(self.bytes.u16_at(COUNT)));
        let is_log = self.header.area == Area::ExtentLog && self.header.which == which;
        is_log.then(|| (0..count.min(list.len() / EXTENT)).map(|at| run(extents::get(list, at))))
    }

    /// If it is a bucket: its entries.
    pub fn bucket(&self) -> Option<impl Iterator<Item = (u32, Target)> + use<'a>> {
        let (list, count) = (&self.bytes[bucket::FIRST..], bucket::count(self.bytes));
        let is_bucket = self.header.area == Area::Bucket && self.header.flags & bucket::INDEX == 0;
        is_bucket.then(|| (0..count).map(|at| entry(list, at)))
    }

    /// If it is an index of buckets: their pages.
    pub fn bucket_index(&self) -> Option<impl Iterator<Item = u32> + use<'a>> {
        let bytes = self.bytes;
        let is_index = self.header.area == Area::Bucket && self.header.flags & bucket::INDEX != 0;
        let pages = move || (0..1usize << bucket::depth(bytes)).map(|at| bytes.u32_at(bucket::FIRST + 4 * at));
        is_index.then(|| pages().filter(|&page| page != NONE))
    }
}

/// An inode's page.
#[derive(Clone, Copy, Debug)]
pub struct InodePage<'a> {
    bytes: &'a [u8],
}

impl<'a> InodePage<'a> {
    /// The directory that it is in.
    pub fn parent(&self) -> InodeNumber {
        InodeNumber(self.bytes.parent())
    }

    /// Its key there: two names of a directory never have the same.
    pub fn key(&self) -> u32 {
        self.bytes.u32_at(inode::KEY)
    }

    /// Its name there.
    pub fn name(&self) -> &'a [u8] {
        self.bytes.name()
    }

    /// Whether it is the last page of a directory that was removed.
    pub fn is_gone(&self) -> bool {
        self.bytes.u32_at(inode::FLAGS) & inode::GONE != 0
    }

    /// Of a directory: inodes in it up to this sequence number are among its entries, or are gone.
    pub fn covers(&self) -> u64 {
        self.bytes.u64_at(inode::COVERS)
    }

    /// What it says of itself.
    pub fn attributes(&self) -> Attributes {
        Attributes::of(self.bytes)
    }

    /// The content, of a file that has it in its inode.
    pub fn inline(&self) -> Option<&'a [u8]> {
        self.bytes.is_inline().then(|| &self.bytes[self.bytes.body()..][..self.bytes.count()])
    }

    /// The runs in a file's log.
    pub fn runs(&self) -> impl Iterator<Item = Run> + use<'a> {
        let (list, count) = (&self.bytes[self.bytes.log()..], self.bytes.count());
        (0..count).map(|at| run(extents::get(list, at)))
    }

    /// The pages of a file's extent maps, in the order of their numbers.
    pub fn maps(&self) -> impl Iterator<Item = Option<u32>> + use<'a> {
        let bytes = self.bytes;
        (0..bytes.maps()).map(|which| some(bytes.map(which)))
    }

    /// The pages of the extent logs of a file's regions, in the order of their numbers.
    pub fn regions(&self) -> impl Iterator<Item = Option<u32>> + use<'a> {
        let bytes = self.bytes;
        (0..bytes.regions()).map(|which| some(bytes.region(which)))
    }

    /// The entries in a directory's log: they count before those of its buckets.
    pub fn entries(&self) -> impl Iterator<Item = (u32, Target)> + use<'a> {
        let (list, count) = (&self.bytes[self.bytes.log()..], self.bytes.count());
        (0..count).map(|at| entry(list, at))
    }

    /// The pages of a directory's buckets, and of indexes of buckets.
    pub fn buckets(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (bytes, body) = (self.bytes, self.bytes.body());
        let slots = (0..SLOTS).map(move |slot| bytes.u32_at(body + 4 * slot));
        slots.filter(|&pointer| pointer != NONE).map(|pointer| pointer & !bucket::INDEX_POINTER)
    }
}

/// Pages of a file that an extent map has the places of, on a chip with pages of so many bytes; and how many maps a file has at most.
pub fn map_shape(page_bytes: u32) -> (u32, usize) {
    ((page_bytes - FIRST as u32) / 4, inode::MOST_MAPS)
}

/// The first blocks, which have roots.
pub const ROOT_BLOCKS: u32 = leaf::ROOT_BLOCKS;
/// The root directory.
pub const ROOT: InodeNumber = InodeNumber(mount::ROOT);
/// The directory of files that are deleted and still open.
pub const ORPHANS: InodeNumber = InodeNumber(mount::ORPHANS);
/// How many maps share the extent log of a region.
pub const MAPS_PER_REGION: usize = inode::MAPS_PER_REGION;

/// The file that a page of data belongs to, and its place there in pages, by the spare bytes beside it. `None`: it is no page of data.
pub fn data_owner(spare: &[u8]) -> Option<(InodeNumber, u32)> {
    let tag = (spare.len() >= TAG).then(|| Tag::of(spare))??;
    (tag.serial != NONE).then_some((InodeNumber(tag.serial), tag.offset))
}

/// The volume that a root belongs to, and the root's generation, if a page is a root.
pub fn root(bytes: &[u8]) -> Option<(Identity, u32)> {
    let page = MetadataPage::of(bytes, 0)?;
    if page.header.area != Area::Root || &bytes[MAGIC_AT..][..MAGIC.len()] != MAGIC {
        return None;
    }
    let mut identity = Identity { uuid: [0; 16], label: [0; 64] };
    identity.uuid.copy_from_slice(&bytes[44..60]);
    identity.label.copy_from_slice(&bytes[60..124]);
    Some((identity, bytes.u32_at(ROOT_GENERATION)))
}

/// Finds the seed of a volume's checksums where no root tells it. The checksum of a page depends on the seed as a linear map of bits, which
/// this turns round.
#[derive(Clone, Debug)]
pub struct SeedFinder {
    /// Row by row the bits of the seed that each bit of a checksum's difference changes.
    inverse: [u32; 32],
}

impl SeedFinder {
    /// For pages of that many bytes.
    pub fn new(page: &mut [u8]) -> SeedFinder {
        page.fill(0);
        let none = checksum(page, 0);
        let mut forward = [0u32; 32];
        for (bit, column) in forward.iter_mut().enumerate() {
            *column = checksum(page, 1 << bit) ^ none;
        }
        // Gauss and Jordan, by columns: each pair says which difference a seed makes.
        let mut seeds: [u32; 32] = core::array::from_fn(|bit| 1 << bit);
        for bit in 0..32 {
            let Some(pivot) = (bit..32).find(|&at| forward[at] >> bit & 1 == 1) else { continue };
            forward.swap(bit, pivot);
            seeds.swap(bit, pivot);
            for at in (0..32).filter(|&at| at != bit) {
                if forward[at] >> bit & 1 == 1 {
                    forward[at] ^= forward[bit];
                    seeds[at] ^= seeds[bit];
                }
            }
        }
        SeedFinder { inverse: seeds }
    }

    /// The seed with which a page is whole, if it can be a metadata page with a seed at all. Other pages give any number: the one that most
    /// pages of a chip give is its volume's.
    pub fn seed(&self, page: &[u8]) -> Option<u32> {
        let area = *page.first()?;
        if !(Area::Table as u8..=Area::ExtentLog as u8).contains(&area) {
            return None;
        }
        let difference = page.u32_at(16) ^ checksum(page, 0);
        let bits = (0..32).filter(|bit| difference >> bit & 1 == 1);
        Some(bits.fold(0, |seed, bit| seed ^ self.inverse[bit]))
    }
}

fn some(page: u32) -> Option<u32> {
    (page != NONE).then_some(page)
}

fn run(extent: Extent) -> Run {
    Run { offset: extent.offset, page: some(extent.page), length: extent.length }
}

fn entry(list: &[u8], at: usize) -> (u32, Target) {
    let entry = bucket::entry(list, at);
    let target = match entry.pointer {
        Pointer::File(page) => Target::File(page),
        Pointer::Unwritten => Target::Unwritten,
        Pointer::Directory(serial) => Target::Directory(InodeNumber(serial)),
        Pointer::Deleted => Target::Nothing,
    };
    (entry.key, target)
}
