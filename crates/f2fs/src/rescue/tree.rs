//! The tree: which name each inode has, and in which directory.
//!
//! From the root down, directories' entries count. A directory that no entry leads to, and then a file, goes where its inode says that
//! it was; into `lost+found` if that directory is gone. Nothing is known of an inode but that it exists, and its directory is whole and does
//! not name it: then it was deleted.

use basalt_vfs::FileKind;
use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::FromBytes;

use super::entries::Listing;
use super::index::Index;
use super::progress::{RescueProgress, RescueStage};
use super::reader::Reader;
use super::report::RescueReport;
use super::standing::Standing;
use crate::error::Result;
use crate::layout::NAME_MAX;
use crate::layout::inode::RawInode;
use crate::layout::{Address, Ino, Nid};
use crate::node::seen::InodeNote;
use crate::volume::Volume;

/// Inode number of the `lost+found` that is made up, if the volume has none: above all that the format knows.
const LOST_FOUND: u64 = 1 << 32;
/// Inode number of the directory for deleted files.
const DELETED: u64 = LOST_FOUND + 1;
const LOST_FOUND_NAME: &[u8] = b"lost+found";
/// Inodes between two reports of progress.
const PROGRESS_STEP: u64 = 1024;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) name: Box<[u8]>,
    pub(crate) ino: u64,
    pub(super) kind: FileKind,
}

/// All names, by directory; sorted.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) children: FxHashMap<u64, Vec<Child>>,
    /// The directory of each directory.
    pub(super) parents: FxHashMap<u64, u64>,
    /// Directories that are made up, with none of their attributes known.
    pub(crate) made_up: FxHashSet<u64>,
    /// Inodes that fsync wrote since the checkpoint, and their names with them: the order it did that in.
    pub(crate) entered: FxHashMap<Ino, usize>,
}

impl Tree {
    /// Inodes that have a name.
    pub(super) fn placed(&self) -> FxHashSet<u64> {
        self.children.values().flatten().map(|child| child.ino).collect()
    }
}

/// What has become of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unplaced,
    Placed,
    Deleted,
}

struct Known {
    note: InodeNote,
    standing: Standing,
    wants_entry: bool,
    state: State,
    /// It has a name because it remembers that, and not because a directory has it.
    is_remembered: bool,
}

struct Builder<'a, 'd> {
    volume: &'a mut Volume,
    reader: &'a mut Reader<'d>,
    report: &'a mut RescueReport,
    with_deleted: bool,
    root: u64,
    inodes: FxHashMap<Ino, Known>,
    /// Directories that inodes name as theirs and that are gone.
    wanted: FxHashSet<Ino>,
    /// Directories of which entries are missing.
    damaged: FxHashSet<Ino>,
    tree: Tree,
    lost_found: u64,
    done: u64,
}

/// Finds every inode's place.
pub(super) fn build(
    volume: &mut Volume,
    reader: &mut Reader<'_>,
    index: &Index,
    with_deleted: bool,
    report: &mut RescueReport,
    progress: &mut dyn FnMut(RescueProgress),
) -> Result<Tree> {
    let mut builder = Builder {
        root: u64::from(volume.geometry.root_ino),
        volume,
        reader,
        report,
        with_deleted,
        inodes: FxHashMap::default(),
        wanted: FxHashSet::default(),
        damaged: FxHashSet::default(),
        tree: Tree::default(),
        lost_found: LOST_FOUND,
        done: 0,
    };
    builder.read_inodes(index, progress);
    builder.place_root();
    builder.place_the_rest(progress);
    builder.finish(index);
    Ok(builder.tree)
}

