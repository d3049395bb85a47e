//! A fileset while it is used: which files exist, and how many threads have each open.

use basalt_random::Rng;

use super::script::SetDefinition;
use crate::fileset::FileSet;
use crate::settings::blocks;

/// A fileset.
#[derive(Debug, Clone)]
pub(super) struct Set {
    /// Paths, sizes, and the prepare phase.
    pub(super) files: FileSet,
    /// The sizes that were drawn: what a whole write writes.
    nominal: Vec<u64>,
    existing: Vec<u32>,
    missing: Vec<u32>,
    /// Where in one of the two each entry is.
    place: Vec<u32>,
    /// Whether it exists.
    exists: Vec<bool>,
    open: Vec<u16>,
    /// Bytes of the files that exist, in whole blocks.
    pub(super) bytes: u64,
}

impl Set {
    pub(super) fn new(definition: &SetDefinition, rng: &mut Rng) -> Set {
        let count = definition.entries as u32;
        let nominal: Vec<u64> = (0..count).map(|_| definition.size.sample(rng)).collect();
        let percent = definition.preallocated;
        let exists: Vec<bool> = (0..count).map(|_| percent == 100 || rng.chance(percent)).collect();
        let width = if definition.width == 0 { count } else { definition.width as u32 };
        let files = FileSet::new(definition.root.clone(), &nominal, width, |entry| exists[entry as usize]);
        let (mut existing, mut missing) = (Vec::new(), Vec::new());
        let mut place = Vec::with_capacity(nominal.len());
        let mut bytes: u64 = 0;
        for entry in 0..count {
            let list = if exists[entry as usize] { &mut existing } else { &mut missing };
            place.push(list.len() as u32);
            list.push(entry);
            if exists[entry as usize] {
                bytes = bytes.saturating_add(blocks(nominal[entry as usize]));
            }
        }
        let open = vec![0; nominal.len()];
        Set { files, nominal, existing, missing, place, exists, open, bytes }
    }

    /// The size that an entry was defined with, in bytes.
    pub(super) fn nominal(&self, entry: u32) -> u64 {
        self.nominal[entry as usize]
    }

    /// The largest size that a file was defined with, in bytes.
    pub(super) fn largest(&self) -> Option<u64> {
        self.nominal.iter().copied().max()
    }

    /// Any file that exists.
    pub(super) fn any(&self, rng: &mut Rng) -> Option<u32> {
        rng.pick(&self.existing).copied()
    }

    /// Any entry without a file.
    pub(super) fn any_missing(&self, rng: &mut Rng) -> Option<u32> {
        rng.pick(&self.missing).copied()
    }

    /// Whether an entry has a file that nobody has open.
    pub(super) fn is_idle(&self, entry: u32) -> bool {
        self.exists[entry as usize] && self.open[entry as usize] == 0
    }

    pub(super) fn opened(&mut self, entry: u32) {
        self.open[entry as usize] += 1;
    }

    pub(super) fn closed(&mut self, entry: u32) {
        self.open[entry as usize] -= 1;
    }

    /// A file is made, and is empty.
    pub(super) fn created(&mut self, entry: u32) {
        self.moved(entry, true);
        self.files.resize(entry, 0);
    }

    /// A file is removed.
    pub(super) fn deleted(&mut self, entry: u32) {
        self.bytes = self.bytes.saturating_sub(blocks(self.files.size(entry)));
        self.moved(entry, false);
    }

    /// A write ends at this byte of a file.
    pub(super) fn written(&mut self, entry: u32, end: u64) {
        let size = self.files.size(entry);
        if end > size {
            self.bytes = self.bytes.saturating_add(blocks(end) - blocks(size));
            self.files.resize(entry, end);
        }
    }

    /// Moves an entry from one list to the other.
    fn moved(&mut self, entry: u32, exists: bool) {
        let (from, to) = match exists {
            true => (&mut self.missing, &mut self.existing),
            false => (&mut self.existing, &mut self.missing),
        };
        let place = self.place[entry as usize] as usize;
        from.swap_remove(place);
        if let Some(moved) = from.get(place) {
            self.place[*moved as usize] = place as u32;
        }
        self.place[entry as usize] = to.len() as u32;
        to.push(entry);
        self.exists[entry as usize] = exists;
    }
}
