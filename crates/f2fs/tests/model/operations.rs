//! Random operations. They name inodes and names by index, resolved when they run, so that a sequence stays meaningful
//! when parts of it are left out.

use basalt_testkit::rng::Rng;
use basalt_vfs::{
    Caller, FallocateMode, FileKind, InodeFlags, RenameFlags, Seek, SetAttributes, SetTime, Time, XattrFlags,
};

use crate::model::SIZE_MAX;

/// Which inode: an index into those of the kind that the operation wants.
pub type Which = u32;

/// A file name.
#[derive(Debug, Clone, Copy)]
pub enum Name {
    /// One of a few, so that operations meet.
    Pool(u8),
    /// One that the directory has.
    Existing(u32),
    /// One that has a meaning or cannot be.
    Special(u8),
}

impl Name {
    /// The bytes; `existing` are the directory's names.
    pub fn bytes(self, existing: &[Vec<u8>]) -> Vec<u8> {
        match self {
            Name::Existing(index) if !existing.is_empty() => existing[index as usize % existing.len()].clone(),
            Name::Existing(index) => pool_name(index as u8),
            Name::Pool(index) => pool_name(index),
            Name::Special(index) => match index % 7 {
                0 => b".".to_vec(),
                1 => b"..".to_vec(),
                2 => Vec::new(),
                3 => vec![b'x'; 256],
                4 => vec![b'y'; 4095],
                5 => b"a/b".to_vec(),
                _ => b"a\0b".to_vec(),
            },
        }
    }
}

/// Short names, names with extensions that placement knows, and names of up to 255 bytes of any value.
fn pool_name(index: u8) -> Vec<u8> {
    let index = index % 64;
    match index % 8 {
        0 => {
            let mut rng = Rng::new(u64::from(index));
            let mut name = vec![0; 247 + usize::from(index / 8)];
            rng.fill(&mut name);
            name.iter_mut().filter(|byte| **byte == 0 || **byte == b'/').for_each(|byte| *byte = 0xFF);
            name
        }
        1 => format!("film {index}.mp4").into_bytes(),
        2 => format!("{index}.db").into_bytes(),
        3 => vec![b'a' + index / 8; 8 * usize::from(index / 8 + 1)],
        _ => format!("n{index}").into_bytes(),
    }
}

/// One operation.
#[derive(Debug, Clone)]
pub enum Operation {
    Create {
        dir: Which,
        name: Name,
        kind: FileKind,
        permissions: u32,
        rdev: u32,
        target: u32,
        caller: Caller,
    },
    Unnamed {
        dir: Which,
        permissions: u32,
        caller: Caller,
    },
    Link {
        file: Which,
        dir: Which,
        name: Name,
    },
    Unlink {
        dir: Which,
        name: Name,
    },
    RemoveDirectory {
        dir: Which,
        name: Name,
    },
    Rename {
        dir: Which,
        name: Name,
        new_dir: Which,
        new_name: Name,
        flags: RenameFlags,
    },
    Lookup {
        dir: Which,
        name: Name,
    },
    Forget {
        node: Which,
    },
    Write {
        file: Which,
        offset: u64,
        length: u32,
        fill: u64,
        buffered: bool,
        clear: bool,
    },
    Read {
        file: Which,
        offset: u64,
        length: u32,
    },
    SetAttributes {
        node: Which,
        changes: SetAttributes,
    },
    Truncate {
        file: Which,
        size: u64,
    },
    Allocate {
        file: Which,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    },
    Seek {
        file: Which,
        offset: u64,
        whence: Seek,
    },
    SetXattr {
        node: Which,
        name: u8,
        length: u32,
        fill: u64,
        flags: XattrFlags,
    },
    RemoveXattr {
        node: Which,
        name: u8,
    },
    SetAcl {
        node: Which,
        default: bool,
        acl: Option<u64>,
    },
    SetFlags {
        node: Which,
        flags: InodeFlags,
    },
    SetProject {
        node: Which,
        id: u32,
    },
    Examine {
        node: Which,
    },
    List {
        dir: Which,
        batch: u8,
    },
    Advance {
        nanoseconds: u64,
    },
    Tick,
    Sync,
    SyncFile {
        file: Which,
    },
    Trim {
        offset: u64,
        length: u64,
        minimum: u64,
    },
    Reopen,
    /// Takes all space but this many blocks.
    Fill {
        leave: u64,
    },
}

