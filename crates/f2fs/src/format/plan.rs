//! How large each area of a new volume is. Pure arithmetic, the same as mkfs.f2fs 1.15's, so that every tool finds what it expects.

use basalt_device::BlockDevice;
use zerocopy::FromZeros;
use zerocopy::little_endian::U16;

use super::{FormatOptions, SEGMENT_SIZE, unsupported};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::journal::area::Area;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET};
use crate::layout::crc::crc;
use crate::layout::superblock::{EXTENSION_MAX, Features, MAGIC, RawSuperblock};
use crate::layout::{BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, SEGMENT_BITS, nat, sit};

/// Index of each log in [`Plan::logs`]: as segment types are numbered on the volume.
pub const HOT_DATA: usize = 0;
/// Log of file data that is neither hot nor cold.
pub const WARM_DATA: usize = 1;
/// Log of cold file data.
pub const COLD_DATA: usize = 2;
/// Log of directories' inodes.
pub const HOT_NODE: usize = 3;
/// Log of files' inodes and direct nodes: the roll-forward chain.
pub const WARM_NODE: usize = 4;
/// Log of indirect nodes.
pub const COLD_NODE: usize = 5;

/// Bytes for version bitmaps in a checkpoint block.
const BITMAP_BYTES: u32 = (CHECKSUM_OFFSET - BITMAP_OFFSET) as u32;
/// Bytes of a version bitmap for each segment of one copy of SIT or NAT.
const BITMAP_BYTES_PER_SEGMENT: u32 = BLOCKS_PER_SEGMENT / 8;
/// Most segments of a volume (16 TiB).
const SEGMENTS_MAX: u64 = 8_388_608;
/// Most segments in a section that make sense: 8 GiB.
const SEGMENTS_PER_SECTION_MAX: u32 = 4096;
/// Logs.
const LOGS: u32 = 6;

/// File name extensions whose data goes to the cold log (media, archives, documents: written once). mkfs.f2fs's list.
const COLD_EXTENSIONS: [&str; 36] = [
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus", "flac", "gif",
    "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc", "ttc", "ttf", "exe", "apk", "cnt",
    "exo", "odex", "vdex", "so",
];
/// File name extensions whose data goes to the hot log (databases, disk images: overwritten in place).
const HOT_EXTENSIONS: [&str; 4] = ["db", "vmdk", "vdi", "qcow2"];

/// Everything that is decided before the first write.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The superblock to write, without its checksum.
    pub superblock: RawSuperblock,
    /// First segment of each log.
    pub logs: [u32; LOGS as usize],
    /// Inode number of `lost+found`, if the volume has one.
    pub lost_found: Option<u32>,
    /// First node id that is free.
    pub next_free_nid: u32,
    /// Segments that cleaning keeps free.
    pub reserved_segments: u32,
    /// Segments kept back for cleaning, reserved ones included.
    pub overprovision_segments: u32,
    /// The ratio they were computed from.
    pub overprovision_percent: f64,
    /// Blocks of the cleaning journal.
    pub journal_blocks: u32,
    /// Version of the first checkpoint: odd, because odd versions live in the first pack, and different for every UUID, so
    /// that nodes of an earlier volume on the device are never taken for this one's by roll-forward.
    pub checkpoint_version: u64,
}

/// Segment counts of the areas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Areas {
    /// All.
    pub total: u32,
    /// Both copies of the SIT.
    pub sit: u32,
    /// Both copies of the NAT.
    pub nat: u32,
    /// The SSA.
    pub ssa: u32,
    /// The main area.
    pub main: u32,
    /// Extra blocks in a checkpoint pack.
    pub payload: u32,
}

/// Reserve for cleaning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reserve {
    /// The over-provisioning ratio it follows from.
    pub percent: f64,
    /// Segments that cleaning keeps free.
    pub reserved: u32,
    /// Segments kept back, reserved ones included.
    pub overprovision: u32,
}

