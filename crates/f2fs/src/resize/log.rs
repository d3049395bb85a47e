//! The log of the new metadata: every block that is to change, written where the old volume has nothing, so that it can be put in
//! place again and again until all of it is.
//!
//! A header block, then groups: a descriptor block that names the targets, and that many blocks right behind it. Each structure
//! carries a checksum, each descriptor the address of the next.

use std::collections::VecDeque;

use basalt_device::BlockDevice;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::layout::crc::crc;
use crate::layout::superblock::{RawSuperblock, SUPERBLOCK_SIZE};
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE};

const HEADER_MAGIC: U32 = U32::new(u32::from_le_bytes(*b"BsRh"));
const GROUP_MAGIC: U32 = U32::new(u32::from_le_bytes(*b"BsRg"));
/// Blocks of a group: a write of 1 MiB with the descriptor.
const GROUP_BLOCKS: usize = 255;
/// Ranges of zeros of a group.
const GROUP_ZEROS: usize = 64;
/// Blocks of zeros written with one request.
const ZERO_BLOCKS: u32 = 256;

/// The log's first block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    crc: U32,
    /// First descriptor, 0 if there is none.
    first: U32,
    /// Groups in all.
    groups: U32,
    /// Version and checksum of the checkpoint that the log was made from.
    checkpoint_ver: U64,
    checkpoint_crc: U32,
    /// The new superblock, checksum included where the volume has one.
    superblock: [u8; SUPERBLOCK_SIZE],
}

/// A descriptor.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawGroup {
    magic: U32,
    crc: U32,
    /// Number of the group, from 0.
    number: U32,
    /// Address of the next descriptor, 0 in the last one.
    next: U32,
    /// Checksum of the blocks.
    data_crc: U32,
    blocks: U32,
    zeros: U32,
    targets: [U32; GROUP_BLOCKS],
    /// Start and length of ranges of zeros, in blocks.
    zero_ranges: [[U32; 2]; GROUP_ZEROS],
}

const _: () = assert!(size_of::<RawHeader>() <= BLOCK_SIZE && size_of::<RawGroup>() <= BLOCK_SIZE);

/// Places in blocks that the old volume does not use: first block and count.
pub type Extent = (Address, u32);

/// Writes a log.
pub struct LogWriter<'a> {
    device: &'a dyn BlockDevice,
    header: Address,
    free: VecDeque<Extent>,
    /// Where the group that is being gathered goes, and the most blocks it can have there.
    at: Address,
    room: usize,
    targets: Vec<Address>,
    blocks: Vec<u8>,
    zeros: Vec<Extent>,
    /// The last group: written when its successor's place is known.
    ready: Option<(Address, RawGroup, Vec<u8>)>,
    first: Address,
    groups: u32,
    /// Blocks of new metadata.
    pub logged: u64,
}

fn no_room(device: &dyn BlockDevice) -> Error {
    Error::Unsupported {
        device: device.name().into(),
        reason: "no free space to prepare the new metadata in; free some, or choose a larger size".into(),
    }
}

impl<'a> LogWriter<'a> {
    /// A log in these places.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when there is no place at all.
    pub fn new(device: &'a dyn BlockDevice, free: Vec<Extent>) -> Result<LogWriter<'a>> {
        let mut free: VecDeque<Extent> = free.into_iter().filter(|extent| extent.1 > 0).collect();
        let header = take(&mut free, 1).ok_or_else(|| no_room(device))?.0;
        Ok(LogWriter {
            device,
            header,
            free,
            at: Address::NULL,
            room: 0,
            targets: Vec::new(),
            blocks: Vec::new(),
            zeros: Vec::new(),
            ready: None,
            first: Address::NULL,
            groups: 0,
            logged: 0,
        })
    }

    /// Adds a block for `target`.
    ///
    /// # Errors
    /// When there is no room, or the device fails.
    pub fn block(&mut self, target: Address, bytes: &[u8]) -> Result<()> {
        if self.targets.len() == self.room {
            self.begin()?;
        }
        self.targets.push(target);
        self.blocks.extend_from_slice(bytes);
        self.logged += 1;
        Ok(())
    }

    /// Adds `count` blocks of zeros from `start` on.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn zeros(&mut self, start: Address, count: u32) -> Result<()> {
        if let Some(last) = self.zeros.last_mut()
            && last.0 + last.1 == start
        {
            last.1 += count;
            return Ok(());
        }
        if self.room == 0 || self.zeros.len() == GROUP_ZEROS {
            self.begin()?;
        }
        self.zeros.push((start, count));
        Ok(())
    }

