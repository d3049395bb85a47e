//! A kernel's page cache in front of the simulated volume, for files that are written, read and removed: time passes, and what is dirty
//! for long is written back.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use basalt_segments::{List, PageTemperatures, Touches};
use basalt_simulator::{BLOCK_SIZE, PageList, Volume};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::super::front::LONGEST_RUN;

/// A page without a block of the volume: it was never written back.
const NO_BLOCK: u32 = u32::MAX;

/// How the kernel is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySettings {
    /// Pages on both lists at most.
    pub pages: usize,
    /// Dirty pages above which files are written back, the longest dirty first.
    pub most_dirty: usize,
    /// How long a file is dirty before it is written back, in nanoseconds (Linux: 30 s).
    pub expires_ns: u64,
    /// How often the kernel looks for such files, in nanoseconds (Linux: 5 s); 0 is all the time.
    pub looks_ns: u64,
    /// What touches a page.
    pub touches: Touches,
}

/// What is written and removed below.
pub trait Below {
    /// Writes a block, one of `run` neighbours of its file.
    ///
    /// # Errors
    /// In words.
    fn write(&mut self, block: u32, run: u32) -> Result<(), String>;

    /// What was written to a block is gone.
    ///
    /// # Errors
    /// In words.
    fn remove(&mut self, block: u32) -> Result<(), String>;
}

impl Below for Volume {
    fn write(&mut self, block: u32, run: u32) -> Result<(), String> {
        self.write_in_run(block, run).map_err(|error| error.to_string())
    }

    fn remove(&mut self, block: u32) -> Result<(), String> {
        Volume::remove(self, block).map_err(|error| error.to_string())
    }
}

/// Nothing is below: to learn how many blocks live at most.
pub(super) struct Nothing;

impl Below for Nothing {
    fn write(&mut self, _: u32, _: u32) -> Result<(), String> {
        Ok(())
    }

    fn remove(&mut self, _: u32) -> Result<(), String> {
        Ok(())
    }
}

/// What became of the pages that programs wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Pages written, once for each request that writes of them.
    pub writes: u64,
    /// Those of pages that were dirty already.
    pub absorbed: u64,
    /// Dirty pages that were removed before they were written back.
    pub died: u64,
    /// Pages written back.
    pub written: u64,
    /// Those of them that were on the active list.
    pub written_active: u64,
}

impl MemoryStatistics {
    /// Of the pages written back, the share that was on the active list; `None` where there were none.
    #[must_use]
    pub fn active_share(&self) -> Option<f64> {
        (self.written > 0).then(|| self.written_active as f64 / self.written as f64)
    }

    /// What came since an earlier state.
    #[must_use]
    pub fn since(&self, before: &MemoryStatistics) -> MemoryStatistics {
        MemoryStatistics {
            writes: self.writes - before.writes,
            absorbed: self.absorbed - before.absorbed,
            died: self.died - before.died,
            written: self.written - before.written,
            written_active: self.written_active - before.written_active,
        }
    }
}

/// A file: a number that is given once.
pub(super) type FileId = u32;

#[derive(Default)]
struct File {
    /// In bytes.
    size: u64,
    /// The block of each page.
    blocks: Vec<u32>,
    dirty: BTreeSet<u32>,
    /// When the first of these became dirty, in nanoseconds.
    dirtied: u64,
}

/// What the volume asks for.
struct Known {
    temperatures: PageTemperatures<u64>,
    /// The page of each block.
    pages: Vec<u64>,
}

/// The page cache, and the blocks that it has given to pages.
pub struct Memory {
    settings: MemorySettings,
    files: FxHashMap<FileId, File>,
    next_file: FileId,
    /// Files by when they became dirty; what was written back meanwhile is still in it.
    order: VecDeque<(u64, FileId)>,
    dirty: usize,
    /// When the kernel looked last.
    looked: u64,
    known: Arc<Mutex<Known>>,
    /// Blocks that are not in use again, and the number of those that ever were.
    free: Vec<u32>,
    blocks: u32,
    statistics: MemoryStatistics,
}

fn page_of(file: FileId, index: u32) -> u64 {
    u64::from(file) << 32 | u64::from(index)
}

impl Memory {
    /// An empty one.
    #[must_use]
    pub fn new(settings: MemorySettings) -> Memory {
        let temperatures = PageTemperatures::new(settings.pages, settings.touches);
        Memory {
            settings,
            files: FxHashMap::default(),
            next_file: 0,
            order: VecDeque::new(),
            dirty: 0,
            looked: 0,
            known: Arc::new(Mutex::new(Known { temperatures, pages: Vec::new() })),
            free: Vec::new(),
            blocks: 0,
            statistics: MemoryStatistics::default(),
        }
    }

    /// Says on which list the page of a block is.
    #[must_use]
    pub fn lists(&self) -> PageList {
        let known = Arc::clone(&self.known);
        Box::new(move |block| {
            let known = known.lock();
            known.pages.get(block as usize).and_then(|page| known.temperatures.list(*page))
        })
    }

    /// What became of pages.
    #[must_use]
    pub fn statistics(&self) -> MemoryStatistics {
        self.statistics
    }

