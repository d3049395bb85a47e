//! What may be there after a power cut.
//!
//! 1. The names are those of one moment between the last sync that had returned and the cut (a checkpoint is a moment: what
//!    one operation does is there as a whole or not at all), except that
//! 2. an inode fsynced after that moment has its names of the fsync; whatever else has one of these names by then has moved or
//!    gone as it had at the fsync. An fsync that the cut met may have come so far or not. Where names were only removed, the
//!    removal is the directory's business and may be undone.
//! 3. A page holds what it held at some moment from its last fsync or sync to the one the names are of: a checkpoint says
//!    nothing about pages that are still in memory. It never holds anything else.
//! 4. Size, permissions, and attributes of an inode are those of one moment, as its names: that of the names, or that of its
//!    last fsync if it came later.

use std::sync::Arc;

use basalt_vfs::FileKind;

use crate::session::{Done, Life, Promise};
use crate::tree::{Id, Node, PAGE, Page, ROOT, Tree};

/// What a moment of a life has promised.
struct Promised<'a> {
    states: &'a [Tree],
    /// The state that the last completed sync made durable.
    synced: usize,
    /// Steps that had returned: the last state that is complete.
    returned: usize,
    /// States that may have reached the medium.
    last: usize,
    /// Inodes fsynced since, with the state after their last completed fsync and whether it was a whole one.
    fsynced: Vec<(Id, usize, bool)>,
    /// The inode whose fsync the power cut met.
    in_flight: Option<Id>,
}

