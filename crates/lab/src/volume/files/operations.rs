//! Workloads of the workloads crate on the memory in front of a simulated volume.

use basalt_workloads::{File, Operation, Phase, Workload};
use rustc_hash::FxHashMap;

use super::memory::{Below, FileId, Memory};

const SECOND: u64 = 1_000_000_000;

/// A workload, with the names and open files of its operations. Directories and attributes are not simulated.
pub(super) struct Operations {
    workload: Box<dyn Workload>,
    names: FxHashMap<String, FileId>,
    open: FxHashMap<File, FileId>,
    /// Nanoseconds of a step.
    step_ns: u64,
    now: u64,
    operations: Vec<Operation>,
}

impl Operations {
    /// `rate` steps a second.
    pub(super) fn new(workload: Box<dyn Workload>, rate: u32) -> Operations {
        Operations {
            workload,
            names: FxHashMap::default(),
            open: FxHashMap::default(),
            step_ns: SECOND / u64::from(rate.max(1)),
            now: 0,
            operations: Vec::new(),
        }
    }

    /// Makes the workload's files, and writes them back.
    pub(super) fn prepare(&mut self, memory: &mut Memory, below: &mut dyn Below) -> Result<(), String> {
        while self.step(Phase::Prepare, memory, below)? {}
        memory.write_back_all(below)
    }

    /// Goes on until programs have written so many pages more, or the workload ends.
    pub(super) fn write(
        &mut self,
        pages: u64,
        memory: &mut Memory,
        below: &mut dyn Below,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), String> {
        let before = memory.statistics().writes;
        loop {
            let done = memory.statistics().writes - before;
            progress(done);
            if done >= pages || !self.step(Phase::Measure, memory, below)? {
                return Ok(());
            }
        }
    }

    fn step(&mut self, phase: Phase, memory: &mut Memory, below: &mut dyn Below) -> Result<bool, String> {
        let mut operations = std::mem::take(&mut self.operations);
        operations.clear();
        let goes_on = self.workload.step(phase, &mut operations);
        self.now += self.step_ns;
        memory.advance(self.now, below)?;
        for operation in operations.drain(..) {
            self.apply(operation, memory, below)?;
        }
        self.operations = operations;
        Ok(goes_on)
    }

    fn apply(&mut self, operation: Operation, memory: &mut Memory, below: &mut dyn Below) -> Result<(), String> {
        match operation {
            Operation::Create(file, path) => {
                let id = memory.create();
                self.open.insert(file, id);
                self.names.insert(path, id).map_or(Ok(()), |old| memory.remove(old, below))
            }
            Operation::Open(file, path) => match self.names.get(&path) {
                Some(&id) => {
                    self.open.insert(file, id);
                    Ok(())
                }
                None => Err(format!("the workload opens {path}, which is not there")),
            },
            Operation::Close(file) => {
                self.open.remove(&file);
                Ok(())
            }
            Operation::Read { file, offset, length } => {
                self.open.get(&file).into_iter().for_each(|&id| memory.read(id, offset, u64::from(length)));
                Ok(())
            }
            Operation::Write { file, offset, length } => {
                let range = (offset, u64::from(length));
                self.open.get(&file).map_or(Ok(()), |&id| memory.write(id, range, self.now, below))
            }
            Operation::Truncate(file, size) => {
                self.open.get(&file).map_or(Ok(()), |&id| memory.truncate(id, size, below))
            }
            Operation::Sync(file) | Operation::SyncData(file) => {
                self.open.get(&file).map_or(Ok(()), |&id| memory.write_back(id, below))
            }
            Operation::Unlink(path) => self.names.remove(&path).map_or(Ok(()), |id| memory.remove(id, below)),
            Operation::Rename(from, to) => {
                let Some(id) = self.names.remove(&from) else { return Ok(()) };
                self.names.insert(to, id).map_or(Ok(()), |old| memory.remove(old, below))
            }
            Operation::SyncAll => memory.write_back_all(below),
            Operation::MakeDirectory(_) | Operation::RemoveDirectory(_) | Operation::Stat(_) | Operation::List(_) => {
                Ok(())
            }
        }
    }
}