impl Builder<'_, '_> {
    /// Reads every inode that counts, in the order they lie on the device.
    fn read_inodes(&mut self, index: &Index, progress: &mut dyn FnMut(RescueProgress)) {
        let wanted = |standing: Standing| standing > Standing::Dead || self.with_deleted;
        let mut inodes: Vec<(Address, Ino)> = index
            .nodes
            .iter()
            .filter(|(_, found)| found.offset == 0 && wanted(found.standing))
            .map(|(nid, found)| (found.address, nid.as_inode()))
            .collect();
        inodes.sort_unstable();
        let total = inodes.len() as u64;
        let mut at = 0;
        while let Some(&(first, _)) = inodes.get(at) {
            // Neighbours with one request; what lies between them costs less than another one.
            let near = |&&(address, _): &&(Address, Ino)| address - first < 64;
            let count = inodes[at..].iter().take_while(near).count();
            let group = &inodes[at..at + count];
            let range = first..group[count - 1].0 + 1;
            let found = &mut self.inodes;
            self.reader.each(range, &mut |address, block| {
                let Ok(place) = group.binary_search_by_key(&address, |(address, _)| *address) else { return };
                let ino = group[place].1;
                let note = RawInode::ref_from_bytes(block).ok().and_then(InodeNote::of);
                if let (Some(note), Some(node)) = (note, index.nodes.get(&ino.nid())) {
                    let state = if node.standing == Standing::Dead { State::Deleted } else { State::Unplaced };
                    let (standing, wants_entry) = (node.standing, node.wants_entry);
                    found.insert(ino, Known { note, standing, wants_entry, state, is_remembered: false });
                }
            });
            at += count;
            progress(RescueProgress { stage: RescueStage::Names, done: at as u64 / 2, total });
        }
        self.report.inodes = self.inodes.values().filter(|known| known.state != State::Deleted).count() as u64;
        let parents = self.inodes.values().filter(|known| known.state != State::Deleted).map(|known| known.note.parent);
        self.wanted =
            parents.filter(|parent| parent.nid() >= Nid::FIRST && !self.inodes.contains_key(parent)).collect();
    }

    fn is_directory(&self, ino: Ino) -> bool {
        self.inodes.get(&ino).is_some_and(|known| known.note.kind == FileKind::Directory)
    }

    fn is_state(&self, ino: Ino, state: State) -> bool {
        self.inodes.get(&ino).is_some_and(|known| known.state == state)
    }

    fn set(&mut self, ino: Ino, state: State) {
        if let Some(known) = self.inodes.get_mut(&ino) {
            known.state = state;
        }
    }

    fn place_root(&mut self) {
        let root = Ino::new(self.root as u32);
        self.tree.children.insert(self.root, Vec::new());
        self.tree.parents.insert(self.root, self.root);
        if self.is_directory(root) {
            self.set(root, State::Placed);
            self.adopt(root, State::Placed);
        } else {
            self.tree.made_up.insert(self.root);
        }
        let own = self.tree.children.get(&self.root).into_iter().flatten();
        let lost_found = own.filter(|child| *child.name == *LOST_FOUND_NAME && child.kind == FileKind::Directory);
        self.lost_found = lost_found.map(|child| child.ino).next().unwrap_or(LOST_FOUND);
    }

    /// Takes in everything that is named below a directory.
    fn adopt(&mut self, top: Ino, state: State) {
        let mut open = vec![top];
        while let Some(directory) = open.pop() {
            let listing = Listing::read(self.volume, directory);
            if !listing.whole && self.damaged.insert(directory) {
                self.report.damaged_directories += u64::from(state == State::Placed);
            }
            self.tree.children.entry(directory.into()).or_default();
            for entry in listing.entries {
                if self.take_in(directory, &entry.name, entry.ino, entry.kind, state) {
                    open.push(entry.ino);
                }
            }
        }
    }

