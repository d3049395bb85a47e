//! A checkpoint pack of which one end is damaged, told from one whose writing was cut off.
//!
//! First and last block of a pack are the same, and the last one is written when everything in front of it is durable. So:
//!
//! | first block | last block | the pack |
//! |---|---|---|
//! | damaged | sound, of the version that follows the other pack's | is complete: its first block was durable before |
//! | damaged | likewise, but what is in front of it cannot be this pack's | is damaged all over: it was the newer one |
//! | sound, newer | the same but for its checksum, or with the same checksum | is complete: only its last block was being written, or was damaged |
//! | sound, newer | anything, and a seal behind it says that fsyncs were durable | is complete |
//! | damaged, but for its version | the same | is damaged at both ends: it was the newer one |
//! | sound, newer | cannot be read | is complete: the page was being written when power went, or went bad since |
//! | sound, newer | anything else | was cut off: the other pack counts |
//! | damaged, but for its version, or all zeros in the first pack | anything else | was cut off, was never written, or both ends are damaged, which looks the same: also one that is damaged at either end looks like one that was cut off while its last block was written, and again while its first one was written anew |
//! | damaged, of no version that either pack could have | sound, of a version before that | is the older one |
//! | damaged, of no version that either pack could have, or with something where no checkpoint has anything | anything else | is damaged at both ends: it may have been the newer one |
//!
//! A power cut leaves each sector old or new, so the first one has the version of one of both. Packs that were longer leave last blocks
//! behind the end of a newer one. Of several in one place the nearest is the newest, because any longer pack wrote over it; and what is in
//! front of a last block says whether it is still that pack's. Where neither pack is sound, nothing bounds the version of a last block: it
//! counts for sure only where the first block has its version.
//!
//! Where a repair has left its mark (`mark.rs`), nothing counts before both ends of its own checkpoint are whole.
//!
//! What is complete counts, although Linux does not see it: its older checkpoint no longer has the blocks that were freed since. Whoever
//! goes on to write mends the damaged end first.

use basalt_device::BlockDevice;
use basalt_segments::Segment;
use zerocopy::FromBytes;

use super::block::{bad, check_block};
use super::mark;
use super::pack::{BrokenEnd, Pack, is_pack_size, newer};
use super::whole::has_few_wrong_parts;
use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::journal::translation::Translation;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, RawCheckpoint};
use crate::layout::node::RawNode;
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::recovery::followed::Followers;
use crate::recovery::scan::Start;

/// The most that a checkpoint's version is ahead of the one before: one is left out to get to a pack by parity.
pub(crate) const VERSION_STEP_MAX: i64 = 2;

/// Last blocks of packs in one place, nearest first, that are looked at: a hostile volume can have one in each block.
const ENDS_MAX: usize = 16;

/// The most that a pack is ahead of what longer ones have left behind its end.
pub(crate) const STALE_MAX: u32 = 64;
/// The most that the older pack is taken to be behind.
const BEHIND_MAX: i64 = 1 << 16;

/// What there is of a pack that is not sound.
#[derive(Debug)]
pub enum Half {
    /// All of it but one end, and it is newer than the other pack.
    Complete(Pack),
    /// Nothing that counts.
    None,
    /// It cannot be told: what would tell cannot be read.
    Unknown(Error),
}

/// The blocks where a pack may be; those that cannot be read are left out, with the first error. One at the end may be a mark that was being
/// written: that is no reason for doubt.
struct Blocks {
    index: u32,
    start: Address,
    blocks: Vec<Option<Vec<u8>>>,
    error: Option<Error>,
}

