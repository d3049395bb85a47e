//! Where the journal is on the volume, and reading it.

use basalt_device::BlockDevice;
use zerocopy::{FromBytes, IntoBytes};

use crate::blocks::{read_block, read_blocks};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::crc::crc;
use crate::layout::journal::{
    BLOCKS_MAX, DESCRIPTOR_BLOCK, DESCRIPTOR_MAGIC, FIRST_VERSION, FORMAT_VERSION, KIND_NODE, Move, RawDescriptor,
    RawJournalHeader, decode,
};
use crate::layout::node::RawNode;
use crate::layout::own::is_others;
use crate::layout::{Address, BLOCK_SIZE, RawBlock};
use crate::mutant::{self, Mutant};

/// Blocks read in one request.
const READ_BLOCKS: u32 = 256;

/// A journal block that is whole.
type Found = (RawJournalHeader, Vec<Move>);

/// What a journal says.
#[derive(Debug, Default)]
pub struct Replay {
    /// Commits since the checkpoint. Each may have freed segments, also those without a move.
    pub commits: usize,
    /// Their moves, in the order they were made.
    pub moves: Vec<Move>,
}

/// The blocks of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Address of the first.
    pub first: Address,
    /// How many.
    pub blocks: u32,
    /// The version of the format that the descriptor has: blocks of later ones must not be written before it is [renewed](Self::renew).
    pub version: u32,
}

impl Area {
    /// The first block of it that somebody else has written. One that cannot be read tells nothing.
    pub fn find_others(&self, device: &dyn BlockDevice) -> Option<Address> {
        let there = read_blocks(device, self.first, self.blocks as usize).ok()?;
        (0..).zip(there.chunks(BLOCK_SIZE)).find(|(_, block)| is_others(block)).map(|(at, _)| self.first + at)
    }

    /// The most blocks that a journal on this volume may have: what lies between the superblocks and segment 0, where F2FS keeps
    /// nothing. Volumes with an odd layout have no room at all.
    pub fn capacity(geometry: &Geometry) -> u32 {
        geometry.segment0.get().saturating_sub(DESCRIPTOR_BLOCK.get() + 1).min(BLOCKS_MAX)
    }

    /// The journal of a volume, if it has one. A descriptor of another volume, or one that is torn, is none.
    ///
    /// # Errors
    /// When the device fails, and for a descriptor of a version that is not known.
    pub fn find(device: &dyn BlockDevice, geometry: &Geometry) -> Result<Option<Area>> {
        let capacity = Area::capacity(geometry);
        if capacity == 0 {
            return Ok(None);
        }
        let block = read_blocks(device, DESCRIPTOR_BLOCK, 1)?;
        let Ok((raw, _)) = RawDescriptor::read_from_prefix(&block) else { return Ok(None) };
        if raw.magic != DESCRIPTOR_MAGIC || raw.uuid != geometry.uuid {
            return Ok(None);
        }
        let version = raw.version.get();
        if !(FIRST_VERSION..=FORMAT_VERSION).contains(&version) {
            return Err(Error::Unsupported {
                device: device.name().into(),
                reason: format!("a cleaning journal of version {version}, this Basalt knows {FORMAT_VERSION}"),
            });
        }
        let (first, blocks) = (Address::from(raw.first), raw.blocks.get());
        let is_sound = raw.crc.get() == raw.expected_crc() && first == DESCRIPTOR_BLOCK + 1 && blocks <= capacity;
        Ok((is_sound && blocks > 0).then_some(Area { first, blocks, version }))
    }

    /// As [`find`](Self::find), for a volume whose journal is live. Where the descriptor cannot be read, the journal is as long as it could
    /// be: it begins at one place, and what is behind its end is no block of it.
    ///
    /// # Errors
    /// As [`find`](Self::find), and damage where there is no descriptor.
    pub fn find_live(device: &dyn BlockDevice, geometry: &Geometry) -> Result<Area> {
        match Area::find(device, geometry) {
            Err(Error::Device(_)) => {
                let (first, blocks) = (DESCRIPTOR_BLOCK + 1, Area::capacity(geometry));
                Ok(Area { first, blocks, version: FORMAT_VERSION })
            }
            found => found?.ok_or_else(|| {
                let place = format!("block {DESCRIPTOR_BLOCK}");
                Error::damaged("journal", place, "no descriptor, but the volume is guarded")
            }),
        }
    }

