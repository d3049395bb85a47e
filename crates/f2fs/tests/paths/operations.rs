//! Random operations of `std::fs`, on paths that often name something.

use std::io::SeekFrom;

use basalt_testkit::rng::Rng;

/// How a file is opened: the switches of `std::fs::OpenOptions`.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub truncate: bool,
    pub create: bool,
    pub create_new: bool,
}

/// One call. Paths are relative to the directory that both sides work in.
#[derive(Debug, Clone)]
pub enum Operation {
    Read(String),
    Write(String, usize),
    CreateDir(String),
    CreateDirAll(String),
    ReadDir(String),
    Metadata(String),
    SymlinkMetadata(String),
    Exists(String),
    Rename(String, String),
    RemoveFile(String),
    RemoveDir(String),
    RemoveDirAll(String),
    HardLink(String, String),
    Symlink(String, String),
    ReadLink(String),
    Copy(String, String),
    Canonicalize(String),
    ReadToString(String),
    SetPermissions(String, u32),
    /// Sets owner and group, of a link itself if it says so.
    Chown(String, Option<u32>, Option<u32>, bool),
    /// Opens a file into one of the places for open files.
    Open(usize, String, How),
    Close(usize),
    ReadSome(usize, usize),
    WriteSome(usize, usize),
    Seek(usize, SeekFrom),
    SetLen(usize, u64),
    Sync(usize),
    OpenMetadata(usize),
    /// Reads or writes so many bytes at an offset.
    ReadExactAt(usize, u64, usize),
    WriteAllAt(usize, u64, usize),
    /// Sets the time of the last change, in nanoseconds since 1970.
    SetModified(usize, i64),
    SetOpenPermissions(usize, u32),
}

/// Places for open files.
pub const OPEN: usize = 3;

fn name(rng: &mut Rng) -> String {
    match rng.below(100) {
        0 => "n".repeat(255),
        1 => "n".repeat(256),
        _ => rng.pick(&["a", "b", "c"]).unwrap().to_string(),
    }
}

/// A path of names only.
fn plain(rng: &mut Rng) -> String {
    let length = *rng.pick(&[1, 1, 1, 2, 2, 3]).unwrap();
    let names: Vec<String> = (0..length).map(|_| name(rng)).collect();
    names.join("/")
}

/// A path that may have dots, and slashes where none is needed. It has two `..` at most, a link's target one: forty links cannot
/// lead out of the directory that both sides work in, which lies deeper.
fn path(rng: &mut Rng) -> String {
    let mut path = plain(rng);
    match rng.below(24) {
        0 => path = format!("{path}/.."),
        1 => path = format!("../{path}"),
        2 => path = format!("{}/../{path}", name(rng)),
        3 => path = format!("{path}/."),
        4 => path = format!("./{path}"),
        5 => path = format!("{}//{path}", name(rng)),
        6 => path.clear(),
        _ => {}
    }
    if rng.chance(10) {
        path.push('/');
    }
    path
}

fn target(rng: &mut Rng) -> String {
    let path = plain(rng);
    match rng.below(12) {
        0 => "..".to_owned(),
        1 => ".".to_owned(),
        2 => format!("../{path}"),
        3 => format!("{path}/"),
        4 => String::new(),
        _ => path,
    }
}

/// A random operation.
pub fn random(rng: &mut Rng) -> Operation {
    let file = rng.index(OPEN);
    match rng.below(48) {
        0 | 1 => Operation::Read(path(rng)),
        2..=4 => Operation::Write(path(rng), rng.size(20_000) as usize),
        5 | 6 => Operation::CreateDir(path(rng)),
        7..=9 => Operation::CreateDirAll(path(rng)),
        10 => Operation::ReadDir(path(rng)),
        11 => Operation::Metadata(path(rng)),
        12 => Operation::SymlinkMetadata(path(rng)),
        13 => Operation::Exists(path(rng)),
        14..=16 => Operation::Rename(path(rng), path(rng)),
        17 | 18 => Operation::RemoveFile(path(rng)),
        19 => Operation::RemoveDir(path(rng)),
        20 => Operation::RemoveDirAll(plain(rng)),
        21 | 22 => Operation::HardLink(path(rng), path(rng)),
        23..=25 => Operation::Symlink(target(rng), path(rng)),
        26 => Operation::ReadLink(path(rng)),
        27 => Operation::Copy(path(rng), path(rng)),
        28 => Operation::SetPermissions(path(rng), 0o700 | rng.below(0o100) as u32),
        29..=31 => Operation::Open(file, path(rng), how(rng)),
        32 => Operation::Close(file),
        33 | 34 => Operation::ReadSome(file, rng.size(9000) as usize),
        35 | 36 => Operation::WriteSome(file, rng.size(9000) as usize),
        37 => Operation::Seek(file, seek(rng)),
        38 => Operation::SetLen(file, *rng.pick(&[100, 20_000, 30_000, i64::MAX as u64, u64::MAX]).unwrap()),
        39 => Operation::ReadToString(path(rng)),
        40 | 41 => Operation::Canonicalize(path(rng)),
        42 => Operation::Chown(path(rng), id(rng), id(rng), rng.chance(50)),
        43 => Operation::ReadExactAt(file, rng.size(9000), rng.size(9000) as usize),
        44 => Operation::WriteAllAt(file, rng.size(9000), rng.size(9000) as usize),
        45 => Operation::SetModified(file, rng.below(1 << 61) as i64 - (1 << 60)),
        46 => Operation::SetOpenPermissions(file, 0o700 | rng.below(0o100) as u32),
        _ if rng.chance(20) => Operation::Sync(file),
        _ => Operation::OpenMetadata(file),
    }
}

fn id(rng: &mut Rng) -> Option<u32> {
    rng.chance(70).then(|| rng.below(3) as u32)
}

fn how(rng: &mut Rng) -> How {
    How {
        read: rng.chance(60),
        write: rng.chance(60),
        append: rng.chance(20),
        truncate: rng.chance(20),
        create: rng.chance(40),
        create_new: rng.chance(10),
    }
}

fn seek(rng: &mut Rng) -> SeekFrom {
    let offset = rng.size(12_000) as i64;
    match rng.below(6) {
        0 => SeekFrom::Current(-offset),
        1 => SeekFrom::Current(offset),
        2 => SeekFrom::End(-offset),
        3 => SeekFrom::End(offset),
        4 => SeekFrom::Start(u64::MAX - offset as u64),
        _ => SeekFrom::Start(offset as u64),
    }
}