impl Blocks {
    fn read(device: &dyn BlockDevice, geometry: &Geometry, index: u32) -> Blocks {
        let start = geometry.checkpoint + index * BLOCKS_PER_SEGMENT;
        let mut error = None;
        let blocks = match read_blocks(device, start, BLOCKS_PER_SEGMENT as usize) {
            Ok(bytes) => bytes.chunks_exact(BLOCK_SIZE).map(|block| Some(block.to_vec())).collect(),
            Err(_) => {
                let one_by_one = (0..BLOCKS_PER_SEGMENT).map(|at| match read_blocks(device, start + at, 1) {
                    Ok(block) => Some(block),
                    Err(failed) => {
                        error = error.take().or((!mark::PLACES.contains(&at)).then_some(failed));
                        None
                    }
                });
                one_by_one.collect()
            }
        };
        Blocks { index, start, blocks, error }
    }

    fn get(&self, at: u32) -> Option<&[u8]> {
        self.blocks.get(at as usize)?.as_deref()
    }

    /// A block that is an end of a pack, by its checksum.
    fn sound(&self, at: u32) -> Option<(RawCheckpoint, u32)> {
        check_block(self.index, "block", self.get(at)?).ok()
    }

    /// The version that the first block claims, right or wrong.
    fn claimed(&self) -> Option<u64> {
        Some(u64::from_le_bytes(self.get(0)?.first_chunk().copied()?))
    }

    /// Whether a repair that began at the other pack, of version `than`, has marked this one as lost: whatever last block is there is of
    /// before, or is not to count yet.
    fn have_mark(&self, than: u64) -> bool {
        mark::PLACES.filter_map(|at| self.get(at)).any(|block| mark::names(block, than))
    }

    /// Blocks that are last ones of a pack by what they say, nearest first, with their versions.
    fn ends(&self, geometry: &Geometry) -> impl Iterator<Item = (u32, u64)> {
        (1..BLOCKS_PER_SEGMENT).filter_map(|at| {
            let (raw, _) = self.sound(at)?;
            let total = raw.cp_pack_total_block_count.get();
            (total == at + 1 && is_pack_size(total, geometry)).then_some((at, raw.checkpoint_ver.get()))
        })
    }

    /// Whether a version is the next one behind that of the other pack, `than`.
    fn is_next(&self, version: u64, than: u64) -> bool {
        // The second pack of mkfs.f2fs has version 0, and any is ahead of that. fsck.f2fs and sload.f2fs give both packs the same one, and
        // the first counts.
        let step = if than == 0 { i64::MAX } else { VERSION_STEP_MAX };
        (self.least_ahead()..=step).contains(&(version.wrapping_sub(than) as i64))
    }

    /// How far ahead of the other one this pack has to be to count.
    fn least_ahead(&self) -> i64 {
        i64::from(self.index != 0)
    }

    /// Where the pack's last block is, if the first one is damaged: it follows the version `than` of the other pack. Of several the one
    /// whose version the first block has, else the nearest.
    fn lone_last(&self, geometry: &Geometry, than: Option<u64>) -> Option<u32> {
        let is_next = |version: u64| than.is_none_or(|than| self.is_next(version, than));
        let found: Vec<(u32, u64)> = self.ends(geometry).filter(|(_, version)| is_next(*version)).collect();
        let claimed = found.iter().find(|(_, version)| self.claimed() == Some(*version));
        claimed.or(found.first()).map(|(at, _)| *at)
    }

