//! What may be there after a power cut, where threads were at work.
//!
//! As [without threads](crate::oracle), with these differences. Every change took effect at one moment between its call and its
//! return, and these moments are known. What a call promises it promises when it has returned, and for everything that had taken
//! effect when it was called; what took effect while it ran may or may not be covered, and so may what a call covers that had not
//! returned.

use std::collections::BTreeMap;
use std::sync::Arc;

use basalt_vfs::FileKind;

use super::run::Life;
use crate::oracle::{Strictness, compare_pages};
use crate::overlay::{Expected, overlay};
use crate::session::Promise;
use crate::tree::{Id, Node, PAGE, ROOT, Tree};

/// Combinations of fsyncs under way that are looked at for one moment; threads are few, and so are these.
const COMBINATIONS: usize = 4096;

/// An fsync that was called before the power went.
#[derive(Debug, Clone, Copy)]
struct Fsync {
    id: Id,
    /// The states that it may cover up to.
    covers: (usize, usize),
    /// It had returned, and covers the first of them at least.
    returned: bool,
    whole: bool,
}

/// What a moment of a life has promised.
struct Promised<'a> {
    states: &'a [Tree],
    /// The state that the last completed sync made durable.
    synced: usize,
    /// The last state that was there.
    last: usize,
    fsyncs: Vec<Fsync>,
}

/// The state that an inode's fsync left it in, for those of which that is later than the names.
type Chosen = BTreeMap<Id, usize>;

