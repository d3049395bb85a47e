//! The nodes of what was found: which belong to each file, where the pointers to them are, and how much each file has.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Rescued;
use super::index::Index;
use super::standing::Standing;
use super::tree::Child;
use crate::error::Result;
use crate::layout::inode::RawInode;
use crate::layout::node::{ADDRS_PER_NODE, XATTR_NODE_OFFSET};
use crate::layout::{Address, Ino, Nid};
use crate::node::level::{CHILD_OFFSETS, Level, level};
use crate::node::path::is_direct;
use crate::node::pointers::{addresses, has_pointers};
use crate::volume::Volume;

/// A pointer to a node, as it is on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// The node it is in.
    pub(crate) holder: Nid,
    /// Its byte there.
    pub(crate) byte: usize,
    /// The node id it has; never 0.
    pub(crate) value: Nid,
}

/// A node that belongs to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) nid: Nid,
    pub(crate) ino: Ino,
    /// Its offset in the inode's tree.
    pub(crate) offset: u32,
    /// Where it is.
    pub(crate) address: Address,
    pub(crate) standing: Standing,
    /// What leads to it, or should; `None` for an inode, and where the node above is gone.
    pub(crate) pointer: Option<Pointer>,
}

impl Claim {
    /// Whether fsync wrote it after the checkpoint.
    pub(crate) fn is_newer(&self) -> bool {
        self.standing == Standing::Newer
    }
}

/// What a file has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    /// Blocks of data.
    pub(crate) blocks: u64,
    /// Whether there is a node of extended attributes.
    pub(crate) xattrs: bool,
}

/// A walk over the nodes of one file.
struct Walk<'a> {
    volume: &'a mut Volume,
    index: &'a Index,
    ino: Ino,
    holding: Holding,
    claims: &'a mut Vec<Claim>,
    strays: &'a mut Vec<Pointer>,
}

impl Rescued {
    /// Inodes that have a place in the tree, in order.
    pub(crate) fn placed(&self) -> Vec<Ino> {
        let root = self.volume.lock().geometry.root_ino;
        let named = self.tree.children.values().flatten().map(|child| child.ino).chain([u64::from(root)]);
        let real = named.filter(|ino| !self.tree.made_up.contains(ino));
        let all: FxHashSet<Ino> = real.filter_map(|ino| u32::try_from(ino).ok().map(Ino::new)).collect();
        let mut all: Vec<Ino> = all.into_iter().collect();
        all.sort_unstable();
        all
    }

    /// Inodes that fsync wrote since the checkpoint, and their names with them: the order it did that in.
    pub(crate) fn entered(&self) -> &FxHashMap<Ino, usize> {
        &self.tree.entered
    }

    /// The first name of each inode: its directory and the name there.
    pub(crate) fn first_names(&self) -> FxHashMap<u64, (u64, Box<[u8]>)> {
        let mut names = FxHashMap::default();
        let mut directories: Vec<(&u64, &Vec<Child>)> = self.tree.children.iter().collect();
        directories.sort_unstable_by_key(|(directory, _)| **directory);
        for (directory, children) in directories {
            for child in children {
                names.entry(child.ino).or_insert_with(|| (*directory, child.name.clone()));
            }
        }
        names
    }

    /// Whether an inode is a directory.
    pub(crate) fn is_directory(&self, ino: Ino) -> bool {
        self.tree.children.contains_key(&u64::from(ino))
    }

    /// Adds the nodes of inode `ino` to `claims`, and pointers that lead to none of them to `strays`; what the file has.
    ///
    /// # Errors
    /// When the inode cannot be read.
    pub(crate) fn walk(
        &self,
        index: &Index,
        ino: Ino,
        claims: &mut Vec<Claim>,
        strays: &mut Vec<Pointer>,
    ) -> Result<Holding> {
        let mut volume = self.volume.lock();
        let mut walk = Walk { volume: &mut volume, index, ino, holding: Holding::default(), claims, strays };
        walk.inode()?;
        Ok(walk.holding)
    }
}

