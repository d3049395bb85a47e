//! The oracle refuses what may not be there: it is given trees that no volume here ever shows, and volumes that say too much.

use std::sync::Arc;

use basalt_crash::engine::{Engine, StepClock};
use basalt_crash::f2fs::volume;
use basalt_crash::oracle::{By, verify_by, verify_checkpoint};
use basalt_crash::prepare::Image;
use basalt_crash::script::Step;
use basalt_crash::session::{Done, Life, Promise, Session};
use basalt_crash::tree::Tree;
use basalt_device::power::{Change, History};
use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::geometry::Geometry;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// A life of steps, each with what it promises; each is one change of the device. What only makes something durable is `sync`.
fn life(steps: &[(&str, Promise)]) -> Life {
    let steps: Vec<(Step, Promise)> = steps.iter().map(|(step, promise)| (step.parse().unwrap(), *promise)).collect();
    let root = Tree::new(3);
    let mut states = vec![root.clone(), root];
    let mut done = vec![Done { changes: 0..0, promise: Promise::Nothing, aged: 0 }];
    for (number, (step, promise)) in steps.iter().enumerate() {
        let mut tree = states[states.len() - 1].clone();
        tree.apply(step, 4 + number as u64).unwrap();
        states.push(tree);
        done.push(Done { changes: number..number + 1, promise: *promise, aged: 0 });
    }
    let changes = vec![Change::Flush; steps.len()];
    let history = History { base: MemoryDevice::new(BLOCK, 512), changes, pages: None };
    Life { history, done, states, steps: steps.into_iter().map(|(step, _)| step).collect(), next: 0 }
}

/// The newest state of a life.
fn newest(life: &Life) -> Tree {
    life.states[life.states.len() - 1].clone()
}

/// A tree with one page of a file changed: zeros, or filled with a byte.
fn with_page(mut tree: Tree, path: &str, index: u64, byte: u8) -> Tree {
    let id = tree.find(path).unwrap();
    let node = tree.change(id).unwrap();
    match byte {
        0 => drop(node.pages.remove(&index)),
        byte => drop(node.pages.insert(index, Arc::new([byte; BLOCK as usize]))),
    }
    tree
}

/// What the oracle says of a tree after a cut before change `at`.
fn verify(by: By, life: &Life, at: usize, found: &Tree) -> Result<usize, String> {
    verify_by(by, life, at, found)
}

#[test]
fn a_size_is_not_there_without_its_bytes_within_a_block_either() {
    let grown = |write| {
        let mut steps = vec![("create a", Promise::Nothing), ("write a 0 5000 1", Promise::Nothing)];
        steps.extend([("sync", Promise::All), (write, Promise::Nothing)]);
        life(&steps)
    };
    // In the last block there was, and in one behind it.
    for (write, page) in [("write a 5000 100 2", 1), ("write a 8192 100 2", 2)] {
        let life = grown(write);
        let mut found = newest(&life);
        verify(By::Basalt, &life, 4, &found).unwrap();
        let id = found.find("a").unwrap();
        let old = life.states[4].get(id).unwrap().pages.get(&page).cloned();
        let node = found.change(id).unwrap();
        match old {
            Some(old) => drop(node.pages.insert(page, old)),
            None => drop(node.pages.remove(&page)),
        }
        let error = verify(By::Basalt, &life, 4, &found).unwrap_err();
        assert!(error.contains(&format!("page {page} ")), "{write}: {error}");
        // Linux promises less.
        verify(By::Linux, &life, 4, &found).unwrap();
    }
}

#[test]
fn only_an_fsync_under_way_leaves_anything() {
    let steps = ["create a", "create b", "write a 0 4096 1", "write b 0 4096 2"].map(|step| (step, Promise::Nothing));
    let of_a = Promise::File(life(&steps).states[5].find("a").unwrap());
    let more = [
        ("sync", Promise::All),
        ("write a 0 4096 3", Promise::Nothing),
        ("write b 0 4096 4", Promise::Nothing),
        ("sync", of_a),
        ("write a 0 4096 5", Promise::Nothing),
    ];
    let life = life(&[&steps[..], &more[..]].concat());
    for by in [By::Linux, By::LinuxWrote] {
        let torn = |at: usize, path| verify(by, &life, at, &with_page(life.states[at + 1].clone(), path, 0, 0xEE));
        torn(7, "a").unwrap();
        for (at, path) in [(7, "b"), (8, "a"), (8, "b"), (9, "a"), (9, "b")] {
            let error = torn(at, path).unwrap_err();
            assert!(error.contains("page 0 "), "{by:?}, {path} at {at}: {error}");
        }
    }
}

#[test]
fn a_checkpoint_without_a_sync_promises_names_and_no_content() {
    let steps = [("create a", Promise::Nothing), ("sync", Promise::All), ("write a 0 4096 1", Promise::Nothing)];
    let more = [("mkdir d", Promise::Nothing), ("sync", Promise::Names)];
    let life = life(&[&steps[..], &more[..]].concat());
    let found = newest(&life);
    verify(By::LinuxWrote, &life, 5, &found).unwrap();
    verify(By::LinuxWrote, &life, 5, &with_page(found, "a", 0, 0)).unwrap();
    for state in 1..5 {
        let error = verify(By::LinuxWrote, &life, 5, &life.states[state]).unwrap_err();
        assert!(error.contains("is missing"), "as before step {state}: {error}");
    }
}

