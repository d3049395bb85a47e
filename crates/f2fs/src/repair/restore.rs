//! Nodes that the NAT does not lead to, or a pointer not any more: put back as the search found them.
//!
//! This comes in front of the rounds, so that what they free, clear and name is only what the search has not found either.

use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::finds::Finds;
use super::report::{Log, Repair};
use super::state::State;
use crate::check::{Fault, FaultKind, Place};
use crate::error::Result;
use crate::layout::nat::RawNatEntry;
use crate::layout::{Address, Nid};
use crate::rescue::claims::{Claim, Pointer};

/// What is known beside what was found: the faults of the check, by the node they are about.
pub(super) struct Known<'a> {
    /// Whether the NAT itself may be out of date.
    pub(super) nat_is_old: bool,
    by_node: FxHashMap<Nid, Vec<&'a Fault>>,
}

impl Known<'_> {
    fn of(faults: &[Fault], nat_is_old: bool) -> Known<'_> {
        let mut by_node: FxHashMap<Nid, Vec<&Fault>> = FxHashMap::default();
        for fault in faults {
            let nid = match fault.place {
                Place::Node(nid) => nid,
                Place::Inode(ino) => ino.nid(),
                _ => continue,
            };
            by_node.entry(nid).or_default().push(fault);
        }
        Known { nat_is_old, by_node }
    }

    /// A repair of node `nid`: of the first fault of these kinds that it has, else of the last kind.
    pub(super) fn repair(&self, nid: Nid, kinds: &[FaultKind], found: String, action: String) -> Repair {
        let faults = self.by_node.get(&nid).into_iter().flatten();
        if let Some(fault) = faults.into_iter().find(|fault| kinds.contains(&fault.kind)) {
            return Repair::of(fault, action);
        }
        let kind = kinds.last().copied().unwrap_or(FaultKind::NatMissing);
        Repair { kind, severity: kind.severity(), place: Place::Node(nid), found, action }
    }
}

const ENTRY_KINDS: &[FaultKind] =
    &[FaultKind::NatAddress, FaultKind::NatDuplicateAddress, FaultKind::NodeFooterNid, FaultKind::NatMissing];
const POINTER_KINDS: &[FaultKind] =
    &[FaultKind::InodeXattrNid, FaultKind::NodeDuplicateReference, FaultKind::NodeReference];

impl State {
    /// Puts back the nodes that were found.
    pub(super) fn restore_nodes(&mut self, finds: &Finds, faults: &[Fault], log: &mut Log) -> Result<()> {
        let known = Known::of(faults, self.is_invented || finds.outweigh_the_nat());
        self.entered = finds.entered().clone();
        let found = self.tell_identities(finds, &known, log)?;
        let mut claimed = FxHashSet::default();
        let mut addresses = FxHashMap::default();
        for claim in &found.claims {
            claimed.insert(claim.nid);
            addresses.insert(claim.address, claim.nid);
            let (segment, block) = self.segment_of(claim.address);
            self.kept.keep(segment, block);
            self.restore_entry(claim, &known, log)?;
        }
        self.free_strangers(&addresses, &known, log)?;
        for claim in &found.claims {
            let Some(pointer) = claim.pointer.and_then(|pointer| found.in_own(&pointer)) else { continue };
            if pointer.value != claim.nid {
                let action = format!("leads to node {} again, which says that it belongs there", claim.nid);
                self.set_pointer(&pointer, claim.nid, action, &known, log)?;
            }
        }
        for pointer in finds.strays.iter().filter_map(|pointer| found.in_own(pointer)) {
            if claimed.contains(&pointer.value) {
                let action = "cleared: that node belongs to another place".to_owned();
                self.set_pointer(&pointer, Nid::NONE, action, &known, log)?;
            }
        }
        Ok(())
    }

    fn restore_entry(&mut self, claim: &Claim, known: &Known<'_>, log: &mut Log) -> Result<()> {
        let entry = self.nat(claim.nid)?;
        let address = entry.address();
        if address == claim.address {
            return Ok(());
        }
        let leads_to_it = self.geometry.in_main(address)
            && State::footer(&self.block(address)?)
                .is_some_and(|footer| footer.nid() == claim.nid && footer.is_at(claim.ino, claim.offset));
        // A version that the checkpoint leads to is its own affair, unless fsync wrote one since, or the NAT is out of date.
        if leads_to_it && !claim.is_newer() && !known.nat_is_old {
            return Ok(());
        }
        let found = if address == Address::NULL {
            "entry is free".to_owned()
        } else {
            format!("entry leads to block {address:#x}")
        };
        self.edit_nat(claim.nid, |entry| {
            *entry = RawNatEntry { ino: claim.ino.into(), block_addr: claim.address.into(), ..*entry };
        })?;
        let action = format!("found at block {}, of inode {}", claim.address, claim.ino);
        log.add(known.repair(claim.nid, ENTRY_KINDS, found, action));
        log.has_restored_nodes = true;
        Ok(())
    }

    /// Frees node ids whose entry leads nowhere, to a node that was found and has another id, or to what neither its footer nor the summary
    /// takes for this node: a table of garbage has more of these than rounds could free one by one.
    fn free_strangers(&mut self, claimed: &FxHashMap<Address, Nid>, known: &Known<'_>, log: &mut Log) -> Result<()> {
        let mut freed = Vec::new();
        for (nid, entry) in self.nat_in_use()? {
            let address = entry.address();
            if claimed.get(&address) == Some(&nid) {
                continue;
            }
            if let Some(found) = self.describe_stranger(nid, &entry, claimed)? {
                log.add(known.repair(nid, ENTRY_KINDS, found, "node id freed: its node was not found".to_owned()));
                freed.push(nid);
            }
        }
        self.free_nodes(&freed)
    }

    /// What an entry leads to, if that cannot be its node.
    fn describe_stranger(
        &self,
        nid: Nid,
        entry: &RawNatEntry,
        claimed: &FxHashMap<Address, Nid>,
    ) -> Result<Option<String>> {
        let address = entry.address();
        if !self.geometry.in_main(address) {
            return Ok(Some(format!("entry leads to block {address:#x}")));
        }
        if let Some(owner) = claimed.get(&address) {
            return Ok(Some(format!("entry leads to block {address:#x}, which is node {owner}")));
        }
        let footer = State::footer(&self.block(address)?);
        let is_known = footer.is_some_and(|footer| footer.nid() == nid || footer.ino == entry.ino);
        let is_own = is_known || self.summary(address)?.nid() == nid;
        Ok((!is_own).then(|| format!("entry leads to block {address:#x}, which is no such node")))
    }

    fn set_pointer(
        &mut self,
        pointer: &Pointer,
        nid: Nid,
        action: String,
        known: &Known<'_>,
        log: &mut Log,
    ) -> Result<()> {
        let edited = self.edit_node(pointer.holder, |node| {
            let bytes = node.as_mut_bytes();
            bytes[pointer.byte..pointer.byte + 4].copy_from_slice(U32::new(nid.get()).as_bytes());
        })?;
        if edited {
            let found = format!("pointer to node {}", pointer.value);
            log.add(known.repair(pointer.holder, POINTER_KINDS, found, action));
        }
        Ok(())
    }
}
