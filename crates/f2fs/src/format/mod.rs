//! mkfs: writes an empty F2FS volume.
//!
//! | module | what |
//! |---|---|
//! | `areas` | how large each area is, and where the logs begin: pure arithmetic |
//! | [`plan`] | everything that is decided before the first write |
//! | `root` | the root directory and `lost+found`: their inodes and directory blocks |
//! | `pack` | the first checkpoint |
//! | `earlier` | what an earlier volume on the device means for the new one |
//!
//! The old superblocks are wiped first and the new ones written last, each behind a flush: a volume whose formatting was cut
//! short is no volume at all, rather than a broken one.

pub(crate) mod areas;
mod earlier;
pub(crate) mod pack;
pub mod plan;
pub(crate) mod root;

use basalt_device::BlockDevice;
use basalt_vfs::Time;
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::geometry::{Geometry, superblock_block};
use crate::journal::area::Area;
use crate::layout::superblock::Features;
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino};
use earlier::Earlier;
use plan::Plan;

/// Bytes that are zeroed or discarded with one request.
const ZERO_REQUEST: u64 = 4 << 20;
const DISCARD_REQUEST: u64 = 1 << 30;
/// Bytes at the end of the device where other formats keep second copies of what identifies them (GPT, ZFS, md, NILFS2).
const TAIL_SIGNATURES: u64 = 1 << 20;

/// What kind of volume to make.
#[derive(Debug, Clone, PartialEq)]
pub struct FormatOptions {
    /// Volume label, at most 511 UTF-16 units.
    pub label: String,
    /// Segments (2 MiB each) in a section, the unit of cleaning; at least 1.
    pub segments_per_section: u32,
    /// Bytes of the disk in front of the device, if it is a partition: sections begin at multiples of their size on the disk.
    pub disk_offset: u64,
    /// Share of the main area kept back for cleaning, in percent; `None` chooses what leaves most to the user, as
    /// mkfs.f2fs does.
    pub overprovision_percent: Option<f64>,
    /// Features of the volume. Those that need extra attributes need [`Features::EXTRA_ATTR`] too.
    pub features: Features,
    /// The volume's UUID; `None` makes a random one.
    pub uuid: Option<[u8; 16]>,
    /// Whether to tell the device first that it holds nothing of value.
    pub discard: bool,
    /// Whether what reads as zeros after a discard will always do so (image files, memory). Zeros are then written only where
    /// something else is read: a new image stays sparse.
    pub discard_reads_zeros: bool,
    /// Bytes of the cleaning journal, rounded up to blocks; 0 for none.
    pub journal_bytes: u64,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Times of the root directory.
    pub time: Time,
}

impl FormatOptions {
    /// Features of a volume unless others are asked for.
    pub const DEFAULT_FEATURES: Features = Features::EXTRA_ATTR
        .union(Features::INODE_CHECKSUM)
        .union(Features::SB_CHECKSUM)
        .union(Features::INODE_CRTIME)
        .union(Features::LOST_FOUND);

    /// Bytes of the cleaning journal unless others are asked for: more gains nothing (E. Gwak and D. Shin, "Segment Cleaning
    /// Journaling", IEEE Access 2021, figure 6).
    pub const DEFAULT_JOURNAL_BYTES: u64 = 256 << 10;

    /// Most segments in a section that make sense: 8 GiB.
    pub const SEGMENTS_PER_SECTION_MAX: u32 = 4096;

    /// Features that a volume can be made with.
    pub const POSSIBLE_FEATURES: Features = Self::DEFAULT_FEATURES
        .union(Features::FLEXIBLE_INLINE_XATTR)
        .union(Features::PROJECT_QUOTA)
        .union(Features::ENCRYPT)
        .union(Features::VERITY)
        .union(Features::COMPRESSION);
}

