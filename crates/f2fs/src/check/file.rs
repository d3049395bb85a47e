//! The blocks of one file: each address once, counted, and compared with what the inode says.

use super::Checker;
use super::blocks::Owner;
use super::fault::Place;
use super::kind::FaultKind;
use crate::error::Result;
use crate::layout::node::ADDRS_PER_NODE;
use crate::layout::{COMPRESS_ADDR, NEW_ADDR, NULL_ADDR};

const IDS: u64 = ADDRS_PER_NODE as u64;
/// Offsets in the tree of the two indirect nodes and the double indirect one.
const INDIRECT: [u32; 2] = [3, 4 + ADDRS_PER_NODE];
const DOUBLE_INDIRECT: u32 = 5 + 2 * ADDRS_PER_NODE;

/// The extent kept in an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) file_block: u32,
    pub(super) block: u32,
    pub(super) length: u32,
}

/// A file whose blocks are being counted.
#[derive(Debug, Clone, Default)]
pub(super) struct FileState {
    pub(super) ino: u32,
    pub(super) directory: bool,
    /// Block addresses in the inode and in each direct node.
    pub(super) own_addresses: u32,
    pub(super) per_node: u32,
    pub(super) cluster_bits: Option<u8>,
    /// Whether a compressed file gave back what it saved.
    pub(super) released: bool,
    /// `i_blocks`.
    pub(super) expected_blocks: u64,
    /// Blocks found so far.
    pub(super) blocks: u64,
    pub(super) extent: Option<Extent>,
    /// Blocks of the extent that are where it says.
    pub(super) extent_matched: u32,
    /// Nodes that the inode points to.
    pub(super) children: u32,
    /// Whether part of the tree is missing or shared: then counting tells nothing new.
    pub(super) damaged: bool,
}

/// What is below a node, by its offset in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Block addresses, from this block of the file on.
    Direct { file_block: u64 },
    /// Node ids; the offsets of the children are `first`, `first + step`…
    Indirect { first: u32, step: u32 },
}

/// What a node at `offset` in the tree of a file holds; `own` and `per_node` are the block addresses in the inode and in a
/// direct node. The offset must not be 0 (the inode) or that of an xattr node.
pub(crate) fn level(offset: u32, own: u32, per_node: u32) -> Level {
    let (own, per_node) = (u64::from(own), u64::from(per_node));
    let direct = |index: u64| Level::Direct { file_block: own + index * per_node };
    match offset {
        _ if INDIRECT.contains(&offset) => Level::Indirect { first: offset + 1, step: 1 },
        DOUBLE_INDIRECT => Level::Indirect { first: offset + 1, step: ADDRS_PER_NODE + 1 },
        0..=2 => direct(u64::from(offset.saturating_sub(1))),
        _ if offset < INDIRECT[1] => direct(2 + u64::from(offset - INDIRECT[0] - 1)),
        _ if offset < DOUBLE_INDIRECT => direct(2 + IDS + u64::from(offset - INDIRECT[1] - 1)),
        _ => {
            let below = u64::from(offset - DOUBLE_INDIRECT - 1);
            // An indirect node, then its direct nodes, over and over.
            match (below / (IDS + 1), below % (IDS + 1)) {
                (_, 0) => Level::Indirect { first: offset + 1, step: 1 },
                (indirect, within) => direct(2 + 2 * IDS + indirect * IDS + within - 1),
            }
        }
    }
}

impl Checker<'_> {
    /// Checks the address of one block of a file and counts it. `slot` is its index in node `nid`.
    pub(super) fn check_address(
        &mut self,
        file: &mut FileState,
        nid: u32,
        version: u8,
        slot: u32,
        file_block: u64,
        address: u32,
    ) -> Result<()> {
        match address {
            NULL_ADDR => return Ok(()),
            NEW_ADDR => self.count_reserved(file),
            COMPRESS_ADDR if starts_cluster(file, file_block) => {
                if !file.released {
                    self.count_reserved(file);
                }
            }
            _ if self.geometry.in_main(address) => {
                self.claim_data(file, nid, version, slot, address)?;
                if file.directory {
                    self.add_directory_block(address, file.ino, Some(file_block));
                }
            }
            _ => {
                file.damaged = true;
                self.findings.add(
                    FaultKind::BlockAddress,
                    Place::Slot { nid, slot },
                    format_args!("block {address:#x} (block {file_block} of inode {})", file.ino),
                    "a block of the main area",
                );
            }
        }
        if let Some(extent) = file.extent
            && let Some(within) = file_block.checked_sub(extent.file_block.into())
            && within < extent.length.into()
            && u64::from(address) == u64::from(extent.block) + within
        {
            file.extent_matched += 1;
        }
        Ok(())
    }

    /// A block that is promised but was never written.
    fn count_reserved(&mut self, file: &mut FileState) {
        file.blocks += 1;
        self.counts.blocks += 1;
        self.counts.reserved_blocks += 1;
    }

    fn claim_data(&mut self, file: &mut FileState, nid: u32, version: u8, slot: u32, address: u32) -> Result<()> {
        file.blocks += 1;
        // A node has 1018 addresses at most.
        let owner = Owner::Data { nid, slot: slot as u16, version };
        let claimed = self.ownership.claim(self.device, self.geometry, &mut self.findings, address, owner)?;
        self.counts.blocks += u64::from(claimed);
        self.counts.data_blocks += u64::from(claimed);
        file.damaged |= !claimed;
        Ok(())
    }

    /// Compares a file whose blocks have all been seen with its inode.
    pub(super) fn finish_file(&mut self, file: &FileState) {
        if file.damaged {
            return;
        }
        if file.blocks != file.expected_blocks {
            self.findings.add_with(
                FaultKind::InodeBlockCount,
                Place::Inode(file.ino),
                file.expected_blocks,
                format_args!("{}", file.blocks),
                Some(file.blocks),
            );
        }
        if let Some(extent) = file.extent
            && file.extent_matched != extent.length
        {
            self.findings.add(
                FaultKind::InodeExtent,
                Place::Inode(file.ino),
                format_args!(
                    "file blocks {}+{} at {}: {} are there",
                    extent.file_block, extent.length, extent.block, file.extent_matched
                ),
                "all of them, or no extent",
            );
        }
    }
}

fn starts_cluster(file: &FileState, file_block: u64) -> bool {
    file.cluster_bits.is_some_and(|bits| file_block.is_multiple_of(1 << bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_depth_first_order() {
        let level = |offset| level(offset, 900, 1018);
        assert_eq!(level(1), Level::Direct { file_block: 900 });
        assert_eq!(level(2), Level::Direct { file_block: 1918 });
        assert_eq!(level(3), Level::Indirect { first: 4, step: 1 });
        assert_eq!(level(4), Level::Direct { file_block: 2936 });
        assert_eq!(level(1021), Level::Direct { file_block: 2936 + 1017 * 1018 });
        assert_eq!(level(1022), Level::Indirect { first: 1023, step: 1 });
        assert_eq!(level(1023), Level::Direct { file_block: 2936 + 1018 * 1018 });
        assert_eq!(level(2041), Level::Indirect { first: 2042, step: 1019 });
        assert_eq!(level(2042), Level::Indirect { first: 2043, step: 1 });
        assert_eq!(level(2043), Level::Direct { file_block: 2936 + 2 * 1018 * 1018 });
        assert_eq!(level(2042 + 1019), Level::Indirect { first: 2043 + 1019, step: 1 });
        assert_eq!(level(2043 + 1019), Level::Direct { file_block: 2936 + 3 * 1018 * 1018 });
    }
}
