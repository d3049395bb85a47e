//! How many buckets a directory begins with: with a wrong number, each of its names seems to be in the wrong place.

use super::state::State;
use crate::check::Survey;
use crate::dir::hash::hash;
use crate::dir::lookup::{bucket_blocks, buckets};
use crate::error::Result;
use crate::layout::Ino;
use crate::layout::dentry::MAX_DEPTH;
use crate::layout::inode::InlineFlags;

/// Most names that are asked.
const NAMES_MAX: usize = 256;
/// Above this, all numbers of buckets are the same.
const LEVELS: u8 = (MAX_DEPTH / 2) as u8;

/// What was found of a directory's `i_dir_level`.
pub(super) enum Level {
    Right,
    /// It was wrong, and is set; what to say of that.
    Set(String),
    /// It was set earlier in this round.
    SetBefore,
}

/// Whether a block is of one of the buckets that a hash falls into.
fn is_in_bucket(block: u64, hash: u32, level: u8, depth: u32) -> bool {
    let mut first = 0;
    for at in 0..depth {
        let (count, size) = (buckets(at, level.into()), bucket_blocks(at));
        let end = first + count * size;
        if block < end {
            let start = first + u64::from(hash) % count * size;
            return (start..start + size).contains(&block);
        }
        first = end;
    }
    false
}

impl State {
    /// Sets `i_dir_level` of a directory to that by which most names are where they belong, if it is another.
    pub(super) fn mend_level(&mut self, survey: &Survey, directory: Ino) -> Result<Level> {
        match self.levels.get(&directory) {
            Some(true) => return Ok(Level::SetBefore),
            Some(false) => return Ok(Level::Right),
            None => {}
        }
        let best = self.best_level(survey, directory)?;
        self.levels.insert(directory, best.is_some());
        let Some(best) = best else { return Ok(Level::Right) };
        self.edit_inode(directory, |inode| inode.i_dir_level = best)?;
        Ok(Level::Set(format!("i_dir_level of the directory set to {best}: by that its names are where they belong")))
    }

    /// The level by which more names are where they belong than by the inode's, and most of them.
    fn best_level(&mut self, survey: &Survey, directory: Ino) -> Result<Option<u8>> {
        let Some(inode) = self.inode(directory)?.filter(|inode| !inode.is_inline(InlineFlags::DENTRY)) else {
            return Ok(None);
        };
        let names = self.list(survey, directory)?.into_iter().filter(|found| !matches!(&found.name[..], b"." | b".."));
        let names = names.filter_map(|found| Some((found.block?, found.raw.hash_code.get(), hash(&found.name))));
        let all: Vec<(u64, u32)> =
            names.filter(|(_, code, right)| code == right).map(|(block, code, _)| (block, code)).collect();
        // The first ones are all in the first bucket, and would fit any number.
        let places: Vec<(u64, u32)> = all.iter().copied().step_by(all.len().div_ceil(NAMES_MAX).max(1)).collect();
        let depth = inode.i_current_depth.get().min(MAX_DEPTH);
        let fitting =
            |level: u8| places.iter().filter(|&&(block, code)| is_in_bucket(block, code, level, depth)).count();
        let now = fitting(inode.i_dir_level);
        let counts: Vec<(usize, u8)> = (0..=LEVELS).map(|level| (fitting(level), level)).collect();
        let Some(&(most, best)) = counts.iter().max_by_key(|(count, _)| *count) else { return Ok(None) };
        let is_only = counts.iter().filter(|(count, _)| *count == most).count() == 1;
        Ok((is_only && most > now && 2 * most > places.len()).then_some(best))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::lookup::bucket_start;

    #[test]
    fn a_block_is_in_a_bucket_where_look_up_looks_for_it() {
        for (level, depth) in [(0, 1), (0, 6), (1, 5), (4, 3), (LEVELS, 1)] {
            for hash in [0, 1, 6, 31, 0x1234_5677] {
                let looked_at = |block: u64| {
                    (0..depth).any(|at| {
                        let start = bucket_start(at, level.into(), hash);
                        (start..start + bucket_blocks(at)).contains(&block)
                    })
                };
                for block in 0..300 {
                    let found = is_in_bucket(block, hash, level, depth);
                    assert_eq!(found, looked_at(block), "block {block}, hash {hash}, level {level}, depth {depth}");
                }
            }
        }
    }
}
