//! Who has files open to write to them, and who to execute them.
//!
//! The kernel lets nobody write to a file that is being executed, nor execute one that is open for writing (ETXTBSY). It finds out only
//! after it has opened the file, and gives the program the mode that it learned before: a set-uid program that somebody opened, changed
//! and closed in between would run changed, with its privileges. So for those the same rule holds here, from OPEN to RELEASE.
//!
//! What is executed after that may still have the mode of a moment before the change. Whoever opens such a file for execution is answered
//! ESTALE the first time: the kernel then looks the name up again, learns the mode, and asks again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use basalt_vfs::InodeNumber;
use parking_lot::Mutex;
use rustix::io::Errno;

/// The handle of a file that is open for writing.
pub(super) const WRITER: u64 = 1;
/// The handle of a file that is open to be executed.
pub(super) const EXECUTOR: u64 = 2;

/// No execve(2) takes longer from checking permissions to opening the file.
const MEMORY: Duration = Duration::from_secs(60);

/// Files that are open in one of these ways, or lost their set-uid or set-gid bits not long ago.
pub(super) struct Programs {
    files: Mutex<Files>,
    /// How long a lost bit matters.
    memory: Duration,
}

#[derive(Default)]
struct Files {
    uses: HashMap<InodeNumber, Use>,
    /// Files that have lost their bits, each with a time since when it is here, the earliest first.
    dropped: VecDeque<(Instant, InodeNumber)>,
}

#[derive(Default)]
struct Use {
    writers: u32,
    executors: u32,
    /// When the file last lost its bits.
    dropped: Option<Instant>,
    /// Processes that were told to look again, and have not come back.
    told: HashSet<u32>,
}

impl Use {
    /// Whether nothing has to be remembered.
    fn is_idle(&self, memory: Duration) -> bool {
        self.writers == 0 && self.executors == 0 && self.dropped.is_none_or(|when| when.elapsed() > memory)
    }
}

impl Files {
    /// Drops what has to be remembered no more, though nothing is told of it again. A file that is in use goes when it is closed.
    fn tidy(&mut self, memory: Duration) {
        while let Some(&(since, ino)) = self.dropped.front()
            && since.elapsed() > memory
        {
            self.dropped.pop_front();
            let Some(file) = self.uses.get(&ino) else { continue };
            match file.dropped {
                // Again, later.
                Some(when) if when.elapsed() <= memory => self.dropped.push_back((when, ino)),
                _ if file.is_idle(memory) => drop(self.uses.remove(&ino)),
                _ => {}
            }
        }
    }
}

impl Default for Programs {
    fn default() -> Self {
        Programs { files: Mutex::default(), memory: MEMORY }
    }
}

impl Programs {
    /// A file is opened for writing; ETXTBSY where it is executed and `is_privileged` by its bits.
    pub(super) fn open_to_write(&self, ino: InodeNumber, is_privileged: impl FnOnce() -> bool) -> Result<(), Errno> {
        let mut files = self.files.lock();
        let file = files.uses.entry(ino).or_default();
        if file.executors > 0 && is_privileged() {
            return Err(Errno::TXTBSY);
        }
        file.writers += 1;
        Ok(())
    }

    /// A file is opened by a process that is to execute it; ETXTBSY where it is open for writing and `is_privileged`, or was: the kernel may
    /// not know that it is so no more. ESTALE where the kernel has to look at it again.
    pub(super) fn open_to_execute(
        &self,
        ino: InodeNumber,
        process: u32,
        is_privileged: impl FnOnce() -> bool,
    ) -> Result<(), Errno> {
        let mut files = self.files.lock();
        let file = files.uses.entry(ino).or_default();
        if file.dropped.is_some_and(|when| when.elapsed() > self.memory) {
            (file.dropped, file.told) = (None, HashSet::new());
        }
        let was_dropped = file.dropped.is_some();
        if file.writers > 0 && (was_dropped || is_privileged()) {
            return Err(Errno::TXTBSY);
        }
        // Comes back at once.
        if was_dropped && !file.told.remove(&process) {
            file.told.insert(process);
            return Err(Errno::STALE);
        }
        file.executors += 1;
        Ok(())
    }

