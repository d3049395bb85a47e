//! Every short sequence, as CrashMonkey's ACE makes them (Mohan et al., OSDI 2018, section 5.2): few operations on few files, and a
//! persistence point after each; nearly all crash bugs that were ever reported need no more.

use basalt_testkit::rng::Rng;

use crate::script::Step;

/// The operations. Two files in the root, two in a directory, and one more directory; all exist and are durable before.
const OPERATIONS: [&str; 34] = [
    "create n",
    "create A/n",
    "mkdir B/m",
    "symlink A/s 40",
    "link foo A/l",
    "link A/foo l",
    "link foo B/l",
    "unlink foo",
    "unlink A/foo",
    "unlink A/bar",
    "rmdir B",
    "rename foo bar",
    "rename foo A/bar",
    "rename A/foo A/bar",
    "rename A/foo n",
    "rename bar A/n",
    "rename B A/B",
    "exchange foo A/foo",
    "exchange A B",
    "write foo 0 100 1",
    "write foo 0 4096 2",
    "write foo 5000 30000 3",
    "write A/foo 4096 4096 4",
    "write A/foo 8192 70000 5",
    "write bar 3600000 5000 6",
    "truncate foo 0",
    "truncate A/foo 2500",
    "truncate A/foo 60000",
    "allocate foo 4096 50000",
    "punch A/foo 0 4096",
    "setxattr foo 0 60 7",
    "setxattr A/foo 0 1200 8",
    "removexattr bar 0",
    "chmod A/foo 600",
];

/// What may follow an operation.
const PERSISTENCE: usize = 3;

/// What is there before, durable.
const SETUP: &str = "mkdir A; mkdir B; create foo; create bar; create A/foo; create A/bar; write foo 0 6000 11; \
                     write A/foo 0 20000 12; write bar 0 200 13; setxattr bar 0 30 14; sync";

/// Sequences of two.
pub const PAIRS: u64 = ((OPERATIONS.len() * PERSISTENCE) * (OPERATIONS.len() * PERSISTENCE)) as u64;

/// The sequence of this number, set-up first: all those of two, then random ones of three.
pub fn sequence(number: u64) -> Vec<Step> {
    let mut steps: Vec<Step> = SETUP.split(';').filter_map(|line| line.trim().parse().ok()).collect();
    let each = (OPERATIONS.len() * PERSISTENCE) as u64;
    if number < PAIRS {
        add(&mut steps, number / each);
        add(&mut steps, number % each);
    } else {
        let mut rng = Rng::new(number);
        (0..3).for_each(|_| add(&mut steps, rng.below(each)));
    }
    steps
}

/// Adds one operation and its persistence point. `choice` is below the number of both.
fn add(steps: &mut Vec<Step>, choice: u64) {
    let choice = choice as usize;
    let Ok(step) = OPERATIONS[choice / PERSISTENCE].parse::<Step>() else { return };
    let target = target(&step);
    steps.push(step);
    match (choice % PERSISTENCE, target) {
        (1, Some(path)) => steps.push(Step::Fsync(path)),
        (2, _) => steps.push(Step::Sync),
        _ => {}
    }
}

/// What an fsync after a step is about: the file, or, where it is gone, the directory it was in.
fn target(step: &Step) -> Option<String> {
    let parent = |path: &str| path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
    match step {
        Step::Unlink(path) | Step::Rmdir(path) => parent(path),
        Step::Rename(_, to) | Step::Exchange(_, to) | Step::Link(_, to) => Some(to.clone()),
        Step::Create(path)
        | Step::Mkdir(path)
        | Step::Symlink(path, _)
        | Step::Write(path, ..)
        | Step::Truncate(path, _)
        | Step::Allocate(path, ..)
        | Step::Punch(path, ..)
        | Step::SetXattr(path, ..)
        | Step::RemoveXattr(path, _)
        | Step::Chmod(path, _) => Some(path.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_a_step() {
        for line in OPERATIONS.iter().copied().chain(SETUP.split(';').map(str::trim)) {
            assert!(line.parse::<Step>().is_ok(), "{line}");
        }
    }

    #[test]
    fn sequences_differ_and_never_change() {
        let text = |number| sequence(number).iter().skip(11).map(|step| format!("{step}; ")).collect::<String>();
        assert_eq!(text(0), "create n; create n; ");
        assert_eq!(text(PAIRS - 1), "chmod A/foo 600; sync; chmod A/foo 600; sync; ");
        assert_eq!(text(102 * 4 + 52), "create A/n; fsync A/n; exchange foo A/foo; fsync A/foo; ");
        assert!(sequence(PAIRS + 5).len() >= 14);
    }
}
