//! A mounted volume: its memory, its logs, and how pages come to the chip.

use basalt_nand::{Geometry, NandDevice, NandError};

use crate::error::{Error, Result};
use crate::layout::leaf::{Head, State, WINDOW};
use crate::layout::tag::TAG;
use crate::layout::{NONE, Numbers};
use crate::leveling::Leveling;
use crate::memory::{Buffer, Bytes, DIRECTORIES, FILES, Memory};
use crate::mutant::{self, Mutant};
use crate::places::Gap;
use crate::roots::Roots;

/// Of a bad block, in place of its live pages.
pub(crate) const BAD: u8 = 255;
/// The most spare bytes that a device may offer.
pub(crate) const MOST_SPARE: usize = 512;
/// The last blocks of a window: only recovery uses them, before it knows which others are in use.
pub(crate) const KEPT: usize = 12;
/// Blocks that may fail before their pages are moved.
const RETIRED: usize = 8;

/// A log with a block of its own. The numbers are places in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Log {
    Counts = 0,
    Table = 1,
    Directory = 2,
    Bucket = 3,
    File = 4,
    Extent = 5,
    /// Data of small files.
    Shared = 6,
    /// Data that cleaning moves.
    Moved = 7,
}

/// Where a page goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Log(Log),
    /// The blocks of the file in a slot.
    File(usize),
    Leaf,
    Second,
}

/// What is programmed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    Buffer(Buffer),
    Bytes(&'a [u8]),
}

/// A directory in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectorySlot {
    pub(crate) serial: u32,
    /// Where its inode is on the chip; [`NONE`] if it was never written.
    pub(crate) page: u32,
    pub(crate) dirty: bool,
    pub(crate) used: u32,
}

/// A file in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSlot {
    pub(crate) serial: u32,
    /// Where its inode is on the chip; [`NONE`] if it was never written.
    pub(crate) page: u32,
    pub(crate) dirty: bool,
    /// Its own block.
    pub(crate) head: Head,
    pub(crate) used: u32,
}

/// The page of the inode table in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSlot {
    pub(crate) number: u32,
    pub(crate) dirty: bool,
}

/// What a volume did since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Checkpoints.
    pub checkpoints: u64,
    /// Blocks that cleaning emptied.
    pub cleaned: u64,
    /// Pages that cleaning moved.
    pub moved: u64,
    /// Blocks that were emptied because they had been erased seldom.
    pub leveled: u64,
    /// Pages of data that were written, those that cleaning moved included.
    pub data: u64,
    /// Pages of metadata that were written, those that cleaning moved included.
    pub metadata: u64,
    /// Blocks that failed.
    pub failed: u64,
}

/// A volume on a chip.
///
/// All its memory is this structure and the bytes that [`mount`](FlashLight::mount) gets: nothing grows.
#[derive(Debug)]
pub struct FlashLight<M, D> {
    pub(crate) device: D,
    pub(crate) geometry: Geometry,
    pub(crate) memory: Memory<M>,
    /// With it the checksums of this volume's pages begin.
    pub(crate) seed: u32,
    pub(crate) sequence: u64,
    pub(crate) state: State,
    pub(crate) window_used: usize,
    pub(crate) leaf: Head,
    pub(crate) second: Head,
    pub(crate) roots: Roots,
    pub(crate) identity: Identity,
    pub(crate) directories: [DirectorySlot; DIRECTORIES],
    pub(crate) files: [FileSlot; FILES],
    pub(crate) table: TableSlot,
    pub(crate) gap: Gap,
    /// The metadata page that the work page holds, or [`NONE`].
    pub(crate) work: u32,
    /// Metadata pages since the checkpoint.
    pub(crate) since: u32,
    /// The checkpoint says that nothing was written since.
    pub(crate) clean: bool,
    /// While a mount recovers: inodes up to this sequence number are in the directories.
    pub(crate) covers: Option<u64>,
    pub(crate) recovering: bool,
    /// While a mount recovers: the page whose inode the second file in memory has, or [`NONE`].
    pub(crate) ahead: u32,
    /// Blocks of which a program failed, and that are not emptied yet.
    pub(crate) retired: [u32; RETIRED],
    /// Blocks in which many bits have flipped, and that are not emptied yet.
    pub(crate) worn: [u32; RETIRED],
    /// Blocks with live pages that cannot be read or found: they are left alone.
    pub(crate) stuck: [u32; RETIRED],
    /// Free blocks at the last checkpoint.
    pub(crate) free: u32,
    /// Live pages and free blocks when cleaning was in vain.
    pub(crate) in_vain: (u64, u32),
    pub(crate) leveling: Leveling,
    /// Pages of the files that were closed last, up to 255 each.
    pub(crate) recent: [u8; 8],
    pub(crate) uses: u32,
    pub(crate) stopped: bool,
    pub(crate) counters: Counters,
}