    /// What was opened with this handle is closed.
    pub(super) fn close(&self, ino: InodeNumber, handle: u64) {
        let mut files = self.files.lock();
        let Some(file) = files.uses.get_mut(&ino) else { return };
        match handle {
            WRITER => file.writers = file.writers.saturating_sub(1),
            EXECUTOR => file.executors = file.executors.saturating_sub(1),
            _ => {}
        }
        if file.is_idle(self.memory) {
            files.uses.remove(&ino);
        }
    }

    /// A file loses its bits. Who was told to look again before may have looked too early.
    pub(super) fn note_drop(&self, ino: InodeNumber) {
        let mut files = self.files.lock();
        files.tidy(self.memory);
        let file = files.uses.entry(ino).or_default();
        file.told.clear();
        let now = Instant::now();
        if file.dropped.replace(now).is_none() {
            files.dropped.push_back((now, ino));
        }
    }

    /// Files that are open for writing.
    pub(super) fn written(&self) -> Vec<InodeNumber> {
        self.files.lock().uses.iter().filter(|(_, file)| file.writers > 0).map(|(&ino, _)| ino).collect()
    }

    /// The kernel knows the file no more, or did not for a moment: somebody may have opened it again since.
    pub(super) fn forget(&self, ino: InodeNumber) {
        let mut files = self.files.lock();
        files.tidy(self.memory);
        if files.uses.get(&ino).is_some_and(|file| file.is_idle(self.memory)) {
            files.uses.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileged_programs_are_either_written_or_executed() {
        let programs = Programs::default();
        programs.open_to_write(7, || true).unwrap();
        assert_eq!(programs.open_to_execute(7, 1, || true), Err(Errno::TXTBSY));
        assert_eq!(programs.open_to_execute(7, 1, || false), Ok(()));
        assert_eq!(programs.open_to_write(7, || true), Err(Errno::TXTBSY));
        assert_eq!(programs.open_to_write(7, || false), Ok(()));
        assert_eq!(programs.written(), [7]);
        programs.close(7, EXECUTOR);
        programs.close(7, WRITER);
        programs.close(7, WRITER);
        programs.close(7, 0);
        assert!(programs.files.lock().uses.is_empty());
        programs.open_to_execute(7, 1, || true).unwrap();
        programs.close(7, EXECUTOR);
    }

    #[test]
    fn what_is_forgotten_while_it_matters_is_dropped_later() {
        let programs = Programs { memory: Duration::from_millis(1), ..Programs::default() };
        programs.open_to_write(7, || true).unwrap();
        for ino in 7..1000 {
            programs.note_drop(ino);
            programs.note_drop(ino);
            programs.forget(ino);
        }
        std::thread::sleep(Duration::from_millis(10));
        programs.forget(1000);
        {
            let files = programs.files.lock();
            assert_eq!((files.uses.len(), files.dropped.len()), (1, 0));
        }
        programs.close(7, WRITER);
        assert!(programs.files.lock().uses.is_empty());
    }

    #[test]
    fn every_process_looks_once_more_at_what_lost_its_bits() {
        let programs = Programs::default();
        programs.open_to_write(7, || true).unwrap();
        programs.note_drop(7);
        assert_eq!(programs.open_to_execute(7, 1, || false), Err(Errno::TXTBSY));
        programs.close(7, WRITER);
        for process in [1, 2] {
            assert_eq!(programs.open_to_execute(7, process, || false), Err(Errno::STALE));
        }
        for process in [2, 1] {
            assert_eq!(programs.open_to_execute(7, process, || false), Ok(()));
        }
        assert_eq!(programs.open_to_execute(7, 1, || false), Err(Errno::STALE));
        // Of a moment before the next change.
        programs.note_drop(7);
        assert_eq!(programs.open_to_execute(7, 1, || false), Err(Errno::STALE));
        // The kernel may have learnt of it anew before it said that it had forgotten it.
        programs.forget(7);
        assert_eq!(programs.open_to_execute(7, 1, || false), Ok(()));
        assert_eq!(programs.open_to_execute(7, 1, || false), Err(Errno::STALE));
    }
}
