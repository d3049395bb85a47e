//! Deltas: what an fsync changed of a file, in place of the nodes that say so.
//!
//! A node has 1,018 addresses. Where an fsync changed a few of them, a seal tells those alone, and the node stays in memory until a
//! checkpoint. The fields of the inode that every write changes, its size and times, are told with them. What else an inode has is not: an
//! fsync that changed that writes the inode.
//!
//! A page is told by its number in the file, not by its node: recovery finds the node, or makes it.
//!
//! To Linux a seal with a delta is a seal: it would pass it over, and miss what it tells. So a volume has no delta without its
//! [guard](crate::layout::superblock::DELTA_GUARD).

use zerocopy::little_endian::U32;

use super::node::ADDRS_PER_NODE;
use super::seal::{HEAD, Sealed};
use super::{Address, FileBlock, Ino};
use crate::layout::inode::RawInode;

/// Slots of a delta in front of its pages: inode, its addresses, three counts, size, three times of three slots.
const FIELDS: usize = 5 + 2 + 3 * 3;
/// Slots of a node that a delta and the entries of its seal share.
const ROOM: usize = ADDRS_PER_NODE as usize - HEAD - FIELDS;
/// Pages that all deltas behind a checkpoint tell at most, without a block or with one.
pub const PAGES_MAX: u64 = 1 << 19;
/// In the length of a run without blocks: it is reserved.
const RESERVED: u32 = 1 << 31;

/// A time of an inode: seconds and nanoseconds.
pub type RawTime = (u64, u32);

/// What every write changes of an inode, besides addresses and counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// `i_size`, in bytes.
    pub size: u64,
    /// `i_atime`, `i_ctime`, `i_mtime`.
    pub times: [RawTime; 3],
}

impl Written {
    /// Those of an inode.
    pub fn of(raw: &RawInode) -> Written {
        Written {
            size: raw.i_size.get(),
            times: [
                (raw.i_atime.get(), raw.i_atime_nsec.get()),
                (raw.i_ctime.get(), raw.i_ctime_nsec.get()),
                (raw.i_mtime.get(), raw.i_mtime_nsec.get()),
            ],
        }
    }

    /// Gives them to an inode.
    pub fn give(&self, raw: &mut RawInode) {
        raw.i_size.set(self.size);
        let [atime, ctime, mtime] = self.times;
        (raw.i_atime, raw.i_atime_nsec) = (atime.0.into(), atime.1.into());
        (raw.i_ctime, raw.i_ctime_nsec) = (ctime.0.into(), ctime.1.into());
        (raw.i_mtime, raw.i_mtime_nsec) = (mtime.0.into(), mtime.1.into());
    }
}

/// Neighbouring pages that have no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Empty {
    /// The first.
    pub first: FileBlock,
    /// How many.
    pub count: u32,
    /// They are reserved, not a hole.
    pub is_reserved: bool,
}

/// What a delta tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delta {
    /// The file.
    pub ino: Ino,
    /// How many addresses its inode holds itself: where the pages of its other nodes begin.
    pub own: u32,
    /// Size and times.
    pub written: Written,
    /// The pages whose blocks are the first entries of the seal, in their order.
    pub listed: Vec<FileBlock>,
    /// Pages whose blocks an earlier seal lists, or a flush made durable.
    pub placed: Vec<(FileBlock, Address)>,
    /// Pages without a block.
    pub empty: Vec<Empty>,
}

impl Delta {
    /// Slots that it takes behind the entries of its seal.
    pub fn slots(&self) -> usize {
        FIELDS + self.listed.len() + 2 * (self.placed.len() + self.empty.len())
    }

    /// Whether it fits a seal that lists so many blocks.
    pub fn fits(&self, entries: usize) -> bool {
        self.slots() - FIELDS + 2 * entries <= ROOM
    }

    /// Pages that it tells.
    pub fn pages(&self) -> u64 {
        let empty: u64 = self.empty.iter().map(|run| u64::from(run.count)).sum();
        (self.listed.len() + self.placed.len()) as u64 + empty
    }