/// How a volume is told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub uuid: [u8; 16],
    /// Its name, filled up with zeros.
    pub label: [u8; 64],
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// A volume of which nothing is known yet.
    pub(crate) fn unmounted(device: D, memory: M, identity: Identity) -> Result<FlashLight<M, D>> {
        let geometry = device.geometry();
        check_chip(&geometry)?;
        let memory =
            Memory::new(memory, &geometry).ok_or(Error::Unsupported("too little memory: see `memory_bytes`"))?;
        let directory = DirectorySlot { serial: NONE, page: NONE, dirty: false, used: 0 };
        let file = FileSlot { serial: NONE, page: NONE, dirty: false, head: Head::CLOSED, used: 0 };
        Ok(FlashLight {
            device,
            geometry,
            memory,
            seed: identity.seed(),
            sequence: 0,
            state: State::new(),
            window_used: 0,
            leaf: Head::CLOSED,
            second: Head::CLOSED,
            roots: Roots::default(),
            identity,
            directories: [directory; DIRECTORIES],
            files: [file; FILES],
            table: TableSlot { number: NONE, dirty: false },
            gap: Gap::NONE,
            work: NONE,
            since: 0,
            clean: false,
            covers: None,
            recovering: false,
            ahead: NONE,
            retired: [NONE; RETIRED],
            worn: [NONE; RETIRED],
            stuck: [NONE; RETIRED],
            free: 0,
            in_vain: crate::cleaning::NEVER_IN_VAIN,
            leveling: Leveling::default(),
            recent: [0; 8],
            uses: 0,
            stopped: false,
            counters: Counters::default(),
        })
    }

    /// The chip.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// What was done since the mount.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How the volume is told from others.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The shape of the chip.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether the last session ended with [`unmount`](FlashLight::unmount), and nothing was changed since.
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// How often blocks were erased, all together.
    pub fn erases(&self) -> u64 {
        self.state.erases
    }

    /// Whether an error of the chip has stopped all changes.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Blocks that were free at the last checkpoint.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Free blocks of the window that are left.
    pub(crate) fn window_left(&self) -> usize {
        self.state.window[self.window_used..].iter().take_while(|&&block| block != NONE).count()
    }

    pub(crate) fn is_bad(&self, block: u32) -> bool {
        self.memory.counts()[block as usize] == BAD
    }

    pub(crate) fn head(&mut self, place: Place) -> &mut Head {
        match place {
            Place::Log(log) => &mut self.state.heads[log as usize],
            Place::File(slot) => &mut self.files[slot].head,
            Place::Leaf => &mut self.leaf,
            Place::Second => &mut self.second,
        }
    }

    /// Takes the next free block and erases it; one that cannot be erased is marked bad.
    pub(crate) fn open_block(&mut self, for_checkpoint: bool) -> Result<Head> {
        loop {
            let kept = if for_checkpoint || self.recovering { 0 } else { KEPT };
            if self.window_left() <= kept {
                // Operations begin with room for all that they write: one that has less stays half done.
                self.stopped = true;
                return Err(Error::NoSpace);
            }
            let block = self.state.window[self.window_used];
            self.window_used += 1;
            let outside = if mutant::active(Mutant::WindowIgnored) { self.outside_window() } else { None };
            let block = outside.unwrap_or(block);
            if mutant::active(Mutant::ErasedLookTrusted) && self.looks_erased(block)? {
                return Ok(Head { block, next: 0, erases: 1 });
            }
            if self.device.is_bad(block)? {
                // It was marked, and the power went before a checkpoint said so.
                self.memory.counts_mut()[block as usize] = BAD;
                continue;
            }
            let erases = self.tag(self.geometry.first_page(block))?.map_or(0, |tag| tag.erases);
            match self.device.erase(block) {
                Ok(()) => {
                    // Its pages may come again.
                    self.gap = Gap::NONE;
                    self.state.erases += 1;
                    self.leveling.opened += 1;
                    return Ok(Head { block, next: 0, erases: erases + 1 });
                }
                Err(NandError::EraseFailed { .. }) => self.condemn(block)?,
                Err(error) => return Err(self.stop(error)),
            }
        }
    }

    /// Marks a block bad that nothing live is in.
    pub(crate) fn condemn(&mut self, block: u32) -> Result<()> {
        self.counters.failed += 1;
        self.memory.counts_mut()[block as usize] = BAD;
        // A block that does not take the mark stays bad for this volume: the counts say so.
        match self.device.mark_bad(block) {
            Ok(()) | Err(NandError::ProgramFailed { .. }) => Ok(()),
            Err(error) => Err(self.stop(error)),
        }
    }

    /// An error behind which memory and chip may differ.
    pub(crate) fn stop(&mut self, error: NandError) -> Error {
        self.stopped = true;
        error.into()
    }

    /// Takes no more changes: what was written may not last.
    pub fn fail(&mut self) {
        self.stopped = true;
    }

    /// A number that grows with each use.
    pub(crate) fn use_now(&mut self) -> u32 {
        self.uses += 1;
        self.uses
    }

    /// Whether changes are possible.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.stopped { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Pages of metadata that one page of the inode table, or of its index, has room for.
    pub(crate) fn table_entries(&self) -> (u32, u32) {
        let room = self.geometry.page_bytes - crate::layout::leaf::TABLE_FIRST as u32;
        (room / 8, room / 4)
    }

    /// Replaces the window, whose blocks before `window_used` are in use.
    pub(crate) fn set_window(&mut self, window: [u32; WINDOW]) {
        (self.state.window, self.window_used) = (window, 0);
    }
}