impl Plan {
    /// Plans a volume on the whole device.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) with the least size that would do, or with the option that is wrong.
    pub fn new(device: &dyn BlockDevice, options: &FormatOptions) -> Result<Plan> {
        check_options(device, options)?;
        let per_section = options.segments_per_section;
        let Some((areas, reserve)) = segments_of(device.size(), per_section)
            .and_then(|segments| fit(segments, per_section, options.overprovision_percent))
        else {
            let least = minimum_size(per_section, options.overprovision_percent);
            let reason = match least {
                Some(least) => format!(
                    "{} bytes are too few for a volume with {per_section} segment{} per section: at least {} MiB ({least} bytes)",
                    device.size(),
                    if per_section == 1 { "" } else { "s" },
                    least >> 20
                ),
                None => "no volume of any size fits this over-provisioning".into(),
            };
            return Err(unsupported(device, reason));
        };
        let mut superblock = superblock(device, options, areas);
        set_extensions(&mut superblock);
        let journal_blocks = journal_blocks(device, options, &superblock)?;
        let lost_found = options.features.contains(Features::LOST_FOUND).then_some(superblock.root_ino.get() + 1);
        Ok(Plan {
            logs: place_logs(areas.main / per_section, per_section),
            lost_found,
            next_free_nid: superblock.root_ino.get() + 1 + u32::from(lost_found.is_some()),
            reserved_segments: reserve.reserved,
            overprovision_segments: reserve.overprovision,
            overprovision_percent: reserve.percent,
            journal_blocks,
            checkpoint_version: u64::from(crc(&superblock.uuid) >> 1 | 1),
            superblock,
        })
    }

    /// First block of the checkpoint area.
    pub fn checkpoint(&self) -> u32 {
        self.superblock.cp_blkaddr.get()
    }

    /// Address of the first block of a log.
    pub fn log_start(&self, log: usize) -> u32 {
        self.superblock.main_blkaddr.get() + (self.logs[log] << SEGMENT_BITS)
    }

    /// Blocks that files and their metadata can take.
    pub fn user_blocks(&self) -> u64 {
        u64::from(self.superblock.segment_count_main.get() - self.overprovision_segments) << SEGMENT_BITS
    }
}

fn check_options(device: &dyn BlockDevice, options: &FormatOptions) -> Result<()> {
    let features = options.features;
    let impossible = features.difference(FormatOptions::POSSIBLE_FEATURES);
    if !impossible.is_empty() {
        return Err(unsupported(device, format!("cannot make a volume with features {:#x}", impossible.bits())));
    }
    let extra = Features::PROJECT_QUOTA
        | Features::INODE_CHECKSUM
        | Features::FLEXIBLE_INLINE_XATTR
        | Features::INODE_CRTIME
        | Features::COMPRESSION;
    if features.intersects(extra) && !features.contains(Features::EXTRA_ATTR) {
        return Err(unsupported(device, "features that are kept in extra attributes need extra_attr"));
    }
    if !(1..=SEGMENTS_PER_SECTION_MAX).contains(&options.segments_per_section) {
        return Err(unsupported(
            device,
            format!("{} segments per section, expected 1 to {SEGMENTS_PER_SECTION_MAX}", options.segments_per_section),
        ));
    }
    if options.overprovision_percent.is_some_and(|percent| !(0.01..100.0).contains(&percent)) {
        return Err(unsupported(device, "over-provisioning must be at least 0.01 and less than 100 percent"));
    }
    if options.label.encode_utf16().count() > 511 || options.label.contains('\0') {
        return Err(unsupported(device, "the label is longer than 511 UTF-16 units or holds a zero"));
    }
    if !(512..=BLOCK_SIZE as u32).contains(&device.sector_size()) || !device.sector_size().is_power_of_two() {
        return Err(unsupported(device, format!("sectors of {} bytes, expected 512 to 4096", device.sector_size())));
    }
    Ok(())
}

/// Segments behind the aligned start, in whole sections; `None` if there is not even one section.
fn segments_of(size: u64, per_section: u32) -> Option<u32> {
    let section = u64::from(per_section);
    // The first section's room in front of segment 0 holds the superblocks.
    let segments = size.checked_sub(section * SEGMENT_SIZE)? / SEGMENT_SIZE;
    let segments = segments.min(SEGMENTS_MAX) / section * section;
    u32::try_from(segments).ok().filter(|&segments| segments > 0)
}

/// The least device size in bytes on which a volume fits.
pub fn minimum_size(per_section: u32, percent: Option<f64>) -> Option<u64> {
    (1..=SEGMENTS_MAX as u32 / per_section)
        .map(|sections| sections * per_section)
        .take(1 << 16)
        .find(|&segments| fit(segments, per_section, percent).is_some())
        .map(|segments| u64::from(segments + per_section) * SEGMENT_SIZE)
}

/// Divides `segments` among the areas; `None` if it cannot be done.
fn fit(segments: u32, per_section: u32, percent: Option<f64>) -> Option<(Areas, Reserve)> {
    let areas = divide(segments, per_section)?;
    Some((areas, reserve(areas.main, per_section, percent)?))
}

