//! Full volumes: filled until nothing goes in, overwritten, emptied in part, filled again.

use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode};

use crate::model::Inode;
use crate::run::{Outcome, World, failed};
use crate::shape::Shape;

/// Bytes of the largest file.
const LARGEST: u64 = 1 << 20;
/// Refusals after which a volume counts as full.
const REFUSALS: u32 = 12;
/// Times a volume is filled.
const ROUNDS: u64 = 3;

/// Fills and empties a volume; returns it closed.
pub fn run(seed: u64) -> Outcome<World> {
    let mut rng = Rng::new(seed ^ 0xF011);
    let mut world = World::new(Shape::random(&mut rng))?;
    let root = world.model.root;
    let node = NewNode { kind: FileKind::Directory, permissions: 0o755, rdev: 0, target: b"" };
    let dirs: Vec<InodeNumber> = (0..4)
        .map(|index| world.create(root, format!("directory {index}").as_bytes(), &node, &Caller::default()))
        .collect::<Outcome<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    for round in 0..ROUNDS {
        fill(&mut world, &mut rng, &dirs, round)?;
        world.fs.sync().map_err(failed("sync of a full volume"))?;
        overwrite(&mut world, &mut rng)?;
        world.fs.sync().map_err(failed("sync after overwriting"))?;
        if rng.chance(50) {
            world.reopen()?;
        }
        empty(&mut world, &mut rng, &dirs)?;
    }
    world.same_tree()?;
    world.reopen()?;
    world.close()?;
    world.check_volume()?;
    Ok(world)
}

/// Makes files until the volume has refused a dozen times.
fn fill(world: &mut World, rng: &mut Rng, dirs: &[InodeNumber], round: u64) -> Outcome<()> {
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let mut refusals = 0;
    let mut number = 0;
    while refusals < REFUSALS {
        world.clock.advance(1_000);
        number += 1;
        let name = format!("file {round} {number} {:x}", rng.next_u64());
        let made = world.create(dirs[rng.index(dirs.len())], name.as_bytes(), &node, &Caller::default())?;
        let Some(ino) = made else {
            refusals += 1;
            continue;
        };
        let length = rng.size(LARGEST);
        if rng.chance(10) {
            world.allocate(ino, FallocateMode::empty(), 0, length + 1)?;
        } else {
            world.write_random(ino, rng.size(1 << 16), length as usize, rng.next_u64(), (false, false))?;
        }
        refusals += u32::from(world.free()? < LARGEST / 4096 && world.free()? < length / 4096 + 2);
        world.fs.forget(ino, 1);
        world.model.forget(ino, 1);
    }
    Ok(())
}

/// Overwrites what is there: that takes no space, and must go on for as long as one likes.
fn overwrite(world: &mut World, rng: &mut Rng) -> Outcome<()> {
    let files = world.model.select(Inode::is_regular);
    for _ in 0..300 {
        world.clock.advance(1_000);
        let ino = files[rng.index(files.len())];
        let size = world.model.inodes[&ino].attributes.size;
        let offset = rng.below(size);
        let length = rng.size(1 << 16).min(size - offset) as usize;
        // A hole or a preallocated range may want blocks; a block that holds something wants none.
        if world.model.inodes[&ino].content.is_present(offset, offset + length as u64) {
            let mut data = vec![0; length];
            rng.fill(&mut data);
            let now = basalt_f2fs::Clock::now(&*world.clock);
            world.fs.write(ino, offset, &data, false).map_err(failed("overwriting on a full volume"))?;
            world.model.write(ino, offset, &data, false, false, now).map_err(failed("model"))?;
        }
    }
    world.same_tree()
}