/// Counts pages that are live no longer. Those of a damaged page may be anywhere.
pub(crate) fn count_dead(counts: &mut [u8], geometry: &Geometry, page: u32, length: u32) {
    for page in page..page.saturating_add(length).min(geometry.pages()) {
        let count = &mut counts[geometry.block_of(page) as usize];
        *count = if *count == BAD { BAD } else { count.saturating_sub(1) };
    }
}

impl Identity {
    /// What the checksums of the volume's pages begin with: docs/flashlight-format.md, "Metadata pages".
    pub fn seed(&self) -> u32 {
        if mutant::active(Mutant::SeedIgnored) {
            return 0;
        }
        (0..4).fold(0x9E37_79B9, |seed: u32, at| {
            (seed ^ self.uuid.u32_at(4 * at)).wrapping_mul(0x85EB_CA6B).rotate_left(13)
        })
    }
}

/// Whether the format has room for a chip of that shape.
fn check_chip(geometry: &Geometry) -> Result<()> {
    let page = geometry.page_bytes as usize;
    let countable = crate::layout::leaf::COUNT_PAGES * (page - crate::layout::header::HEADER);
    if geometry.page_bytes < crate::layout::LEAST_PAGE {
        return Err(Error::Unsupported("pages of less than 2 KiB"));
    }
    if !(16..=128).contains(&geometry.pages_per_block) {
        return Err(Error::Unsupported("fewer than 16 pages in a block, or more than 128"));
    }
    if !(64..=countable as u64).contains(&geometry.blocks.into()) {
        return Err(Error::Unsupported("fewer than 64 blocks, or more than 64 pages of counts have room for"));
    }
    if !(TAG..=MOST_SPARE).contains(&(geometry.spare_bytes as usize)) {
        return Err(Error::Unsupported("fewer than 12 free spare bytes a page, or more than 512"));
    }
    Ok(())
}