    /// Gives a volume a journal of `blocks` blocks, or none at 0, in place of what it had. The volume must not be open, and its journal
    /// not live. Durable after the next flush.
    ///
    /// # Errors
    /// When the device fails, or there is no room for so many; the message says how many there are.
    pub fn write(device: &dyn BlockDevice, geometry: &Geometry, blocks: u32) -> Result<()> {
        let capacity = Area::capacity(geometry);
        if blocks > capacity {
            let found = format!("room for a journal of {} KiB at most", capacity * 4);
            return Err(Error::Unsupported { device: device.name().into(), reason: found });
        }
        if capacity == 0 {
            return Ok(());
        }
        let mut block = RawBlock::zeroed();
        if blocks > 0 {
            let raw = RawDescriptor::new(geometry.uuid, blocks);
            block.0[..size_of::<RawDescriptor>()].copy_from_slice(raw.as_bytes());
        }
        device.write_at(u64::from(DESCRIPTOR_BLOCK) * BLOCK_SIZE as u64, &block.0)?;
        Ok(())
    }

    /// Whether blocks may be written as they are now.
    pub fn is_renewed(&self) -> bool {
        self.version == FORMAT_VERSION
    }

    /// Brings the descriptor to the version of the blocks that are written, so that a Basalt that does not know these leaves them alone.
    /// Durable on return.
    ///
    /// # Errors
    /// When the device fails.
    pub fn renew(&mut self, device: &dyn BlockDevice, geometry: &Geometry) -> Result<()> {
        if !self.is_renewed() {
            Area::write(device, geometry, self.blocks)?;
            device.flush()?;
            self.version = FORMAT_VERSION;
        }
        Ok(())
    }

    /// The commits that count behind the checkpoint of this version.
    ///
    /// A commit counts if all its blocks are there and whole. All but the last were followed by a flush before anything came behind them;
    /// of the last, the copies themselves are looked at too: it may have been cut off, and then nothing was freed by it.
    ///
    /// # Errors
    /// The device's where the next block cannot be read; damage where a commit is missing that others follow: it was durable once.
    pub fn read_moves(&self, device: &dyn BlockDevice, geometry: &Geometry, version: u64) -> Result<Replay> {
        let (blocks, unreadable) = self.read(device, geometry, version);
        let mut commits: Vec<Vec<Move>> = Vec::new();
        let mut read = 0;
        let mut rest = blocks.iter().enumerate().peekable();
        'commits: while let Some((at, Some((header, _)))) = rest.peek().copied() {
            let count = header.blocks_in_commit.get();
            let mut moves = Vec::new();
            for index in 0..count {
                let Some((_, Some((found, own)))) = rest.next() else { break 'commits };
                let is_next = found.commit.get() as usize == commits.len()
                    && (found.index_in_commit.get(), found.blocks_in_commit.get()) == (index, count);
                if !is_next {
                    break 'commits;
                }
                moves.extend_from_slice(own);
            }
            if count == 0 || at + usize::from(count) > blocks.len() {
                break;
            }
            commits.push(moves);
            read += usize::from(count);
        }
        // Perhaps a commit that was durable, and what it freed is in other use: only a search could tell.
        let next = blocks.get(read).and_then(Option::as_ref);
        let next = read..read + next.map_or(1, |(header, _)| usize::from(header.blocks_in_commit.get()));
        if let Some((_, error)) = unreadable.into_iter().find(|(at, _)| next.contains(at)) {
            return Err(error);
        }
        if let Some(last) = commits.last()
            && !mutant::active(Mutant::CopyNotVerified)
            && !mutant::active(Mutant::TornJournalAccepted)
            && !has_arrived(device, geometry, last)?
        {
            commits.pop();
        }
        let complete = commits.len();
        let later =
            |block: &Option<Found>| block.as_ref().is_some_and(|(header, _)| header.commit.get() as usize > complete);
        if let Some(at) = blocks.iter().position(later) {
            return Err(Error::damaged(
                "journal",
                format!("block {}", self.first + at as u32),
                format!("follows commit {complete}, which is missing or damaged"),
            ));
        }
        Ok(Replay { commits: complete, moves: commits.concat() })
    }

