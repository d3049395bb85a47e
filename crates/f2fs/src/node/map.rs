//! Looking up where a file block's address is kept, and making the nodes on the way to it.

use super::path::{Found, Mapped, PER_NODE, Slot, Step, hole_end, inode_slot, path};
use crate::error::{Error, Result};
use crate::layout::{FileBlock, Ino, Nid};
use crate::volume::Volume;

impl Volume {
    /// Finds the slot of file block `block`; with `create`, makes the nodes that are missing on the way.
    ///
    /// Errors: `FileTooLarge` past the format's limit, `NoSpace` if nodes are wanted and none can be had.
    pub(crate) fn map(&mut self, ino: Ino, block: FileBlock, create: bool) -> Result<Mapped> {
        if self.options.rescue {
            return match self.map_damaged(ino, block)? {
                Found::Mapped(mapped) => Ok(mapped),
                Found::Missing(_) => {
                    Err(Error::damaged("node", format!("inode {ino} block {block}"), "the way there cannot be read"))
                }
            };
        }
        let flexible = self.geometry.flexible_inline_xattr();
        let inode = self.inode(ino)?;
        let (own, extra) = (inode.address_slots(flexible), inode.extra_size());
        let path = path(own, block).ok_or(basalt_vfs::Error::FileTooLarge)?;
        let mut nid = ino.nid();
        for step in &path.steps[..path.depth] {
            let child = self.node(nid)?.child(step.byte);
            nid = match child {
                Nid::NONE if !create => {
                    let base = u64::from(own);
                    let within = u64::from(block) - base;
                    return Ok(Mapped::Hole(FileBlock::clamped(base + hole_end(within, step.span))));
                }
                Nid::NONE => self.add_child(ino, nid, *step)?,
                child => self.check_child(ino, child, step.node_offset)?,
            };
        }
        let byte = if path.depth == 0 { inode_slot(extra, path.index) } else { 4 * path.index as usize };
        Ok(Mapped::Slot(Slot { nid, byte, index: path.index, count: path.count }))
    }

    /// As [`map`](Self::map) without `create`, for damaged volumes: a node that no pointer leads to is found by its footer where the
    /// nodes were searched for, and one that cannot be had costs only the blocks below it. Fails only if the inode cannot be read.
    pub(crate) fn map_damaged(&mut self, ino: Ino, block: FileBlock) -> Result<Found> {
        let flexible = self.geometry.flexible_inline_xattr();
        let inode = self.inode(ino)?;
        let (own, extra) = (inode.address_slots(flexible), inode.extra_size());
        let path = path(own, block).ok_or(basalt_vfs::Error::FileTooLarge)?;
        let base = u64::from(own);
        let end = |span| FileBlock::clamped(base + hole_end(u64::from(block) - base, span));
        // The node above, as long as there is one, and the blocks below the highest node that is gone.
        let mut above = Some(ino.nid());
        let mut lost = None;
        for step in &path.steps[..path.depth] {
            let pointer = match above {
                Some(nid) => Some(self.node(nid)?.child(step.byte)),
                None => None,
            };
            if pointer == Some(Nid::NONE) {
                return Ok(Found::Mapped(Mapped::Hole(end(step.span))));
            }
            above = self.find_child(ino, pointer, step.node_offset);
            if above.is_none() {
                lost = lost.or(Some(step.span));
            }
        }
        if let Some(nid) = above {
            let byte = if path.depth == 0 { inode_slot(extra, path.index) } else { 4 * path.index as usize };
            return Ok(Found::Mapped(Mapped::Slot(Slot { nid, byte, index: path.index, count: path.count })));
        }
        // Of what a lost node pointed to, other nodes may have been found: then only this one's blocks are known to be missing.
        let leaf = path.steps[path.depth - 1].node_offset;
        let span = lost.filter(|_| !self.nat.has_place_behind(ino, leaf)).unwrap_or(PER_NODE);
        Ok(Found::Missing(end(span)))
    }

    /// [`map_damaged`](Self::map_damaged) where that was asked for, else [`map`](Self::map).
    pub(crate) fn map_damaged_if_rescue(&mut self, ino: Ino, block: FileBlock) -> Result<Found> {
        if self.options.rescue { self.map_damaged(ino, block) } else { self.map(ino, block, false).map(Found::Mapped) }
    }

    /// The node that `pointer` leads to, or else the one whose footer says that it belongs there.
    pub(crate) fn find_child(&mut self, ino: Ino, pointer: Option<Nid>, offset: u32) -> Option<Nid> {
        let known = [pointer, self.nat.at_place(ino, offset)];
        known.into_iter().flatten().find(|&nid| self.check_child(ino, nid, offset).is_ok())
    }

    /// The slot of file block `block`, made if missing.
    pub(crate) fn slot(&mut self, ino: Ino, block: FileBlock) -> Result<Slot> {
        match self.map(ino, block, true)? {
            Mapped::Slot(slot) => Ok(slot),
            Mapped::Hole(_) => Err(Error::damaged("node", format!("inode {ino} block {block}"), "no node was made")),
        }
    }

    fn add_child(&mut self, ino: Ino, parent: Nid, step: Step) -> Result<Nid> {
        self.counts.expect_room(1)?;
        let cold = !self.is_directory(ino)?;
        let nid = self.new_node(Some(ino), step.node_offset, cold)?;
        self.node_mut(parent)?.set_pointer(step.byte, nid.get());
        self.add_blocks(ino, 1)?;
        Ok(nid)
    }

    /// Fails unless a node that something points to is the one that belongs there; gives back its id.
    pub(crate) fn check_child(&mut self, ino: Ino, nid: Nid, node_offset: u32) -> Result<Nid> {
        let footer = *self.node(nid)?.footer();
        if !footer.is_at(ino, node_offset) {
            return Err(Error::damaged(
                "node",
                format!("node {nid}"),
                format!(
                    "footer says offset {} of inode {}, expected offset {node_offset} of inode {ino}",
                    footer.offset(),
                    footer.ino
                ),
            ));
        }
        Ok(nid)
    }
}
