//! Every short sequence, as CrashMonkey's ACE makes them (Mohan et al., OSDI 2018, section 5.2): few operations on few files, and a
//! persistence point after each; nearly all crash bugs that were ever reported need no more.

use basalt_testkit::rng::Rng;

use crate::script::Step;

/// The operations, on what [`Image::Few`](crate::prepare::Image::Few) holds. The numbers that data come from are made anew for each place
/// in a sequence: what is done twice shows when the second time is lost.
pub(crate) const OPERATIONS: [&str; 69] = [
    "create n",
    "create A/n",
    "create C/n",
    "mkdir B/m",
    "mkdir C/m",
    "symlink A/s 40",
    "symlink n 4000",
    "mknod n char 259",
    "mknod A/p fifo 0",
    "tmpfile @0; write @0 0 5000 1; link @0 A/t",
    "tmpfile @0; setxattr @0 0 2000 1; sync; link @0 t",
    "link foo A/l",
    "link A/foo l",
    "link foo B/l",
    "unlink foo",
    "unlink A/foo",
    "unlink A/bar",
    "unlink B/too",
    "unlink ln",
    "hold foo; unlink foo",
    "hold A/bar; unlink A/bar; release",
    "rmdir E",
    "rename foo bar",
    "rename foo A/bar",
    "rename A/foo A/bar",
    "rename A/foo n",
    "rename bar A/n",
    "rename B A/B",
    "rename C Z",
    "rename C/D A/D",
    "rename-new foo n",
    "whiteout foo A/bar",
    "whiteout A/foo n",
    "exchange foo A/foo",
    "exchange A C",
    "create n; write n 0 9000 1; rename n foo",
    "write foo 0 100 1",
    "write foo 0 4096 2",
    "write foo 5000 30000 3",
    "write A/foo 4096 4096 4",
    "write A/foo 8192 70000 5",
    "write bar 3600000 5000 6",
    "write C/D/foo 0 4096 7",
    "write bar 3600000 5000 6; sync; write bar 3605000 90 6",
    "write bar 3700000 5000 6; sync; punch bar 3600000 200000",
    "write bar 3700000 5000 6; sync; truncate bar 100",
    "write-back foo 4096 4096 8",
    "truncate foo 0",
    "truncate A/foo 2500",
    "truncate A/foo 60000",
    "allocate foo 4096 50000",
    "reserve A/foo 20000 50000",
    "reserve bar 0 9000",
    "reserve A/foo 20000 50000; sync; allocate A/foo 20000 40000",
    "punch A/foo 0 4096",
    "zero foo 2000 9000",
    "zero-keep A/foo 100 30000",
    "setxattr foo 0 60 7",
    "setxattr A/foo 0 1200 8",
    "setxattr A 0 60 9",
    "setxattr A 0 3000 9",
    "removexattr bar 0",
    "removexattr A/bar 1",
    "setacl foo 2",
    "chmod A/foo 600",
    "chown foo 7 8",
    "utimes A/bar 1000 5",
    "chattr bar 64",
    "tick 6",
];

/// What may follow an operation.
const PERSISTENCE: usize = 3;

/// Sequences of two.
pub const PAIRS: u64 = ((OPERATIONS.len() * PERSISTENCE) * (OPERATIONS.len() * PERSISTENCE)) as u64;

/// The sequence of this number on [`Image::Few`](crate::prepare::Image::Few): all those of two, then random ones of three.
pub fn sequence(number: u64) -> Vec<Step> {
    let mut steps = Vec::new();
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
    let target = add_operation(steps, OPERATIONS[choice / PERSISTENCE]);
    match (choice % PERSISTENCE, target) {
        (1, Some(path)) => steps.push(Step::Fsync(path)),
        (2, _) => steps.push(Step::Sync),
        _ => {}
    }
}

/// Adds one operation, with data that no other step of the sequence has; the path that an fsync after it is about.
pub(crate) fn add_operation(steps: &mut Vec<Step>, operation: &str) -> Option<String> {
    for line in operation.split(';') {
        let Ok(mut step) = line.trim().parse::<Step>() else { continue };
        if let Step::Write(.., seed) | Step::WriteBack(.., seed) | Step::SetXattr(.., seed) = &mut step {
            *seed += 100 * (1 + steps.len() as u64);
        }
        steps.push(step);
    }
    steps.last().and_then(target)
}

/// What an fsync after a step is about: the file, or, where it is gone, the directory it was in.
fn target(step: &Step) -> Option<String> {
    let parent = |path: &str| path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
    match step {
        Step::Unlink(path) | Step::Rmdir(path) => parent(path),
        Step::Tick(_) => None,
        _ => step.paths().last().map(|path| (*path).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_a_step() {
        for line in OPERATIONS.into_iter().flat_map(|operation| operation.split(';').map(str::trim)) {
            assert!(line.parse::<Step>().is_ok(), "{line}");
        }
    }

    #[test]
    fn sequences_differ_and_never_change() {
        let text = |number| sequence(number).iter().map(|step| format!("{step}; ")).collect::<String>();
        assert_eq!(text(0), "create n; create n; ");
        assert_eq!(text(PAIRS - 1), "tick 6; sync; tick 6; sync; ");
        let twice = OPERATIONS.iter().position(|operation| *operation == "write foo 0 100 1").unwrap() as u64 * 3;
        let each = 3 * OPERATIONS.len() as u64;
        assert_eq!(text(each * twice + twice + 1), "write foo 0 100 101; write foo 0 100 201; fsync foo; ");
    }
}