    /// Whether the first block is damaged in a way that no power cut leaves, beside a sound pack of version `than`: and no last block tells
    /// that this was the older one. fsck.f2fs goes on in one pack, so that the other one gets far behind. mkfs.f2fs begins with a second
    /// pack of version 0, whose last block stays behind the end of shorter ones: it tells nothing.
    fn is_damaged(&self, device: &dyn BlockDevice, geometry: &Geometry, than: u64) -> bool {
        let is_possible =
            |version: u64| (-BEHIND_MAX..=VERSION_STEP_MAX).contains(&(version.wrapping_sub(than) as i64));
        // A page that was being written when power went cannot be read.
        let Some(head) = self.get(0) else { return false };
        let is_zero = head.iter().all(|byte| *byte == 0);
        // resize.f2fs leaves zeros in place of the first block of a pack, of the second one in front of its other blocks, over which the next
        // checkpoint is written.
        let has_content = |at: u32| self.get(at).is_some_and(|block| block.iter().any(|byte| *byte != 0));
        let is_resized = |at: u32| is_zero && (1..at).all(has_content);
        let is_older_end = |(at, version): (u32, u64)| {
            is_possible(version) && (is_resized(at) || self.is_whole(device, geometry, at, 0))
        };
        let is_head_possible = match self.claimed() {
            _ if is_zero => self.index == 0,
            // The first checkpoint over the second pack of mkfs.f2fs, or over what resize.f2fs leaves.
            Some(0) => true,
            claimed => claimed.is_some_and(is_possible),
        };
        (!is_head_possible || has_garbage(head, geometry)) && !self.ends(geometry).take(ENDS_MAX).any(is_older_end)
    }

    /// Whether the damaged first block has the version of a newer checkpoint than `than`, and fsyncs behind that were durable.
    fn were_followed(&self, device: &dyn BlockDevice, geometry: &Geometry, than: u64) -> bool {
        let raw = self.get(0).and_then(|head| RawCheckpoint::read_from_prefix(head).ok()).map(|(raw, _)| raw);
        raw.is_some_and(|raw| {
            self.is_next(raw.checkpoint_ver.get(), than) && was_followed(device, geometry, &raw, None)
        })
    }

    /// Whether what is in front of a last block can be its pack's, but for `damaged` parts.
    fn is_whole(&self, device: &dyn BlockDevice, geometry: &Geometry, last: u32, damaged: usize) -> bool {
        let Some((raw, checksum)) = self.sound(last) else { return false };
        let (index, start) = (self.index, self.start);
        let pack = Pack { index, start, raw, bytes: Vec::new(), checksum, broken_end: None };
        has_few_wrong_parts(device, geometry, &pack, damaged)
    }

    /// The pack whose ends are both the block `whole`, of which the one at `broken` is damaged; `None` if its payload cannot be read.
    fn pack(&self, geometry: &Geometry, whole: u32, broken: u32, tearing: usize) -> Option<Pack> {
        let (raw, checksum) = self.sound(whole)?;
        let mut bytes = self.get(whole)?.to_vec();
        for at in 1..=geometry.payload {
            bytes.extend_from_slice(self.get(at)?);
        }
        let head = &bytes[..BLOCK_SIZE];
        if self.sound(broken).is_some_and(|(other, _)| other.checkpoint_ver == raw.checkpoint_ver) {
            return Some(Pack { index: self.index, start: self.start, raw, bytes, checksum, broken_end: None });
        }
        let (found, may_be_cut) = match self.get(broken) {
            None => ("it cannot be read".to_owned(), broken != 0),
            Some(found) => {
                let words = match check_block(self.index, "block", found) {
                    Err(Error::Damaged { found, .. }) => found.trim_start_matches("block: ").to_owned(),
                    _ => "not of this version".to_owned(),
                };
                (words, broken != 0 && may_be_torn(head, found, tearing))
            }
        };
        let broken_end = Some(BrokenEnd { address: self.start + broken, found, may_be_cut });
        Some(Pack { index: self.index, start: self.start, raw, bytes, checksum, broken_end })
    }
}

/// Whether a first block has something between the version bitmaps and the checksum, where no checkpoint has anything. That of a volume with
/// payload blocks may have more of a bitmap there.
fn has_garbage(head: &[u8], geometry: &Geometry) -> bool {
    // The checksum may come first.
    let end = BITMAP_OFFSET + 4 + geometry.sit_bitmap_size() + geometry.nat_bitmap_size();
    geometry.payload == 0 && head.get(end..CHECKSUM_OFFSET).is_some_and(|rest| rest.iter().any(|byte| *byte != 0))
}

