//! Large directories and deep trees.

use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, InodeNumber, NewNode, RenameFlags};

use crate::run::{Outcome, World, failed};
use crate::shape::Shape;

const FILE: NewNode<'static> = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
const DIRECTORY: NewNode<'static> = NewNode { kind: FileKind::Directory, permissions: 0o700, ..FILE };

/// A directory of `count` entries that grows, shrinks and grows again; returns the volume closed.
pub fn large_directory(seed: u64, count: usize) -> Outcome<World> {
    let mut rng = Rng::new(seed ^ 0xD1);
    // Every file is a block.
    let mut world = World::new(Shape { size_mib: 256, ..Shape::random(&mut rng) })?;
    let root = world.model.root;
    let dir = make(&mut world, root, b"large", &DIRECTORY)?;
    let other = make(&mut world, root, b"other", &DIRECTORY)?;
    grow(&mut world, &mut rng, dir, count)?;
    world.same_listing(dir, 1000)?;
    shrink(&mut world, &mut rng, dir, other)?;
    world.reopen()?;
    grow(&mut world, &mut rng, dir, count / 4)?;
    world.reopen()?;
    // Down to nothing: the directory itself must be removable.
    for name in world.model.inodes[&dir].entries.keys().cloned().collect::<Vec<_>>() {
        world.unlink(dir, &name)?;
    }
    world.remove_directory(root, b"large")?;
    world.reopen()?;
    world.close()?;
    Ok(world)
}

fn make(world: &mut World, dir: InodeNumber, name: &[u8], node: &NewNode<'_>) -> Outcome<InodeNumber> {
    world.clock.advance(1_000);
    let ino = world.create(dir, name, node, &Caller::default())?.ok_or("not made")?;
    basalt_vfs::FileSystem::forget(&world.fs, ino, 1);
    world.model.forget(ino, 1);
    Ok(ino)
}

/// Adds names of 1 to 255 bytes, most of them short.
fn grow(world: &mut World, rng: &mut Rng, dir: InodeNumber, count: usize) -> Outcome<()> {
    for number in 0..count {
        let mut name = format!("{number:x}-{:x}", rng.below(1 << 20)).into_bytes();
        if rng.chance(5) {
            name.resize(rng.between(20, 255) as usize, 0xFE);
        }
        if !world.model.inodes[&dir].entries.contains_key(&name) {
            make(world, dir, &name, &FILE)?;
        }
    }
    Ok(())
}

/// Removes half of the names and moves a tenth.
fn shrink(world: &mut World, rng: &mut Rng, dir: InodeNumber, other: InodeNumber) -> Outcome<()> {
    for name in world.model.inodes[&dir].entries.keys().cloned().collect::<Vec<_>>() {
        world.clock.advance(1_000);
        match rng.below(10) {
            0..5 => world.unlink(dir, &name)?,
            5 => {
                let to = if rng.chance(50) { dir } else { other };
                let new_name = [b"moved ", &name[..name.len().min(200)]].concat();
                world.rename((dir, &name), (to, &new_name), RenameFlags::empty())?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A tree of `depth` directories in each other, moved as a whole and taken down; returns the volume closed.
pub fn deep_tree(seed: u64, depth: usize) -> Outcome<World> {
    let mut rng = Rng::new(seed ^ 0xDEE9);
    let mut world = World::new(Shape::random(&mut rng))?;
    let root = world.model.root;
    let mut path = vec![root];
    for level in 0..depth {
        let dir = make(&mut world, path[level], b"deeper", &DIRECTORY)?;
        make(&mut world, dir, b"file", &FILE)?;
        path.push(dir);
    }
    let half = path[depth / 2];
    // Into itself it cannot go; elsewhere it can.
    world.rename((half, b"deeper"), (path[depth], b"circle"), RenameFlags::empty())?;
    world.rename((root, b"deeper"), (path[depth], b"circle"), RenameFlags::EXCHANGE)?;
    world.rename((half, b"deeper"), (root, b"moved"), RenameFlags::empty())?;
    world.rename((root, b"moved"), (root, b"deeper"), RenameFlags::EXCHANGE)?;
    world.reopen()?;
    for level in (1..=depth).rev() {
        let dir = path[level];
        world.unlink(dir, b"file")?;
        let parent = world.model.inodes[&dir].parent;
        let name =
            world.model.inodes[&parent].entries.iter().find(|(_, ino)| **ino == dir).map(|(name, _)| name.clone());
        world.remove_directory(parent, &name.ok_or("lost a name")?)?;
    }
    world.reopen()?;
    world.close()?;
    Ok(world)
}

/// Thousands of files that are unlinked while in use when the power goes: opening the volume frees them.
pub fn orphans(seed: u64, count: usize) -> Outcome<()> {
    let mut rng = Rng::new(seed ^ 0x0FA);
    let mut world = World::new(Shape { size_mib: 256, ..Shape::random(&mut rng) })?;
    let root = world.model.root;
    for number in 0..count {
        world.clock.advance(1_000);
        let name = format!("file {number}").into_bytes();
        let ino = world.create(root, &name, &FILE, &Caller::default())?.ok_or("not made")?;
        if rng.chance(10) {
            world.write_random(ino, rng.size(1 << 40), 5_000, rng.next_u64(), (false, false))?;
        }
        if rng.chance(90) {
            world.unlink(root, &name)?;
        }
    }
    basalt_vfs::FileSystem::sync(&world.fs).map_err(failed("sync"))?;
    world.model.end_references();
    world.crash()?;
    world.same_tree()?;
    world.reopen()
}

/// Many directories of a few blocks, visited in turn with next to no cache: blocks come and go all the time.
pub fn many_directories(seed: u64, count: usize) -> Outcome<World> {
    let mut rng = Rng::new(seed ^ 0x3A27);
    let mut world = World::new(Shape { cache_bytes: 4096, ..Shape::random(&mut rng) })?;
    let root = world.model.root;
    // Six names of this length are too many for an inode.
    let name = |number: u64| format!("{number:0>250}").into_bytes();
    let mut dirs = Vec::new();
    for number in 0..count {
        let dir = make(&mut world, root, format!("directory {number}").as_bytes(), &DIRECTORY)?;
        for file in 0..6 {
            make(&mut world, dir, &name(file), &FILE)?;
        }
        dirs.push(dir);
    }
    for _ in 0..count {
        // Again and again at one place, then far and wide.
        let dir = dirs[rng.index(count)];
        for _ in 0..rng.size(12) {
            let name = name(rng.below(20));
            match world.model.inodes[&dir].entries.contains_key(&name) {
                true => world.unlink(dir, &name)?,
                false => make(&mut world, dir, &name, &FILE).map(|_| ())?,
            }
            basalt_vfs::FileSystem::sync(&world.fs).map_err(failed("sync"))?;
        }
        for _ in 0..rng.size(40) {
            let dir = dirs[rng.index(count)];
            world.lookup(dir, &name(rng.below(20)))?;
        }
    }
    world.same_tree()?;
    world.reopen()?;
    world.close()?;
    Ok(world)
}
