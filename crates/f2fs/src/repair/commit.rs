//! From the staged device to the real one: nothing that the last checkpoint can reach is overwritten, as far as there is room.

use std::collections::BTreeMap;

use basalt_device::BlockDevice;
use basalt_segments::SegmentKind;
use rustc_hash::FxHashSet;
use zerocopy::FromBytes;

use super::staged::Staged;
use super::state::State;
use super::work::Work;
use crate::check::Survey;
use crate::check::blocks::Owner;
use crate::checkpoint::load::Loaded;
use crate::checkpoint::mark;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::node::{RawNode, repaired_version};
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, bit_msb, set_bit_msb};

/// Blocks to be written, in the order of their groups; a flush after each group.
#[derive(Default)]
pub(super) struct Writes {
    groups: [BTreeMap<Address, Vec<u8>>; 7],
}

/// That a pack was lost, so that what is written over it cannot hide that; blocks, tables; the checkpoint but its ends; its last block; its
/// first one; the other pack where neither was sure to count, and one superblock; the other superblock, because a page that is being
/// written when power goes may not be readable, and what was in the place of the mark.
const MARK: usize = 0;
const BODY: usize = 1;
const PACK: usize = 2;
const TAIL: usize = 3;
const HEAD: usize = 4;
const REST: usize = 5;
const LAST: usize = 6;

/// Most blocks in a request.
const REQUEST_BLOCKS: usize = 256;

impl Writes {
    /// Only the superblocks.
    pub(super) fn of_superblocks(staged: &Staged) -> Result<Writes> {
        let mut writes = Writes::default();
        for (copy, block) in staged.changes()?.into_iter().filter(|(address, _)| address.get() < 2) {
            writes.groups[group_of_superblock(staged, copy)].insert(copy, block);
        }
        Ok(writes)
    }

    /// How many blocks; one that two groups write counts twice.
    pub(super) fn len(&self) -> u64 {
        self.groups.iter().map(|group| group.len() as u64).sum()
    }

    /// What each block will be, by address.
    pub(super) fn blocks(&self) -> BTreeMap<Address, &[u8]> {
        self.groups.iter().flatten().map(|(&address, block)| (address, block.as_slice())).collect()
    }

    /// The groups with their numbers, last one first: the order in which they are taken back.
    pub(super) fn last_first(&self) -> impl ExactSizeIterator<Item = (usize, &BTreeMap<Address, Vec<u8>>)> {
        self.groups.iter().enumerate().rev()
    }

    /// What a group finds at an address, if one in front of it wrote there.
    pub(super) fn written_before(&self, group: usize, address: Address) -> Option<&[u8]> {
        self.groups[..group].iter().rev().find_map(|group| group.get(&address)).map(Vec::as_slice)
    }

    /// Writes everything, group by group.
    pub(super) fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        for group in self.groups.iter().filter(|group| !group.is_empty()) {
            let mut run: Vec<u8> = Vec::new();
            let mut start = 0u64;
            for (&address, block) in group {
                let offset = u64::from(address) << BLOCK_BITS;
                let follows = start + run.len() as u64 == offset && run.len() < REQUEST_BLOCKS * BLOCK_SIZE;
                if !follows {
                    write_run(device, start, &run)?;
                    run.clear();
                    start = offset;
                }
                run.extend_from_slice(block);
            }
            write_run(device, start, &run)?;
            device.flush()?;
        }
        Ok(())
    }
}

/// The copy that is of use on the device is written last; of two of use, the second one.
fn group_of_superblock(staged: &Staged, copy: Address) -> usize {
    let is_first_of_use = Geometry::read_copy(staged.base(), 0).is_ok();
    let is_second_of_use = Geometry::read_copy(staged.base(), 1).is_ok();
    if (copy == Address::new(1)) == (is_second_of_use || !is_first_of_use) { LAST } else { REST }
}