/// Whether fsyncs behind a checkpoint were durable, by what a seal says: so that checkpoint was. `raw`: its first block, right with a
/// `checksum`, or wrong.
fn was_followed(device: &dyn BlockDevice, geometry: &Geometry, raw: &RawCheckpoint, checksum: Option<u32>) -> bool {
    let (segment, offset) = (Segment::new(raw.cur_node_segno[1].get()), u32::from(raw.cur_node_blkoff[1].get()));
    if !geometry.has_segment(segment) || offset >= BLOCKS_PER_SEGMENT {
        return false;
    }
    let address = geometry.in_segment(segment, offset);
    let Ok(block) = read_blocks(device, address, 1) else { return false };
    // The upper half may be the checkpoint's checksum.
    let version = RawNode::ref_from_bytes(&block).map_or(0, |node| node.footer.cp_ver.get());
    let start = Start { device, geometry, version, moves: &Translation::default(), address };
    let is_of_it = match checksum {
        Some(checksum) => version == raw.node_version(checksum),
        None => version as u32 == raw.checkpoint_ver.get() as u32,
    };
    is_of_it && Followers::are_durable(&start)
}

/// Whether a last block may be half of what it was to be, and half of what was there before: whole units of the device, of which the
/// first, which has the version, is new or not.
fn may_be_torn(head: &[u8], found: &[u8], tearing: usize) -> bool {
    let (head, found) = (head.chunks(tearing), found.chunks(tearing));
    let mut pairs = head.zip(found);
    let Some((first, first_found)) = pairs.next() else { return false };
    let same_version = first[..8] == first_found[..8];
    first == first_found || !same_version
}

/// Whether what is at the place of a last block shows that it was written, in whole or in part, as the copy of `head`.
fn is_copy_of(head: &[u8], raw: &RawCheckpoint, found: &[u8]) -> bool {
    let offset = raw.checksum_offset.get() as usize;
    // The offset was checked with the head.
    let sum = offset..offset + 4;
    let same_checksum = head[sum.clone()] == found[sum.clone()];
    let same_content = head[..sum.start] == found[..sum.start] && head[sum.end..] == found[sum.end..];
    same_checksum || same_content
}

/// Looks for a complete pack at the place of pack `index`, which is not sound. `than`: the version of the other pack, if that is sound.
pub fn find(device: &dyn BlockDevice, geometry: &Geometry, index: u32, than: Option<u64>) -> Half {
    let mut blocks = Blocks::read(device, geometry, index);
    let ahead = |raw: &RawCheckpoint| than.map(|than| raw.checkpoint_ver.get().wrapping_sub(than) as i64);
    let tearing = (device.sector_size() as usize).clamp(512, BLOCK_SIZE);
    if than.is_some_and(|than| blocks.have_mark(than)) {
        return Half::Unknown(bad(index, "a repair of what was lost here was cut off"));
    }
    let found = match blocks.sound(0) {
        Some((raw, checksum)) => {
            let total = raw.cp_pack_total_block_count.get();
            if !is_pack_size(total, geometry) || ahead(&raw).is_some_and(|ahead| ahead < blocks.least_ahead()) {
                return Half::None;
            }
            let last = total - 1;
            let is_copied = match (blocks.get(0), blocks.get(last), blocks.sound(last)) {
                (_, None, _) => true,
                // Of another version: what was there before. Of the same: what could not be read before can be now.
                (_, _, Some((found, _))) => found.checkpoint_ver == raw.checkpoint_ver,
                (Some(head), Some(found), None) => is_copy_of(head, &raw, found),
                (None, Some(_), None) => false,
            };
            if !is_copied && !was_followed(device, geometry, &raw, Some(checksum)) {
                return Half::None;
            }
            blocks.pack(geometry, 0, last, tearing)
        }
        None => {
            match blocks.lone_last(geometry, than) {
                Some(last) if than.is_some() && !blocks.is_whole(device, geometry, last, 1) => {
                    let found = "all but its last block is damaged; it was the newer one";
                    return Half::Unknown(blocks.error.unwrap_or_else(|| bad(index, found)));
                }
                Some(last) => blocks.pack(geometry, last, 0, tearing),
                // Every block where its last could be was looked at.
                None if blocks.blocks[1..mark::PLACES.start as usize].iter().all(Option::is_some) => {
                    let is_lost = |than| {
                        blocks.is_damaged(device, geometry, than) || blocks.were_followed(device, geometry, than)
                    };
                    if !than.is_some_and(is_lost) {
                        return Half::None;
                    }
                    let found = "damaged at both ends, as no power cut leaves it; it may have been the newer one";
                    return Half::Unknown(bad(index, found));
                }
                None => None,
            }
        }
    };
    match (found, blocks.error.take()) {
        (Some(pack), _) => Half::Complete(pack),
        (None, Some(error)) => Half::Unknown(error),
        (None, None) => Half::None,
    }
}