/// What is kept back of a main area of `main` segments, at the ratio `percent` or the best one; `None` if it is too small.
pub(crate) fn reserve(main: u32, per_section: u32, percent: Option<f64>) -> Option<Reserve> {
    let percent = percent.or_else(|| best_overprovision(main, per_section))?;
    let reserved = reserved_segments(percent, per_section) as u32;
    let sections = main / per_section;
    if sections <= LOGS || main - LOGS < reserved {
        return None;
    }
    let overprovision = (f64::from(main - reserved) * percent / 100.0) as u32 + reserved;
    (overprovision < main).then_some(Reserve { percent, reserved, overprovision })
}

/// The areas of `total` segments whose main area begins and ends with a section; `None` if there is no room for one.
pub(crate) fn divide(total: u32, per_section: u32) -> Option<Areas> {
    let checkpoint = 2;
    let sit_blocks = total.div_ceil(sit::ENTRIES_PER_BLOCK);
    let sit = sit_blocks.div_ceil(BLOCKS_PER_SEGMENT);
    let behind_sit = u64::from(total.checked_sub(checkpoint + 2 * sit)?);
    let nat_blocks = (behind_sit << SEGMENT_BITS).div_ceil(u64::from(nat::ENTRIES_PER_BLOCK));
    let sit_bitmap = sit * BITMAP_BYTES_PER_SEGMENT;
    // Room for the version bitmap of at least one NAT segment stays; a larger SIT bitmap moves behind the checkpoint block.
    let (payload, nat_bitmap) = if sit_bitmap > BITMAP_BYTES - BITMAP_BYTES_PER_SEGMENT {
        (sit_bitmap.div_ceil(BLOCK_SIZE as u32), BITMAP_BYTES)
    } else {
        (0, BITMAP_BYTES - sit_bitmap)
    };
    let nat_most = nat_bitmap / BITMAP_BYTES_PER_SEGMENT;
    // At most a segment for each 455 blocks of 2^32: fits.
    let nat = (nat_blocks.div_ceil(u64::from(BLOCKS_PER_SEGMENT)) as u32).min(nat_most);
    let behind_nat = total.checked_sub(checkpoint + 2 * sit + 2 * nat)?;
    let ssa = (behind_nat + 1).div_ceil(BLOCKS_PER_SEGMENT);
    let metadata = checkpoint + 2 * sit + 2 * nat + ssa;
    // The main area starts with a section: the SSA takes what is left over.
    let aligned = metadata.next_multiple_of(per_section);
    let main = total.checked_sub(aligned)?;
    Some(Areas { total, sit: 2 * sit, nat: 2 * nat, ssa: ssa + aligned - metadata, main, payload })
}

/// Segments that cleaning must keep free so that it never runs out of room, for an over-provisioning ratio. mkfs.f2fs's formula.
fn reserved_segments(percent: f64, per_section: u32) -> f64 {
    (2.0 * (100.0 / percent + 1.0) + f64::from(LOGS)) * f64::from(per_section)
}

