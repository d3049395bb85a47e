//! The queue in front of a device: which writes wait, and which begins next.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use basalt_device::{DeviceError, FlashPages};

use super::ahead::ReadAhead;
use super::blocks::{Blocks, Source, Spare};
use crate::layout::BLOCK_SIZE;

/// Blocks in the largest write that several become.
const JOINED_BLOCKS: usize = 256;

/// Writes that were decided on, and are not over.
pub(super) struct Queue {
    /// In the order in which they were decided on.
    pub(super) writes: VecDeque<Write>,
    /// Bytes of the writes.
    pub(super) bytes: usize,
    spare: Spare,
    /// Why nothing is submitted any more, if that is so.
    pub(super) failed: Option<Failure>,
    pub(super) ahead: ReadAhead,
    /// Nobody writes behind any more.
    pub(super) ends: bool,
    /// Writes to one page are made in order: a device that gets the second first, and then writes in front of it, may lose what the page holds.
    pages: FlashPages,
}

pub(super) struct Write {
    pub(super) number: u64,
    /// The device is making it.
    pub(super) has_begun: bool,
    pub(super) offset: u64,
    pub(super) blocks: Arc<Blocks>,
}

impl Write {
    pub(super) fn end(&self) -> u64 {
        self.offset + (self.blocks.count() * BLOCK_SIZE) as u64
    }
}

/// Where a waiting write goes, and what it writes.
pub(super) type Waiting = (u64, Arc<Blocks>);

/// What a thread that submits does next.
pub(super) enum Next {
    /// Makes this write, which has begun.
    Make(UnderWay),
    /// Waits for one that is under way.
    Wait,
    /// Nothing: all is over.
    Nothing,
}

/// Which write is added.
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) offset: u64,
    /// Whether it may become a part of the one in front of it, where that has not begun and it goes on from there.
    pub(super) may_join: bool,
}

impl Queue {
    /// Of a device with these flash pages, with nothing in it.
    pub(super) fn of(pages: FlashPages) -> Queue {
        Queue {
            writes: VecDeque::new(),
            bytes: 0,
            spare: Spare::default(),
            failed: None,
            ahead: ReadAhead::default(),
            ends: false,
            pages,
        }
    }

    /// Adds a write.
    pub(super) fn add(&mut self, place: Place, source: Source<'_>) {
        let length = source.length();
        self.bytes += length;
        let Place { number, offset, may_join } = place;
        let mut rest = Some(source);
        if may_join
            && let Some(last) = self.writes.back_mut()
            && !last.has_begun
            && last.end() == offset
            && last.blocks.count() + length / BLOCK_SIZE <= JOINED_BLOCKS
            && let Some(blocks) = Arc::get_mut(&mut last.blocks)
        {
            rest = rest.and_then(|source| self.spare.fill_up(blocks, source));
        }
        if let Some(source) = rest {
            let blocks = Arc::new(self.spare.fill(source));
            self.writes.push_back(Write { number, has_begun: false, offset, blocks });
        }
    }

    /// What to do next for the writes before number `end`.
    pub(super) fn next(&mut self, end: u64) -> Next {
        // Writes begin in order, so those that have begun are in front, and what is over leaves no gap.
        let begun = self.writes.iter().take_while(|write| write.has_begun).count();
        let Some(write) = self.writes.get(begun).filter(|write| write.number < end) else {
            return if self.writes.front().is_some_and(|write| write.number < end) {
                Next::Wait
            } else {
                Next::Nothing
            };
        };
        let (from, to) = self.pages.around(write.offset, write.end());
        if self.writes.iter().take(begun).any(|other| other.offset < to && other.end() > from) {
            return Next::Wait;
        }
        let write = &mut self.writes[begun];
        write.has_begun = true;
        Next::Make(UnderWay { number: write.number, offset: write.offset, blocks: write.blocks.clone() })
    }

    /// Whether the device is making all that wait.
    pub(super) fn all_have_begun(&self) -> bool {
        self.writes.back().is_none_or(|write| write.has_begun)
    }

    /// A write is on the device: its place in the queue and its bytes are free. Those that nobody needs come back, to be dropped without
    /// the queue's lock: they may have an owner who wants to know.
    pub(super) fn complete(&mut self, write: UnderWay) -> Option<Blocks> {
        let length = write.length();
        if let Some(index) = self.writes.iter().position(|other| other.number == write.number) {
            self.writes.remove(index);
            self.bytes -= length;
        }
        Arc::into_inner(write.blocks).and_then(|blocks| self.spare.keep(blocks))
    }
}

/// A write that the device is making.
pub(super) struct UnderWay {
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) blocks: Arc<Blocks>,
}

impl UnderWay {
    pub(super) fn length(&self) -> usize {
        self.blocks.count() * BLOCK_SIZE
    }
}

/// Why nothing is submitted any more.
pub(super) struct Failure {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) kind: io::ErrorKind,
    pub(super) code: Option<i32>,
    pub(super) reason: String,
}

impl Failure {
    pub(super) fn of(offset: u64, length: u64, error: &DeviceError) -> Failure {
        let source = match error {
            DeviceError::Io { source, .. } => Some(source),
            _ => None,
        };
        Failure {
            offset,
            length,
            kind: source.map_or(io::ErrorKind::Other, io::Error::kind),
            code: source.and_then(io::Error::raw_os_error),
            reason: source.map_or_else(|| error.to_string(), ToString::to_string),
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// A device that gets the second block of a flash page first may lose it when the first one comes.
    #[test]
    fn writes_to_one_flash_page_are_made_in_order() {
        const BLOCK: u64 = BLOCK_SIZE as u64;
        // Blocks 2 to 5 are a page, and 6 to 9; the fourth write touches the last block of one and the first of the other.
        let mut queue = Queue::of(FlashPages { bytes: 4 * BLOCK, from: 2 * BLOCK });
        for (number, (first, blocks)) in (0..).zip([(2, 1), (3, 1), (0, 2), (5, 2), (10, 1)]) {
            let place = Place { number, offset: first * BLOCK, may_join: false };
            queue.add(place, Source::Slices(&[&vec![7; blocks * BLOCK_SIZE]]));
        }
        let mut begin_all = || {
            let mut begun = Vec::new();
            while let Next::Make(write) = queue.next(u64::MAX) {
                begun.push(write);
            }
            let blocks: Vec<u64> = begun.iter().map(|write| write.offset / BLOCK).collect();
            begun.into_iter().for_each(|write| _ = queue.complete(write));
            blocks
        };
        assert_eq!([begin_all(), begin_all(), begin_all()], [vec![2], vec![3, 0], vec![5, 10]]);
    }
}
