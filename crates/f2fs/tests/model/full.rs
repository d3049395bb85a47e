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