impl Walk<'_> {
    fn inode(&mut self) -> Result<()> {
        let raw = *self.volume.inode(self.ino)?;
        self.claim(self.ino.nid(), 0, None);
        self.count_blocks(self.ino.nid())?;
        if has_pointers(&raw) {
            for (at, (nid, offset)) in raw.i_nid.iter().zip(CHILD_OFFSETS).enumerate() {
                let byte = core::mem::offset_of!(RawInode, i_nid) + 4 * at;
                self.child(Pointer { holder: self.ino.nid(), byte, value: Nid::from(*nid) }, offset)?;
            }
        }
        let byte = core::mem::offset_of!(RawInode, i_xattr_nid);
        let xattrs = Pointer { holder: self.ino.nid(), byte, value: raw.xattr_nid() };
        self.holding.xattrs = self.child(xattrs, XATTR_NODE_OFFSET)?;
        Ok(())
    }

    fn claim(&mut self, nid: Nid, offset: u32, pointer: Option<Pointer>) {
        if let Some(found) = self.index.nodes.get(&nid) {
            let (address, standing) = (found.address, found.standing);
            self.claims.push(Claim { nid, ino: self.ino, offset, address, standing, pointer });
        }
    }

    /// Goes on below a pointer; whether there is a node.
    fn child(&mut self, pointer: Pointer, offset: u32) -> Result<bool> {
        if pointer.value == Nid::NONE {
            return Ok(false);
        }
        let Some(nid) = self.volume.find_child(self.ino, Some(pointer.value), offset) else {
            self.strays.push(pointer);
            self.without_parent(offset)?;
            return Ok(false);
        };
        self.claim(nid, offset, Some(pointer));
        self.below(nid, offset)?;
        Ok(true)
    }

    /// Goes on with the nodes below one of node ids that was not found: rescue reads them by what their footers say.
    fn without_parent(&mut self, offset: u32) -> Result<()> {
        if offset == XATTR_NODE_OFFSET {
            return Ok(());
        }
        let Level::Indirect { first, step } = level(offset, 0, ADDRS_PER_NODE) else { return Ok(()) };
        let places = self.volume.nat.places_in(self.ino, first..first + ADDRS_PER_NODE * step);
        let mut places: Vec<(u32, Nid)> = places.iter().map(|place| (place.offset, place.nid)).collect();
        // Those of node ids come first, with all that is below them.
        places.sort_unstable_by_key(|&(offset, _)| (is_direct(offset), offset));
        let mut known = FxHashSet::default();
        for (offset, nid) in places {
            let is_in_use = self.index.nodes.get(&nid).is_some_and(|found| found.standing >= Standing::Disputed);
            if !is_in_use || known.contains(&nid) || self.volume.check_child(self.ino, nid, offset).is_err() {
                continue;
            }
            let before = self.claims.len();
            self.claim(nid, offset, None);
            self.below(nid, offset)?;
            known.extend(self.claims[before..].iter().map(|claim| claim.nid));
        }
        Ok(())
    }

    /// Counts the blocks of a node, or goes on with the nodes that it leads to.
    fn below(&mut self, nid: Nid, offset: u32) -> Result<()> {
        if offset == XATTR_NODE_OFFSET {
            return Ok(());
        }
        let Level::Indirect { first, step } = level(offset, 0, ADDRS_PER_NODE) else { return self.count_blocks(nid) };
        let slots = self.volume.node(nid)?.raw().slots;
        for (at, value) in (0..ADDRS_PER_NODE).zip(&slots) {
            let pointer = Pointer { holder: nid, byte: 4 * at as usize, value: Nid::from(*value) };
            self.child(pointer, first + at * step)?;
        }
        Ok(())
    }

    fn count_blocks(&mut self, nid: Nid) -> Result<()> {
        let node = *self.volume.node(nid)?.raw();
        let geometry = &self.volume.geometry;
        let own = addresses(&node, geometry.flexible_inline_xattr())
            .iter()
            .filter(|address| geometry.in_main(Address::from(**address)));
        self.holding.blocks += own.count() as u64;
        Ok(())
    }
}
