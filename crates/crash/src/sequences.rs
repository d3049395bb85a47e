//! Every short sequence, followed by every way to make something of it durable: the promise is then held against what a power cut leaves.
//!
//! A sequence is: operation, nothing or fsync of its file or sync, operation, and then one of the persistence points below: sync (and
//! syncfs, which is the same to an engine), closing, fsync of a directory, or fsync or fdatasync of any file that there is by then, whether
//! the operations touched it or not. `O_SYNC` is a write and an fsync (the layer above makes it so), `close(2)` promises nothing.

use std::sync::OnceLock;

use basalt_vfs::FileKind;

use crate::enumerate::{OPERATIONS, add_operation};
use crate::prepare::Image;
use crate::script::Step;
use crate::tree::Tree;

/// Steps at the beginning of a sequence. Every second one takes a checkpoint of its own mount there; the others begin behind that of the
/// one before.
pub const PRELUDE: usize = 2;

/// Files that an fsync at the end is tried on, at most.
const FILES: u64 = 8;
/// Ends: sync, closing, fsync of the root and of a directory, fsync and fdatasync of each file.
const ENDS: u64 = 4 + 2 * FILES;
/// What may stand behind an operation that is not the last.
const BETWEEN: u64 = 3;
/// Sequences of two operations.
pub const PAIRS: u64 = (OPERATIONS.len() * OPERATIONS.len()) as u64 * BETWEEN * ENDS;

/// Operations of sequences of three: one of each kind that has been got wrong most.
const REDUCED: [&str; 16] = [
    "create n",
    "create A/n",
    "link foo A/l",
    "unlink foo",
    "rename foo bar",
    "rename A/foo n",
    "rename C Z",
    "exchange foo A/foo",
    "create n; write n 0 9000 1; rename n foo",
    "write foo 0 4096 2",
    "write A/foo 8192 70000 5",
    "truncate foo 0",
    "truncate A/foo 2500",
    "punch A/foo 0 4096",
    "setxattr A/foo 0 1200 8",
    "chmod A/foo 600",
];
/// Sequences of three operations, with nothing or fsync behind the first two.
pub const TRIPLES: u64 = (REDUCED.len() * REDUCED.len() * REDUCED.len()) as u64 * 4 * ENDS;

/// The sequence of two of this number, [`PRELUDE`] first.
pub fn pair(number: u64) -> Vec<Step> {
    let mut steps = prelude(number);
    let (number, end) = (number / ENDS, number % ENDS);
    let (number, between) = (number / BETWEEN, number % BETWEEN);
    let all = OPERATIONS.len() as u64;
    add(&mut steps, OPERATIONS[(number / all % all) as usize], between);
    add(&mut steps, OPERATIONS[(number % all) as usize], 0);
    finish(steps, end)
}

/// The sequence of three of this number, [`PRELUDE`] first.
pub fn triple(number: u64) -> Vec<Step> {
    let mut steps = prelude(number);
    let (mut number, end) = (number / ENDS, number % ENDS);
    let between = number % 4;
    number /= 4;
    let all = REDUCED.len() as u64;
    for between in [between % 2, between / 2, 0] {
        add(&mut steps, REDUCED[(number % all) as usize], between);
        number /= all;
    }
    finish(steps, end)
}

fn prelude(number: u64) -> Vec<Step> {
    if (number / 7).is_multiple_of(2) {
        vec![Step::Mkdir("warm".to_owned()), Step::Sync]
    } else {
        vec![Step::Statfs; PRELUDE]
    }
}

/// Adds an operation and nothing, an fsync of its file, or a sync.
fn add(steps: &mut Vec<Step>, operation: &str, between: u64) {
    match (between, add_operation(steps, operation)) {
        (1, Some(path)) => steps.push(Step::Fsync(path)),
        (2, _) => steps.push(Step::Sync),
        _ => {}
    }
}

/// Adds what makes something durable.
fn finish(mut steps: Vec<Step>, end: u64) -> Vec<Step> {
    let last = match end {
        0 => Step::Sync,
        1 => Step::Remount,
        2 => Step::Fsync("/".to_owned()),
        3 => Step::Fsync("A".to_owned()),
        _ => {
            let files = files_after(&steps);
            let Some(path) = files.get(((end - 4) / 2) as usize % files.len().max(1)) else { return steps };
            if end.is_multiple_of(2) { Step::Fsync(path.clone()) } else { Step::Fdatasync(path.clone()) }
        }
    };
    steps.push(last);
    steps
}

/// The files that there are when these steps have been done, as far as they can be.
fn files_after(steps: &[Step]) -> Vec<String> {
    static BEFORE: OnceLock<Tree> = OnceLock::new();
    let play = |mut tree: Tree, steps: &[Step]| {
        // Any number does: nothing is looked up by it.
        for step in steps {
            let before = tree.clone();
            tree = if tree.apply(step, 0).is_some() { tree } else { before };
        }
        tree
    };
    let tree = play(BEFORE.get_or_init(|| play(Tree::new(0), &Image::Few.steps())).clone(), steps);
    let is_file = |id| tree.get(id).is_some_and(|node| node.kind == FileKind::Regular);
    tree.paths().into_iter().filter(|(_, id)| is_file(*id)).map(|(path, _)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(steps: &[Step]) -> String {
        steps[PRELUDE..].iter().map(|step| format!("{step}; ")).collect()
    }

    #[test]
    fn sequences_end_with_what_makes_something_durable() {
        for number in (0..PAIRS).step_by(977) {
            let steps = pair(number);
            assert!(steps.last().is_some_and(Step::is_persistence), "{number}: {}", text(&steps));
        }
        for number in (0..TRIPLES).step_by(977) {
            let steps = triple(number);
            assert!(steps.last().is_some_and(Step::is_persistence), "{number}: {}", text(&steps));
        }
    }

    #[test]
    fn every_file_is_reached() {
        let rename = OPERATIONS.iter().position(|operation| *operation == "rename C Z").unwrap() as u64;
        let chmod = OPERATIONS.iter().position(|operation| *operation == "chmod A/foo 600").unwrap() as u64;
        let first = (rename * OPERATIONS.len() as u64 + chmod) * BETWEEN * ENDS;
        let all: Vec<String> = (first..first + ENDS).map(|number| text(&pair(number))).collect();
        assert!(all.contains(&"rename C Z; chmod A/foo 600; fsync Z/D/foo; ".to_owned()), "{all:?}");
        assert!(all.contains(&"rename C Z; chmod A/foo 600; fdatasync B/too; ".to_owned()), "{all:?}");
        assert!(all.contains(&"rename C Z; chmod A/foo 600; remount; ".to_owned()), "{all:?}");
    }
}