impl Default for FormatOptions {
    fn default() -> Self {
        FormatOptions {
            label: String::new(),
            segments_per_section: 1,
            disk_offset: 0,
            overprovision_percent: None,
            features: Self::DEFAULT_FEATURES,
            uuid: None,
            discard: true,
            discard_reads_zeros: false,
            journal_bytes: 0,
            root_owner: (0, 0),
            time: Time::default(),
        }
    }
}

/// What was made.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct FormatReport {
    /// The volume's UUID.
    pub uuid: String,
    /// Bytes of the volume.
    pub size: u64,
    /// Bytes that files and their metadata can take.
    pub user_bytes: u64,
    /// Segments of the volume, metadata included.
    pub segments: u32,
    /// Segments of the main area.
    pub main_segments: u32,
    /// Sections of the main area.
    pub sections: u32,
    /// The share kept back for cleaning, in percent of what is not reserved.
    pub overprovision_percent: f64,
    /// Segments kept back for cleaning, reserved ones included.
    pub overprovision_segments: u32,
    /// Segments that cleaning keeps free at all times.
    pub reserved_segments: u32,
    /// Bytes of the cleaning journal; 0 if there is none.
    pub journal_bytes: u64,
}

/// Makes an empty volume of the whole device, and overwrites whatever is there, without a look. `basalt mkfs` looks first:
/// [`probe`](crate::probe) names what a device holds. `progress` is told how many of how many bytes have been discarded and zeroed.
///
/// # Errors
/// [`Error::Unsupported`] if the device is too small (with the least size), or the options contradict each other; nothing
/// has been written then. [`Error::Device`] if the device fails; it holds no volume then.
pub fn format(
    device: &dyn BlockDevice,
    options: &FormatOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FormatReport> {
    let mut plan = Plan::new(device, options)?;
    let earlier = Earlier::find(device, &plan);
    let zeros = areas_to_zero(&plan, device.size());
    prepare(device, options, &zeros, progress)?;
    // A discard is a hint, also where what it takes away reads as zeros.
    let is_discarded = options.discard && options.discard_reads_zeros && !earlier.remains(device);
    if !is_discarded {
        plan.checkpoint_version = earlier.version_behind(plan.checkpoint_version);
    }

    let root = root::build(&plan, options);
    for (address, block) in root.blocks.iter().chain([&nat_block(&plan, &root)]) {
        write_block(device, *address, block)?;
    }
    let first = pack::build(&plan, &root, plan.checkpoint_version);
    write_block(device, plan.checkpoint(), &first)?;
    // Older than the first for as long as it takes to write the next checkpoint there; and next to it, so that either end of the first is
    // known as that of the newer.
    let second = pack::build(&plan, &root, plan.checkpoint_version.wrapping_sub(1));
    write_block(device, plan.checkpoint() + BLOCKS_PER_SEGMENT, &second)?;
    Area::write(device, &Geometry::describe(plan.superblock), plan.journal_blocks)?;
    device.flush()?;

    let superblock = superblock_block(&plan.superblock);
    write_block(device, Address::new(0), &[superblock.as_slice(), superblock.as_slice()].concat())?;
    device.flush()?;
    Ok(report(&plan))
}

/// Byte ranges that must read as zeros, in order: everything in front of the checkpoint, the first copies of SIT and NAT,
/// the place where roll-forward would start, and the end of the device.
fn areas_to_zero(plan: &Plan, device_size: u64) -> Vec<(u64, u64)> {
    let bytes = |block: Address| u64::from(block) << BLOCK_BITS;
    let segment = u64::from(BLOCKS_PER_SEGMENT) << BLOCK_BITS;
    let sb = &plan.superblock;
    let mut areas = vec![(0, bytes(plan.checkpoint()))];
    areas.push((bytes(sb.sit_blkaddr.into()), u64::from(sb.segment_count_sit.get() / 2) * segment));
    for index in 0..sb.segment_count_nat.get() / 2 {
        // The two copies of the NAT alternate by segment.
        areas.push((bytes(sb.nat_blkaddr.into()) + u64::from(index) * 2 * segment, segment));
    }
    areas.push((bytes(plan.log_start(areas::WARM_NODE)), BLOCK_SIZE as u64));
    let tail = device_size.saturating_sub(TAIL_SIGNATURES);
    areas.push((tail, device_size - tail));
    areas
}

/// Takes the old volume's superblocks away, discards, and zeroes.
fn prepare(
    device: &dyn BlockDevice,
    options: &FormatOptions,
    zeros: &[(u64, u64)],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let to_discard = if options.discard { device.size() } else { 0 };
    let total = to_discard + zeros.iter().map(|&(_, length)| length).sum::<u64>();
    let mut done = 0;
    progress(0, total);

    write_block(device, Address::new(0), &[0; 2 * BLOCK_SIZE])?;
    device.flush()?;
    while done < to_discard {
        let length = DISCARD_REQUEST.min(to_discard - done);
        device.discard(done, length)?;
        done += length;
        progress(done, total);
    }
    let trust_reads = options.discard && options.discard_reads_zeros;
    let buffer = vec![0; ZERO_REQUEST as usize];
    for &(start, length) in zeros {
        let mut at = 0;
        while at < length {
            let step = ZERO_REQUEST.min(length - at);
            // At most ZERO_REQUEST, the buffer's length.
            let zeros = &buffer[..step as usize];
            if !(trust_reads && reads_as(device, start + at, zeros)?) {
                device.write_at(start + at, zeros)?;
            }
            at += step;
            done += step;
            progress(done, total);
        }
    }
    Ok(())
}

/// Whether the device holds `expected` at `offset`.
fn reads_as(device: &dyn BlockDevice, offset: u64, expected: &[u8]) -> Result<bool> {
    let mut found = vec![0; expected.len()];
    device.read_at(offset, &mut found)?;
    Ok(found == expected)
}

/// The first block of the NAT: the two reserved ids and the inodes there are.
fn nat_block(plan: &Plan, root: &root::Tree) -> (Address, Vec<u8>) {
    use crate::layout::nat::{ENTRIES_PER_BLOCK, RawNatEntry};
    let sb = &plan.superblock;
    let mut entries = [RawNatEntry::default(); ENTRIES_PER_BLOCK as usize];
    // Linux gives the two inodes that exist only in memory the address 1.
    let reserved = [sb.node_ino, sb.meta_ino].map(|ino| (Ino::from(ino), Address::new(1)));
    for (ino, address) in reserved.into_iter().chain(root.inodes.iter().copied()) {
        // Inode numbers of a new volume are below 5.
        let entry = &mut entries[ino.get() as usize];
        entry.ino.set(ino.get());
        entry.block_addr = address.into();
    }
    let mut block = entries.as_bytes().to_vec();
    block.resize(BLOCK_SIZE, 0);
    (sb.nat_blkaddr.into(), block)
}

fn write_block(device: &dyn BlockDevice, address: Address, bytes: &[u8]) -> Result<()> {
    Ok(device.write_at(u64::from(address) << BLOCK_BITS, bytes)?)
}

fn report(plan: &Plan) -> FormatReport {
    let sb = &plan.superblock;
    FormatReport {
        uuid: uuid::Uuid::from_bytes(sb.uuid).to_string(),
        size: sb.block_count.get() << BLOCK_BITS,
        user_bytes: plan.user_blocks() << BLOCK_BITS,
        segments: sb.segment_count.get(),
        main_segments: sb.segment_count_main.get(),
        sections: sb.section_count.get(),
        overprovision_percent: plan.overprovision_percent,
        overprovision_segments: plan.overprovision_segments,
        reserved_segments: plan.reserved_segments,
        journal_bytes: u64::from(plan.journal_blocks) << BLOCK_BITS,
    }
}

/// Shorthand: the request cannot be served on this device.
fn unsupported(device: &dyn BlockDevice, reason: impl Into<String>) -> Error {
    Error::Unsupported { device: device.name().into(), reason: reason.into() }
}