/// How often each kind of operation comes, of 100.
pub fn random(rng: &mut Rng) -> Operation {
    match rng.below(100) {
        0..16 => Operation::Create {
            dir: which(rng),
            name: name(rng),
            kind: kind(rng),
            permissions: rng.below(0o10000) as u32,
            rdev: [0, 0x0103, 0xFFFF, 0x0010_0000, u32::MAX][rng.index(5)],
            target: [1, 7, 100, 3399, 3400, 3500, 4094, 4095, 4096][rng.index(9)],
            caller: caller(rng),
        },
        16..18 => Operation::Unnamed { dir: which(rng), permissions: 0o640, caller: caller(rng) },
        18..21 => Operation::Link { file: which(rng), dir: which(rng), name: name(rng) },
        21..28 => Operation::Unlink { dir: which(rng), name: existing(rng) },
        28..30 => Operation::RemoveDirectory { dir: which(rng), name: existing(rng) },
        30..37 => Operation::Rename {
            dir: which(rng),
            name: existing(rng),
            new_dir: which(rng),
            new_name: if rng.chance(50) { existing(rng) } else { name(rng) },
            flags: RenameFlags::from_bits_retain([0, 0, 0, 1, 2, 2, 4, 4, 5, 3, 8][rng.index(11)]),
        },
        37..39 => Operation::Lookup { dir: which(rng), name: existing(rng) },
        39..42 => Operation::Forget { node: which(rng) },
        42..56 => write(rng),
        56..60 => Operation::Read { file: which(rng), offset: offset(rng), length: rng.size(1 << 18) as u32 + 1 },
        60..64 => Operation::Truncate { file: which(rng), size: offset(rng) },
        64..69 => Operation::Allocate {
            file: which(rng),
            mode: FallocateMode::from_bits_retain([0, 1, 3, 3, 16, 17, 2, 8][rng.index(8)]),
            offset: offset(rng),
            length: rng.size(1 << 18),
        },
        69..72 => Operation::Seek {
            file: which(rng),
            offset: offset(rng),
            whence: if rng.chance(50) { Seek::Data } else { Seek::Hole },
        },
        72..76 => Operation::SetXattr {
            node: which(rng),
            name: rng.below(6) as u8,
            length: [0, 5, 60, 150, 160, 3900, 4044, 4045][rng.index(8)],
            fill: rng.next_u64(),
            flags: XattrFlags::from_bits_retain([0, 0, 0, 1, 2][rng.index(5)]),
        },
        76..77 => Operation::RemoveXattr { node: which(rng), name: rng.below(6) as u8 },
        77..80 => {
            Operation::SetAcl { node: which(rng), default: rng.chance(50), acl: rng.chance(80).then(|| rng.next_u64()) }
        }
        80..83 => Operation::SetAttributes { node: which(rng), changes: changes(rng) },
        83..85 => Operation::SetFlags { node: which(rng), flags: flags(rng) },
        85..86 => Operation::SetProject { node: which(rng), id: rng.below(3) as u32 },
        86..89 => Operation::Examine { node: which(rng) },
        89..91 => Operation::List { dir: which(rng), batch: rng.size(40) as u8 + 1 },
        91..95 => Operation::Advance { nanoseconds: rng.size(200_000_000_000_000) },
        95 => Operation::Tick,
        96 => Operation::Sync,
        97 => Operation::SyncFile { file: which(rng) },
        98 => Operation::Trim { offset: rng.size(1 << 26), length: u64::MAX, minimum: rng.size(1 << 23) },
        _ => Operation::Reopen,
    }
}