impl<'a> Promised<'a> {
    fn new(life: &'a Life, at: usize) -> Promised<'a> {
        let returned = life.done.iter().take_while(|done| done.changes.end <= at).count();
        let mut promised = Promised {
            states: &life.states,
            synced: 0,
            returned,
            last: (returned + 1).min(life.states.len() - 1),
            fsynced: Vec::new(),
            in_flight: None,
        };
        for (state, done) in (1..).zip(&life.done[..returned]) {
            match done.promise {
                Promise::Nothing => {}
                Promise::All => {
                    promised.synced = state;
                    promised.fsynced.clear();
                }
                Promise::File(id) => promised.note(id, state, true),
                Promise::Data(id) => promised.note(id, state, false),
            }
        }
        if let Some(Done { promise: Promise::File(id) | Promise::Data(id), .. }) = life.done.get(returned) {
            promised.in_flight = Some(*id);
        }
        promised
    }

    fn note(&mut self, id: Id, state: usize, whole: bool) {
        self.fsynced.retain(|(other, ..)| *other != id);
        self.fsynced.push((id, state, whole));
    }

    /// Whether the names at this moment are all there is to say.
    fn is_plain(&self, moment: usize) -> bool {
        self.in_flight.is_none() && self.fsynced.iter().all(|(_, state, _)| *state <= moment)
    }

    fn fsync_of(&self, id: Id) -> Option<(usize, bool)> {
        self.fsynced.iter().find(|(other, ..)| *other == id).map(|(_, state, whole)| (*state, *whole))
    }
}

/// The first state a volume may be in after the power went during change `at` of `life`, with what it is; an error if `found`
/// is none of them.
pub fn verify(life: &Life, at: usize, found: &Tree) -> Result<usize, String> {
    let promised = Promised::new(life, at);
    let mut complaints = Vec::new();
    let mut before: Option<&Tree> = None;
    // The newest first: mostly it is one of the last.
    for moment in (promised.synced..=promised.last).rev() {
        let state = &life.states[moment];
        if before.is_some_and(|before| before.is_same(state)) && moment != promised.synced {
            continue;
        }
        before = Some(state);
        for variant in Variant::ALL {
            if variant.with_flight && promised.in_flight.is_none() || variant.with_removed && promised.is_plain(moment)
            {
                continue;
            }
            match compare(&promised, moment, variant, found) {
                Ok(()) => return Ok(moment),
                Err(complaint) => complaints.push((moment, complaint)),
            }
        }
    }
    Err(explain(&promised, &complaints))
}

/// The complaints that say most: against the newest and against the oldest state.
fn explain(promised: &Promised<'_>, complaints: &[(usize, String)]) -> String {
    let line =
        |(moment, complaint): &(usize, String)| format!("  as after step {}: {complaint}", moment.saturating_sub(1));
    // A complaint about content has come further than one about names.
    let best = complaints.iter().find(|(_, complaint)| complaint.contains("page"));
    let mut lines: Vec<String> =
        complaints.first().into_iter().chain(complaints.last()).chain(best).map(line).collect();
    lines.dedup();
    format!(
        "the tree is none that may be there (steps {} to {} count):\n{}",
        promised.synced.saturating_sub(1),
        promised.last.saturating_sub(1),
        lines.join("\n")
    )
}

/// What the names at one moment may be like.
#[derive(Debug, Clone, Copy)]
struct Variant {
    /// The fsync that the power cut met has come as far as the names.
    with_flight: bool,
    /// Names that an fsynced inode has lost, without getting others, are back.
    with_removed: bool,
}

impl Variant {
    const ALL: [Variant; 4] = [
        Variant { with_flight: false, with_removed: false },
        Variant { with_flight: true, with_removed: false },
        Variant { with_flight: false, with_removed: true },
        Variant { with_flight: true, with_removed: true },
    ];
}

/// Holds `found` against the state at `moment`.
fn compare(promised: &Promised<'_>, moment: usize, variant: Variant, found: &Tree) -> Result<(), String> {
    let expected = expect(promised, moment, variant);
    let mut open = vec![(ROOT, ROOT, String::new())];
    while let Some((id, found_id, path)) = open.pop() {
        let (Some(node), Some(there)) = (expected.get(id), found.get(found_id)) else {
            return Err(format!("`{path}` leads nowhere"));
        };
        if node.ino != there.ino || node.kind != there.kind {
            return Err(format!("`{path}` is {:?} {}, expected {:?} {}", there.kind, there.ino, node.kind, node.ino));
        }
        for name in there.entries.keys() {
            if !node.entries.contains_key(name) {
                return Err(format!("`{path}/{name}` is there, but should not"));
            }
        }
        for (name, child) in &node.entries {
            let Some(found_child) = there.entries.get(name) else {
                return Err(format!("`{path}/{name}` is missing"));
            };
            open.push((*child, *found_child, format!("{path}/{name}")));
        }
        compare_node(promised, moment, id, node, there).map_err(|complaint| format!("`{path}`: {complaint}"))?;
    }
    Ok(())
}

/// The names at `moment`, and those of inodes fsynced later.
fn expect(promised: &Promised<'_>, moment: usize, variant: Variant) -> Tree {
    let mut tree = promised.states[moment].clone();
    for (id, state, _) in promised.fsynced.iter().filter(|(_, state, _)| *state > moment) {
        overlay(&mut tree, &promised.states[*state], *id, variant.with_removed);
    }
    if let Some(id) = promised.in_flight.filter(|_| variant.with_flight) {
        overlay(&mut tree, &promised.states[promised.returned], id, variant.with_removed);
    }
    tree
}

/// Gives an inode its names in `later`, and takes its others away, unless they may stay. What it pushes off a name goes where it
/// is in `later`.
pub(crate) fn overlay(tree: &mut Tree, later: &Tree, id: Id, with_removed: bool) {
    let mut moved = vec![id];
    let mut done: Vec<Id> = Vec::new();
    while let Some(id) = moved.pop() {
        let Some(node) = later.get(id) else { continue };
        done.push(id);
        let names = later.names_of(id);
        if names.is_empty() && id != ROOT {
            continue;
        }
        let before = tree.names_of(id);
        if !(with_removed && names.iter().all(|name| before.contains(name))) {
            for (dir, name) in before {
                if let Some(dir) = tree.change(dir) {
                    dir.entries.remove(&name);
                }
            }
        }
        put(tree, node, id);
        for (dir, name) in names {
            if tree.get(dir).is_none() {
                // A directory that is as new comes along, with what of it is durable.
                let Some(parent) = later.get(dir) else { continue };
                let mut bare = (**parent).clone();
                bare.entries.clear();
                put(tree, &Arc::new(bare), dir);
                moved.push(dir);
            }
            let pushed_off = tree.get(dir).and_then(|node| node.entries.get(&name)).copied().filter(|old| *old != id);
            if let Some(old) = pushed_off {
                if !done.contains(&old) && later.get(old).is_some() {
                    moved.push(old);
                    if let Some(dir) = tree.change(dir) {
                        dir.entries.remove(&name);
                    }
                } else {
                    tree.unname(dir, &name);
                }
            }
            tree.name(dir, &name, id);
        }
    }
}

/// Puts an inode into the tree, or its fields; entries of a directory that is there already stay.
fn put(tree: &mut Tree, node: &Arc<Node>, id: Id) {
    let entries = tree.get(id).map(|old| old.entries.clone());
    tree.insert(id, Node { entries: entries.unwrap_or_default(), ..(**node).clone() });
}

fn compare_node(promised: &Promised<'_>, moment: usize, id: Id, expected: &Node, there: &Node) -> Result<(), String> {
    if expected.target != there.target {
        return Err(format!("target of {} bytes, expected {}", there.target.len(), expected.target.len()));
    }
    let fsync = promised.fsync_of(id).filter(|(state, _)| *state > moment);
    let in_flight = promised.in_flight == Some(id);
    // The states that the inode's own fields may be of.
    let mut fields = vec![fsync.map_or(moment, |(state, _)| state)];
    if let Some((_, false)) = fsync {
        fields.push(moment);
    }
    if in_flight {
        fields.push(promised.returned);
    }
    let versions: Vec<&Arc<Node>> = fields.iter().filter_map(|state| promised.states[*state].get(id)).collect();
    let Some(usual) = versions.first() else { return Err("is there, but never was in any state".to_owned()) };
    if !versions.iter().any(|version| version.permissions == there.permissions) {
        return Err(format!("permissions {:o}, expected {:o}", there.permissions, usual.permissions));
    }
    for name in there.xattrs.keys().chain(versions.iter().flat_map(|version| version.xattrs.keys())) {
        let value = there.xattrs.get(name);
        if !versions.iter().any(|version| version.xattrs.get(name) == value) {
            let wanted = usual.xattrs.get(name).map(Vec::len);
            return Err(format!("attribute {name} has {:?} bytes, expected {wanted:?}", value.map(Vec::len)));
        }
    }
    if there.kind != FileKind::Regular {
        return Ok(());
    }
    // With fdatasync, too, the size is that of the fsync.
    let sizes = [Some(fields[0]), in_flight.then_some(promised.returned)];
    let sizes: Vec<u64> =
        sizes.into_iter().flatten().filter_map(|state| Some(promised.states[state].get(id)?.size)).collect();
    if !sizes.contains(&there.size) {
        return Err(format!("{} bytes, expected {sizes:?}", there.size));
    }
    let first = promised.fsync_of(id).map_or(promised.synced, |(state, _)| state);
    let mut last = moment.max(first);
    if in_flight {
        last = last.max(promised.returned);
    }
    compare_pages(&promised.states[first..=last], id, there)
}

/// Every page holds one of the versions it had in `states`; one that did not exist was zero.
pub(crate) fn compare_pages(states: &[Tree], id: Id, there: &Node) -> Result<(), String> {
    let mut versions: Vec<Option<&Node>> = Vec::new();
    for state in states.iter().rev() {
        let version = state.get(id).map(|node| &**node);
        let is_old = versions.last().is_some_and(|last| match (last, version) {
            (Some(last), Some(version)) => std::ptr::eq(*last, version),
            (last, version) => last.is_none() && version.is_none(),
        });
        if !is_old {
            versions.push(version);
        }
    }
    let pages = versions.iter().flatten().flat_map(|version| version.pages.keys()).chain(there.pages.keys());
    let mut pages: Vec<u64> = pages.copied().filter(|page| page * PAGE < there.size).collect();
    pages.sort_unstable();
    pages.dedup();
    for index in pages {
        let page = there.pages.get(&index);
        let length = (there.size - index * PAGE).min(PAGE) as usize;
        let fits = |version: &Option<&Node>| same(page, version.and_then(|node| node.pages.get(&index)), length);
        if !versions.iter().any(fits) {
            let zero = if page.is_none() { " (zeros)" } else { "" };
            return Err(format!("page {index} holds none of the {} versions it had{zero}", versions.len()));
        }
    }
    Ok(())
}

/// Whether two pages are the same in their first `length` bytes.
fn same(one: Option<&Page>, other: Option<&Page>, length: usize) -> bool {
    let is_zero = |page: &Page| page[..length].iter().all(|byte| *byte == 0);
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one[..length] == other[..length],
        (Some(page), None) | (None, Some(page)) => is_zero(page),
        (None, None) => true,
    }
}