/// Deletes and shortens about half of everything.
fn empty(world: &mut World, rng: &mut Rng, dirs: &[InodeNumber]) -> Outcome<()> {
    for &dir in dirs {
        let names: Vec<Vec<u8>> = world.model.inodes[&dir].entries.keys().cloned().collect();
        for name in names {
            world.clock.advance(1_000);
            match rng.below(5) {
                0..2 => world.unlink(dir, &name)?,
                2 => {
                    let ino = world.model.inodes[&dir].entries[&name];
                    let size = Some(rng.below(world.model.inodes[&ino].attributes.size + 1));
                    world.set_attributes(ino, &basalt_vfs::SetAttributes { size, ..Default::default() })?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Writes several times the volume's size without a sync, then lets the power go: the last checkpoint's blocks must not have
/// been used again, and what was synced before must be there.
pub fn churn(seed: u64) -> Outcome<()> {
    let mut rng = Rng::new(seed ^ 0xC4);
    // Large enough to go round once without cleaning.
    let mut world = World::new(Shape { cache_bytes: 1 << 20, size_mib: 256, ..Shape::random(&mut rng) })?;
    let root = world.model.root;
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let directory = NewNode { kind: FileKind::Directory, permissions: 0o755, ..file };
    let make = |world: &mut World, dir, name: String, node: &NewNode<'_>| {
        world.clock.advance(1_000);
        world.create(dir, name.as_bytes(), node, &Caller::default())?.ok_or_else(|| "not made".to_owned())
    };
    let dir = make(&mut world, root, "churn".into(), &directory)?;
    for number in 0..8 {
        let ino = make(&mut world, root, format!("kept {number}"), &file)?;
        world.write_random(ino, 0, rng.size(LARGEST) as usize, rng.next_u64(), (false, false))?;
    }
    let mut doomed = Vec::new();
    for number in 0..8 {
        let ino = make(&mut world, dir, format!("doomed {number}"), &file)?;
        world.write_random(ino, 0, LARGEST as usize, rng.next_u64(), (false, false))?;
        doomed.push((format!("doomed {number}").into_bytes(), world.model.inodes[&ino].content.clone()));
    }
    world.fs.sync().map_err(failed("sync"))?;
    for (name, _) in &doomed {
        world.unlink(dir, name)?;
    }
    for number in 0..world.model.shape.size_mib * 2 {
        let ino = make(&mut world, dir, format!("{number}"), &file)?;
        world.write_random(ino, 0, LARGEST as usize, rng.next_u64(), (false, false))?;
        if number >= 4 {
            world.unlink(dir, format!("{}", number - 4).as_bytes())?;
            let gone = world.model.select(|inode| inode.attributes.links == 0);
            gone.into_iter().for_each(|ino| {
                world.fs.forget(ino, 1);
                world.model.forget(ino, 1);
            });
        }
    }
    world.model.end_references();
    world.crash()?;
    for (name, content) in &doomed {
        // Either the checkpoint from before they were removed counts, or a later one without them.
        let Ok(found) = world.fs.lookup(dir, name) else { continue };
        let mut bytes = vec![0; LARGEST as usize];
        let got = world.fs.read(found.ino, 0, &mut bytes).map_err(failed("read after a crash"))?;
        if bytes[..got] != content.read(0, LARGEST as usize) {
            return Err(format!("blocks of {:?} were used again", String::from_utf8_lossy(name)));
        }
        world.fs.forget(found.ino, 1);
    }
    forget_entries(&mut world, dir)?;
    world.same_tree()?;
    world.reopen()
}

/// Empties a directory of which the model does not know what a crash left there.
fn forget_entries(world: &mut World, dir: InodeNumber) -> Outcome<()> {
    let known = std::mem::take(&mut world.model.get(dir).map_err(failed("model"))?.entries);
    known.values().for_each(|ino| drop(world.model.inodes.remove(ino)));
    let mut names = Vec::new();
    let mut add = |entry: basalt_vfs::DirectoryEntry<'_>| {
        names.push(entry.name.to_vec());
        true
    };
    world.fs.read_directory(dir, 0, &mut add).map_err(failed("readdir"))?;
    for name in names.iter().filter(|name| *name != b"." && *name != b"..") {
        world.fs.unlink(dir, name).map_err(failed("unlink after a crash"))?;
    }
    world.model.get(dir).map_err(failed("model"))?.attributes = world.fs.attributes(dir).map_err(failed("stat"))?;
    Ok(())
}
