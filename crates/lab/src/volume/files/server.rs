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

/// The most that a number of a server may be.
pub(super) const MOST: u32 = 100_000_000;
/// The volume that the usual server is made for: 1 GiB.
const USUAL_VOLUME: u128 = 1 << 30;

impl Default for Server {
    /// Filebench's 10,000 files at a fifth, and as many cold pages as theirs: made for 1 GiB.
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
    /// The usual one for a volume of so many bytes: files, cold pages, loops and loops a second grow with it. So a file lives as long at
    /// every size. With 5 GiB it has as many files as Filebench's.
    #[must_use]
    pub fn made_for(bytes: u64) -> Server {
        let usual = Server::default();
        // At most MOST, which is a `u32`.
        let part = |number: u32| (u128::from(number) * u128::from(bytes) / USUAL_VOLUME).min(u128::from(MOST)) as u32;
        let some = |number: u32| part(number).max(1);
        Server {
            files: some(usual.files),
            loops: some(usual.loops),
            rate: some(usual.rate),
            cold: part(usual.cold),
            ..usual
        }
    }

    /// Loops of all runs, the unit of progress.
    #[must_use]
    pub fn steps(&self) -> u64 {
        u64::from(self.runs) * u64::from(self.loops)
    }

    /// Does this many loops on the memory, each run behind the other; `progress` hears of loops done.
    pub(super) fn run(
        &self,
        (seed, steps): (u64, u64),
        memory: &mut Memory,
        below: &mut dyn Below,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), String> {
        let mut files = Files { places: Vec::new(), free: 0, hand: 0, pick: self.pick, rng: Rng::new(seed) };
        let mut now = 0;
        for run in 0..self.runs {
            let before = u64::from(run) * u64::from(self.loops);
            if before >= steps {
                break;
            }
            for file in std::mem::take(&mut files.places).into_iter().flatten() {
                memory.remove(file, below)?;
            }
            self.make_all(run == 0, now, &mut files, memory, below)?;
            for step in 1..=u64::from(self.loops).min(steps - before) {
                now += SECOND / u64::from(self.rate);
                memory.advance(now, below)?;
                self.step(now, &mut files, memory, below)?;
                progress(before + step);
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