    /// Gives an inode the name that an entry gives it; whether it is a directory to look into.
    fn take_in(&mut self, directory: Ino, name: &[u8], ino: Ino, kind: FileKind, state: State) -> bool {
        let Some(known) = self.inodes.get_mut(&ino) else {
            // Its entries are gone, but inodes know that they were in it.
            let is_wanted = kind == FileKind::Directory && self.wanted.contains(&ino);
            if state == State::Placed && is_wanted && !self.tree.made_up.contains(&ino.into()) {
                self.make_up(ino.into(), directory.into(), name);
            }
            if state == State::Placed {
                self.report.add_lost_name(directory.into(), name, ino);
            }
            return false;
        };
        if known.note.kind != kind {
            self.report.add_lost_name(directory.into(), name, ino);
            return false;
        }
        let is_directory = kind == FileKind::Directory;
        let is_first = known.state == State::Unplaced;
        // A directory has one name. A file has several, and a deleted directory takes none of what is in use.
        let fits = is_first || !is_directory && known.state == state;
        if !fits {
            return false;
        }
        known.state = state;
        self.report.named += u64::from(is_first && state == State::Placed);
        self.report.deleted += u64::from(is_first && state == State::Deleted);
        self.add(directory.into(), name, ino.into(), kind);
        is_directory && is_first
    }

    fn add(&mut self, directory: u64, name: &[u8], ino: u64, kind: FileKind) {
        if kind == FileKind::Directory {
            self.tree.parents.insert(ino, directory);
        }
        self.tree.children.entry(directory).or_default().push(Child { name: name.into(), ino, kind });
    }

    /// Adds a directory of which only the name is known, or not even that.
    fn make_up(&mut self, ino: u64, parent: u64, name: &[u8]) {
        if self.tree.made_up.insert(ino) {
            self.tree.children.entry(ino).or_default();
            self.add(parent, name, ino, FileKind::Directory);
        }
    }

    /// Finds a place for everything that no entry leads to: directories first, those above before those below.
    fn place_the_rest(&mut self, progress: &mut dyn FnMut(RescueProgress)) {
        let mut unplaced: Vec<Ino> =
            self.inodes.iter().filter(|(_, known)| known.state == State::Unplaced).map(|(ino, _)| *ino).collect();
        unplaced.sort_unstable();
        let total = self.inodes.len() as u64;
        for directories in [true, false] {
            for &ino in &unplaced {
                if self.done.is_multiple_of(PROGRESS_STEP) {
                    let done = (total - unplaced.len() as u64) + self.done / 2;
                    progress(RescueProgress { stage: RescueStage::Names, done: done.min(total), total });
                }
                self.done += 1;
                if self.is_directory(ino) != directories {
                    continue;
                }
                for ino in self.way_up(ino).into_iter().rev() {
                    self.settle(ino);
                }
            }
        }
        self.place_deleted();
    }

    /// An inode without a place and the directories above it that have none either.
    fn way_up(&self, ino: Ino) -> Vec<Ino> {
        let mut way = Vec::new();
        let mut seen = FxHashSet::default();
        let mut at = ino;
        while self.is_state(at, State::Unplaced) && (way.is_empty() || self.is_directory(at)) && seen.insert(at) {
            way.push(at);
            at = self.inodes[&at].note.parent;
        }
        way
    }

    /// Gives an inode the place that it says it had.
    fn settle(&mut self, ino: Ino) {
        let Some(known) = self.inodes.get(&ino).filter(|known| known.state == State::Unplaced) else { return };
        let (note, parent) = (known.note, known.note.parent);
        let unsure =
            matches!(known.standing, Standing::Unknown | Standing::Disputed | Standing::Written) && !known.wants_entry;
        let parent_placed =
            u64::from(parent) == self.root || self.is_state(parent, State::Placed) && self.is_directory(parent);
        let parent_whole = self.is_state(parent, State::Placed) && !self.damaged.contains(&parent);
        let parent_deleted = self.is_state(parent, State::Deleted);
        if !note.linked || unsure && (parent_placed && parent_whole || parent_deleted) {
            self.set(ino, State::Deleted);
            self.report.deleted += 1;
            if note.kind == FileKind::Directory {
                self.adopt(ino, State::Deleted);
            }
            return;
        }
        let name = self.own_name(ino);
        let directory = if parent_placed || self.tree.made_up.contains(&parent.into()) {
            self.report.placed_by_inode += 1;
            parent.into()
        } else {
            self.report.without_place += 1;
            self.lost_directory(parent)
        };
        if let Some(known) = self.inodes.get_mut(&ino) {
            (known.state, known.is_remembered) = (State::Placed, true);
        }
        self.add(directory, &name, ino.into(), note.kind);
        if note.kind == FileKind::Directory {
            self.adopt(ino, State::Placed);
        }
    }

