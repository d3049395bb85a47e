//! What may be there after a power cut.
//!
//! 1. The names are those of one moment between the last sync that had returned (or the last background commit that was due) and the
//!    cut (a checkpoint is a moment: what one operation does is there as a whole or not at all), except that
//! 2. an inode fsynced after that moment has its names of the fsync, and can be reached by its path of then; whatever else has one of
//!    these names by then has moved or gone as it had at the fsync. An fsync that the cut met may have come so far or not. Where names
//!    were only removed, the removal is the directory's business and may be undone.
//! 3. A page holds what it held at some moment from its last fsync or sync to the one the names are of: a checkpoint says
//!    nothing about pages that are still in memory. It never holds anything else. A file that was renamed, or got its first name
//!    (`O_TMPFILE`), holds nothing older than what it held then.
//! 4. Size, attributes, times, and extended attributes of an inode are all of one moment, as its names: that of the names, or that of its
//!    last fsync if it came later. fdatasync may leave the times of an earlier one. Times of directories and of inodes whose names an
//!    fsync of another one changed are not promised.

use std::sync::Arc;

use basalt_vfs::FileKind;

use crate::overlay::{Expected, overlay};
use crate::script::Step;
use crate::session::{Done, Life, Promise};
use crate::tree::{Id, Node, PAGE, Page, ROOT, Tree};

/// Whose promises count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Basalt's: what an fsync has written counts when all of it is there.
    Basalt,
    /// Those of a volume that Linux has recovered: a node of an fsync counts when it is there, whatever has become of the blocks it points
    /// to. So pages that the fsync under way has written may hold anything.
    Linux,
    /// Those of a volume that Linux has written, too: a checkpoint leaves out times that alone have changed, so they may be older unless
    /// the inode was fsynced; data is written in place, so it may be newer; and renamed directories on the path of a file are not its fsync's.
    LinuxWrote,
}

/// What a moment of a life has promised.
struct Promised<'a> {
    by: By,
    states: &'a [Tree],
    /// The state that the last completed sync made durable.
    synced: usize,
    /// As that, where content counts, too.
    content: usize,
    /// Steps that had returned: the last state that is complete.
    returned: usize,
    /// States that may have reached the medium.
    last: usize,
    /// Inodes fsynced since.
    fsynced: Vec<Fsynced>,
    /// The inode whose fsync the power cut met.
    in_flight: Option<Id>,
    /// Files that got another name by a rename, or their first one, with the state after it.
    named: Vec<(Id, usize)>,
}

/// What completed fsyncs of an inode have promised.
#[derive(Debug, Clone, Copy)]
struct Fsynced {
    id: Id,
    /// The state after the last one.
    state: usize,
    /// The state after the last one that was no fdatasync.
    whole: Option<usize>,
}

