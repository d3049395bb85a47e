//! Names: each inode says its own and its directory.

use std::collections::{BTreeMap, HashMap, HashSet};

use basalt_flashlight::InodeNumber;
use basalt_flashlight::inspect::{ORPHANS, ROOT};
use basalt_vfs::FileKind;

use super::RescueReport;
use super::scan::Newest;
use super::standing::Standing;
use crate::files::ino;

/// Directories that are made up: their numbers are those of no inode.
pub(super) const LOST_FOUND: u64 = u64::MAX - 1;
pub(super) const DELETED: u64 = u64::MAX - 2;
/// Directories that are gone have their numbers from here on.
const MADE_UP: u64 = 1 << 32;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) name: Vec<u8>,
    pub(super) ino: u64,
    pub(super) kind: FileKind,
}

/// What was found, by the numbers that mounts show.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The page of each inode.
    pub(super) pages: HashMap<u64, u32>,
    /// Of each directory its entries, sorted by name.
    pub(super) children: HashMap<u64, Vec<Child>>,
    pub(super) parents: HashMap<u64, u64>,
}

impl Tree {
    fn add(&mut self, parent: u64, child: Child) {
        self.parents.insert(child.ino, parent);
        if child.kind == FileKind::Directory {
            self.children.entry(child.ino).or_default();
        }
        self.children.entry(parent).or_default().push(child);
    }
}

/// Gives every inode that is there a place.
pub(super) fn build(
    inodes: &BTreeMap<InodeNumber, Newest>,
    standings: &HashMap<InodeNumber, Standing>,
    deleted: bool,
    report: &mut RescueReport,
) -> Tree {
    let mut tree = Tree::default();
    tree.children.insert(ino(ROOT), Vec::new());
    let mut names = HashSet::new();
    // Where two have the same name, the newer one has it.
    let mut order: Vec<(&InodeNumber, &Newest)> = inodes.iter().collect();
    order.sort_by_key(|(_, newest)| std::cmp::Reverse(newest.sequence));
    for (&number, newest) in order {
        tree.pages.insert(ino(number), newest.page);
        if [ROOT, ORPHANS].contains(&number) {
            continue;
        }
        let Some(kind) = FileKind::from_mode(newest.mode) else { continue };
        let child = |name: Vec<u8>| Child { name, ino: ino(number), kind };
        match standings[&number] {
            Standing::Deleted => {
                report.deleted += 1;
                if deleted && kind != FileKind::Directory {
                    tree.add(DELETED, child(made_up_name("inode", ino(number))));
                }
                continue;
            }
            Standing::There => report.inodes += 1,
        }
        let is_new = names.insert((newest.parent, &newest.name));
        if !is_new || !can_be_a_name(&newest.name) {
            report.without_place += 1;
            tree.add(LOST_FOUND, child(made_up_name("inode", ino(number))));
        } else if inodes.get(&newest.parent).is_some_and(|parent| parent.is_directory) || newest.parent == ROOT {
            tree.add(ino(newest.parent), child(newest.name.clone()));
        } else {
            report.without_place += 1;
            let directory = MADE_UP + ino(newest.parent);
            tree.children.entry(directory).or_default();
            tree.add(directory, child(newest.name.clone()));
        }
    }
    hang_up_the_rest(&mut tree, report);
    tree.children.values_mut().for_each(|children| children.sort_by(|one, other| one.name.cmp(&other.name)));
    tree
}

/// Directories that are gone, and those that are below themselves, are in `lost+found`.
fn hang_up_the_rest(tree: &mut Tree, report: &mut RescueReport) {
    let gone: Vec<u64> = tree.children.keys().copied().filter(|at| (MADE_UP..DELETED).contains(at)).collect();
    let directory = |name: Vec<u8>, ino: u64| Child { name, ino, kind: FileKind::Directory };
    for at in gone {
        tree.add(LOST_FOUND, directory(made_up_name("dir", at - MADE_UP), at));
    }
    if tree.children.contains_key(&DELETED) {
        tree.add(LOST_FOUND, directory(b"deleted".to_vec(), DELETED));
    }
    let mut reached = HashSet::new();
    reach(tree, ino(ROOT), &mut reached);
    reach(tree, LOST_FOUND, &mut reached);
    let mut rest: Vec<u64> = tree.children.keys().copied().filter(|at| !reached.contains(at)).collect();
    rest.sort_unstable();
    for at in rest {
        if reached.contains(&at) || at == LOST_FOUND {
            continue;
        }
        // It leaves the directory below itself that it says it is in.
        if let Some(parent) = tree.parents.get(&at).copied()
            && let Some(children) = tree.children.get_mut(&parent)
        {
            children.retain(|child| child.ino != at);
        }
        report.without_place += 1;
        tree.add(LOST_FOUND, directory(made_up_name("dir", at), at));
        reach(tree, at, &mut reached);
    }
    if tree.children.contains_key(&LOST_FOUND) {
        let taken = tree.children[&ino(ROOT)].iter().any(|child| child.name == b"lost+found");
        let name = if taken { &b"lost+found.rescued"[..] } else { b"lost+found" };
        tree.add(ino(ROOT), directory(name.to_vec(), LOST_FOUND));
    }
}

fn reach(tree: &Tree, from: u64, reached: &mut HashSet<u64>) {
    let mut waiting = vec![from];
    while let Some(at) = waiting.pop() {
        if reached.insert(at) {
            let children = tree.children.get(&at).into_iter().flatten();
            waiting.extend(children.filter(|child| child.kind == FileKind::Directory).map(|child| child.ino));
        }
    }
}

fn made_up_name(what: &str, ino: u64) -> Vec<u8> {
    format!("{what}-{ino}").into_bytes()
}

fn can_be_a_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}