    /// The pages and where they are by it: [`Address::NULL`] in a hole, [`Address::NEW`] where a block is reserved. `entries` are those of
    /// its seal.
    pub fn told<'a>(&'a self, entries: &'a [Sealed]) -> impl Iterator<Item = (FileBlock, Address)> + 'a {
        let listed = self.listed.iter().copied().zip(entries.iter().map(|entry| entry.address));
        let empty = self.empty.iter().flat_map(|run| {
            let address = if run.is_reserved { Address::NEW } else { Address::NULL };
            (0..run.count).map(move |step| (run.first + step, address))
        });
        listed.chain(self.placed.iter().copied()).chain(empty)
    }

    /// Writes it to the slots behind the entries of its seal; returns how many it took. They must be enough.
    pub(super) fn encode(&self, slots: &mut [U32]) -> usize {
        let (size, times) = (self.written.size, self.written.times);
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        let counts = [self.listed.len(), self.placed.len(), self.empty.len()].map(|count| count as u32);
        let times = times.into_iter().flat_map(|(seconds, nanoseconds)| {
            let [low, high] = halves(seconds);
            [low, high, nanoseconds]
        });
        let fields = [self.ino.get(), self.own].into_iter().chain(counts).chain(halves(size)).chain(times);
        let listed = self.listed.iter().map(|page| page.get());
        let placed = self.placed.iter().flat_map(|(page, address)| [page.get(), address.get()]);
        let empty =
            self.empty.iter().flat_map(|run| [run.first.get(), run.count | if run.is_reserved { RESERVED } else { 0 }]);
        slots.iter_mut().zip(fields.chain(listed).chain(placed).chain(empty)).for_each(|(slot, value)| slot.set(value));
        self.slots()
    }