fn write_run(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> Result<()> {
    if !bytes.is_empty() {
        device.write_at(offset, bytes)?;
    }
    Ok(())
}

impl State {
    /// Moves every changed block that is kept to a free place. Whether anything was moved.
    pub(super) fn relocate_all(&mut self, work: &mut Work<'_>) -> Result<bool> {
        if self.base.is_none() {
            return Ok(false);
        }
        let (_, survey) = work.examine(FxHashSet::default())?;
        let Some(survey) = survey else { return Ok(false) };
        self.begin_round();
        self.may_overwrite = false;
        let moved = self.relocate(&survey);
        self.may_overwrite = true;
        let moved = moved?;
        if moved {
            self.write_pack(Some(&survey))?;
        }
        Ok(moved)
    }

    fn relocate(&mut self, survey: &Survey) -> Result<bool> {
        let (mut moved, mut room) = (false, true);
        // Data first: its new place changes nodes.
        for address in self.changed_kept(survey)? {
            let owner = self.summary(address)?;
            let (nid, slot) = (owner.nid(), u32::from(owner.ofs_in_node.get()));
            let is_node = self.nat(nid)?.address() == address;
            if is_node || !room || self.address(survey, nid, slot)? != address {
                continue;
            }
            let owner = Owner::Data { nid, slot: slot as u16, version: self.nat(nid)?.version };
            let Some(to) = self.allocate(survey, SegmentKind::HotData, owner.summary())? else {
                room = false;
                continue;
            };
            self.put(to, &self.block(address)?)?;
            self.set_address(survey, nid, slot, to)?;
            moved = true;
        }
        for address in self.changed_kept(survey)? {
            let nid = self.summary(address)?.nid();
            if room && self.nat(nid)?.address() == address {
                room = self.move_node(survey, nid)?;
                moved |= room;
            }
        }
        Ok(moved)
    }

    /// Blocks of the main area that have an owner, are changed, and are kept until the next checkpoint is durable.
    fn changed_kept(&self, survey: &Survey) -> Result<Vec<Address>> {
        let mut found = Vec::new();
        for &address in self.device.changes()?.keys().filter(|&&address| self.geometry.in_main(address)) {
            let (segment, block) = self.segment_of(address);
            let owned = survey.ownership.map.found_in(segment).is_some_and(|found| bit_msb(&found.map, block));
            if owned && self.kept.holds(segment, block) {
                found.push(address);
            }
        }
        Ok(found)
    }

    /// What is to be written, so that the staged volume is on the device.
    pub(super) fn plan_writes(&mut self, work: &mut Work<'_>) -> Result<Writes> {
        let (_, survey) = work.examine(FxHashSet::default())?;
        let base = self.base.clone();
        let mut writes = Writes::default();
        self.flip_tables(base.as_deref(), &mut writes)?;
        self.is_staged = false;
        if let (Some(base), Some(survey)) = (&base, &survey) {
            self.stamp_nodes(base, survey)?;
        }
        if self.writes_both {
            self.write_other_pack()?;
        }
        self.write_pack(None)?;
        let geometry = &self.geometry;
        let other = geometry.checkpoint + (1 - self.target) * BLOCKS_PER_SEGMENT;
        let pack = geometry.checkpoint + self.target * BLOCKS_PER_SEGMENT;
        let total = self.loaded.pack.raw.cp_pack_total_block_count.get();
        let mended = base.as_ref().and_then(|base| base.pack.broken_end.as_ref()).map(|end| end.address);
        let mark = self
            .lost_beside
            .and_then(|version| mark::beside(self.device.base(), geometry, self.target, version, total));
        if let Some((address, mark)) = mark {
            writes.groups[MARK].insert(address, mark);
            let before = self.device.before(address)?;
            // That of a repair which was cut off has had its time.
            let after = if mark::is_one(&before) { vec![0; BLOCK_SIZE] } else { before };
            writes.groups[LAST].insert(address, after);
        }
        for (address, block) in self.device.changes()? {
            let group = match address {
                // Before the pack that Linux would go back to is written over.
                _ if mended == Some(address) && !self.writes_both => BODY,
                _ if address.get() < 2 => group_of_superblock(&self.device, address),
                _ if address == pack => HEAD,
                _ if address == pack + total - 1 => TAIL,
                _ if (pack..pack + total).contains(&address) => PACK,
                _ if self.writes_both && (other..other + total).contains(&address) => REST,
                // The tables' turn was above; the other pack stays.
                _ if address < geometry.ssa => continue,
                _ if geometry.in_main(address)
                    && survey.as_ref().is_some_and(|survey| !is_owned(survey, geometry, address)) =>
                {
                    continue;
                }
                _ => BODY,
            };
            writes.groups[group].insert(address, block);
        }
        Ok(writes)
    }

    /// Nodes of versions ahead of the device's checkpoint show that there was a newer one. Recovery on the staged device wrote such, behind
    /// checkpoints that the device never had: if the repair is cut off, nobody may take them for more than what this checkpoint led to.
    fn stamp_nodes(&self, base: &Loaded, survey: &Survey) -> Result<()> {
        let version = base.pack.raw.checkpoint_ver.get() as u32;
        for (address, mut block) in self.device.changes()? {
            if !self.geometry.in_main(address) || !is_owned(survey, &self.geometry, address) {
                continue;
            }
            let is_node = self.nat(self.summary(address)?.nid())?.address() == address;
            let Ok(node) = RawNode::mut_from_bytes(&mut block) else { continue };
            let stamp = node.footer.cp_ver;
            let before = self.device.before(address).ok().and_then(|before| RawNode::read_from_bytes(&before).ok());
            let was_there = before.is_some_and(|before| before.footer.cp_ver == stamp);
            if is_node && !was_there && (stamp.get() as u32).wrapping_sub(version).cast_signed() >= 0 {
                node.footer.cp_ver.set(repaired_version(version));
                self.seal(&mut block);
                self.put(address, &block)?;
            }
        }
        Ok(())
    }

    /// Where the other pack is of no use, it becomes the same, of the version before; it is written when the first is durable.
    pub(super) fn write_other_pack(&mut self) -> Result<()> {
        let (target, version, is_staged) = (self.target, self.version, self.is_staged);
        (self.target, self.version, self.is_staged) = (1 - target, version.wrapping_sub(1), false);
        let written = self.write_pack(None);
        (self.target, self.version, self.is_staged) = (target, version, is_staged);
        written
    }

    /// Puts changed blocks of NAT and SIT where the device's checkpoint does not look.
    fn flip_tables(&mut self, base: Option<&Loaded>, writes: &mut Writes) -> Result<()> {
        let geometry = self.geometry.clone();
        let (nat, sit) = (self.loaded.nat_bitmap.clone(), self.loaded.sit_bitmap.clone());
        let old_nat = base.map_or(&nat, |base| &base.nat_bitmap).clone();
        let old_sit = base.map_or(&sit, |base| &base.sit_bitmap).clone();
        let changed: FxHashSet<Address> = self.device.changes()?.into_keys().collect();
        self.loaded.nat_bitmap =
            self.flip(&changed, &nat, &old_nat, base.is_some(), geometry.nat_blocks, writes, |index, second| {
                geometry.nat_block(index, second)
            })?;
        self.loaded.sit_bitmap =
            self.flip(&changed, &sit, &old_sit, base.is_some(), geometry.sit_blocks, writes, |index, second| {
                geometry.sit_block(index, second)
            })?;
        Ok(())
    }

    /// As above, for one table: the new bitmap.
    #[allow(clippy::too_many_arguments)] // The two tables differ in no other way.
    fn flip(
        &self,
        changed: &FxHashSet<Address>,
        now: &[u8],
        before: &[u8],
        keep: bool,
        blocks: u32,
        writes: &mut Writes,
        place: impl Fn(u32, bool) -> Address,
    ) -> Result<Vec<u8>> {
        let mut bitmap = before.to_vec();
        for index in 0..blocks {
            let (bit, old) = (bit_msb(now, index as usize), bit_msb(before, index as usize));
            if bit == old && !changed.contains(&place(index, bit)) {
                continue;
            }
            let content = self.block(place(index, bit))?;
            if content == self.device.before(place(index, old))? {
                continue;
            }
            let second = old ^ keep;
            set_bit_msb(&mut bitmap, index as usize, second);
            let address = place(index, second);
            self.put(address, &content)?;
            writes.groups[BODY].insert(address, content);
        }
        Ok(bitmap)
    }
}

fn is_owned(survey: &Survey, geometry: &Geometry, address: Address) -> bool {
    let within = geometry.main_block(address);
    let found = survey.ownership.map.found_in(within.segment());
    found.is_some_and(|found| bit_msb(&found.map, within.offset() as usize))
}