/// The ratio that leaves most to the user. mkfs.f2fs's search, step for step, because a rounding difference would choose another.
fn best_overprovision(main: u32, per_section: u32) -> Option<f64> {
    let (mut candidate, end, step) = if main < 256 { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let (mut best, mut most) = (None, 0.0);
    while candidate <= end {
        let reserved = reserved_segments(candidate, per_section);
        let kept_back = (f64::from(main) - reserved) * candidate / 100.0;
        let space = f64::from(main) - reserved - kept_back;
        if space > most {
            (best, most) = (Some(candidate), space);
        }
        candidate += step;
    }
    best
}

/// Nodes in the first sections, hot data behind them, cold data a quarter and warm data half of the way in.
fn place_logs(sections: u32, per_section: u32) -> [u32; LOGS as usize] {
    let cold = (sections / 4).saturating_sub(1).max(4);
    let warm = (sections / 2).saturating_sub(1).max(cold + 1);
    let mut logs = [0; LOGS as usize];
    for (log, section) in
        [(HOT_NODE, 0), (WARM_NODE, 1), (COLD_NODE, 2), (HOT_DATA, 3), (COLD_DATA, cold), (WARM_DATA, warm)]
    {
        logs[log] = section * per_section;
    }
    logs
}

/// The blocks at which logs of a new volume of `size` bytes begin, wherever a mkfs puts them: as [`place_logs`] does, and, as mkfs.f2fs
/// does with `-a 1`, in the last four sections. Nothing if there is no such volume.
pub(crate) fn possible_logs(size: u64, per_section: u32) -> Vec<u32> {
    let areas = segments_of(size, per_section).and_then(|segments| divide(segments, per_section));
    let Some(areas) = areas.filter(|areas| areas.main / per_section > LOGS) else { return Vec::new() };
    let sections = areas.main / per_section;
    let front = per_section + areas.total - areas.main;
    let last = (sections - 4..sections).map(|section| section * per_section);
    // The last segments of 16 TiB have no address.
    let address = |segment: u32| u32::try_from(u64::from(front + segment) << SEGMENT_BITS).ok();
    place_logs(sections, per_section).into_iter().chain(last).filter_map(address).collect()
}

fn superblock(device: &dyn BlockDevice, options: &FormatOptions, areas: Areas) -> RawSuperblock {
    let mut sb = RawSuperblock::new_zeroed();
    let sector_bits = device.sector_size().trailing_zeros();
    sb.magic.set(MAGIC);
    sb.major_ver.set(1);
    sb.minor_ver.set(15);
    sb.log_sectorsize.set(sector_bits);
    sb.log_sectors_per_block.set(BLOCK_BITS - sector_bits);
    sb.log_blocksize.set(BLOCK_BITS);
    sb.log_blocks_per_seg.set(SEGMENT_BITS);
    sb.segs_per_sec.set(options.segments_per_section);
    sb.secs_per_zone.set(1);
    sb.block_count.set(device.size() >> BLOCK_BITS);
    set_areas(&mut sb, options.segments_per_section, areas);
    sb.node_ino.set(1);
    sb.meta_ino.set(2);
    sb.root_ino.set(3);
    sb.uuid = options.uuid.unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes());
    for (unit, from) in sb.volume_name.iter_mut().zip(options.label.encode_utf16()) {
        *unit = U16::new(from);
    }
    sb.cp_payload.set(areas.payload);
    let version = concat!("Basalt ", env!("CARGO_PKG_VERSION")).as_bytes();
    sb.version[..version.len()].copy_from_slice(version);
    sb.init_version = sb.version;
    sb.feature.set(options.features.bits());
    sb
}

fn journal_blocks(device: &dyn BlockDevice, options: &FormatOptions, sb: &RawSuperblock) -> Result<u32> {
    let most = Area::capacity(&Geometry::describe(*sb));
    match u32::try_from(options.journal_bytes.div_ceil(BLOCK_SIZE as u64)) {
        Ok(blocks) if blocks <= most => Ok(blocks),
        _ => Err(unsupported(
            device,
            format!("a journal of {} bytes, at most {} fit", options.journal_bytes, u64::from(most) << BLOCK_BITS),
        )),
    }
}

fn set_areas(sb: &mut RawSuperblock, per_section: u32, areas: Areas) {
    sb.segment_count.set(areas.total);
    sb.section_count.set(areas.main / per_section);
    sb.segment_count_ckpt.set(2);
    sb.segment_count_sit.set(areas.sit);
    sb.segment_count_nat.set(areas.nat);
    sb.segment_count_ssa.set(areas.ssa);
    sb.segment_count_main.set(areas.main);
    let mut at = per_section << SEGMENT_BITS;
    sb.segment0_blkaddr.set(at);
    for (address, segments) in [
        (&mut sb.cp_blkaddr, 2),
        (&mut sb.sit_blkaddr, areas.sit),
        (&mut sb.nat_blkaddr, areas.nat),
        (&mut sb.ssa_blkaddr, areas.ssa),
        (&mut sb.main_blkaddr, areas.main),
    ] {
        address.set(at);
        // The last sum is the volume's end; 16 TiB are 2^32 blocks, and addresses stay below.
        at = at.wrapping_add(segments << SEGMENT_BITS);
    }
}

fn set_extensions(sb: &mut RawSuperblock) {
    const _: () = assert!(COLD_EXTENSIONS.len() + HOT_EXTENSIONS.len() <= EXTENSION_MAX);
    for (slot, name) in sb.extension_list.iter_mut().zip(COLD_EXTENSIONS.iter().chain(&HOT_EXTENSIONS)) {
        slot[..name.len()].copy_from_slice(name.as_bytes());
    }
    sb.extension_count.set(COLD_EXTENSIONS.len() as u32);
    sb.hot_ext_count = HOT_EXTENSIONS.len() as u8;
}