/// A write; most are small, some large and of whole blocks, which go another way.
pub fn write(rng: &mut Rng) -> Operation {
    let is_large = rng.chance(15);
    Operation::Write {
        file: which(rng),
        offset: if is_large { rng.size(200) * 4096 } else { offset(rng) },
        length: rng.size(if is_large { 1 << 19 } else { 1 << 16 }) as u32,
        fill: rng.next_u64(),
        buffered: rng.chance(30),
        clear: rng.chance(10),
    }
}

fn which(rng: &mut Rng) -> Which {
    rng.next_u64() as u32
}

fn name(rng: &mut Rng) -> Name {
    if rng.chance(4) { Name::Special(rng.below(7) as u8) } else { Name::Pool(rng.below(64) as u8) }
}

fn existing(rng: &mut Rng) -> Name {
    if rng.chance(85) { Name::Existing(which(rng)) } else { name(rng) }
}

fn kind(rng: &mut Rng) -> FileKind {
    match rng.below(20) {
        0..10 => FileKind::Regular,
        10..15 => FileKind::Directory,
        15..17 => FileKind::Symlink,
        17 => FileKind::CharDevice,
        18 => FileKind::BlockDevice,
        _ => [FileKind::Fifo, FileKind::Socket][rng.index(2)],
    }
}

fn caller(rng: &mut Rng) -> Caller {
    Caller { uid: rng.below(3) as u32, gid: rng.below(3) as u32, umask: [0, 0o022, 0o777][rng.index(3)] }
}

/// Offsets where something may go wrong: inline data's end, node boundaries, the largest file; and any other.
fn offset(rng: &mut Rng) -> u64 {
    let near = |rng: &mut Rng, at: u64| (at + rng.size(10_000)).saturating_sub(rng.size(10_000));
    // Blocks that an inode addresses itself, by what else it holds.
    let own = [864, 873, 914, 923][rng.index(4)];
    let blocks = match rng.below(40) {
        0..16 => return rng.size(20_000),
        16..30 => return rng.size(2 << 20),
        30..33 => return near(rng, 3500),
        33 => own,
        34 => own + 1018,
        35 => own + 2 * 1018,
        36 => own + 2 * 1018 + 1018 * 1018,
        37 => own + 2 * 1018 + 2 * 1018 * 1018,
        38 => return rng.below(SIZE_MAX),
        _ => return near(rng, SIZE_MAX),
    };
    near(rng, blocks * 4096)
}

fn changes(rng: &mut Rng) -> SetAttributes {
    let time = |rng: &mut Rng| {
        rng.chance(30).then(|| match rng.below(3) {
            0 => SetTime::Now,
            1 => {
                SetTime::To(Time { seconds: rng.next_u64() as i64 >> 30, nanoseconds: rng.below(1_000_000_000) as u32 })
            }
            _ => SetTime::To(Time { seconds: -5, nanoseconds: 999_999_999 }),
        })
    };
    SetAttributes {
        permissions: rng.chance(40).then(|| rng.below(0o10000) as u32),
        uid: rng.chance(20).then(|| rng.next_u64() as u32),
        gid: rng.chance(20).then(|| rng.next_u64() as u32),
        size: rng.chance(10).then(|| offset(rng)),
        atime: time(rng),
        mtime: time(rng),
        ctime: time(rng),
        clear_suid_sgid: rng.chance(20),
        is_due: rng.chance(10),
    }
}

fn flags(rng: &mut Rng) -> InodeFlags {
    let all = [
        InodeFlags::empty(),
        InodeFlags::IMMUTABLE,
        InodeFlags::APPEND,
        InodeFlags::NODUMP,
        InodeFlags::NOATIME,
        InodeFlags::SYNC | InodeFlags::DIRSYNC,
        InodeFlags::PROJECT_INHERIT,
    ];
    // Most are taken back, or everything would end up immutable.
    if rng.chance(50) { InodeFlags::empty() } else { all[rng.index(7)] | all[rng.index(7)] }
}
