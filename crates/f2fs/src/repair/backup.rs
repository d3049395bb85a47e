//! What a repair overwrites, saved to a file, and put back from it.
//!
//! The file, numbers little-endian:
//!
//! | part | what |
//! |---|---|
//! | head | the line `BASALT-UNDO 3`; volume size in bytes (u64); UUID (16 bytes); number of groups (u64) |
//! | each group | number of blocks (u64), the blocks |
//! | each block | address (u32, in blocks of 4 KiB); its 4,096 bytes from before the group; CRC-32 of each 512 bytes that the repair leaves there (8 × u32) |
//! | number of witnesses | u64 |
//! | each witness | address (u32); CRC-32 of each 512 bytes (8 × u32) |
//! | end | CRC-32 of all of that (u32) |
//!
//! The groups are those of the repair, last one first, with a flush behind each: so a restore that is cut off leaves what the repair would
//! have left, cut off at the same place. A block that two groups write comes twice. `BASALT-UNDO 2` has one group, without their number.
//!
//! A block may be put back while each of its sectors is as before or as repaired: so a repair or a restore that was cut off can be taken
//! back. Witnesses are blocks that the repair does not write, but that whoever uses the volume next does: the first blocks of both
//! checkpoint packs, and where the logs go on. They must be as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use basalt_device::{BlockDevice, DeviceError};
use basalt_segments::SegmentKind;
use zerocopy::FromBytes;

use super::commit::Writes;
use super::staged::Staged;
use crate::checkpoint::choose::choose_pack_to_read;
use crate::checkpoint::fields::log_position;
use crate::geometry::Geometry;
use crate::layout::superblock::{self, RawSuperblock};
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT};

const MAGIC: &[u8] = b"BASALT-UNDO 3\n";
/// Without groups: the order in which the blocks were written is not known.
const UNGROUPED: &[u8] = b"BASALT-UNDO 2\n";
/// Without what tells whether the volume was used since.
const UNWITNESSED: &[u8] = b"BASALT-UNDO 1\n";
/// What a device writes as a whole or not at all.
const SECTOR: usize = 512;
const SECTORS: usize = BLOCK_SIZE / SECTOR;

/// Why a backup could not be written or put back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The file failed.
    #[error("backup file: {0}")]
    File(#[from] io::Error),
    /// The file is no backup, not whole, or of a volume of another size.
    #[error("backup file: {0}")]
    Unfit(String),
    /// The file is of another volume, or of what this one no longer is. It is put back only if that is forced.
    #[error("backup file: {0}")]
    Stale(String),
}

type Result<T> = std::result::Result<T, RestoreError>;

/// A reader or writer that keeps the checksum of what passes.
struct Summed<T> {
    inner: T,
    sum: crc32fast::Hasher,
}

impl<T: Write> Summed<T> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        Ok(self.inner.write_all(bytes)?)
    }

    /// Writes the checksums of a block.
    fn put_sums(&mut self, block: &[u8]) -> Result<()> {
        sums(block).iter().try_for_each(|sum| self.put(&sum.to_le_bytes()))
    }
}

impl<T: Read> Summed<T> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => RestoreError::Unfit("it ends too early".into()),
            _ => error.into(),
        })?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    /// Reads the checksums of a block.
    fn take_sums(&mut self) -> Result<[u32; SECTORS]> {
        let mut sums = [0; SECTORS];
        for sum in &mut sums {
            *sum = u32::from_le_bytes(self.take()?);
        }
        Ok(sums)
    }
}

/// The checksum of each sector of a block.
fn sums(block: &[u8]) -> [u32; SECTORS] {
    std::array::from_fn(|sector| crc32fast::hash(&block[sector * SECTOR..(sector + 1) * SECTOR]))
}