impl<'a> Promised<'a> {
    fn new(life: &'a Life, at: usize, by: By) -> Promised<'a> {
        let returned = life.done.iter().take_while(|done| done.changes.end <= at).count();
        let mut promised = Promised {
            by,
            states: &life.states,
            synced: 0,
            content: 0,
            returned,
            last: (returned + 1).min(life.states.len() - 1),
            fsynced: Vec::new(),
            in_flight: None,
            named: Vec::new(),
        };
        for (state, done) in (1..).zip(&life.done[..returned]) {
            promised.is_synced(done.aged);
            match done.promise {
                Promise::Nothing => {}
                Promise::All => promised.is_synced(state),
                Promise::Names => promised.synced = promised.synced.max(state),
                Promise::File(id) => promised.note(id, state, true),
                Promise::Data(id) => promised.note(id, state, false),
            }
        }
        for (state, step) in (2..).zip(&life.steps).take(promised.last.saturating_sub(1)) {
            let (before, after) = (&life.states[state - 1], &life.states[state]);
            for path in newly_named(step) {
                let (old, new) = (before.find(path), after.find(path));
                let is_file = |id| before.get(id).is_some_and(|node| node.kind == FileKind::Regular);
                if let Some(new) = new.filter(|&new| old != Some(new) && is_file(new)) {
                    promised.named.push((new, state));
                }
            }
        }
        if let Some(Done { promise: Promise::File(id) | Promise::Data(id), .. }) = life.done.get(returned) {
            promised.in_flight = Some(*id);
        }
        promised
    }

    /// Everything up to this state is durable.
    fn is_synced(&mut self, state: usize) {
        self.synced = self.synced.max(state);
        self.content = self.content.max(state);
        self.fsynced.retain(|fsynced| fsynced.state > state);
    }

    fn note(&mut self, id: Id, state: usize, is_whole: bool) {
        let before = self.fsync_of(id);
        self.fsynced.retain(|fsynced| fsynced.id != id);
        let whole = if is_whole { Some(state) } else { before.and_then(|before| before.whole) };
        self.fsynced.push(Fsynced { id, state, whole });
    }

    /// Whether the names at this moment are all there is to say.
    fn is_plain(&self, moment: usize) -> bool {
        self.in_flight.is_none() && self.fsynced.iter().all(|fsynced| fsynced.state <= moment)
    }

    fn fsync_of(&self, id: Id) -> Option<Fsynced> {
        self.fsynced.iter().find(|fsynced| fsynced.id == id).copied()
    }
}

/// The paths at which a step may show a file that was elsewhere before, or nowhere.
fn newly_named(step: &Step) -> Vec<&str> {
    match step {
        Step::Rename(_, to) | Step::RenameNew(_, to) | Step::Whiteout(_, to) => vec![to],
        Step::Exchange(one, other) => vec![one, other],
        Step::Link(from, to) if from.starts_with('@') => vec![to],
        _ => Vec::new(),
    }
}

/// The first state a volume may be in after the power went during change `at` of `life`, with what it is; an error if `found`
/// is none of them.
pub fn verify(life: &Life, at: usize, found: &Tree) -> Result<usize, String> {
    verify_by(By::Basalt, life, at, found)
}

/// As [`verify`], of what somebody else may have recovered.
pub fn verify_by(by: By, life: &Life, at: usize, found: &Tree) -> Result<usize, String> {
    judge(&Promised::new(life, at, by), found)
}

/// As [`verify`], of a volume that shows no more than its last checkpoint, and says so.
pub fn verify_checkpoint(life: &Life, at: usize, found: &Tree) -> Result<usize, String> {
    judge(&Promised { fsynced: Vec::new(), in_flight: None, ..Promised::new(life, at, By::Basalt) }, found)
}

fn judge(promised: &Promised<'_>, found: &Tree) -> Result<usize, String> {
    let mut complaints = Vec::new();
    let mut before: Option<&Tree> = None;
    // The newest first: mostly it is one of the last.
    for moment in (promised.synced..=promised.last).rev() {
        let state = &promised.states[moment];
        if before.is_some_and(|before| before.is_same(state)) && moment != promised.synced {
            continue;
        }
        before = Some(state);
        for variant in Variant::ALL {
            if variant.with_flight && promised.in_flight.is_none() || variant.with_removed && promised.is_plain(moment)
            {
                continue;
            }
            match compare(promised, moment, variant, found) {
                Ok(()) => return Ok(moment),
                Err(complaint) => complaints.push((moment, complaint)),
            }
        }
    }
    Err(explain(promised, &complaints))
}

/// The complaints that say most: against the newest and against the oldest state.
fn explain(promised: &Promised<'_>, complaints: &[(usize, String)]) -> String {
    let line =
        |(moment, complaint): &(usize, String)| format!("  as after step {}: {complaint}", moment.saturating_sub(1));
    // A complaint about content has come further than one about fields, and that than one about names.
    let rank = |complaint: &str| match complaint {
        _ if complaint.contains(": page ") => 3,
        _ if complaint.contains(": target of ") => 2,
        _ => u8::from(!complaint.contains("is there, but") && !complaint.contains("is missing")),
    };
    let best = complaints.iter().rev().max_by_key(|(_, complaint)| rank(complaint));
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
    let Expected { tree: expected, disturbed } = expect(promised, moment, variant);
    let mut open = vec![(ROOT, ROOT, String::new())];
    let mut files = Vec::new();
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
        // Recovery gives names back, and directories the times of that: each attempt its own.
        let is_new = promised.returned == 0 && node.kind == FileKind::Directory;
        let judge = Judge { promised, moment, id, is_disturbed: is_new || disturbed.contains(&id) };
        judge.node(node, there).map_err(|complaint| format!("`{path}`: {complaint}"))?;
        if there.kind == FileKind::Regular {
            files.push((path, judge, there));
        }
    }
    // What costs most comes last.
    let content = |(path, judge, there): (String, Judge<'_>, &Arc<Node>)| {
        judge.content(there).map_err(|complaint| format!("`{path}`: {complaint}"))
    };
    files.into_iter().try_for_each(content)
}

