//! Found nodes that have another node's id in their footer: they get their own back.
//!
//! Four places say which node a block is: its footer, the pointer to it, the NAT, and the segment's summary. A footer that names a node
//! which is another block by the NAT and by that block itself is damaged. Then the others say which node it is; where they do not agree, it
//! is left alone, for to take an id from a node that has it is to lose that one.

use rustc_hash::FxHashMap;

use super::report::Log;
use super::restore::Known;
use super::state::State;
use crate::check::FaultKind;
use crate::check::nat::RESERVED;
use crate::error::Result;
use crate::rescue::claims::{Claim, Pointer};

/// What was found, by the ids that it has.
pub(super) struct Identities {
    /// Each node under its own id. Those of which nobody can tell it are left out.
    pub(super) claims: Vec<Claim>,
    /// By the id that a damaged footer has: the node's own, if it can be told.
    posing: FxHashMap<u32, Option<u32>>,
}

impl Identities {
    /// A pointer that was found, with its holder under its own id; `None` in a node whose id cannot be told.
    pub(super) fn in_own(&self, pointer: &Pointer) -> Option<Pointer> {
        let holder = match self.posing.get(&pointer.holder) {
            None => pointer.holder,
            Some(own) => (*own)?,
        };
        Some(Pointer { holder, ..*pointer })
    }
}

/// Why the id in a footer is another node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contested {
    /// The block that the NAT leads to has it in its footer.
    ByFooter,
    /// That block has it in the summary; its footer has another.
    BySummary,
}

/// Entries of the NAT by where they lead: address, node and inode, in order.
struct ByAddress(Vec<(u32, u32, u32)>);

impl ByAddress {
    /// The nodes of an inode that are in this block by the NAT.
    fn nodes_at(&self, address: u32, ino: u32) -> impl Iterator<Item = u32> + '_ {
        let from = self.0.partition_point(|entry| entry.0 < address);
        let here = self.0[from..].iter().take_while(move |entry| entry.0 == address);
        here.filter(move |entry| entry.2 == ino).map(|entry| entry.1)
    }
}

impl State {
    /// Finds out which node each of those found is, and gives those their id back that lost it.
    pub(super) fn tell_identities(&mut self, claims: &[Claim], known: &Known<'_>, log: &mut Log) -> Result<Identities> {
        let mut identities = Identities { claims: Vec::with_capacity(claims.len()), posing: FxHashMap::default() };
        let mut by_address = None;
        for claim in claims {
            // What leads to an inode are names, and an inode is its own: nothing else can tell its id.
            let contested = if claim.is_newer() || claim.pointer.is_none() { None } else { self.contest(claim)? };
            let Some(contested) = contested else {
                identities.claims.push(*claim);
                continue;
            };
            if by_address.is_none() {
                let all = self.nat_in_use()?.into_iter();
                let mut all: Vec<_> = all.map(|(nid, entry)| (entry.block_addr.get(), nid, entry.ino.get())).collect();
                all.sort_unstable();
                by_address = Some(ByAddress(all));
            }
            let own = by_address.as_ref().map(|all| self.own_id(claim, all, known)).transpose()?.flatten();
            match own {
                Some(own) => {
                    self.give_id_back(claim, own, known, log)?;
                    identities.claims.push(Claim { nid: own, ..*claim });
                }
                // A NAT that is out of date may be wrong of the other block.
                None if known.nat_is_old || contested == Contested::BySummary => {
                    identities.claims.push(*claim);
                    continue;
                }
                None => {}
            }
            identities.posing.insert(claim.nid, own);
        }
        Ok(identities)
    }

    /// Whether the id of a found node is another's by the NAT, and by the block that it leads to.
    fn contest(&self, claim: &Claim) -> Result<Option<Contested>> {
        let entry = self.nat(claim.nid)?;
        let address = entry.block_addr.get();
        if address == claim.address || !self.geometry.in_main(address) {
            return Ok(None);
        }
        let Some(footer) = State::footer(&self.block(address)?) else { return Ok(None) };
        let is_other = footer.ino == entry.ino && (footer.ino.get(), footer.offset()) != (claim.ino, claim.offset);
        if !is_other {
            return Ok(None);
        }
        if footer.nid.get() == claim.nid {
            return Ok(Some(Contested::ByFooter));
        }
        let has_it = self.summary(address)?.nid.get() == claim.nid;
        Ok(has_it.then_some(Contested::BySummary))
    }

    /// The id of a found node by what leads to it: what two of pointer, NAT and summary say, or else the NAT alone.
    fn own_id(&self, claim: &Claim, by_address: &ByAddress, known: &Known<'_>) -> Result<Option<u32>> {
        let pointer = claim.pointer.map(|pointer| pointer.value);
        let summary = self.summary(claim.address)?.nid.get();
        let by_table: Vec<u32> = by_address.nodes_at(claim.address, claim.ino).filter(|&id| id != claim.nid).collect();
        let mut best: Option<(usize, u32)> = None;
        for id in pointer.into_iter().chain([summary]).chain(by_table.iter().copied()) {
            if id == claim.nid
                || id < RESERVED
                || id >= self.geometry.node_ids()
                || self.is_node_elsewhere(id, claim)?
            {
                continue;
            }
            let voices = [pointer == Some(id), summary == id, by_table.contains(&id)];
            let count = voices.into_iter().filter(|voice| *voice).count();
            // Summaries and a NAT that are out of date are so together.
            let is_told = count >= 2 && (!known.nat_is_old || pointer == Some(id))
                || by_table[..] == [id] && !known.nat_is_old && best.is_none();
            if is_told && best.is_none_or(|(most, _)| count > most) {
                best = Some((count, id));
            }
        }
        Ok(best.map(|(_, id)| id))
    }

    /// Whether an id has a node of its own in another block.
    fn is_node_elsewhere(&self, nid: u32, claim: &Claim) -> Result<bool> {
        let address = self.nat(nid)?.block_addr.get();
        if address == claim.address || !self.geometry.in_main(address) {
            return Ok(false);
        }
        Ok(State::footer(&self.block(address)?).is_some_and(|footer| footer.nid.get() == nid))
    }

    fn give_id_back(&mut self, claim: &Claim, own: u32, known: &Known<'_>, log: &mut Log) -> Result<()> {
        self.edit_nat(own, |entry| {
            entry.ino = claim.ino.into();
            entry.block_addr = claim.address.into();
        })?;
        self.edit_node(own, |node| node.footer.nid.set(own))?;
        let (segment, block) = self.segment_of(claim.address);
        self.kept.keep(segment, block);
        let found = format!("footer of node {} of inode {}", claim.nid, claim.ino);
        let action = format!("footer now of node {own}, as what leads there says");
        log.add(known.repair(own, &[FaultKind::NodeFooterNid], found, action));
        Ok(())
    }
}
