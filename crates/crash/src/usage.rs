//! What is done with a volume after a power cut: work must go on, and must find what it has a right to.
//!
//! Every way to make a file longer is used on what is left, since bytes behind an end that is older must read as zeros.

use basalt_testkit::rng::Rng;
use basalt_vfs::FileKind;

use crate::script::Step;
use crate::tree::{Id, Node, Tree};

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A few files are made longer, and changed.
    Some,
    /// Every file is; then all are removed, and the volume is mounted anew.
    All,
}

/// Steps on what a tree holds; the same seed, the same steps.
pub fn usage(tree: &Tree, extent: Extent, seed: u64) -> Vec<Step> {
    let mut rng = Rng::new(seed ^ 0x05E);
    let paths = tree.paths();
    let mut steps = begin();
    let mut files: Vec<(&str, &Node)> =
        paths.iter().filter_map(|(path, id)| Some((&**path, file(tree, *id)?))).collect();
    // Those that end within a block come first.
    files.sort_by_key(|(_, node)| node.size.is_multiple_of(4096));
    let within = files.iter().filter(|(_, node)| !node.size.is_multiple_of(4096)).count();
    let (most_within, most) = if extent == Extent::Some { (4, 5) } else { (64, 80) };
    if within > most_within {
        let first = rng.index(within);
        files[..within].rotate_left(first);
        files.drain(most_within..within);
    }
    files.truncate(most);
    for (path, node) in files {
        use_file(path, node.size, &mut rng, &mut steps);
    }
    if extent == Extent::All {
        remove_all(tree, &paths, &mut steps);
        steps.push(Step::Remount);
    }
    steps
}

/// What is done on every volume, whatever it holds.
pub fn begin() -> Vec<Step> {
    let path = || "after/file".to_owned();
    vec![
        Step::Mkdir("after".to_owned()),
        Step::Create(path()),
        Step::Write(path(), 0, 9_000, 7),
        Step::Fsync(path()),
        Step::Rename(path(), "after/again".to_owned()),
    ]
}

fn file(tree: &Tree, id: Id) -> Option<&Node> {
    tree.get(id).map(|node| &**node).filter(|node| node.kind == FileKind::Regular)
}

/// Makes a file longer in one of the ways there are, and changes it.
fn use_file(path: &str, size: u64, rng: &mut Rng, steps: &mut Vec<Step>) {
    let name = || path.to_owned();
    let seed = rng.next_u64() >> 40;
    steps.push(match rng.below(6) {
        0 => Step::Truncate(name(), size + rng.between(1, 9000)),
        1 => Step::Write(name(), size + rng.between(1, 6000), 100, seed),
        2 => Step::Allocate(name(), size, rng.between(1, 9000)),
        3 => Step::Zero(name(), size + 1, rng.between(1, 6000)),
        4 => Step::WriteBack(name(), size.next_multiple_of(4096) + 4096, 300, seed),
        _ => Step::Write(name(), size, 700, seed),
    });
    match rng.below(8) {
        0 => steps.push(Step::Punch(name(), size / 2, 3000)),
        1 => steps.push(Step::Link(name(), "after/link".to_owned())),
        2 => steps.push(Step::Unlink(name())),
        3 => steps.push(Step::Fsync(name())),
        4 => steps.push(Step::Truncate(name(), size / 2 + 1)),
        _ => {}
    }
}

/// Removes everything; what may not be removed is freed of the flags that forbid it first.
fn remove_all(tree: &Tree, paths: &[(String, Id)], steps: &mut Vec<Step>) {
    steps.extend(["after/file", "after/again", "after/link"].map(|path| Step::Unlink(path.to_owned())));
    for (path, id) in paths.iter().rev() {
        let Some(node) = tree.get(*id) else { continue };
        if node.meta.flags != 0 {
            steps.push(Step::Flags(path.clone(), 0));
        }
    }
    for (path, id) in paths.iter().rev() {
        let is_directory = tree.get(*id).is_some_and(|node| node.kind == FileKind::Directory);
        steps.push(if is_directory { Step::Rmdir(path.clone()) } else { Step::Unlink(path.clone()) });
    }
    steps.push(Step::Rmdir("after".to_owned()));
}