    /// The moves of all blocks that are whole, but for those of the last commit if that did not arrive. For rescue and repair,
    /// where [`read_moves`](Self::read_moves) fails.
    pub fn read_whole_blocks(&self, device: &dyn BlockDevice, geometry: &Geometry, version: u64) -> Replay {
        let mut blocks: Vec<Found> = self.read(device, geometry, version).0.into_iter().flatten().collect();
        let Some(last) = blocks.last().map(|(header, _)| header.commit) else {
            return Replay::default();
        };
        let begin = blocks.partition_point(|(header, _)| header.commit.get() < last.get());
        for (_, moves) in &blocks[begin..] {
            if matches!(has_arrived(device, geometry, moves), Ok(false)) {
                blocks.truncate(begin);
                break;
            }
        }
        let moves = blocks.into_iter().flat_map(|(_, moves)| moves).collect();
        // At least one freed segments, whether or not it is whole.
        Replay { commits: last.get() as usize + 1, moves }
    }

    /// Every block of the journal that is whole, in its place, and of this version; and those that cannot be read.
    fn read(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        version: u64,
    ) -> (Vec<Option<Found>>, Vec<(usize, Error)>) {
        let mut found = Vec::with_capacity(self.blocks as usize);
        let mut unreadable = Vec::new();
        let whole = |block: &[u8], sequence: usize| {
            decode(block, geometry.checksum_seed).filter(|(header, _)| {
                header.checkpoint_version.get() == version && header.sequence.get() as usize == sequence
            })
        };
        while (found.len() as u32) < self.blocks {
            let first = found.len() as u32;
            let count = READ_BLOCKS.min(self.blocks - first);
            if let Ok(bytes) = read_blocks(device, self.first + first, count as usize) {
                found.extend(
                    bytes.chunks_exact(BLOCK_SIZE).enumerate().map(|(at, block)| whole(block, first as usize + at)),
                );
                continue;
            }
            for sequence in first..first + count {
                match read_blocks(device, self.first + sequence, 1) {
                    Ok(block) => found.push(whole(&block, sequence as usize)),
                    Err(error) => {
                        unreadable.push((sequence as usize, error));
                        found.push(None);
                    }
                }
            }
        }
        (found, unreadable)
    }
}