/// Saves the blocks that `writes` overwrite.
pub(super) fn save(staged: &Staged, writes: &Writes, to: &mut dyn Write) -> Result<()> {
    let blocks = writes.blocks();
    let (geometry, _) = Geometry::read(staged).map_err(io::Error::other)?;
    let mut file = Summed { inner: to, sum: crc32fast::Hasher::new() };
    file.put(MAGIC)?;
    file.put(&staged.size().to_le_bytes())?;
    file.put(&geometry.uuid)?;
    let groups = writes.last_first();
    file.put(&(groups.len() as u64).to_le_bytes())?;
    for (number, group) in groups {
        file.put(&(group.len() as u64).to_le_bytes())?;
        for address in group.keys() {
            file.put(&address.get().to_le_bytes())?;
            match writes.written_before(number, *address) {
                Some(block) => file.put(block)?,
                None => file.put(&staged.before(*address)?)?,
            }
            file.put_sums(blocks[address])?;
        }
    }
    let mut witnesses = Vec::new();
    for address in places_of_use(staged, &geometry) {
        // What cannot be read is no witness.
        if let (false, Ok(block)) = (blocks.contains_key(&address), staged.before(address)) {
            witnesses.push((address, block));
        }
    }
    file.put(&(witnesses.len() as u64).to_le_bytes())?;
    for (address, block) in witnesses {
        file.put(&address.get().to_le_bytes())?;
        file.put_sums(&block)?;
    }
    let sum = file.sum.clone().finalize();
    file.inner.write_all(&sum.to_le_bytes())?;
    Ok(file.inner.flush()?)
}

/// Where whoever uses the volume writes first: after the repair, or before it if that is cut off.
fn places_of_use(staged: &Staged, geometry: &Geometry) -> BTreeSet<Address> {
    let mut places: BTreeSet<Address> = [0, 1].map(|pack| geometry.checkpoint + pack * BLOCKS_PER_SEGMENT).into();
    let devices: [&dyn BlockDevice; 2] = [staged.base(), staged];
    for (pack, _) in devices.iter().filter_map(|device| choose_pack_to_read(*device, geometry).ok()) {
        for (segment, offset, _) in SegmentKind::ALL.map(|kind| log_position(&pack, kind)) {
            if geometry.has_segment(segment) && offset < BLOCKS_PER_SEGMENT {
                places.insert(geometry.in_segment(segment, offset));
            }
        }
    }
    places
}

/// Puts back what a repair overwrote; how many blocks. The file is read twice: nothing is written before all of it is known to be whole,
/// and the volume to be as it was before the repair, as the repair left it, or between the two. `force` does without the latter.
///
/// # Errors
/// [`RestoreError::Unfit`] for a file that is no backup, is not whole, or belongs to a volume of another size; [`RestoreError::Stale`] for
/// one of another volume, or where the volume was used since; when file or device fail.
pub fn restore<F: Read + io::Seek>(device: &dyn BlockDevice, from: &mut F, force: bool) -> Result<u64> {
    let mut is_in_place = BTreeMap::new();
    let uuid = walk(device, from, &mut |address, saved| {
        // A block that comes twice may be as before either.
        let found = is_in_place.entry(address).or_insert(force);
        *found = *found || saved.is_in_place(device, Address::new(address))?;
        Ok(())
    })?;
    if !force {
        expect_uuid(device, uuid)?;
    }
    if let Some((address, _)) = is_in_place.iter().find(|(_, is_in_place)| !**is_in_place) {
        return Err(RestoreError::Stale(format!(
            "{} was used since the repair: block {address} is not what it was then",
            device.name()
        )));
    }
    from.rewind()?;
    let (mut count, mut group) = (0, 0);
    walk(device, from, &mut |address, saved| {
        if let Some(before) = &saved.before {
            if saved.group != group {
                device.flush()?;
                group = saved.group;
            }
            device.write_at(u64::from(address) << BLOCK_BITS, &before[..])?;
            count += 1;
        }
        Ok(())
    })?;
    device.flush()?;
    Ok(count)
}

/// What the file says about a block.
struct Saved {
    /// What to write: what it was before its group; of a witness, nothing.
    before: Option<[u8; BLOCK_SIZE]>,
    /// The checksums of its sectors after the repair.
    after: [u32; SECTORS],
    /// Which group it is of.
    group: u64,
}

