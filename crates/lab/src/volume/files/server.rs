//! A file server in runs one after the other, with data between its files that nobody touches again: what the paper on separation by the
//! page cache measured, as far as it says.

use basalt_random::Rng;
use basalt_simulator::BLOCK_SIZE;

use super::memory::{Below, FileId, Memory};

const SECOND: u64 = 1_000_000_000;

/// Which file is appended to, read or removed next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Any.
    Random,
    /// One after the other, as one thread of Filebench does.
    Rotation,
}

/// Filebench's file server. Each run removes all files, makes them anew, and then does in each loop what a thread of Filebench does: makes
/// and writes a file, appends up to `append` bytes to another, reads a third, and removes a fourth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Files that exist between loops.
    pub files: u32,
    /// Bytes of a file when it is made.
    pub bytes: u64,
    /// Bytes appended at most.
    pub append: u64,
    /// Runs one after the other.
    pub runs: u32,
    /// Loops of a run.
    pub loops: u32,
    /// Loops in a second.
    pub rate: u32,
    /// Pages that are written once, in files between those of the first run, and never touched again.
    pub cold: u32,
    /// Which file is next.
    pub pick: Pick,
}

impl Default for Server {
    /// Filebench's 10,000 files at a fifth, and as many cold pages as theirs.
    fn default() -> Server {
        Server {
            files: 2000,
            bytes: 128 << 10,
            append: 16 << 10,
            runs: 10,
            loops: 4000,
            rate: 60,
            cold: 60_000,
            pick: Pick::Random,
        }
    }
}

/// Its files: one place more than there are files between loops.
struct Files {
    places: Vec<Option<FileId>>,
    free: usize,
    hand: usize,
    pick: Pick,
    rng: Rng,
}

impl Files {
    /// A place with a file.
    fn next(&mut self) -> usize {
        loop {
            let place = match self.pick {
                Pick::Random => self.rng.index(self.places.len()),
                Pick::Rotation => self.hand,
            };
            self.hand = (place + 1) % self.places.len();
            if self.places[place].is_some() {
                return place;
            }
        }
    }

    /// A file.
    fn any(&mut self) -> FileId {
        let place = self.next();
        self.places[place].unwrap_or_default()
    }
}

impl Server {
    /// Loops of all runs, the unit of progress.
    #[must_use]
    pub fn steps(&self) -> u64 {
        u64::from(self.runs) * u64::from(self.loops)
    }

    /// Does all runs on the memory; `progress` hears of loops done.
    pub(super) fn run(
        &self,
        seed: u64,
        memory: &mut Memory,
        below: &mut dyn Below,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), String> {
        let mut files = Files { places: Vec::new(), free: 0, hand: 0, pick: self.pick, rng: Rng::new(seed) };
        let mut now = 0;
        for run in 0..self.runs {
            for file in std::mem::take(&mut files.places).into_iter().flatten() {
                memory.remove(file, below)?;
            }
            self.make_all(run == 0, now, &mut files, memory, below)?;
            for step in 0..self.loops {
                now += SECOND / u64::from(self.rate);
                memory.advance(now, below)?;
                self.step(now, &mut files, memory, below)?;
                progress(u64::from(run) * u64::from(self.loops) + u64::from(step) + 1);
            }
        }
        Ok(())
    }

    /// Makes the files of a run, the first time with the cold ones between them.
    fn make_all(
        &self,
        is_first: bool,
        now: u64,
        files: &mut Files,
        memory: &mut Memory,
        below: &mut dyn Below,
    ) -> Result<(), String> {
        let mut cold = 0;
        for made in 1..=u64::from(self.files) {
            files.places.push(Some(self.make(now, memory, below)?));
            let wanted = if is_first { u64::from(self.cold) * made / u64::from(self.files) } else { 0 };
            if wanted > cold {
                let file = memory.create();
                memory.write(file, (0, (wanted - cold) * BLOCK_SIZE), now, below)?;
                cold = wanted;
            }
        }
        files.free = files.places.len();
        files.places.push(None);
        Ok(())
    }

    fn make(&self, now: u64, memory: &mut Memory, below: &mut dyn Below) -> Result<FileId, String> {
        let file = memory.create();
        memory.write(file, (0, self.bytes), now, below)?;
        Ok(file)
    }

    fn step(&self, now: u64, files: &mut Files, memory: &mut Memory, below: &mut dyn Below) -> Result<(), String> {
        files.places[files.free] = Some(self.make(now, memory, below)?);
        let appended = files.any();
        let length = files.rng.between(1, self.append);
        memory.write(appended, (memory.size(appended), length), now, below)?;
        let read = files.any();
        memory.read(read, 0, memory.size(read));
        files.free = files.next();
        match files.places[files.free].take() {
            Some(file) => memory.remove(file, below),
            None => Ok(()),
        }
    }
}