/// Whether every copy of a commit is what was copied.
///
/// A copy that cannot be read was being written when power went, or went bad later. If all that was moved is still at its old
/// places, nothing was written over them, and the commit need not count; if not, they had been freed: it was durable.
///
/// # Errors
/// The device's, where an old place cannot be read either. It may hold the only copy.
fn has_arrived(device: &dyn BlockDevice, geometry: &Geometry, moves: &[Move]) -> Result<bool> {
    let mut unreadable = false;
    for one in moves {
        if !geometry.in_main(one.new) || !geometry.in_main(one.old) {
            return Ok(false);
        }
        match read_block(device, one.new) {
            Ok(block) if crc(&block) == one.crc => {}
            Ok(_) => return Ok(false),
            Err(_) => unreadable = true,
        }
    }
    if !unreadable {
        return Ok(true);
    }
    let mut failed = None;
    for one in moves {
        match is_at_old_place(device, one) {
            Ok(true) => {}
            Ok(false) => return Ok(true),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(false), Err)
}

/// Whether what was moved is still where it was.
fn is_at_old_place(device: &dyn BlockDevice, one: &Move) -> Result<bool> {
    let block = read_block(device, one.old)?;
    Ok(match one.kind {
        // A node that was moved says where its log goes on from its new place.
        KIND_NODE => RawNode::ref_from_bytes(&block).is_ok_and(|node| node.footer.nid() == one.nid),
        _ => crc(&block) == one.crc,
    })
}

#[cfg(test)]
mod tests {
    use basalt_device::{FaultyDevice, MemoryDevice, RequestKind};

    use super::*;
    use crate::format::{FormatOptions, format};
    use crate::layout::Nid;
    use crate::layout::journal::KIND_DATA;

    /// Two blocks of data that were copied: all four places hold what they should.
    struct Copied {
        device: FaultyDevice<MemoryDevice>,
        geometry: Geometry,
        moves: Vec<Move>,
    }

    impl Copied {
        fn new() -> Copied {
            let device = MemoryDevice::new(64 << 20, 512);
            let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
            format(&device, &options, &mut |_, _| ()).unwrap();
            let geometry = Geometry::read(&device).unwrap().0;
            let moves: Vec<Move> = (0..2_u32)
                .map(|at| {
                    let block = [at as u8 + 1; BLOCK_SIZE];
                    let (old, new) = (geometry.main + 8 * at, geometry.main + 512 + 8 * at);
                    [old, new].iter().for_each(|at| device.write_at(byte(*at), &block).unwrap());
                    Move { old, new, nid: Nid::new(4), chained: 0, crc: crc(&block), ofs_in_node: 0, kind: KIND_DATA }
                })
                .collect();
            Copied { device: FaultyDevice::new(device), geometry, moves }
        }

        fn spoil(&self, at: Address) {
            self.device.inner().spoil(byte(at), BLOCK_SIZE as u64).unwrap();
        }

        fn overwrite(&self, at: Address) {
            self.device.write_at(byte(at), &[77; BLOCK_SIZE]).unwrap();
        }

        /// What is found: whether the commit has arrived, or nothing where that cannot be said.
        fn arrived(&self) -> Option<bool> {
            has_arrived(&self.device, &self.geometry, &self.moves).ok()
        }
    }

    fn byte(at: Address) -> u64 {
        u64::from(at) * BLOCK_SIZE as u64
    }

    #[test]
    fn copies_that_can_be_read_decide() {
        let copied = Copied::new();
        assert_eq!(copied.arrived(), Some(true));
        copied.moves.iter().for_each(|one| copied.spoil(one.old));
        assert_eq!(copied.arrived(), Some(true), "nothing is asked of old places");
        copied.overwrite(copied.moves[1].new);
        assert_eq!(copied.arrived(), Some(false));
    }

    #[test]
    fn where_a_copy_cannot_be_read_the_old_places_decide() {
        let copied = Copied::new();
        copied.spoil(copied.moves[0].new);
        assert_eq!(copied.arrived(), Some(false), "all is where it was");
        copied.spoil(copied.moves[0].old);
        assert_eq!(copied.arrived(), None, "nothing is left of the first, and nothing proves the commit");
        copied.overwrite(copied.moves[1].old);
        assert_eq!(copied.arrived(), Some(true), "the second was freed: the commit was durable");
        let copied = Copied::new();
        copied.spoil(copied.moves[0].new);
        copied.spoil(copied.moves[1].old);
        assert_eq!(copied.arrived(), None);
    }

    #[test]
    fn a_read_that_fails_once_decides_nothing() {
        for nth in 1..=3 {
            let copied = Copied::new();
            copied.overwrite(copied.moves[0].old);
            copied.device.fail_nth(RequestKind::Read, nth, std::io::ErrorKind::Other);
            assert_eq!(copied.arrived(), Some(true), "read {nth}");
            let copied = Copied::new();
            copied.spoil(copied.moves[0].new);
            copied.device.fail_nth(RequestKind::Read, 2 + nth, std::io::ErrorKind::Other);
            assert_eq!((copied.arrived(), copied.device.injected()), (Some(false), 1), "read {}", 2 + nth);
        }
        let copied = Copied::new();
        copied.device.fail_nth(RequestKind::Read, 1, std::io::ErrorKind::Other);
        copied.overwrite(copied.moves[1].new);
        copied.overwrite(copied.moves[0].old);
        assert_eq!(copied.arrived(), Some(false), "the second copy is wrong, whatever the first read said");
    }
}