    /// Ends the log: all of it is durable, and `superblock` is the one that will count. Returns the log's first block.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn finish(mut self, superblock: &RawSuperblock, checkpoint_ver: u64, checkpoint_crc: u32) -> Result<Address> {
        self.seal();
        self.write_ready(Address::NULL)?;
        let mut header = RawHeader::new_zeroed();
        header.magic = HEADER_MAGIC;
        header.first = self.first.into();
        header.groups.set(self.groups);
        header.checkpoint_ver.set(checkpoint_ver);
        header.checkpoint_crc.set(checkpoint_crc);
        header.superblock.copy_from_slice(superblock.as_bytes());
        header.crc.set(crc(&header.as_bytes()[8..]));
        write(self.device, self.header, &whole_block(header.as_bytes()))?;
        self.device.flush()?;
        Ok(self.header)
    }

    /// Begins a group in the next place.
    fn begin(&mut self) -> Result<()> {
        self.seal();
        let (at, room) = loop {
            let (at, count) = take(&mut self.free, GROUP_BLOCKS as u32 + 1).ok_or_else(|| no_room(self.device))?;
            // A descriptor alone gains nothing.
            if count > 1 {
                break (at, count as usize - 1);
            }
        };
        self.write_ready(at)?;
        if self.groups == 0 {
            self.first = at;
        }
        (self.at, self.room) = (at, room);
        Ok(())
    }

    /// Makes a group of what was gathered.
    fn seal(&mut self) {
        if self.room == 0 {
            return;
        }
        let mut group = RawGroup::new_zeroed();
        group.magic = GROUP_MAGIC;
        group.number.set(self.groups);
        group.data_crc.set(crc(&self.blocks));
        group.blocks.set(self.targets.len() as u32);
        group.zeros.set(self.zeros.len() as u32);
        group.targets.iter_mut().zip(&self.targets).for_each(|(slot, target)| slot.set(target.get()));
        for (slot, &(start, count)) in group.zero_ranges.iter_mut().zip(&self.zeros) {
            *slot = [start.into(), U32::new(count)];
        }
        self.ready = Some((self.at, group, std::mem::take(&mut self.blocks)));
        self.targets.clear();
        self.zeros.clear();
        self.room = 0;
        self.groups += 1;
    }

    fn write_ready(&mut self, next: Address) -> Result<()> {
        let Some((at, mut group, blocks)) = self.ready.take() else { return Ok(()) };
        group.next = next.into();
        group.crc.set(crc(&group.as_bytes()[8..]));
        let mut bytes = whole_block(group.as_bytes());
        bytes.extend_from_slice(&blocks);
        write(self.device, at, &bytes)
    }
}

/// Takes up to `most` blocks from the first extent.
fn take(free: &mut VecDeque<Extent>, most: u32) -> Option<Extent> {
    let (start, count) = free.pop_front()?;
    let taken = count.min(most);
    if taken < count {
        free.push_front((start + taken, count - taken));
    }
    Some((start, taken))
}

fn whole_block(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(BLOCK_SIZE, 0);
    block
}

fn write(device: &dyn BlockDevice, address: Address, bytes: &[u8]) -> Result<()> {
    Ok(device.write_at(u64::from(address) << BLOCK_BITS, bytes)?)
}

/// A log that was found.
pub struct Log {
    header: RawHeader,
}

impl Log {
    /// Reads the header at block `address`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none, or the device fails.
    pub fn open(device: &dyn BlockDevice, address: Address) -> Result<Log> {
        let block = read_blocks(device, address, 1)?;
        let (header, _) = RawHeader::read_from_prefix(&block).map_err(|_| damaged(address, "short block"))?;
        if header.magic != HEADER_MAGIC || header.crc.get() != crc(&header.as_bytes()[8..]) {
            return Err(damaged(address, "no header with the right checksum"));
        }
        Ok(Log { header })
    }