/// No fsync counts, but the last sync does.
#[test]
fn a_volume_that_shows_only_its_checkpoint_shows_the_last_sync() {
    let steps = ["create a", "write a 0 4096 1"].map(|step| (step, Promise::Nothing));
    let of_a = Promise::File(life(&steps).states[2].find("a").unwrap());
    let more = [("sync", Promise::All), ("write a 0 4096 2", Promise::Nothing), ("sync", of_a)];
    let life = life(&[&steps[..], &more[..]].concat());
    let synced = life.states[4].clone();
    verify(By::Basalt, &life, 5, &synced).unwrap_err();
    verify_checkpoint(&life, 5, &synced).unwrap();
    verify_checkpoint(&life, 5, &newest(&life)).unwrap();
    for (found, wrong) in [(life.states[1].clone(), "is missing"), (with_page(synced, "a", 0, 0), "page 0 ")] {
        let error = verify_checkpoint(&life, 5, &found).unwrap_err();
        assert!(error.contains(wrong), "{error}");
    }
}

/// Whatever brought it there: it holds nothing older than what it held then.
#[test]
fn a_file_under_a_new_name_is_whole() {
    let named = [
        ("create a", "a", "rename a c", "c"),
        ("create a", "a", "rename a b", "b"),
        ("create a", "a", "rename-new a c", "c"),
        ("create a", "a", "whiteout a c", "c"),
        ("create a", "a", "exchange a b", "b"),
        ("create a", "a", "exchange b a", "b"),
        ("tmpfile @0", "@0", "link @0 c", "c"),
    ];
    for (create, from, name, to) in named {
        let write = |seed: u8| format!("write {from} 0 4096 {seed}");
        let (first, second) = (write(1), write(2));
        let steps = [(create, Promise::Nothing), ("create b", Promise::Nothing), (&first, Promise::Nothing)];
        let more = [("sync", Promise::All), (&second, Promise::Nothing)];
        let unnamed = life(&[&steps[..], &more[..]].concat());
        let older = |life: &Life, path: &str| {
            let (mut found, id) = (newest(life), newest(life).find(path).unwrap());
            let page = life.states[4].get(id).unwrap().pages[&0].clone();
            found.change(id).unwrap().pages.insert(0, page);
            found
        };
        if !from.starts_with('@') {
            verify(By::Basalt, &unnamed, 5, &older(&unnamed, from)).unwrap();
        }
        let named = life(&[&steps[..], &more[..], &[(name, Promise::Nothing)]].concat());
        verify(By::Basalt, &named, 6, &newest(&named)).unwrap();
        let error = verify(By::Basalt, &named, 6, &older(&named, to)).expect_err(name);
        assert!(error.contains("page 0 "), "{name}: {error}");
    }
}

/// Puts another inode in place of the only one in the list of unlinked inodes; how many copies of the list there were.
fn list_as_unlinked(image: &MemoryDevice, was: u64, now: u64) -> usize {
    let word = |ino: u64| (ino as u32).to_le_bytes();
    let geometry = Geometry::read(image).unwrap().0;
    let first = u64::from(geometry.checkpoint) * BLOCK;
    let end = first + u64::from(geometry.checkpoint_segments) * 512 * BLOCK;
    let mut block = [0; BLOCK as usize];
    let mut count = 0;
    for at in (first..end).step_by(BLOCK as usize) {
        image.read_at(at, &mut block).unwrap();
        if block[..4] == word(was) && block[4088..4092] == word(1) {
            image.write_at(at, &word(now)).unwrap();
            count += 1;
        }
    }
    count
}

/// Behind what a power cut may leave, a torn superblock, all else is looked at, too.
#[test]
fn what_opening_says_is_looked_at_to_its_end() {
    let engine = volume("roomy").unwrap();
    let mut session = Session::open(engine, Image::Empty.base(engine).unwrap().device, None, 0).unwrap();
    let run = |session: &mut Session<'_>, step: &str| session.run(&step.parse().unwrap()).unwrap();
    ["create a", "create b", "hold a"].into_iter().for_each(|step| run(&mut session, step));
    let [a, b] = ["a", "b"].map(|path| session.tree().get(session.tree().find(path).unwrap()).unwrap().ino);
    ["unlink a", "sync"].into_iter().for_each(|step| run(&mut session, step));
    let image = session.image();
    image.write_at(0, &[0; BLOCK as usize]).unwrap();
    engine.open(Arc::new(image.snapshot()), StepClock::starting(0)).map(drop).unwrap();
    assert!(list_as_unlinked(&image, a, b) > 0);
    let error = engine.open(Arc::new(image), StepClock::starting(0)).map(drop).unwrap_err();
    assert!(error.contains("has a name"), "{error}");
}