/// The newest pack that is complete but for one end, where neither is sound; and why it cannot be told whether that is the newest there was,
/// if it cannot.
pub fn newest(device: &dyn BlockDevice, geometry: &Geometry) -> (Option<Pack>, Option<Error>) {
    let pack = match [0, 1].map(|index| find(device, geometry, index, None)) {
        [Half::Complete(first), Half::Complete(second)] => newer(first, second),
        [Half::Complete(pack), _] | [_, Half::Complete(pack)] => pack,
        [Half::Unknown(error), _] | [_, Half::Unknown(error)] => return (None, Some(error)),
        [Half::None, Half::None] => return (None, None),
    };
    // The version of the other one may be known, and older; what was taken for its last block may be one of long before.
    let (pack, unknown) = match find(device, geometry, 1 - pack.index, Some(pack.raw.checkpoint_ver.get())) {
        Half::Unknown(error) => (pack, Some(error)),
        // It could be read this time.
        Half::Complete(newer) => (newer, None),
        Half::None => (pack, None),
    };
    let unknown = unknown.or_else(|| lone_end(device, geometry, &pack));
    (Some(pack), unknown)
}

/// Why a pack without a sound one beside it may be what an older one left: its first block is damaged, and claims another version.
fn lone_end(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Option<Error> {
    let is_first = pack.broken_end.as_ref().is_some_and(|end| end.address == pack.start);
    let version = pack.raw.checkpoint_ver;
    if !is_first || claimed_version(device, geometry, pack.index) == Some(version.get()) {
        return None;
    }
    let found = format!("only a last block, of version {version}, is whole; there may have been a newer one");
    Some(bad(pack.index, found))
}

/// The version that the first block of a pack claims, whether or not its checksum is right; `None` if it cannot be read.
fn claimed_version(device: &dyn BlockDevice, geometry: &Geometry, index: u32) -> Option<u64> {
    let head = read_blocks(device, geometry.checkpoint + index * BLOCKS_PER_SEGMENT, 1).ok()?;
    Some(u64::from_le_bytes(head.first_chunk().copied()?))
}

/// Every version that something in the place of a pack claims: the first block, right or wrong, and whole last blocks.
pub(crate) fn claimed_versions(device: &dyn BlockDevice, geometry: &Geometry, index: u32) -> Vec<u64> {
    let blocks = Blocks::read(device, geometry, index);
    blocks.ends(geometry).map(|(_, version)| version).chain(blocks.claimed()).collect()
}

/// Writes the damaged end of a pack anew; durable on return. Does nothing to a pack that has none.
///
/// # Errors
/// When the device fails.
pub fn mend(device: &dyn BlockDevice, pack: &Pack) -> Result<()> {
    let Some(end) = &pack.broken_end else { return Ok(()) };
    let Some(block) = pack.bytes.get(..BLOCK_SIZE) else { return Err(bad(pack.index, "shorter than a block")) };
    device.write_at(u64::from(end.address) << BLOCK_BITS, block)?;
    Ok(device.flush()?)
}