    /// The superblock that the volume will have.
    pub fn superblock(&self) -> RawSuperblock {
        let mut superblock = RawSuperblock::new_zeroed();
        superblock.as_mut_bytes().copy_from_slice(&self.header.superblock);
        superblock
    }

    /// Whether the log was made from the checkpoint of this version and checksum.
    pub fn is_of(&self, checkpoint_ver: u64, checkpoint_crc: u32) -> bool {
        (self.header.checkpoint_ver.get(), self.header.checkpoint_crc.get()) == (checkpoint_ver, checkpoint_crc)
    }

    /// Puts every block in its place, having read and checked the whole log first: `below` is the first block that nothing
    /// may be written to. `progress` is told how many of how many groups are in place. Not flushed.
    ///
    /// # Errors
    /// [`Error::Damaged`] with nothing written if the log is not whole, or the device fails.
    pub fn apply(&self, device: &dyn BlockDevice, below: Address, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.each(device, below, &mut |_, _| Ok(()))?;
        let total = u64::from(self.header.groups.get());
        let mut done = 0;
        self.each(device, below, &mut |group, bytes| {
            put_in_place(device, group, bytes)?;
            done += 1;
            progress(done, total);
            Ok(())
        })
    }

    /// Reads and checks group after group.
    fn each(
        &self,
        device: &dyn BlockDevice,
        below: Address,
        visit: &mut dyn FnMut(&RawGroup, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut at = Address::from(self.header.first);
        for number in 0..self.header.groups.get() {
            let block = read_blocks(device, at, 1)?;
            let (group, _) = RawGroup::read_from_prefix(&block).map_err(|_| damaged(at, "short block"))?;
            if group.magic != GROUP_MAGIC
                || group.number.get() != number
                || group.crc.get() != crc(&group.as_bytes()[8..])
            {
                return Err(damaged(at, format!("not group {number} with the right checksum")));
            }
            let (blocks, zeros) = (group.blocks.get() as usize, group.zeros.get() as usize);
            if blocks > GROUP_BLOCKS || zeros > GROUP_ZEROS {
                return Err(damaged(at, format!("{blocks} blocks and {zeros} ranges in a group")));
            }
            let inside = |start: Address, count: u32| {
                start.get() >= 2 && start.checked_add(count).is_some_and(|end| end <= below)
            };
            if !group.targets[..blocks].iter().all(|target| inside(Address::from(*target), 1))
                || !group.zero_ranges[..zeros].iter().all(|[start, count]| inside(Address::from(*start), count.get()))
            {
                return Err(damaged(at, format!("a target outside blocks 2 to {below}")));
            }
            let bytes = if blocks > 0 { read_blocks(device, at + 1, blocks)? } else { Vec::new() };
            if group.data_crc.get() != crc(&bytes) {
                return Err(damaged(at, format!("group {number}: its blocks have another checksum")));
            }
            visit(&group, &bytes)?;
            at = group.next.into();
        }
        Ok(())
    }
}

/// Writes a group's blocks, neighbours together.
fn put_in_place(device: &dyn BlockDevice, group: &RawGroup, bytes: &[u8]) -> Result<()> {
    for [start, count] in &group.zero_ranges[..group.zeros.get() as usize] {
        let (mut at, end) = (Address::from(*start), Address::from(*start) + count.get());
        while at < end {
            let step = ZERO_BLOCKS.min(end - at);
            write(device, at, &vec![0; step as usize * BLOCK_SIZE])?;
            at = at + step;
        }
    }
    let targets = &group.targets[..group.blocks.get() as usize];
    let mut first = 0;
    while first < targets.len() {
        let start = Address::from(targets[first]);
        let run = targets[first..]
            .iter()
            .zip(start.onward())
            .take_while(|(target, at)| Address::from(**target) == *at)
            .count();
        write(device, start, &bytes[first * BLOCK_SIZE..(first + run) * BLOCK_SIZE])?;
        first += run;
    }
    Ok(())
}

fn damaged(block: Address, found: impl Into<String>) -> Error {
    Error::damaged("resize log", format!("block {block}"), found)
}
