//! Making a volume, and opening one.

use basalt_nand::{NandDevice, NandError, is_erased};

use crate::cleaning::Room;
use crate::error::{Error, Result};
use crate::layout::header::{Area, HEADER};
use crate::layout::inode::{self, Inode, SLOTS, Time};
use crate::layout::leaf::{Head, ROOT_BLOCKS, SECOND_LEAF, State, WINDOW};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mutant::{self, Mutant};
use crate::roots;
use crate::volume::{BAD, FlashLight, Identity};

/// The root directory.
pub(crate) const ROOT: u32 = 0;
/// The directory of files that are deleted and still open. Nobody sees it.
pub(crate) const ORPHANS: u32 = 1;

/// What a new volume is like.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// How it is told from others. The number should be random: pages of the volume that was there before are told by it.
    pub identity: Identity,
    /// When it is made.
    pub now: Time,
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Makes a volume on a chip: what was there is lost. Errors: the chip is of a shape that the format has no room for, too much of it
    /// is bad, or it fails.
    pub fn format(device: D, memory: M, options: &FormatOptions) -> Result<FlashLight<M, D>> {
        let mut volume = FlashLight::unmounted(device, memory, options.identity)?;
        for block in 0..volume.geometry.blocks {
            if volume.device.is_bad(block)? {
                volume.memory.counts_mut()[block as usize] = BAD;
            }
        }
        if (0..ROOT_BLOCKS).filter(|&block| !volume.is_bad(block)).count() < 5 {
            return Err(Error::Unsupported("fewer than five of the first eight blocks are good"));
        }
        // Roots of an older volume must not be taken for newer ones.
        for block in (0..ROOT_BLOCKS).rev() {
            if !volume.is_bad(block) {
                volume.erase_root(block)?;
            }
        }
        volume.state.next_serial = 2;
        volume.state.inodes = 2;
        for (slot, serial) in [(0, ROOT), (1, ORPHANS)] {
            volume.begin_directory(slot, serial, ROOT, serial, b"", 0o755, (0, 0), options.now);
        }
        volume.choose_window();
        volume.checkpoint(true)?;
        Ok(volume)
    }

    /// Makes a slot a new directory, which is in memory only.
    #[expect(clippy::too_many_arguments, reason = "all that an inode has")]
    pub(crate) fn begin_directory(
        &mut self,
        slot: usize,
        serial: u32,
        parent: u32,
        key: u32,
        name: &[u8],
        mode: u32,
        (uid, gid): (u32, u32),
        now: Time,
    ) {
        let page = self.memory.page_mut(Buffer::Directory(slot));
        page.begin(serial, parent, key, name);
        page.set_u32(inode::MODE, inode::DIRECTORY | mode & 0o7777);
        page.set_u32(inode::UID, uid);
        page.set_u32(inode::GID, gid);
        for at in [inode::ATIME, inode::MTIME, inode::CTIME] {
            page.set_u64(at, now.packed());
        }
        let body = page.body();
        page[body..body + 4 * SLOTS].fill(0xFF);
        let used = self.use_now();
        let found = &mut self.directories[slot];
        (found.serial, found.page, found.dirty, found.used) = (serial, NONE, true, used);
    }

    /// Opens the volume on a chip; `memory` has [`memory_bytes`](crate::memory_bytes). After a power cut it recovers what was written
    /// since the last checkpoint, and writes one. Errors: there is no volume, it is damaged, or the chip fails.
    pub fn mount(mut device: D, mut memory: M) -> Result<FlashLight<M, D>> {
        let geometry = device.geometry();
        let page_bytes = geometry.page_bytes as usize;
        let Some(work) = memory.as_mut().get_mut(..page_bytes) else {
            return Err(Error::Unsupported("too little memory: see `memory_bytes`"));
        };
        let found = roots::find(&mut device, work)?;
        let mut volume = FlashLight::unmounted(device, memory, found.identity)?;
        volume.roots = found.roots;
        let leaf = volume.find_leaf(found.roots.second())?;
        let page = volume.geometry.first_page(leaf) + volume.leaf.next - 1;
        let work = volume.memory.page(Buffer::Work);
        let checkpoint = work.u64_at(2) & 0xFFFF_FFFF_FFFF;
        // Each page from here on has a higher number than any on the chip.
        volume.sequence = checkpoint.max(found.sequence);
        let (state, clean) = State::read(work);
        if !state.is_sound(volume.geometry.blocks, volume.geometry.pages_per_block) {
            return Err(Error::Damaged { page, what: "the checkpoint contradicts itself" });
        }
        volume.state = state;
        volume.read_counts()?;
        // The page that a power cut was in may read as erased, and does not keep what is written to it: all three levels go on elsewhere.
        let full = volume.geometry.pages_per_block;
        if !mutant::active(Mutant::CheckpointGoesOn) {
            (volume.leaf.next, volume.second.next) = (full, full);
        }
        if clean {
            volume.clean = true;
            volume.check_nothing_since(checkpoint)?;
            volume.take_window();
        } else {
            volume.recover(checkpoint)?;
        }
        Ok(volume)
    }

    /// Finds the newest leaf, which is then in the work page; says in which block.
    fn find_leaf(&mut self, second: u32) -> Result<u32> {
        self.second = self.last_page(second, Area::Second)?;
        let leaf = self.memory.page(Buffer::Work).u32_at(SECOND_LEAF);
        self.leaf = self.last_page(leaf, Area::Leaf)?;
        Ok(leaf)
    }

    /// The last page of a block that is whole, in the work page; behind it nothing was written.
    fn last_page(&mut self, block: u32, area: Area) -> Result<Head> {
        let geometry = self.geometry;
        if block >= geometry.blocks {
            return Err(Error::Damaged { page: NONE, what: "the checkpoint is beyond the end of the chip" });
        }
        let first = geometry.first_page(block);
        self.work = NONE;
        let written = first_erased(&mut self.device, first, self.memory.page_mut(Buffer::Work))?;
        for page in (0..written).rev() {
            if self.read_metadata(first + page, Buffer::Work, area).is_ok() {
                let whole = page + 1;
                let erases = self.tag(first)?.map_or(0, |tag| tag.erases);
                return Ok(Head { block, next: whole, erases });
            }
        }
        Err(Error::Damaged { page: first, what: "no page of the checkpoint in this block is whole" })
    }

    fn read_counts(&mut self) -> Result<()> {
        let per_page = self.geometry.page_bytes as usize - HEADER;
        for which in 0..self.memory.counts().len().div_ceil(per_page) {
            self.work = NONE;
            self.read_metadata(self.state.counts[which], Buffer::Work, Area::Counts)?;
            let end = self.memory.counts().len().min((which + 1) * per_page);
            let (work, counts) = self.memory.page_and_counts(Buffer::Work);
            let part = &mut counts[which * per_page..end];
            part.copy_from_slice(&work[HEADER..HEADER + part.len()]);
        }
        Ok(())
    }

    /// The window of a checkpoint behind which nothing was written, without the blocks that the checkpoint itself took of it.
    pub(crate) fn take_window(&mut self) {
        let (mut window, mut count) = ([NONE; WINDOW], 0);
        for &block in self.state.window.iter().filter(|&&block| block != NONE) {
            if !self.is_needed(block) {
                window[count] = block;
                count += 1;
            }
        }
        self.set_window(window);
        let free = (0..self.geometry.blocks).filter(|&block| self.memory.counts()[block as usize] == 0);
        self.free = free.filter(|&block| !self.is_needed(block)).count() as u32;
    }

    /// Writes everything, and says on the chip that nothing is to be recovered. Gives the chip back.
    pub fn unmount(mut self) -> core::result::Result<D, (Error, D)> {
        match self.close() {
            Ok(()) => Ok(self.device),
            Err(error) => Err((error, self.device)),
        }
    }

    /// Deletes the files that are unlinked and still open, writes everything, and says on the chip that nothing is to be recovered. Until
    /// something changes, a power cut costs nothing.
    pub fn close(&mut self) -> Result<()> {
        if self.clean {
            return Ok(());
        }
        self.make_room(Room::Free)?;
        self.delete_orphans()?;
        for slot in 0..self.files.len() {
            self.flush_file(slot)?;
            self.drop_file(slot);
        }
        self.checkpoint(true)
    }
}

/// How many pages of a block are not erased. Pages are written in order, so the first erased one is found by halves.
fn first_erased<D: NandDevice>(device: &mut D, first: u32, work: &mut [u8]) -> Result<u32> {
    let (mut low, mut high) = (0, device.geometry().pages_per_block);
    while low < high {
        let middle = (low + high) / 2;
        let erased = match device.read(first + middle, work, &mut []) {
            Ok(_) => is_erased(work),
            Err(NandError::Uncorrectable { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if erased {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}
