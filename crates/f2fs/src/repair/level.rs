//! How many buckets a directory begins with: with a wrong number, each of its names seems to be in the wrong place.

use super::state::State;
use crate::check::Survey;
use crate::dir::hash::hash;
use crate::dir::lookup::{bucket_blocks, bucket_start};
use crate::error::Result;
use crate::layout::dentry::MAX_DEPTH;
use crate::layout::inode::InlineFlags;

/// Most names that are asked.
const NAMES_MAX: usize = 256;
/// Above this, all numbers of buckets are the same.
const LEVELS: u8 = (MAX_DEPTH / 2) as u8;

impl State {
    /// Sets `i_dir_level` of a directory to that by which most names are where they belong, if it is another; says so the first time in a
    /// round. `None` from a directory whose level is right.
    pub(super) fn mend_level(&mut self, survey: &Survey, directory: u32) -> Result<Option<Option<String>>> {
        if let Some(&is_mended) = self.levels.get(&directory) {
            return Ok(is_mended.then_some(None));
        }
        let best = self.best_level(survey, directory)?;
        self.levels.insert(directory, best.is_some());
        let Some(best) = best else { return Ok(None) };
        self.edit_inode(directory, |inode| inode.i_dir_level = best)?;
        Ok(Some(Some(format!("i_dir_level of the directory set to {best}: by that its names are where they belong"))))
    }

    /// The level by which more names are where they belong than by the inode's, and most of them.
    fn best_level(&mut self, survey: &Survey, directory: u32) -> Result<Option<u8>> {
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
        let fitting = |level: u8| {
            let is_there = |&&(block, code): &&(u64, u32)| {
                (0..depth).any(|depth| {
                    let start = bucket_start(depth, level.into(), code);
                    (start..start + bucket_blocks(depth)).contains(&block)
                })
            };
            places.iter().filter(is_there).count()
        };
        let now = fitting(inode.i_dir_level);
        let counts: Vec<(usize, u8)> = (0..=LEVELS).map(|level| (fitting(level), level)).collect();
        let Some(&(most, best)) = counts.iter().max_by_key(|(count, _)| *count) else { return Ok(None) };
        let is_only = counts.iter().filter(|(count, _)| *count == most).count() == 1;
        Ok((is_only && most > now && 2 * most > places.len()).then_some(best))
    }
}