    /// Blocks that were in use at a time, at most.
    #[must_use]
    pub fn most_blocks(&self) -> u32 {
        self.blocks
    }

    /// A new, empty file.
    pub(super) fn create(&mut self) -> FileId {
        let id = self.next_file;
        self.next_file += 1;
        self.files.insert(id, File::default());
        id
    }

    /// In bytes; 0 for a file that is gone.
    pub(super) fn size(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(0, |file| file.size)
    }

    /// As `write(2)`, at this time: each page of it is touched once.
    pub(super) fn write(
        &mut self,
        file: FileId,
        (offset, length): (u64, u64),
        now: u64,
        below: &mut dyn Below,
    ) -> Result<(), String> {
        let Some(state) = self.files.get_mut(&file).filter(|_| length > 0) else { return Ok(()) };
        state.size = state.size.max(offset + length);
        if state.dirty.is_empty() {
            state.dirtied = now;
            self.order.push_back((now, file));
        }
        // No file of a simulation has 16 TiB.
        for index in (offset / BLOCK_SIZE) as u32..(offset + length).div_ceil(BLOCK_SIZE) as u32 {
            self.known.lock().temperatures.note_write(page_of(file, index));
            self.statistics.writes += 1;
            if state.dirty.insert(index) {
                self.dirty += 1;
            } else {
                self.statistics.absorbed += 1;
            }
        }
        while self.dirty > self.settings.most_dirty && self.write_back_oldest(below)? {}
        Ok(())
    }

    /// As `read(2)`.
    pub(super) fn read(&mut self, file: FileId, offset: u64, length: u64) {
        let end = (offset + length).min(self.size(file));
        let mut known = self.known.lock();
        for index in (offset / BLOCK_SIZE) as u32..end.div_ceil(BLOCK_SIZE) as u32 {
            known.temperatures.note_read(page_of(file, index));
        }
    }

    /// Cuts a file off, or extends it with a hole.
    pub(super) fn truncate(&mut self, file: FileId, size: u64, below: &mut dyn Below) -> Result<(), String> {
        let Some(state) = self.files.get_mut(&file) else { return Ok(()) };
        let (first, end) = (size.div_ceil(BLOCK_SIZE) as u32, state.size.div_ceil(BLOCK_SIZE) as u32);
        state.size = size;
        let died = state.dirty.split_off(&first).len();
        let blocks = state.blocks.split_off(state.blocks.len().min(first as usize));
        self.dirty -= died;
        self.statistics.died += died as u64;
        let mut known = self.known.lock();
        (first..end).for_each(|index| known.temperatures.forget(page_of(file, index)));
        drop(known);
        for block in blocks.into_iter().filter(|block| *block != NO_BLOCK) {
            below.remove(block)?;
            self.free.push(block);
        }
        Ok(())
    }

    /// The file is gone, with what was written to it.
    pub(super) fn remove(&mut self, file: FileId, below: &mut dyn Below) -> Result<(), String> {
        self.truncate(file, 0, below)?;
        self.files.remove(&file);
        Ok(())
    }

    /// It is this time now: writes back what has been dirty for long, if the kernel has looked since.
    pub(super) fn advance(&mut self, now: u64, below: &mut dyn Below) -> Result<(), String> {
        let looked = now - now % self.settings.looks_ns.max(1);
        if looked == self.looked {
            return Ok(());
        }
        self.looked = looked;
        let now = looked;
        while let Some(&(since, _)) = self.order.front() {
            if now.saturating_sub(since) < self.settings.expires_ns {
                break;
            }
            self.write_back_oldest(below)?;
        }
        Ok(())
    }

    /// Writes back all files.
    pub(super) fn write_back_all(&mut self, below: &mut dyn Below) -> Result<(), String> {
        while self.write_back_oldest(below)? {}
        Ok(())
    }

    /// Writes back the file that has been dirty the longest; false if none is dirty.
    fn write_back_oldest(&mut self, below: &mut dyn Below) -> Result<bool, String> {
        let Some((since, file)) = self.order.pop_front() else { return Ok(false) };
        if self.files.get(&file).is_some_and(|state| !state.dirty.is_empty() && state.dirtied == since) {
            self.write_back(file, below)?;
        }
        Ok(true)
    }

    /// Writes back a file: its dirty pages in order, neighbours together.
    pub(super) fn write_back(&mut self, file: FileId, below: &mut dyn Below) -> Result<(), String> {
        let Some(state) = self.files.get_mut(&file) else { return Ok(()) };
        let dirty: Vec<u32> = std::mem::take(&mut state.dirty).into_iter().collect();
        self.dirty -= dirty.len();
        for neighbours in dirty.chunk_by(|before, after| before + 1 == *after) {
            for run in neighbours.chunks(LONGEST_RUN as usize) {
                for &index in run {
                    self.write_page(file, index, run.len() as u32, below)?;
                }
            }
        }
        Ok(())
    }

