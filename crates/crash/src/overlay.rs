//! What an fsync does to the names of a moment.

use std::sync::Arc;

use crate::tree::{Id, Node, ROOT, Tree};

/// What is expected.
pub struct Expected {
    /// The names.
    pub tree: Tree,
    /// Inodes whose names, or directories whose entries, an fsync of another inode has changed.
    pub disturbed: Vec<Id>,
}

impl Expected {
    fn remove(&mut self, dir: Id, name: &str) {
        if let Some(node) = self.tree.change(dir) {
            node.entries.remove(name);
            self.disturbed.push(dir);
        }
    }
}

/// Gives an inode its names in `later`, and takes its others away, unless they may stay; the directories they are in come to where they
/// are in `later`, or, not `with_path`, stay where they are. What it pushes off a name goes where it is in `later`.
pub fn overlay(expected: &mut Expected, later: &Tree, id: Id, with_removed: bool, with_path: bool) {
    let mut moved = vec![id];
    let mut done: Vec<Id> = Vec::new();
    while let Some(id) = moved.pop() {
        let Some(node) = later.get(id) else { continue };
        done.push(id);
        let names = later.names_of(id);
        if names.is_empty() && id != ROOT {
            continue;
        }
        let before = expected.tree.names_of(id);
        if before != names {
            expected.disturbed.push(id);
        }
        if !(with_removed && names.iter().all(|name| before.contains(name))) {
            before.iter().filter(|name| !names.contains(name)).for_each(|(dir, name)| expected.remove(*dir, name));
        }
        put(&mut expected.tree, node, id);
        for (dir, name) in names {
            if with_path || expected.tree.get(dir).is_none() {
                bring_directory(&mut expected.tree, later, dir, &done, &mut moved);
            }
            let there = expected.tree.get(dir).and_then(|node| node.entries.get(&name)).copied();
            if there == Some(id) {
                continue;
            }
            expected.disturbed.push(dir);
            if let Some(old) = there {
                expected.disturbed.push(old);
                if !done.contains(&old) && later.get(old).is_some() {
                    moved.push(old);
                    expected.remove(dir, &name);
                } else {
                    expected.tree.unname(dir, &name);
                }
            }
            expected.tree.name(dir, &name, id);
        }
    }
}

/// Sees to it that a directory, and those it is in, will be where they are in `later`.
fn bring_directory(tree: &mut Tree, later: &Tree, dir: Id, done: &[Id], moved: &mut Vec<Id>) {
    let Some(node) = later.get(dir) else { return };
    if tree.get(dir).is_none() {
        // A directory that is as new comes along, with what of it is durable.
        let mut bare = (**node).clone();
        bare.entries.clear();
        put(tree, &Arc::new(bare), dir);
        moved.push(dir);
        return;
    }
    let mut at = dir;
    while at != ROOT && !done.contains(&at) {
        let names = later.names_of(at);
        if tree.names_of(at) != names && !moved.contains(&at) {
            moved.push(at);
        }
        let Some((parent, _)) = names.first() else { return };
        at = *parent;
    }
}

/// Puts an inode into the tree, or its fields; entries of a directory that is there already stay.
fn put(tree: &mut Tree, node: &Arc<Node>, id: Id) {
    let entries = tree.get(id).map(|old| old.entries.clone());
    tree.insert(id, Node { entries: entries.unwrap_or_default(), ..(**node).clone() });
}
