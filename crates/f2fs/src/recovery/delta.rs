//! What deltas tell of one file: the last of it counts, whether a delta or a node of the chain says it.

use std::collections::BTreeMap;

use basalt_vfs::FileKind;
use zerocopy::little_endian::U32;

use super::forward::Traces;
use super::scan::Chain;
use crate::error::{Error, Result};
use crate::layout::delta::{Delta, Written};
use crate::layout::seal::{Seal, Sealed};
use crate::layout::{Address, FileBlock, Ino};
use crate::log::active::Owners;
use crate::mutant::{self, Mutant};
use crate::node::inode::validate_fields;
use crate::node::path::{Mapped, node_offset};
use crate::volume::Volume;

/// What deltas say of a file. A newer node overrides them.
#[derive(Default)]
pub(super) struct Told {
    /// Where pages are now: [`Address::NULL`] in a hole, [`Address::NEW`] where a block is reserved.
    pub(super) pages: BTreeMap<FileBlock, Address>,
    /// Size and times.
    written: Option<Written>,
}

impl Volume {
    /// What the deltas of a file tell that no newer node does.
    ///
    /// # Errors
    /// The device's; damage where one cannot be of this file.
    pub(super) fn told(&self, ino: Ino, file: &Traces, chain: &Chain<'_>) -> Result<Told> {
        let mut told = Told::default();
        for &at in &file.deltas {
            let (delta, entries) = self.chain_delta(ino, chain, at)?;
            let is_over =
                |image: Option<usize>| image.is_none_or(|image| image < at) || mutant::active(Mutant::DeltaOverImage);
            let position = chain.nodes[at].position;
            for (page, address) in delta.told(&entries) {
                let Some(offset) = node_offset(delta.own, page) else {
                    return Err(Error::damaged("delta", format!("inode {ino}"), format!("block {page} of the file")));
                };
                let image = if offset == 0 { file.inode } else { file.nodes.get(&offset).copied() };
                if is_over(image) {
                    let is_led = !mutant::active(Mutant::DeltaNotTranslated);
                    let now = if is_led { chain.moves.of_chain(address, position) } else { address };
                    told.pages.insert(page, now);
                }
            }
            if is_over(file.inode) {
                told.written = Some(delta.written);
            }
        }
        Ok(told)
    }

    /// Gives a file what deltas tell of it, once its nodes in the chain are recovered.
    pub(super) fn recover_told(
        &mut self,
        ino: Ino,
        file: &Traces,
        chain: &Chain<'_>,
        owners: &mut Owners,
    ) -> Result<()> {
        let Some(&first) = file.deltas.first() else { return Ok(()) };
        let (delta, _) = self.chain_delta(ino, chain, first)?;
        let flexible = self.geometry.flexible_inline_xattr();
        let own = self.inode(ino)?.address_slots(flexible);
        if self.kind(ino)? != FileKind::Regular || own != delta.own {
            return Err(Error::damaged("delta", format!("inode {ino}"), "of another kind of inode"));
        }
        let told = self.told(ino, file, chain)?;
        // Else pages are of before the data moved into the inode. A delta of after that tells none, and makes the inode count.
        if !self.has_inline_data(ino)? {
            told.pages.iter().try_for_each(|(&page, &address)| self.recover_page(ino, page, address, owners))?;
        }
        let Some(written) = told.written.filter(|_| !mutant::active(Mutant::ToldSizeNotRecovered)) else {
            return Ok(());
        };
        let mut raw = *self.inode(ino)?;
        written.give(&mut raw);
        validate_fields(&raw, ino, &self.geometry)?;
        written.give(self.inode_mut(ino)?);
        Ok(())
    }

    fn recover_page(&mut self, ino: Ino, page: FileBlock, address: Address, owners: &mut Owners) -> Result<()> {
        let slot = match self.map(ino, page, address != Address::NULL)? {
            Mapped::Slot(slot) => slot,
            // A hole in a node that is not there.
            Mapped::Hole(_) => return Ok(()),
        };
        self.recover_addresses(ino, slot.nid, (slot.byte, slot.index), &[U32::from(address)], owners)
    }

    /// A delta of the chain, checked to be the one it is taken for, and the entries of its seal.
    fn chain_delta(&self, ino: Ino, chain: &Chain<'_>, at: usize) -> Result<(Delta, Vec<Sealed>)> {
        let address = chain.nodes[at].address;
        let seal = Seal::decode(&self.read_block(address)?.0);
        let of_file = |seal: Seal| seal.delta.filter(|delta| delta.ino == ino).map(|delta| (delta, seal.entries));
        seal.and_then(of_file)
            .ok_or_else(|| Error::damaged("delta", format!("block {address}"), format!("not one of inode {ino}")))
    }
}