/// The names at `moment`, and those of inodes fsynced later.
fn expect(promised: &Promised<'_>, moment: usize, variant: Variant) -> Expected {
    let mut expected = Expected { tree: promised.states[moment].clone(), disturbed: Vec::new() };
    let with_path = promised.by != By::LinuxWrote;
    for fsynced in promised.fsynced.iter().filter(|fsynced| fsynced.state > moment) {
        overlay(&mut expected, &promised.states[fsynced.state], fsynced.id, variant.with_removed, with_path);
    }
    if let Some(id) = promised.in_flight.filter(|_| variant.with_flight) {
        overlay(&mut expected, &promised.states[promised.returned], id, variant.with_removed, with_path);
    }
    expected
}

/// What one inode may be like at a moment.
struct Judge<'a> {
    promised: &'a Promised<'a>,
    moment: usize,
    id: Id,
    /// An fsync of another inode changed its names, or what is in it.
    is_disturbed: bool,
}

impl Judge<'_> {
    fn node(&self, expected: &Node, there: &Node) -> Result<(), String> {
        if expected.target != there.target {
            return Err(format!("target of {} bytes, expected {}", there.target.len(), expected.target.len()));
        }
        let promised = self.promised;
        let fsync = promised.fsync_of(self.id).filter(|fsync| fsync.state > self.moment);
        let in_flight = promised.in_flight == Some(self.id);
        let usual = fsync.map_or(self.moment, |fsync| fsync.state);
        // Times may be older after fdatasync.
        let oldest = match (fsync, promised.by) {
            (None, By::LinuxWrote) => 0,
            (Some(fsync), By::LinuxWrote) => fsync.whole.unwrap_or(0),
            (fsync, _) => fsync.map_or(usual, |fsync| fsync.whole.unwrap_or(0).max(self.moment).min(usual)),
        };
        self.fields(usual, oldest, there)
            .or_else(|complaint| if in_flight { self.fields(promised.returned, oldest, there) } else { Err(complaint) })
    }

    /// Holds the pages of a regular file against all versions that they may be of.
    fn content(&self, there: &Node) -> Result<(), String> {
        let promised = self.promised;
        let first = promised.fsync_of(self.id).map_or(promised.content, |fsync| fsync.state);
        let mut last = self.moment.max(first);
        match promised.by {
            _ if promised.in_flight == Some(self.id) => last = last.max(promised.returned),
            // It writes data where it was.
            By::LinuxWrote => last = last.max(promised.last),
            By::Basalt | By::Linux => {}
        }
        let named = promised.named.iter().rev().find(|(id, state)| *id == self.id && *state <= self.moment);
        let first = named.map_or(first, |(_, state)| first.max(*state));
        let strictness = match promised.by {
            By::Basalt => Strictness::NoSizeAlone,
            By::Linux | By::LinuxWrote if promised.in_flight == Some(self.id) => Strictness::Torn,
            By::Linux | By::LinuxWrote => Strictness::AnyVersion,
        };
        compare_pages(&promised.states[first..=last], self.id, there, strictness)
    }

    /// Holds everything but content against one state; times may be those of `oldest` or of any in between.
    fn fields(&self, state: usize, oldest: usize, there: &Node) -> Result<(), String> {
        let of = |state: usize| self.promised.states[state].get(self.id);
        let Some(expected) = of(state) else { return Err("is there, but never was in any state".to_owned()) };
        if let Some(difference) = expected.meta.difference(&there.meta) {
            return Err(difference);
        }
        if expected.size != there.size {
            return Err(format!("{} bytes, expected {}", there.size, expected.size));
        }
        for name in there.xattrs.keys().chain(expected.xattrs.keys()) {
            let (value, wanted) = (there.xattrs.get(name), expected.xattrs.get(name));
            if value != wanted {
                let (value, wanted) = (value.map(Vec::len), wanted.map(Vec::len));
                return Err(format!("attribute {name} has {value:?} bytes, expected {wanted:?}"));
            }
        }
        let times = |state: usize| of(state).map(|node| node.meta.times);
        let is_one = (oldest..=state.max(oldest)).any(|state| times(state) == Some(there.meta.times));
        let is_fsynced = self.promised.fsync_of(self.id).is_some_and(|fsync| fsync.state > self.moment);
        if is_one || self.is_disturbed && !is_fsynced {
            return Ok(());
        }
        expected.meta.times.difference(&there.meta.times).map_or(Ok(()), Err)
    }
}