impl Saved {
    /// Whether nobody but a repair or a restore has written the block since it was saved.
    fn is_in_place(&self, device: &dyn BlockDevice, address: Address) -> Result<bool> {
        let mut now = [0; BLOCK_SIZE];
        match device.read_at(u64::from(address) << BLOCK_BITS, &mut now) {
            // A page that was being written when power went: putting it back is what makes it readable.
            Err(_) if self.before.is_some() => return Ok(true),
            read => read?,
        }
        let sums = sums(&now);
        Ok((0..SECTORS).all(|sector| {
            let bytes = sector * SECTOR..(sector + 1) * SECTOR;
            sums[sector] == self.after[sector]
                || self.before.is_some_and(|before| before[bytes.clone()] == now[bytes.clone()])
        }))
    }
}

/// Makes sure that a volume has this UUID, in one of its superblocks. One without superblocks is known by its blocks.
fn expect_uuid(device: &dyn BlockDevice, expected: [u8; 16]) -> Result<()> {
    let mut found = None;
    for copy in 0..2 {
        let mut bytes = [0; superblock::SUPERBLOCK_SIZE];
        device.read_at(copy * BLOCK_SIZE as u64 + superblock::SUPERBLOCK_OFFSET as u64, &mut bytes)?;
        let read = RawSuperblock::read_from_bytes(&bytes).ok();
        match read.filter(|superblock| superblock.magic.get() == superblock::MAGIC) {
            Some(superblock) if superblock.uuid == expected => return Ok(()),
            Some(superblock) => found = Some(superblock.uuid),
            None => {}
        }
    }
    let text = |uuid| uuid::Uuid::from_bytes(uuid);
    match found {
        Some(found) => Err(RestoreError::Stale(format!(
            "it is of the volume with UUID {}, {} has {}",
            text(expected),
            device.name(),
            text(found)
        ))),
        None => Ok(()),
    }
}

/// Reads a whole file, and calls `each` for every block and witness in it; returns the UUID of its volume.
fn walk(
    device: &dyn BlockDevice,
    from: &mut impl Read,
    each: &mut dyn FnMut(u32, Saved) -> Result<()>,
) -> Result<[u8; 16]> {
    let mut file = Summed { inner: io::BufReader::new(from), sum: crc32fast::Hasher::new() };
    let has_groups = expect_magic(&file.take()?)?;
    let size = u64::from_le_bytes(file.take()?);
    if size != device.size() {
        return Err(RestoreError::Unfit(format!(
            "it is of a volume of {size} bytes, {} has {}",
            device.name(),
            device.size()
        )));
    }
    let uuid = file.take()?;
    let groups = if has_groups { u64::from_le_bytes(file.take()?) } else { 1 };
    // Behind them come the witnesses.
    for group in 0..=groups {
        let is_witness = group == groups;
        let count = u64::from_le_bytes(file.take()?);
        for _ in 0..count {
            let address = u32::from_le_bytes(file.take()?);
            if (u64::from(address) + 1) << BLOCK_BITS > size {
                return Err(RestoreError::Unfit(format!("block {address} is past the volume's end")));
            }
            let before = if is_witness { None } else { Some(file.take()?) };
            each(address, Saved { before, after: file.take_sums()?, group })?;
        }
    }
    let sum = file.sum.clone().finalize();
    let stored: [u8; 4] = file.take()?;
    if u32::from_le_bytes(stored) == sum { Ok(uuid) } else { Err(RestoreError::Unfit("its checksum is wrong".into())) }
}

/// Whether a file that begins like this has its blocks in groups.
fn expect_magic(found: &[u8; MAGIC.len()]) -> Result<bool> {
    match found.as_slice() {
        MAGIC => Ok(true),
        UNGROUPED => Ok(false),
        UNWITNESSED => {
            let what = "it is of an older version of Basalt: only the version that made it can put it back";
            Err(RestoreError::Unfit(what.into()))
        }
        _ => Err(RestoreError::Unfit("it does not begin with `BASALT-UNDO 3`".into())),
    }
}
