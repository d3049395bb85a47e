//! What a scheme knows of each block of a file.

use basalt_segments::BlockTraits;
use rustc_hash::FxHashMap;

/// Blocks whose records lie together.
const TOGETHER: u32 = 512;

/// A record for each block that was written, found by file and place in the file. Blocks that were not have the default.
pub struct Blocks<T>(FxHashMap<(u32, u32), Box<[T]>>);

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Blocks(FxHashMap::default())
    }
}

impl<T: Copy + Default> Blocks<T> {
    pub fn get(&self, block: &BlockTraits) -> T {
        let records = self.0.get(&(block.file, block.index / TOGETHER));
        records.map_or_else(T::default, |records| records[(block.index % TOGETHER) as usize])
    }

    pub fn get_mut(&mut self, block: &BlockTraits) -> &mut T {
        let records = self.0.entry((block.file, block.index / TOGETHER));
        let records = records.or_insert_with(|| vec![T::default(); TOGETHER as usize].into_boxed_slice());
        &mut records[(block.index % TOGETHER) as usize]
    }
}