    /// The directory below `lost+found` for what was in directory `parent`.
    fn lost_directory(&mut self, parent: Ino) -> u64 {
        self.make_lost_found();
        if parent.nid() < Nid::FIRST || self.inodes.contains_key(&parent) {
            return self.lost_found;
        }
        self.make_up(parent.into(), self.lost_found, format!("dir-{parent}").as_bytes());
        parent.into()
    }

    fn make_lost_found(&mut self) {
        if self.lost_found == LOST_FOUND {
            self.make_up(LOST_FOUND, self.root, LOST_FOUND_NAME);
        }
    }

    /// The name that an inode has for itself, if it is one.
    fn own_name(&mut self, ino: Ino) -> Vec<u8> {
        let fallback = format!("inode-{ino}").into_bytes();
        let Ok(raw) = self.volume.inode(ino) else { return fallback };
        let length = (raw.i_namelen.get() as usize).min(NAME_MAX);
        let name = &raw.i_name[..length];
        let is_name = !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        if is_name { name.to_vec() } else { fallback }
    }

    /// Shows what was deleted, if that was asked for.
    fn place_deleted(&mut self) {
        if !self.with_deleted {
            return;
        }
        let mut deleted: Vec<Ino> =
            self.inodes.iter().filter(|(_, known)| known.state == State::Deleted).map(|(ino, _)| *ino).collect();
        deleted.sort_unstable();
        let placed: FxHashSet<u64> = self.tree.children.values().flatten().map(|child| child.ino).collect();
        for ino in deleted {
            if placed.contains(&ino.into()) {
                continue;
            }
            let Some(known) = self.inodes.get(&ino) else { continue };
            let kind = known.note.kind;
            self.report.deleted += u64::from(known.standing == Standing::Dead);
            self.make_lost_found();
            self.make_up(DELETED, self.lost_found, b"deleted");
            let name = self.own_name(ino);
            self.add(DELETED, &name, ino.into(), kind);
            self.tree.children.entry(ino.into()).or_default();
        }
    }

    /// Sorts the names. Of several that are the same, what fsync has put there last since the checkpoint keeps it, else what an entry of the
    /// directory gives it to, else the earliest; the others get their inode's number too.
    fn finish(&mut self, index: &Index) {
        let named = index.named.iter().copied().filter(|ino| self.inodes.contains_key(ino));
        let entered: FxHashMap<Ino, usize> = named.zip(0..).collect();
        let order = |child: &Child| {
            let ino = Ino::new(u32::try_from(child.ino).unwrap_or(0));
            let is_remembered = self.inodes.get(&ino).is_some_and(|known| known.is_remembered);
            (std::cmp::Reverse(entered.get(&ino).copied()), is_remembered, child.ino)
        };
        let sort = |children: &mut [Child]| {
            children.sort_by(|one, other| one.name.cmp(&other.name).then_with(|| order(one).cmp(&order(other))));
        };
        for children in self.tree.children.values_mut() {
            sort(children);
            children.dedup();
            // Names are sorted: those that are the same are neighbours.
            let again: Vec<usize> =
                (1..children.len()).filter(|&at| children[at].name == children[at - 1].name).collect();
            for &at in &again {
                let child = &mut children[at];
                let suffix = format!("~{}", child.ino);
                let mut name = child.name[..child.name.len().min(NAME_MAX - suffix.len())].to_vec();
                name.extend_from_slice(suffix.as_bytes());
                child.name = name.into();
            }
            if !again.is_empty() {
                sort(children);
            }
        }
        self.tree.entered = entered;
    }
}