/// Which content a page may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// Any that it had; but a file that was shorter had none behind its end: a size is never there without its bytes.
    NoSizeAlone,
    /// Any that it had; zeros where the file was shorter.
    AnyVersion,
    /// As that, and anything where it had several.
    Torn,
}

/// Every page holds one of the versions it had in `states`.
pub(crate) fn compare_pages(states: &[Tree], id: Id, there: &Node, strictness: Strictness) -> Result<(), String> {
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
    let page_of = |version: &Option<&Node>, index: u64| version.and_then(|node| node.pages.get(&index).cloned());
    let newest = versions.first().copied().flatten();
    // What neither the newest version nor this one has is the same in both.
    let mut pages: Vec<u64> = there.pages.keys().copied().collect();
    pages.extend(newest.iter().flat_map(|node| node.pages.keys()).filter(|index| !there.pages.contains_key(index)));
    // Where the newest version ends before, an older one may have bytes.
    if let Some(end) = newest.map(|node| node.size).filter(|&end| end < there.size) {
        let older = versions.iter().flatten().flat_map(|node| node.pages.keys().copied());
        pages.extend(older.filter(|index| (index + 1) * PAGE > end && !there.pages.contains_key(index)));
    }
    for index in pages.into_iter().filter(|index| index * PAGE < there.size) {
        let page = there.pages.get(&index);
        let length = (there.size - index * PAGE).min(PAGE) as usize;
        let end = index * PAGE + length as u64;
        let reaches = |version: &Option<&Node>| version.is_some_and(|node| node.size >= end);
        let is = |page: Option<&Page>, version: &Option<&Node>| {
            same(page, page_of(version, index).as_ref(), length)
                && (strictness != Strictness::NoSizeAlone || reaches(version))
        };
        let newest = newest.and_then(|node| node.pages.get(&index));
        let may_be_anything = strictness == Strictness::Torn && !versions.iter().all(|version| is(newest, version));
        if !may_be_anything && !versions.iter().any(|version| is(page, version)) {
            let zero = if page.is_none() { " (zeros)" } else { "" };
            return Err(format!("page {index} holds none of the {} versions it had{zero}", versions.len()));
        }
    }
    Ok(())
}

/// Whether a page of two files of one size is the same.
pub fn same_page(one: &Node, other: &Node, index: u64) -> bool {
    let length = one.size.saturating_sub(index * PAGE).min(PAGE) as usize;
    same(one.pages.get(&index), other.pages.get(&index), length)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A truncation was being fsynced when power went. The file has its old size, and so must have its old bytes.
    #[test]
    fn zeros_behind_the_end_of_a_newer_version_are_none_of_an_older_one() {
        let mut old = Tree::new(3);
        old.apply(&Step::Create("file".into()), 4).unwrap();
        old.apply(&Step::Write("file".into(), 0, 5 * PAGE as u32, 1), 0).unwrap();
        let id = old.find("file").unwrap();
        let mut new = old.clone();
        new.apply(&Step::Truncate("file".into(), PAGE), 0).unwrap();
        let states = [old, new];
        let whole = (**states[0].get(id).unwrap()).clone();
        for strictness in [Strictness::NoSizeAlone, Strictness::AnyVersion] {
            compare_pages(&states, id, &whole, strictness).unwrap();
        }
        for zeros in 1..5 {
            let mut zeroed = whole.clone();
            zeroed.pages.remove(&zeros);
            assert!(compare_pages(&states, id, &zeroed, Strictness::NoSizeAlone).is_err(), "page {zeros}");
        }
    }
}
