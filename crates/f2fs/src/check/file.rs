//! The blocks of one file: each address once, counted, and compared with what the inode says.

use super::blocks::Owner;
use super::checker::Checker;
use super::fault::Place;
use super::kind::FaultKind;
use super::records::FileState;
use crate::error::Result;
use crate::layout::{Address, Nid};

impl Checker<'_> {
    /// Checks the address of one block of a file and counts it. `slot` is its index in node `nid`.
    pub(super) fn check_address(
        &mut self,
        file: &mut FileState,
        nid: Nid,
        version: u8,
        slot: u32,
        file_block: u64,
        address: Address,
    ) -> Result<()> {
        match address {
            Address::NULL => return Ok(()),
            Address::NEW => self.count_reserved(file),
            Address::COMPRESS if starts_cluster(file, file_block) => {
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

    fn claim_data(&mut self, file: &mut FileState, nid: Nid, version: u8, slot: u32, address: Address) -> Result<()> {
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
