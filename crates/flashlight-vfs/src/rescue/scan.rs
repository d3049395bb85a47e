//! Every page of a chip is read: of each inode the newest page counts.

use std::collections::{BTreeMap, HashMap};

use basalt_flashlight::inspect::{self, MetadataPage, PageKind, SeedFinder, TableEntry};
use basalt_flashlight::{Identity, InodeNumber};
use basalt_nand::{NandDevice, NandError, is_erased};

use super::{RescueError, RescueReport};

/// Pages that have to agree on a volume of which no root can be read.
const ENOUGH: u32 = 3;
/// Pages between two looks at the progress.
const STEP: u32 = 256;

/// The newest page of an inode.
#[derive(Debug, Clone)]
pub(super) struct Newest {
    pub(super) sequence: u64,
    pub(super) page: u32,
    pub(super) is_directory: bool,
    pub(super) is_gone: bool,
    pub(super) mode: u32,
    pub(super) parent: InodeNumber,
    pub(super) key: u32,
    pub(super) name: Vec<u8>,
    /// Of a directory: inodes up to this sequence number are among its entries, or are gone.
    pub(super) covers: u64,
}

/// The newest pages of the inode table, by their first inode.
#[derive(Default)]
pub(super) struct Table(BTreeMap<u32, (u64, Vec<TableEntry>)>);

impl Table {
    fn note(&mut self, found: &MetadataPage<'_>) {
        if let Some((first, entries)) = found.table()
            && self.0.get(&first).is_none_or(|(sequence, _)| *sequence < found.sequence())
        {
            self.0.insert(first, (found.sequence(), entries.collect()));
        }
    }

    /// What it says of an inode, and when: sequence numbers below that one were known.
    pub(super) fn entry(&self, number: InodeNumber) -> Option<(u64, TableEntry)> {
        let (first, (sequence, entries)) = self.0.range(..=number.0).next_back()?;
        entries.get((number.0 - first) as usize).map(|&entry| (*sequence, entry))
    }
}

/// What a chip has.
pub(super) struct Found {
    pub(super) seed: u32,
    pub(super) inodes: BTreeMap<InodeNumber, Newest>,
    pub(super) table: Table,
}

pub(super) fn scan<D: NandDevice>(
    device: &mut D,
    report: &mut RescueReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Found, RescueError> {
    report.identity = identity(device)?;
    let seed = match &report.identity {
        Some(identity) => identity.seed(),
        None => most_common_seed(device, progress)?.ok_or(RescueError::NoInode)?,
    };
    let (mut inodes, mut table) = (BTreeMap::new(), Table::default());
    each_page(device, progress, |page, bytes| {
        let Some(bytes) = bytes else {
            report.unreadable_pages += 1;
            return;
        };
        if let Some(found) = MetadataPage::of(bytes, seed) {
            report.metadata_pages += 1;
            note(&mut inodes, page, &found);
            table.note(&found);
        }
    })?;
    Ok(Found { seed, inodes, table })
}

/// Keeps the page of an inode if it is the newest so far.
fn note(inodes: &mut BTreeMap<InodeNumber, Newest>, page: u32, found: &MetadataPage<'_>) {
    let (inode, is_directory) = match found.kind() {
        PageKind::File(inode) => (inode, false),
        PageKind::Directory(inode) => (inode, true),
        PageKind::Other => return,
    };
    if found.owner().0 == u32::MAX {
        return;
    }
    if inodes.get(&found.owner()).is_some_and(|newest| newest.sequence >= found.sequence()) {
        return;
    }
    let newest = Newest {
        sequence: found.sequence(),
        page,
        is_directory,
        is_gone: is_directory && inode.is_gone(),
        mode: inode.attributes().mode,
        parent: inode.parent(),
        key: inode.key(),
        name: inode.name().to_vec(),
        covers: if is_directory { inode.covers() } else { 0 },
    };
    inodes.insert(found.owner(), newest);
}

/// Reads all pages that can be metadata: `None` for one that cannot be read. Erased ones are passed over, and data: what a file contains may
/// look like anything.
fn each_page<D: NandDevice>(
    device: &mut D,
    progress: &mut dyn FnMut(u64, u64),
    mut each: impl FnMut(u32, Option<&[u8]>),
) -> Result<(), RescueError> {
    let geometry = device.geometry();
    let (mut bytes, mut spare) = (vec![0; geometry.page_bytes as usize], vec![0; geometry.spare_bytes as usize]);
    let pages = geometry.pages();
    for page in 0..pages {
        if page.is_multiple_of(STEP) || page + 1 == pages {
            progress(u64::from(page) + 1, pages.into());
        }
        match device.read(page, &mut bytes, &mut spare) {
            Ok(_) if is_erased(&bytes) || inspect::data_owner(&spare).is_some() => {}
            Ok(_) => each(page, Some(&bytes)),
            Err(NandError::Uncorrectable { .. }) => each(page, None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The volume of the newest root.
fn identity<D: NandDevice>(device: &mut D) -> Result<Option<Identity>, RescueError> {
    let geometry = device.geometry();
    let mut bytes = vec![0; geometry.page_bytes as usize];
    let mut newest = None;
    for block in 0..inspect::ROOT_BLOCKS.min(geometry.blocks) {
        let is_bad = device.is_bad(block)?;
        match device.read(geometry.first_page(block), &mut bytes, &mut []) {
            Ok(_) => {
                // One in a bad block may be of the volume before, and is better than none.
                let root = inspect::root(&bytes).map(|(identity, generation)| ((!is_bad, generation), identity));
                if let Some((rank, identity)) = root
                    && newest.as_ref().is_none_or(|(other, _)| *other < rank)
                {
                    newest = Some((rank, identity));
                }
            }
            Err(NandError::Uncorrectable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(newest.map(|(_, identity)| identity))
}

/// The seed that most pages agree on.
fn most_common_seed<D: NandDevice>(
    device: &mut D,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<u32>, RescueError> {
    let finder = SeedFinder::new(&mut vec![0; device.geometry().page_bytes as usize]);
    let mut seeds: HashMap<u32, u32> = HashMap::new();
    each_page(device, progress, |_, bytes| {
        if let Some(seed) = bytes.and_then(|bytes| finder.seed(bytes)) {
            *seeds.entry(seed).or_default() += 1;
        }
    })?;
    let most = seeds.into_iter().max_by_key(|&(seed, count)| (count, seed));
    Ok(most.filter(|&(_, count)| count >= ENOUGH).map(|(seed, _)| seed))
}
