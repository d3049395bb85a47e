//! Nodes that the NAT does not lead to, or a pointer not any more: put back as the search found them.
//!
//! This comes in front of the rounds, so that what they free, clear and name is only what the search has not found either.

use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::finds::Finds;
use super::state::State;
use super::{Log, Repair};
use crate::check::{Fault, FaultKind, Place};
use crate::error::Result;
use crate::layout::NULL_ADDR;
use crate::layout::nat::RawNatEntry;
use crate::rescue::claims::{Claim, Pointer};

/// What is known beside what was found: the faults of the check, by the node they are about.
struct Known<'a> {
    /// Whether the NAT itself may be out of date.
    nat_is_old: bool,
    by_node: FxHashMap<u32, Vec<&'a Fault>>,
}

impl Known<'_> {
    fn of(faults: &[Fault], nat_is_old: bool) -> Known<'_> {
        let mut by_node: FxHashMap<u32, Vec<&Fault>> = FxHashMap::default();
        for fault in faults {
            if let Place::Node(nid) | Place::Inode(nid) = fault.place {
                by_node.entry(nid).or_default().push(fault);
            }
        }
        Known { nat_is_old, by_node }
    }

    /// A repair of node `nid`: of the first fault of these kinds that it has, else of the last kind.
    fn repair(&self, nid: u32, kinds: &[FaultKind], found: String, action: String) -> Repair {
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
        let posing = self.give_ids_back(&finds.claims, &known, log)?;
        let claims: Vec<&Claim> = finds.claims.iter().filter(|claim| !posing.contains(&claim.nid)).collect();
        let mut claimed = FxHashSet::default();
        let mut addresses = FxHashMap::default();
        for claim in &claims {
            claimed.insert(claim.nid);
            addresses.insert(claim.address, claim.nid);
            let (segment, block) = self.segment_of(claim.address);
            self.kept.keep(segment, block);
            self.restore_entry(claim, &known, log)?;
        }
        self.free_strangers(&addresses, &known, log)?;
        for claim in claims {
            let is_wrong = |pointer: &Pointer| pointer.value != claim.nid && !posing.contains(&pointer.holder);
            if let Some(pointer) = claim.pointer.filter(is_wrong) {
                let action = format!("leads to node {} again, which says that it belongs there", claim.nid);
                self.set_pointer(&pointer, claim.nid, action, &known, log)?;
            }
        }
        for pointer in finds.strays.iter().filter(|pointer| claimed.contains(&pointer.value)) {
            let action = "cleared: that node belongs to another place".to_owned();
            self.set_pointer(pointer, 0, action, &known, log)?;
        }
        Ok(())
    }

    /// Gives nodes their id back that have another one's in a damaged footer: the NAT leads to them by the one, and by the other to another
    /// inode's node, whose footer agrees. Returns the ids that they posed under.
    fn give_ids_back(&mut self, claims: &[Claim], known: &Known<'_>, log: &mut Log) -> Result<FxHashSet<u32>> {
        let mut posing = FxHashSet::default();
        let mut by_address: Option<FxHashMap<u32, (u32, u32)>> = None;
        for claim in claims {
            if claim.is_newer() || known.nat_is_old || !self.is_anothers(claim)? {
                continue;
            }
            if by_address.is_none() {
                let all = self.nat_in_use()?.into_iter();
                by_address = Some(all.map(|(nid, entry)| (entry.block_addr.get(), (nid, entry.ino.get()))).collect());
            }
            let by_table = by_address.as_ref().and_then(|all| all.get(&claim.address));
            let Some(&(nid, _)) = by_table.filter(|(_, ino)| *ino == claim.ino) else { continue };
            if self.edit_node(nid, |node| node.footer.nid.set(nid))? {
                let (segment, block) = self.segment_of(claim.address);
                self.kept.keep(segment, block);
                let found = format!("footer of node {} of inode {}", claim.nid, claim.ino);
                let action = format!("footer now of node {nid}, as the NAT says");
                log.add(known.repair(nid, &[FaultKind::NodeFooterNid], found, action));
                posing.insert(claim.nid);
            }
        }
        Ok(posing)
    }

    /// Whether the id of a found node is another inode's by the NAT and by the footer of the block that it leads to.
    fn is_anothers(&self, claim: &Claim) -> Result<bool> {
        let entry = self.nat(claim.nid)?;
        let address = entry.block_addr.get();
        if entry.ino.get() == claim.ino || address == claim.address || !self.geometry.in_main(address) {
            return Ok(false);
        }
        let footer = State::footer(&self.block(address)?);
        Ok(footer.is_some_and(|footer| footer.nid.get() == claim.nid && footer.ino == entry.ino))
    }

    fn restore_entry(&mut self, claim: &Claim, known: &Known<'_>, log: &mut Log) -> Result<()> {
        let entry = self.nat(claim.nid)?;
        let address = entry.block_addr.get();
        if address == claim.address {
            return Ok(());
        }
        let leads_to_it = self.geometry.in_main(address)
            && State::footer(&self.block(address)?)
                .is_some_and(|footer| footer.nid.get() == claim.nid && footer.ino.get() == claim.ino);
        // A version that the checkpoint leads to is its own affair, unless fsync wrote one since, or the NAT is out of date.
        if leads_to_it && !claim.is_newer() && !known.nat_is_old {
            return Ok(());
        }
        let found = if address == NULL_ADDR {
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
    fn free_strangers(&mut self, claimed: &FxHashMap<u32, u32>, known: &Known<'_>, log: &mut Log) -> Result<()> {
        let mut freed = Vec::new();
        for (nid, entry) in self.nat_in_use()? {
            let address = entry.block_addr.get();
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
        nid: u32,
        entry: &RawNatEntry,
        claimed: &FxHashMap<u32, u32>,
    ) -> Result<Option<String>> {
        let address = entry.block_addr.get();
        if !self.geometry.in_main(address) {
            return Ok(Some(format!("entry leads to block {address:#x}")));
        }
        if let Some(owner) = claimed.get(&address) {
            return Ok(Some(format!("entry leads to block {address:#x}, which is node {owner}")));
        }
        let footer = State::footer(&self.block(address)?);
        let is_known = footer.is_some_and(|footer| footer.nid.get() == nid || footer.ino == entry.ino);
        let is_own = is_known || self.summary(address)?.nid.get() == nid;
        Ok((!is_own).then(|| format!("entry leads to block {address:#x}, which is no such node")))
    }

    fn set_pointer(
        &mut self,
        pointer: &Pointer,
        nid: u32,
        action: String,
        known: &Known<'_>,
        log: &mut Log,
    ) -> Result<()> {
        let edited = self.edit_node(pointer.holder, |node| {
            let bytes = node.as_mut_bytes();
            bytes[pointer.byte..pointer.byte + 4].copy_from_slice(U32::new(nid).as_bytes());
        })?;
        if edited {
            let found = format!("pointer to node {}", pointer.value);
            log.add(known.repair(pointer.holder, POINTER_KINDS, found, action));
        }
        Ok(())
    }
}