impl<'a> Promised<'a> {
    fn new(life: &'a Life, at: usize) -> Promised<'a> {
        let last = life.effects.partition_point(|effect| effect.changes <= at);
        let mut promised = Promised { states: &life.states, synced: 0, last, fsyncs: Vec::new() };
        for done in life.done.iter().filter(|done| done.call.changes <= at) {
            let returned = done.returned.changes <= at;
            let (first, until) = (done.states.0.min(last), done.states.1.min(last));
            let (id, whole) = match done.promise {
                Promise::All if returned => {
                    promised.synced = promised.synced.max(first);
                    continue;
                }
                Promise::All | Promise::Names | Promise::Nothing => continue,
                Promise::File(id) => (id, true),
                Promise::Data(id) => (id, false),
            };
            promised.fsyncs.push(Fsync { id, covers: (first, until), returned, whole });
        }
        promised
    }

    fn of(&self, id: Id) -> impl Iterator<Item = &Fsync> {
        self.fsyncs.iter().filter(move |fsync| fsync.id == id)
    }

    /// The state up to which an inode is durable, whatever the names are of.
    fn floor(&self, id: Id) -> usize {
        self.of(id).filter(|fsync| fsync.returned).map(|fsync| fsync.covers.0).max().unwrap_or(0).max(self.synced)
    }

    /// What an inode may be as of, where the names are of `moment`: an fsync's state, or `None` for what the moment has.
    fn candidates(&self, id: Id, moment: usize) -> Vec<Option<usize>> {
        let floor = self.floor(id);
        let mut all: Vec<Option<usize>> = Vec::new();
        let mut seen = Vec::new();
        let last = self.of(id).map(|fsync| fsync.covers.1).max().unwrap_or(0);
        for state in (moment.max(floor)..=last).rev().filter(|state| *state > moment) {
            let is_covered = self.of(id).any(|fsync| (fsync.covers.0..=fsync.covers.1).contains(&state));
            let Some(node) = self.states[state].get(id).filter(|_| is_covered) else { continue };
            let names = self.states[state].names_of(id);
            if !seen.iter().any(|(other, others): &(&Arc<Node>, _)| Arc::ptr_eq(other, node) && *others == names) {
                seen.push((node, names));
                all.push(Some(state));
            }
        }
        // Unlinked since: nothing of it has to be there.
        if floor <= moment || all.is_empty() {
            all.push(None);
        }
        all
    }
}

/// Fails if `found`, on what a power cut during change `at` of `life` has left, is none of the trees that may be there.
pub fn verify(life: &Life, at: usize, found: &Tree) -> Result<(), String> {
    let promised = Promised::new(life, at);
    let mut ids: Vec<Id> = promised.fsyncs.iter().map(|fsync| fsync.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut complaints: Vec<(usize, String)> = Vec::new();
    let mut before: Option<(&Tree, Vec<Chosen>)> = None;
    // The newest first: mostly it is one of the last.
    for moment in (promised.synced..=promised.last).rev() {
        let state = &life.states[moment];
        let combinations = combine(&promised, &ids, moment)?;
        if before.as_ref().is_some_and(|(tree, others)| tree.is_same(state) && *others == combinations) {
            continue;
        }
        for chosen in &combinations {
            for with_removed in [false, true] {
                if with_removed && chosen.is_empty() {
                    continue;
                }
                match compare(&promised, moment, chosen, with_removed, found) {
                    Ok(()) => return Ok(()),
                    Err(complaint) => complaints.push((moment, complaint)),
                }
            }
        }
        before = Some((state, combinations));
    }
    Err(explain(&promised, &complaints))
}

/// All that fsyncs may have come to.
fn combine(promised: &Promised<'_>, ids: &[Id], moment: usize) -> Result<Vec<Chosen>, String> {
    let mut all = vec![Chosen::new()];
    for &id in ids {
        let candidates = promised.candidates(id, moment);
        if all.len() * candidates.len() > COMBINATIONS {
            return Err(format!("more than {COMBINATIONS} states may be there: too many steps under way at once"));
        }
        all = all
            .iter()
            .flat_map(|chosen| {
                candidates.iter().map(move |candidate| {
                    let mut chosen = chosen.clone();
                    chosen.extend(candidate.map(|state| (id, state)));
                    chosen
                })
            })
            .collect();
    }
    Ok(all)
}

/// The complaints that say most: against the newest and against the oldest state, and about content, which has come furthest.
fn explain(promised: &Promised<'_>, complaints: &[(usize, String)]) -> String {
    let line = |(moment, complaint): &(usize, String)| format!("  as after change {moment}: {complaint}");
    let best = complaints.iter().find(|(_, complaint)| complaint.contains("page"));
    let mut lines: Vec<String> =
        complaints.first().into_iter().chain(complaints.last()).chain(best).map(line).collect();
    lines.dedup();
    let (first, last) = (promised.synced, promised.last);
    format!("the tree is none that may be there (changes {first} to {last} count):\n{}", lines.join("\n"))
}

/// Holds `found` against the names at `moment` and what fsyncs have made of some inodes.
fn compare(
    promised: &Promised<'_>,
    moment: usize,
    chosen: &Chosen,
    with_removed: bool,
    found: &Tree,
) -> Result<(), String> {
    let mut expected = Expected { tree: promised.states[moment].clone(), disturbed: Vec::new() };
    let mut in_order: Vec<(usize, Id)> = chosen.iter().map(|(id, state)| (*state, *id)).collect();
    in_order.sort_unstable();
    for (state, id) in in_order {
        overlay(&mut expected, &promised.states[state], id, with_removed, true);
    }
    walk(&expected.tree, found, |id, node, there| {
        compare_node(promised, moment, chosen.get(&id).copied(), id, node, there)
    })
}

/// Goes through both trees side by side.
fn walk(
    expected: &Tree,
    found: &Tree,
    mut each: impl FnMut(Id, &Node, &Node) -> Result<(), String>,
) -> Result<(), String> {
    let mut open = vec![(ROOT, ROOT, String::new())];
    while let Some((id, found_id, path)) = open.pop() {
        let (Some(node), Some(there)) = (expected.get(id), found.get(found_id)) else {
            return Err(format!("`{path}` leads nowhere"));
        };
        if node.ino != there.ino || node.kind != there.kind {
            return Err(format!("`{path}` is {:?} {}, expected {:?} {}", there.kind, there.ino, node.kind, node.ino));
        }
        if let Some(name) = there.entries.keys().find(|name| !node.entries.contains_key(*name)) {
            return Err(format!("`{path}/{name}` is there, but should not"));
        }
        for (name, child) in &node.entries {
            let Some(found_child) = there.entries.get(name) else {
                return Err(format!("`{path}/{name}` is missing"));
            };
            open.push((*child, *found_child, format!("{path}/{name}")));
        }
        if node.target != there.target {
            let (got, wanted) = (there.target.len(), node.target.len());
            return Err(format!("`{path}`: target of {got} bytes, expected {wanted}"));
        }
        each(id, node, there).map_err(|complaint| format!("`{path}`: {complaint}"))?;
    }
    Ok(())
}

fn compare_node(
    promised: &Promised<'_>,
    moment: usize,
    fsynced: Option<usize>,
    id: Id,
    node: &Node,
    there: &Node,
) -> Result<(), String> {
    let state = fsynced.unwrap_or(moment);
    // What fdatasync leaves out may be older than the rest.
    let is_partial = fsynced.is_some() && promised.of(id).any(|fsync| !fsync.whole);
    let oldest = if is_partial { moment.min(state) } else { state };
    let mut versions: Vec<&Node> = vec![node];
    versions.extend(promised.states[oldest..=state].iter().filter_map(|state| state.get(id)).map(|node| &**node));
    compare_fields(&versions, there)?;
    if there.kind != FileKind::Regular {
        return Ok(());
    }
    if node.size != there.size {
        return Err(format!("{} bytes, expected {}", there.size, node.size));
    }
    // An fsync under way may have brought some pages, and others not.
    let under_way = promised.of(id).filter(|fsync| !fsync.returned).map(|fsync| fsync.covers.1);
    let newest = under_way.max().unwrap_or(0).max(state);
    let floor = promised.floor(id).min(newest);
    compare_pages(&promised.states[floor..=newest], id, there, Strictness::NoSizeAlone)
}

fn compare_fields(versions: &[&Node], there: &Node) -> Result<(), String> {
    let Some(usual) = versions.first() else { return Ok(()) };
    if !versions.iter().any(|version| version.meta.permissions == there.meta.permissions) {
        return Err(format!("permissions {:o}, expected {:o}", there.meta.permissions, usual.meta.permissions));
    }
    for name in there.xattrs.keys().chain(versions.iter().flat_map(|version| version.xattrs.keys())) {
        let value = there.xattrs.get(name);
        if !versions.iter().any(|version| version.xattrs.get(name) == value) {
            let wanted = usual.xattrs.get(name).map(Vec::len);
            return Err(format!("attribute {name} has {:?} bytes, expected {wanted:?}", value.map(Vec::len)));
        }
    }
    Ok(())
}

/// Fails if what an engine says that has the volume open is not what was done.
pub(super) fn expect_final(state: &Tree, found: &Tree) -> Result<(), String> {
    let exactly = |id: Id, node: &Node, there: &Node| {
        compare_fields(&[node], there)?;
        if node.size != there.size {
            return Err(format!("{} bytes, expected {}", there.size, node.size));
        }
        compare_pages(std::slice::from_ref(state), id, there, Strictness::AnyVersion)
    };
    walk(state, found, exactly).map_err(|complaint| format!("with all threads over, before any power cut: {complaint}"))
}

/// Fails if bytes read from a file are none that it held in `states`.
pub(super) fn expect_read(states: &[Tree], id: Id, content: &[u8]) -> Result<(), String> {
    let Some(node) = states.iter().find_map(|state| state.get(id)) else { return Ok(()) };
    let mut there = Node { size: content.len() as u64, ..(**node).clone() };
    there.pages.clear();
    for (index, bytes) in (0..).zip(content.chunks(PAGE as usize)) {
        if bytes.iter().any(|byte| *byte != 0) {
            let mut page = [0; PAGE as usize];
            page[..bytes.len()].copy_from_slice(bytes);
            there.pages.insert(index, Arc::new(page));
        }
    }
    compare_pages(states, id, &there, Strictness::AnyVersion)
}
