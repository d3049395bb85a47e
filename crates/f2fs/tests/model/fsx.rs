//! One file, written, truncated, punched and read at random, as fsx does. Its maps are tried on the mount.

use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FallocateMode, FileKind, Seek};

use crate::operations::{Name, Operation};
use crate::shape::Shape;

/// The file stays about this long: small enough that operations meet.
const LENGTH: u64 = 500_000;

/// The shape and the operations of a seed.
pub fn plan(seed: u64) -> (Shape, Vec<Operation>) {
    let mut rng = Rng::new(seed ^ 0xF5F5_F5F5);
    let shape = Shape::random(&mut rng);
    // Some files stay inline for long.
    let length = if rng.chance(30) { 8_000 } else { LENGTH };
    let create = Operation::Create {
        dir: 0,
        name: Name::Pool(4),
        kind: FileKind::Regular,
        permissions: 0o644,
        rdev: 0,
        target: 0,
        caller: Caller::default(),
    };
    let count = rng.between(50, 200);
    let steps = (0..count).map(|_| step(&mut rng, length));
    (shape, std::iter::once(create).chain(steps).collect())
}

fn step(rng: &mut Rng, longest: u64) -> Operation {
    let file = 0;
    let offset = if rng.chance(30) { rng.below(longest) / 4096 * 4096 } else { rng.below(longest) };
    let length = rng.size(longest / 2).min(longest - offset);
    match rng.below(100) {
        0..35 => {
            let (fill, buffered) = (rng.next_u64(), rng.chance(50));
            Operation::Write { file, offset, length: length as u32, fill, buffered, clear: false }
        }
        35..55 => Operation::Read { file, offset, length: length as u32 + 1 },
        55..65 => Operation::Truncate { file, size: offset },
        65..72 => allocate(FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE, offset, length),
        72..77 => allocate(FallocateMode::ZERO_RANGE, offset, length),
        77..80 => allocate(FallocateMode::ZERO_RANGE | FallocateMode::KEEP_SIZE, offset, length),
        80..84 => allocate(FallocateMode::empty(), offset, length),
        84..86 => allocate(FallocateMode::KEEP_SIZE, offset, length),
        86..90 => Operation::Seek { file, offset, whence: if rng.chance(50) { Seek::Data } else { Seek::Hole } },
        90..94 => Operation::SyncFile { file },
        94..96 => Operation::Examine { node: u32::MAX },
        96..99 => Operation::Tick,
        _ => Operation::Reopen,
    }
}

fn allocate(mode: FallocateMode, offset: u64, length: u64) -> Operation {
    Operation::Allocate { file: 0, mode, offset, length }
}
