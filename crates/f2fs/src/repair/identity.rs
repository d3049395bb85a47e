//! Found nodes that have another node's id in their footer: they get their own back.
//!
//! Four places say which node a block is: its footer, the pointer to it, the NAT, and the segment's summary. A footer that names a node
//! which is another block by the NAT and by that block itself is damaged. Then the others say which node it is; where they do not agree, it
//! is left alone, for to take an id from a node that has it is to lose that one.

use rustc_hash::{FxHashMap, FxHashSet};

use super::finds::Finds;
use super::report::Log;
use super::restore::Known;
use super::state::State;
use crate::check::FaultKind;
use crate::error::Result;
use crate::layout::{Address, Ino, Nid};
use crate::rescue::claims::{Claim, Pointer};

/// What was found, by the ids that it has.
pub(super) struct Identities {
    /// Each node under its own id. Those of which nobody can tell it are left out.
    pub(super) claims: Vec<Claim>,
    /// By the id that a damaged footer has: the node's own, if it can be told.
    posing: FxHashMap<Nid, Option<Nid>>,
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

/// What tells whose an id is, beside the node that has it.
struct Evidence {
    /// Entries of the NAT by where they lead: address, node and inode, in order.
    by_address: Vec<(Address, Nid, Ino)>,
    /// Ids of nodes that were found, and where those are.
    claimed: FxHashSet<Nid>,
    claimed_at: FxHashSet<Address>,
    /// Pointers for which no node was found: the id, and the inode that has it.
    missed: FxHashSet<(Nid, Ino)>,
}

impl Evidence {
    /// Whether a node of this inode is in this block by the NAT.
    fn leads_to(&self, address: Address, nid: Nid, ino: Ino) -> bool {
        self.by_address.binary_search(&(address, nid, ino)).is_ok()
    }

    /// The node that is in this block by the NAT, if it is one alone, and of this inode.
    fn alone_at(&self, address: Address, ino: Ino) -> Option<Nid> {
        let from = self.by_address.partition_point(|entry| entry.0 < address);
        let mut here = self.by_address[from..].iter().take_while(|entry| entry.0 == address);
        let first = here.next().filter(|_| here.next().is_none())?;
        (first.2 == ino).then_some(first.1)
    }
}

impl State {
    /// Finds out which node each of those found is, and gives those their id back that lost it.
    pub(super) fn tell_identities(&mut self, finds: &Finds, known: &Known<'_>, log: &mut Log) -> Result<Identities> {
        let claims = &finds.claims;
        let mut identities = Identities { claims: Vec::with_capacity(claims.len()), posing: FxHashMap::default() };
        let mut evidence = None;
        for claim in claims {
            // What leads to an inode are names, and an inode is its own: nothing else can tell its id.
            let contested = if claim.is_newer() || claim.offset == 0 { None } else { self.contest(claim)? };
            let Some((contested, other)) = contested else {
                identities.claims.push(*claim);
                continue;
            };
            let evidence = match &mut evidence {
                Some(gathered) => gathered,
                none => none.insert(self.gather_evidence(finds)?),
            };
            // A NAT that is out of date may be wrong of the other block, unless its file has nothing newer in its place.
            let is_sure = contested == Contested::ByFooter
                && (!known.nat_is_old || evidence.missed.contains(&(claim.nid, other)));
            let own = self.own_id(claim, evidence, is_sure || !known.nat_is_old)?;
            match own {
                Some(own) => {
                    self.give_id_back(claim, own, known, log)?;
                    identities.claims.push(Claim { nid: own, ..*claim });
                }
                None if is_sure => {}
                None => {
                    identities.claims.push(*claim);
                    continue;
                }
            }
            identities.posing.insert(claim.nid, own);
        }
        Ok(identities)
    }

