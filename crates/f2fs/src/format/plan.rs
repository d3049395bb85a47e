//! Everything that is decided about a new volume before the first write.

use basalt_device::BlockDevice;
use zerocopy::FromZeros;
use zerocopy::little_endian::U16;

use super::areas::{Areas, LOGS, SEGMENT_SIZE, SEGMENTS_MAX, divide, front_blocks, place_logs, segments_of};
use super::{FormatOptions, unsupported};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::journal::area::Area;
use crate::layout::crc::crc;
use crate::layout::superblock::{EXTENSION_MAX, Features, MAGIC, RawSuperblock};
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, Ino, Nid, SEGMENT_BITS};

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
    pub lost_found: Option<Ino>,
    /// First node id that is free.
    pub next_free_nid: Nid,
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
        let front = front_blocks(options.disk_offset, per_section);
        let Some((areas, reserve)) = segments_of(device.size(), front, per_section)
            .and_then(|segments| fit(segments, per_section, options.overprovision_percent))
        else {
            let least = minimum_size(per_section, options.overprovision_percent, options.disk_offset);
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
        let mut superblock = superblock(device, options, front, areas);
        set_extensions(&mut superblock);
        let journal_blocks = journal_blocks(device, options, &superblock)?;
        let lost_found =
            options.features.contains(Features::LOST_FOUND).then_some(Ino::new(superblock.root_ino.get() + 1));
        Ok(Plan {
            logs: place_logs(areas.main / per_section, per_section),
            lost_found,
            next_free_nid: Nid::new(superblock.root_ino.get() + 1 + u32::from(lost_found.is_some())),
            reserved_segments: reserve.reserved,
            overprovision_segments: reserve.overprovision,
            overprovision_percent: reserve.percent,
            journal_blocks,
            checkpoint_version: u64::from(crc(&superblock.uuid) >> 1 | 1),
            superblock,
        })
    }

    /// First block of the checkpoint area.
    pub fn checkpoint(&self) -> Address {
        self.superblock.cp_blkaddr.into()
    }

    /// Address of the first block of a log.
    pub fn log_start(&self, log: usize) -> Address {
        Address::from(self.superblock.main_blkaddr) + (self.logs[log] << SEGMENT_BITS)
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
    let most = FormatOptions::SEGMENTS_PER_SECTION_MAX;
    if !(1..=most).contains(&options.segments_per_section) {
        return Err(unsupported(
            device,
            format!("{} segments per section, expected 1 to {most}", options.segments_per_section),
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

/// How much of the room for files larger sections may cost, in percent.
const SECTIONS_COST_MOST: u64 = 3;

/// How many segments a section best has on a device of `size` bytes, `disk_offset` bytes into its disk, that erases `erase_unit` bytes together: those of
/// the unit, so that cleaning frees what is erased as a whole. The reserve counts in sections, so where that would cost more than 3 % of the room for
/// files, those of the largest part of it that does not; 1 where there is none.
#[must_use]
pub fn segments_of_erase_unit(size: u64, disk_offset: u64, erase_unit: u64, percent: Option<f64>) -> u32 {
    if !erase_unit.is_multiple_of(SEGMENT_SIZE) {
        return 1;
    }
    let room = |per_section| {
        let segments = segments_of(size, front_blocks(disk_offset, per_section), per_section)?;
        let (areas, reserve) = fit(segments, per_section, percent)?;
        Some(u64::from(areas.main - reserve.overprovision))
    };
    let least = room(1).unwrap_or(u64::MAX).saturating_mul(100 - SECTIONS_COST_MOST);
    let unit = erase_unit / SEGMENT_SIZE;
    let most = u64::from(FormatOptions::SEGMENTS_PER_SECTION_MAX).min(unit) as u32;
    let parts = (2..=most).rev().filter(|&segments| unit.is_multiple_of(u64::from(segments)));
    parts.into_iter().find(|&segments| room(segments).is_some_and(|room| room * 100 >= least)).unwrap_or(1)
}

/// The least size in bytes of a device, which begins so many bytes into its disk, on which a volume fits.
pub fn minimum_size(per_section: u32, percent: Option<f64>, disk_offset: u64) -> Option<u64> {
    let front = u64::from(front_blocks(disk_offset, per_section)) << BLOCK_BITS;
    (1..=SEGMENTS_MAX as u32 / per_section)
        .map(|sections| sections * per_section)
        .take(1 << 16)
        .find(|&segments| fit(segments, per_section, percent).is_some())
        .map(|segments| front + u64::from(segments) * SEGMENT_SIZE)
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

fn superblock(device: &dyn BlockDevice, options: &FormatOptions, front: u32, areas: Areas) -> RawSuperblock {
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
    set_areas(&mut sb, front, options.segments_per_section, areas);
    sb.node_ino = Ino::NODE.into();
    sb.meta_ino = Ino::META.into();
    sb.root_ino = Ino::ROOT.into();
    #[expect(clippy::disallowed_methods, reason = "a caller that wants the same volume again gives the UUID")]
    let random = || uuid::Uuid::new_v4().into_bytes();
    sb.uuid = options.uuid.unwrap_or_else(random);
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

fn set_areas(sb: &mut RawSuperblock, front: u32, per_section: u32, areas: Areas) {
    sb.segment_count.set(areas.total);
    sb.section_count.set(areas.main / per_section);
    sb.segment_count_ckpt.set(2);
    sb.segment_count_sit.set(areas.sit);
    sb.segment_count_nat.set(areas.nat);
    sb.segment_count_ssa.set(areas.ssa);
    sb.segment_count_main.set(areas.main);
    let mut at = front;
    sb.segment0_blkaddr.set(at);
    for (address, segments) in [
        (&mut sb.cp_blkaddr, 2),
        (&mut sb.sit_blkaddr, areas.sit),
        (&mut sb.nat_blkaddr, areas.nat),
        (&mut sb.ssa_blkaddr, areas.ssa),
        (&mut sb.main_blkaddr, areas.main),
    ] {
        address.set(at);
        // The last sum is the volume's end, which is below 2^32 blocks.
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