    fn write_page(&mut self, file: FileId, index: u32, run: u32, below: &mut dyn Below) -> Result<(), String> {
        let Some(state) = self.files.get_mut(&file) else { return Ok(()) };
        if state.blocks.len() <= index as usize {
            state.blocks.resize(index as usize + 1, NO_BLOCK);
        }
        let block = &mut state.blocks[index as usize];
        let mut known = self.known.lock();
        if *block == NO_BLOCK {
            *block = self.free.pop().unwrap_or(self.blocks);
            if *block == self.blocks {
                self.blocks += 1;
                known.pages.push(0);
            }
            known.pages[*block as usize] = page_of(file, index);
        }
        let is_active = known.temperatures.list(page_of(file, index)) == Some(List::Active);
        drop(known);
        self.statistics.written += 1;
        self.statistics.written_active += u64::from(is_active);
        below.write(*block, run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks written with their runs, and removed (a run of 0).
    #[derive(Default)]
    struct Heard(Vec<(u32, u32)>);

    impl Below for Heard {
        fn write(&mut self, block: u32, run: u32) -> Result<(), String> {
            self.0.push((block, run));
            Ok(())
        }

        fn remove(&mut self, block: u32) -> Result<(), String> {
            self.0.push((block, 0));
            Ok(())
        }
    }

    const SECOND: u64 = 1_000_000_000;

    fn memory(most_dirty: usize) -> Memory {
        Memory::new(MemorySettings {
            pages: 1000,
            most_dirty,
            expires_ns: 30 * SECOND,
            looks_ns: 0,
            touches: Touches::Each,
        })
    }

    #[test]
    fn what_is_dirty_for_thirty_seconds_is_written_back_in_runs() {
        let (mut memory, mut heard) = (memory(1000), Heard::default());
        let file = memory.create();
        // Pages 0 to 2 and 5 of a file: a record of a page and 8 bytes touches two pages.
        memory.write(file, (8, 8192), 0, &mut heard).unwrap();
        memory.write(file, (5 * 4096, 1), 10 * SECOND, &mut heard).unwrap();
        memory.write(file, (0, 4096), 20 * SECOND, &mut heard).unwrap();
        memory.advance(30 * SECOND - 1, &mut heard).unwrap();
        assert!(heard.0.is_empty());
        memory.advance(30 * SECOND, &mut heard).unwrap();
        assert_eq!(heard.0, [(0, 3), (1, 3), (2, 3), (3, 1)]);
        let lists = memory.lists();
        let active = [0, 1, 2, 3, 4].map(&lists);
        let (hot, cold) = (Some(List::Active), Some(List::Inactive));
        assert_eq!(active, [hot, cold, cold, cold, None]);
        let expected = MemoryStatistics { writes: 5, absorbed: 1, died: 0, written: 4, written_active: 1 };
        assert_eq!(memory.statistics(), expected);
        // Its time begins anew, and what is clean is not written again.
        memory.write(file, (4096, 1), 40 * SECOND, &mut heard).unwrap();
        memory.advance(69 * SECOND, &mut heard).unwrap();
        assert_eq!(heard.0.len(), 4);
        memory.advance(70 * SECOND, &mut heard).unwrap();
        assert_eq!(heard.0[4..], [(1, 1)]);
    }

    #[test]
    fn removed_files_are_never_written_and_leave_their_blocks_to_others() {
        let (mut memory, mut heard) = (memory(1000), Heard::default());
        let (short, long) = (memory.create(), memory.create());
        memory.write(short, (0, 8192), 0, &mut heard).unwrap();
        memory.write(long, (0, 8192), 0, &mut heard).unwrap();
        memory.remove(short, &mut heard).unwrap();
        memory.write_back(long, &mut heard).unwrap();
        memory.truncate(long, 4096, &mut heard).unwrap();
        memory.truncate(long, 4096, &mut heard).unwrap();
        let next = memory.create();
        memory.write(next, (0, 4096), 0, &mut heard).unwrap();
        memory.write_back_all(&mut heard).unwrap();
        assert_eq!(heard.0, [(0, 2), (1, 2), (1, 0), (1, 1)]);
        assert_eq!((memory.statistics().died, memory.most_blocks(), memory.dirty), (2, 2, 0));
        assert_eq!(memory.lists()(1), Some(List::Inactive), "the page of the file that is gone is forgotten");
        assert_eq!((memory.size(long), memory.size(short)), (4096, 0));
    }

    #[test]
    fn the_longest_dirty_file_makes_room_for_more_than_may_be_dirty() {
        let (mut memory, mut heard) = (memory(3), Heard::default());
        let files = [memory.create(), memory.create()];
        memory.write(files[0], (0, 8192), 0, &mut heard).unwrap();
        memory.write(files[1], (0, 4096), 1, &mut heard).unwrap();
        assert!(heard.0.is_empty());
        memory.write(files[1], (4096, 4096), 2, &mut heard).unwrap();
        assert_eq!(heard.0, [(0, 2), (1, 2)]);
        // A read is a touch, and pages behind the end are none.
        memory.read(files[1], 0, 1 << 20);
        memory.write_back_all(&mut heard).unwrap();
        assert_eq!((memory.statistics().written, memory.statistics().written_active), (4, 2));
    }
}
