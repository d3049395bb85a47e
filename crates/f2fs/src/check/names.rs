//! What all names together say: link counts, parents, what has no name, directories in a circle.

use basalt_vfs::FileKind;
use rustc_hash::{FxHashMap, FxHashSet};

use super::checker::Checker;
use super::fault::Place;
use super::kind::FaultKind;
use super::records::DirectoryRecord;
use crate::layout::{BLOCK_SIZE, Ino};

/// What is found of an orphan that is listed twice.
pub(crate) const LISTED_AGAIN: &str = "listed again";

impl Checker<'_> {
    /// Compares every inode with the names it has. All directories must have been read.
    pub(super) fn check_names(&mut self) {
        let root = self.geometry.root_ino;
        if self.inodes.get(&root).is_none_or(|inode| inode.kind != Some(FileKind::Directory)) {
            let found = if self.inodes.contains_key(&root) { "no directory" } else { "not there" };
            self.findings.add(FaultKind::RootDirectory, Place::Inode(root), found, "a directory");
        }
        let mut inodes: Vec<Ino> = self.inodes.keys().copied().collect();
        inodes.sort_unstable();
        let mut orphans = FxHashSet::default();
        for ino in self.loaded.orphans.clone() {
            if !orphans.insert(ino) {
                self.findings.add(FaultKind::OrphanInode, Place::Inode(ino), LISTED_AGAIN, "each orphan once");
            }
        }
        self.check_orphans(&orphans);
        self.check_quota_inodes();
        for ino in inodes {
            if !orphans.contains(&ino) {
                self.check_links(ino);
            }
            if let Some(directory) = self.directories.get(&ino).copied() {
                self.check_directory_record(ino, &directory);
            }
        }
        self.find_cycles();
    }

    fn check_orphans(&mut self, orphans: &FxHashSet<Ino>) {
        let mut orphans: Vec<Ino> = orphans.iter().copied().collect();
        orphans.sort_unstable();
        for ino in orphans {
            let found = match self.inodes.get(&ino) {
                None if self.unreadable.contains(&ino.nid()) => continue,
                None => "no inode".into(),
                Some(inode) if inode.links > 0 || inode.names > 0 => {
                    format!("{} links, {} names", inode.links, inode.names)
                }
                Some(_) => continue,
            };
            self.findings.add(FaultKind::OrphanInode, Place::Inode(ino), found, "an inode without links and names");
        }
    }

    /// The inodes that the superblock names for quota must be files.
    fn check_quota_inodes(&mut self) {
        for (number, ino) in (0..).zip(self.geometry.superblock.qf_ino) {
            let ino = Ino::from(ino);
            let found = match self.inodes.get(&ino) {
                _ if ino == Ino::NONE => continue,
                None => "no inode".to_owned(),
                Some(inode) if inode.kind == Some(FileKind::Regular) => continue,
                Some(inode) => format!("a {:?}", inode.kind),
            };
            let expected = "a file, as the superblock names it for quota";
            self.findings.add_with(FaultKind::QuotaInode, Place::Inode(ino), found, expected, Some(number));
        }
    }

    /// Inodes that need no name: the root and the quota files.
    fn is_reserved(&self, ino: Ino) -> bool {
        ino == self.geometry.root_ino || self.geometry.superblock.qf_ino.iter().any(|quota| Ino::from(*quota) == ino)
    }

    fn check_links(&mut self, ino: Ino) {
        let Some(&inode) = self.inodes.get(&ino) else { return };
        if inode.names == 0 && !self.is_reserved(ino) {
            let found = format_args!("{} links, no name", inode.links);
            self.findings.add(FaultKind::InodeUnreachable, Place::Inode(ino), found, "a name");
            return;
        }
        let expected = match inode.kind {
            None => return,
            // `.`, its name, and a `..` for every directory in it.
            Some(FileKind::Directory) => 2 + self.subdirectories.get(&ino).copied().unwrap_or_default(),
            Some(_) => inode.names.max(1),
        };
        if inode.links != expected {
            self.findings.add_with(
                FaultKind::InodeLinks,
                Place::Inode(ino),
                format_args!("{} links", inode.links),
                format_args!("{expected}"),
                Some(expected.into()),
            );
        }
    }

    fn check_directory_record(&mut self, ino: Ino, directory: &DirectoryRecord) {
        self.check_dot_targets(ino, directory);
        if directory.inline {
            return;
        }
        if let Some(deepest) = directory.deepest
            && directory.depth <= deepest
        {
            let expected = format_args!("at least {}", deepest + 1);
            let found = format_args!("depth {}", directory.depth);
            self.findings.add(FaultKind::InodeDepth, Place::Inode(ino), found, expected);
        }
        let least = directory.last_block.map_or(0, |block| block.saturating_add(1).saturating_mul(BLOCK_SIZE as u64));
        if directory.size < least {
            let found = format_args!("{} bytes", directory.size);
            self.findings.add(FaultKind::InodeSize, Place::Inode(ino), found, format_args!("at least {least}"));
        }
    }

    fn check_dot_targets(&mut self, ino: Ino, directory: &DirectoryRecord) {
        let parent = if ino == self.geometry.root_ino { Some(ino) } else { self.parents.get(&ino).copied() };
        for (name, seen, expected) in [(".", directory.dot, Some(ino)), ("..", directory.dot_dot, parent)] {
            let found = match (seen, expected) {
                (None, _) => format!("no `{name}`"),
                (Some(seen), Some(expected)) if seen != expected => format!("`{name}` is inode {seen}"),
                _ => continue,
            };
            // Without a parent, any `..` will do.
            let expected = expected.map_or("one".into(), |expected| format!("inode {expected}"));
            self.findings.add(FaultKind::DentryDots, Place::Inode(ino), found, expected);
        }
        // The root's is of no use to anybody: mkfs leaves it empty.
        if let Some(&parent) = self.parents.get(&ino)
            && directory.inode_parent != parent
        {
            let found = format_args!("parent {}", directory.inode_parent);
            self.findings.add(FaultKind::InodeParent, Place::Inode(ino), found, parent);
        }
    }

    /// Directories whose parents lead back to themselves; one fault a circle.
    fn find_cycles(&mut self) {
        let root = self.geometry.root_ino;
        let parents = std::mem::take(&mut self.parents);
        if let Some(parent) = parents.get(&root) {
            let found = format_args!("a name in directory {parent}");
            let right = Some(u64::from(*parent));
            self.findings.add_with(FaultKind::DirectoryParents, Place::Inode(root), found, "none, as the root", right);
        }
        // Which walk came by first. A walk that meets itself has gone round; one that meets another ends where that one did.
        let mut walks: FxHashMap<Ino, Ino> = FxHashMap::default();
        let mut starts: Vec<Ino> = parents.keys().copied().collect();
        starts.sort_unstable();
        for start in starts {
            let mut at = start;
            while at != root && !walks.contains_key(&at) {
                let Some(&parent) = parents.get(&at) else { break };
                walks.insert(at, start);
                at = parent;
            }
            if walks.get(&at) == Some(&start) {
                let found = format_args!("in itself, through directory {}", parents[&at]);
                self.findings.add(FaultKind::DirectoryCycle, Place::Inode(at), found, "a way to the root");
            }
        }
        self.parents = parents;
    }
}