    fn gather_evidence(&self, finds: &Finds) -> Result<Evidence> {
        let all = self.nat_in_use()?.into_iter();
        let mut by_address: Vec<_> = all.map(|(nid, entry)| (entry.address(), nid, entry.ino())).collect();
        by_address.sort_unstable();
        let inodes: FxHashMap<Nid, Ino> = finds.claims.iter().map(|claim| (claim.nid, claim.ino)).collect();
        let missed = finds.strays.iter().filter_map(|stray| Some((stray.value, *inodes.get(&stray.holder)?)));
        Ok(Evidence {
            by_address,
            claimed: inodes.keys().copied().collect(),
            claimed_at: finds.claims.iter().map(|claim| claim.address).collect(),
            missed: missed.collect(),
        })
    }

    /// Whether the id of a found node is another's by the NAT, and by the block that it leads to; with the inode which that is of.
    fn contest(&self, claim: &Claim) -> Result<Option<(Contested, Ino)>> {
        let entry = self.nat(claim.nid)?;
        let address = entry.address();
        if address == claim.address || !self.geometry.in_main(address) {
            return Ok(None);
        }
        let Some(footer) = State::footer(&self.block(address)?) else { return Ok(None) };
        let ino = footer.ino();
        if footer.is_at(claim.ino, claim.offset) {
            return Ok(None);
        }
        if footer.nid() == claim.nid {
            return Ok(Some((Contested::ByFooter, ino)));
        }
        let has_it = footer.ino == entry.ino && self.summary(address)?.nid() == claim.nid;
        Ok(has_it.then_some((Contested::BySummary, ino)))
    }

    /// The id of a found node by what leads to it: what two of pointer, NAT and summary say, or else the NAT or the summary alone.
    /// `believes_nat` is false where the NAT may be out of date: a summary then is so together with it.
    fn own_id(&self, claim: &Claim, evidence: &Evidence, believes_nat: bool) -> Result<Option<Nid>> {
        let pointer = claim.pointer.map(|pointer| pointer.value);
        let summary = self.summary(claim.address)?.nid();
        let alone = evidence.alone_at(claim.address, claim.ino);
        let mut best: Option<(usize, Nid)> = None;
        for id in pointer.into_iter().chain(alone).chain([summary]) {
            if id == claim.nid
                || id < Nid::FIRST
                || id >= self.geometry.node_ids()
                || self.is_node_elsewhere(id, claim)?
            {
                continue;
            }
            let voices = [pointer == Some(id), summary == id, evidence.leads_to(claim.address, id, claim.ino)];
            let count = voices.into_iter().filter(|voice| *voice).count();
            let is_told = count >= 2 && (believes_nat || pointer == Some(id))
                || believes_nat && (alone == Some(id) || summary == id && self.is_nobodys(id, evidence)?);
            if is_told && best.is_none_or(|(most, _)| count > most) {
                best = Some((count, id));
            }
        }
        Ok(best.map(|(_, id)| id))
    }

    /// Whether an id belongs to no node that was found, and its entry leads to none that it might be of.
    fn is_nobodys(&self, id: Nid, evidence: &Evidence) -> Result<bool> {
        let address = self.nat(id)?.address();
        let leads_nowhere = !self.geometry.in_main(address) || evidence.claimed_at.contains(&address);
        Ok(leads_nowhere && !evidence.claimed.contains(&id))
    }

    /// Whether an id has a node of its own in another block.
    fn is_node_elsewhere(&self, nid: Nid, claim: &Claim) -> Result<bool> {
        let address = self.nat(nid)?.address();
        if address == claim.address || !self.geometry.in_main(address) {
            return Ok(false);
        }
        Ok(State::footer(&self.block(address)?).is_some_and(|footer| footer.nid() == nid))
    }

    fn give_id_back(&mut self, claim: &Claim, own: Nid, known: &Known<'_>, log: &mut Log) -> Result<()> {
        self.edit_nat(own, |entry| {
            entry.ino = claim.ino.into();
            entry.block_addr = claim.address.into();
        })?;
        self.edit_node(own, |node| node.footer.nid.set(own.get()))?;
        let found = format!("footer of node {} of inode {}", claim.nid, claim.ino);
        let action = format!("footer now of node {own}, as what leads there says");
        log.add(known.repair(own, &[FaultKind::NodeFooterNid], found, action));
        Ok(())
    }
}
