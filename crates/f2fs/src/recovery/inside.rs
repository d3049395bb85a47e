//! Whether an inode of the chain that is its own seal counts: see [`layout::inside`](crate::layout::inside).

use super::scan::{ChainNode, Start, crcs_of, damaged};
use crate::error::Error;
use crate::layout::Address;
use crate::layout::inode::RawInode;
use crate::layout::inside::{Inside, data_crc, marked_inode};
use crate::mutant::{self, Mutant};

/// Why such an inode does not count.
pub(super) struct Wrong {
    pub(super) error: Error,
    /// It is whole itself: what it vouches for is not.
    pub(super) is_whole: bool,
}

/// Where the blocks are now that a marked inode outside of a seal's count vouches for, if all of them are there. `block`: its bytes. At most
/// so many are looked at: `budget`.
pub(super) fn check(
    start: &Start<'_, '_>,
    block: &[u8],
    node: &ChainNode,
    budget: usize,
) -> Result<Vec<Address>, Wrong> {
    let wrong = |address, is_whole| Wrong { error: damaged(address), is_whole };
    let said = marked_inode(block).and_then(|raw| Some((raw, said(raw, node.address)?)));
    let Some((raw, inside)) = said else { return Err(wrong(node.address, false)) };
    let run = run_now(start, raw, &inside, node.position).filter(|run| run.len() <= budget);
    let Some(run) = run else { return Err(wrong(node.address, true)) };
    verify(start, &run, &inside).map(|()| run)
}

/// What an inode says of itself, if it is whole.
fn said(raw: &RawInode, address: Address) -> Option<Inside> {
    let unchecked = mutant::active(Mutant::InsideNotChecked).then(|| Inside::unchecked(raw));
    unchecked.or_else(|| Inside::read(raw, address))
}

/// Where the blocks of its pages are now; `None` if they are not where a file can have them. `position`: the inode's in the chain.
pub(super) fn run_now(start: &Start<'_, '_>, raw: &RawInode, inside: &Inside, position: usize) -> Option<Vec<Address>> {
    let mut run = inside.addresses(raw, start.geometry.flexible_inline_xattr())?;
    run.iter_mut().for_each(|address| *address = start.moves.of_chain(*address, position));
    run.iter().all(|address| start.geometry.in_main(*address)).then_some(run)
}

/// Whether these blocks are what an inode says.
pub(super) fn verify(start: &Start<'_, '_>, run: &[Address], inside: &Inside) -> Result<(), Wrong> {
    if mutant::active(Mutant::InsideDataNotVerified) {
        return Ok(());
    }
    let found: Result<Vec<u32>, Wrong> = crcs_of(start.device, run)
        .into_iter()
        .map(|crc| crc.map_err(|error| Wrong { error, is_whole: true }))
        .collect();
    // Which of them is another cannot be told.
    let first = run.first().copied().unwrap_or_default();
    let is_right = data_crc(found?) == inside.data_crc;
    if is_right { Ok(()) } else { Err(Wrong { error: damaged(first), is_whole: true }) }
}