    /// Reads it from the slots behind the entries of its seal; `None` if they hold none.
    pub(super) fn decode(slots: &[U32]) -> Option<Delta> {
        let slot = |at: usize| slots.get(at).map(|slot| slot.get());
        let wide = |at: usize| Some(u64::from(slot(at)?) | u64::from(slot(at + 1)?) << 32);
        let time = |at: usize| Some((wide(at)?, slot(at + 2)?));
        let [listed, placed, empty] = [slot(2)? as usize, slot(3)? as usize, slot(4)? as usize];
        let pairs = FIELDS.checked_add(listed)?;
        let runs = pairs.checked_add(placed.checked_mul(2)?)?;
        let end = runs.checked_add(empty.checked_mul(2)?)?;
        let pair = |pair: &[U32]| (FileBlock::new(pair[0].get()), pair[1].get());
        let delta = Delta {
            ino: Ino::new(slot(0)?),
            own: slot(1)?,
            written: Written { size: wide(5)?, times: [time(7)?, time(10)?, time(13)?] },
            listed: slots.get(FIELDS..pairs)?.iter().map(|page| FileBlock::new(page.get())).collect(),
            placed: slots
                .get(pairs..runs)?
                .chunks_exact(2)
                .map(pair)
                .map(|(page, at)| (page, Address::new(at)))
                .collect(),
            empty: slots
                .get(runs..end)?
                .chunks_exact(2)
                .map(pair)
                .map(|(first, count)| Empty { first, count: count & !RESERVED, is_reserved: count & RESERVED != 0 })
                .collect(),
        };
        let ends_well = |run: &Empty| run.first.get().checked_add(run.count).is_some_and(|end| end < u32::MAX);
        (delta.pages() <= PAGES_MAX && delta.empty.iter().all(ends_well)).then_some(delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::seal::Seal;

    fn delta(listed: u32, placed: u32, empty: u32) -> Delta {
        let run = |at| Empty { first: FileBlock::new(900 * at), count: 7 + at, is_reserved: at % 2 == 1 };
        Delta {
            ino: Ino::new(77),
            own: 923,
            written: Written { size: 0x1_2345_6789, times: [(1 << 33, 5), (2, 6), (3, 999_999_999)] },
            listed: (0..listed).map(|page| FileBlock::new(3 * page)).collect(),
            placed: (0..placed).map(|page| (FileBlock::new(5 * page), Address::new(8000 + page))).collect(),
            empty: (0..empty).map(run).collect(),
        }
    }

    fn entries(count: u32) -> Vec<Sealed> {
        (0..count).map(|at| Sealed { address: Address::new(5000 + at), crc: at.wrapping_mul(77) }).collect()
    }

    #[test]
    fn a_delta_is_read_back_and_a_torn_one_is_not() {
        for (listed, placed, empty, more) in
            [(0, 0, 0, 0), (1, 0, 0, 0), (256, 0, 0, 40), (3, 200, 90, 10), (332, 0, 0, 0)]
        {
            let (delta, entries) = (delta(listed, placed, empty), entries(listed + more));
            assert!(delta.fits(entries.len()), "{listed} {placed} {empty}");
            let seal = Seal { nodes: 0, entries, durable: 4, position: Some(9), delta: Some(delta) };
            let block = seal.encode(0x1234_5678_0000_0009, Address::new(77));
            assert_eq!(Seal::decode(&block.0).as_ref(), Some(&seal), "{listed} {placed} {empty}");
            let used = 4 * (HEAD + 2 * seal.entries.len() + seal.delta.as_ref().map_or(0, Delta::slots));
            for sector in (0..used.div_ceil(512)).chain([7]) {
                let mut torn = *block;
                torn.0[512 * sector..512 * (sector + 1)].fill(0);
                assert_eq!(Seal::decode(&torn.0), None, "{listed} {placed} {empty}, sector {sector}");
            }
        }
        assert!(delta(332, 0, 0).fits(332) && !delta(333, 0, 0).fits(333) && !delta(0, 498, 1).fits(0));
    }

    /// By hand: page 3 is the first entry's, page 0 lies at 8000, pages 0 to 6 are a hole and 900 to 907 reserved.
    #[test]
    fn what_is_told_of_a_page_is_its_address_a_hole_or_a_reservation() {
        let told: Vec<(u32, u32)> = {
            let (delta, entries) = (delta(2, 1, 2), entries(3));
            delta.told(&entries).map(|(page, at)| (page.get(), at.get())).collect()
        };
        assert_eq!(told[..3], [(0, 5000), (3, 5001), (0, 8000)]);
        assert_eq!(told[3..10], [0, 1, 2, 3, 4, 5, 6].map(|page| (page, 0)));
        assert_eq!(told[10..], [900, 901, 902, 903, 904, 905, 906, 907].map(|page| (page, u32::MAX)));
        assert_eq!(delta(2, 1, 2).pages(), 18);
    }

    /// Counts and lengths of a block that nobody wrote.
    #[test]
    fn what_no_delta_can_tell_is_none() {
        let with = |change: &dyn Fn(&mut Vec<U32>)| {
            let mut slots = vec![U32::new(0); ADDRS_PER_NODE as usize - HEAD];
            let used = delta(1, 1, 1).encode(&mut slots);
            change(&mut slots);
            (Delta::decode(&slots), used)
        };
        assert!(with(&|_| ()).0.is_some());
        for count in [2, 3, 4] {
            for value in [1018, u32::MAX / 2, u32::MAX] {
                assert_eq!(with(&|slots| slots[count].set(value)).0, None, "slot {count}: {value}");
            }
        }
        let last = with(&|_| ()).1 - 1;
        for (first, length) in [(0, PAGES_MAX as u32), (u32::MAX, 1), (u32::MAX - 4, 4), (7, !RESERVED)] {
            let found = with(&|slots| (slots[last - 1], slots[last]) = (first.into(), length.into())).0;
            assert_eq!(found, None, "{first} {length}");
        }
    }
}
