//! What is done to a volume, as text: one step a line, so that a failure can be kept, read and replayed.

use std::fmt;
use std::str::FromStr;

use basalt_vfs::FileKind;

/// A path below the root, without a slash in front; or a handle of a file without a name, `@` in front.
pub type Path = String;

/// One step of a workload. A step that the file system refuses changes nothing and is no failure: a script stays meaningful
/// when lines are taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make an empty regular file.
    Create(Path),
    /// Make a directory.
    Mkdir(Path),
    /// Make a symbolic link with a target of so many bytes.
    Symlink(Path, u32),
    /// Make a FIFO, a socket or a device node with this number.
    Special(Path, Special, u32),
    /// Make a file without a name (`O_TMPFILE`), and keep it open under this handle, which begins with `@`.
    Unnamed(Path),
    /// Give the first one the second name.
    Link(Path, Path),
    /// Remove a name.
    Unlink(Path),
    /// Remove an empty directory.
    Rmdir(Path),
    /// Rename, replacing what is there.
    Rename(Path, Path),
    /// Rename, unless the new name is taken.
    RenameNew(Path, Path),
    /// Rename, replacing what is there, and leave a whiteout at the old name.
    Whiteout(Path, Path),
    /// Swap two names.
    Exchange(Path, Path),
    /// Write so many bytes at an offset, from a seed.
    Write(Path, u64, u32, u64),
    /// As that, as the kernel writes back pages of its cache: times stay.
    WriteBack(Path, u64, u32, u64),
    /// Set the size.
    Truncate(Path, u64),
    /// Preallocate a range and extend the file over it.
    Allocate(Path, u64, u64),
    /// Preallocate a range and leave the size.
    Reserve(Path, u64, u64),
    /// Punch a hole.
    Punch(Path, u64, u64),
    /// Make a range read as zeros, keep it allocated, and extend the file over it.
    Zero(Path, u64, u64),
    /// As that, but leave the size.
    ZeroKeep(Path, u64, u64),
    /// Set a user attribute of this number to so many bytes, from a seed.
    SetXattr(Path, u8, u32, u64),
    /// Remove a user attribute.
    RemoveXattr(Path, u8),
    /// Set the permission bits.
    Chmod(Path, u32),
    /// Set owner and group.
    Chown(Path, u32, u32),
    /// Set access time and modification time to so many seconds, and nanoseconds of the access time.
    Utimes(Path, i64, u32),
    /// Set the `chattr(1)` flags.
    Flags(Path, u32),
    /// Set an access ACL (of a directory: for what is made in it), which depends on the number.
    SetAcl(Path, u32),
    /// Keep a reference, as an open file does.
    Hold(Path),
    /// Give all references back.
    Release,
    /// fsync.
    Fsync(Path),
    /// fdatasync.
    Fdatasync(Path),
    /// sync.
    Sync,
    /// Background work, after a pause of so many seconds.
    Tick(u32),
    /// Ask for the space that is left.
    Statfs,
    /// Discard what is free.
    Trim,
    /// Put a file in sequence on the device.
    Defragment(Path),
    /// Look at everything: what does not fit into the caches pushes something else out.
    Walk,
    /// Unmount and mount.
    Remount,
}

/// What [`Step::Special`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char,
    /// A block device.
    Block,
}

impl Special {
    const ALL: [(Special, &'static str); 4] =
        [(Special::Fifo, "fifo"), (Special::Socket, "socket"), (Special::Char, "char"), (Special::Block, "block")];

    fn word(self) -> &'static str {
        Special::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// The kind of inode.
    pub const fn kind(self) -> FileKind {
        match self {
            Special::Fifo => FileKind::Fifo,
            Special::Socket => FileKind::Socket,
            Special::Char => FileKind::CharDevice,
            Special::Block => FileKind::BlockDevice,
        }
    }
}

impl Step {
    /// The paths it names.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Step::Link(one, other)
            | Step::Rename(one, other)
            | Step::RenameNew(one, other)
            | Step::Whiteout(one, other)
            | Step::Exchange(one, other) => vec![one, other],
            Step::Create(path)
            | Step::Mkdir(path)
            | Step::Symlink(path, _)
            | Step::Special(path, ..)
            | Step::Unnamed(path)
            | Step::Unlink(path)
            | Step::Rmdir(path)
            | Step::Write(path, ..)
            | Step::WriteBack(path, ..)
            | Step::Truncate(path, _)
            | Step::Allocate(path, ..)
            | Step::Reserve(path, ..)
            | Step::Punch(path, ..)
            | Step::Zero(path, ..)
            | Step::ZeroKeep(path, ..)
            | Step::SetXattr(path, ..)
            | Step::RemoveXattr(path, _)
            | Step::Chmod(path, _)
            | Step::Chown(path, ..)
            | Step::Utimes(path, ..)
            | Step::Flags(path, _)
            | Step::SetAcl(path, _)
            | Step::Hold(path)
            | Step::Fsync(path)
            | Step::Defragment(path)
            | Step::Fdatasync(path) => vec![path],
            Step::Release | Step::Sync | Step::Tick(_) | Step::Statfs | Step::Trim | Step::Walk | Step::Remount => {
                Vec::new()
            }
        }
    }

    /// Whether it asks for durability.
    pub fn is_sync(&self) -> bool {
        matches!(self, Step::Fsync(_) | Step::Fdatasync(_) | Step::Sync)
    }

    /// Whether something is durable when it has returned.
    pub fn is_persistence(&self) -> bool {
        self.is_sync() || *self == Step::Remount
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create(path) => write!(f, "create {path}"),
            Step::Mkdir(path) => write!(f, "mkdir {path}"),
            Step::Symlink(path, length) => write!(f, "symlink {path} {length}"),
            Step::Special(path, kind, rdev) => write!(f, "mknod {path} {} {rdev}", kind.word()),
            Step::Unnamed(path) => write!(f, "tmpfile {path}"),
            Step::Link(from, to) => write!(f, "link {from} {to}"),
            Step::Unlink(path) => write!(f, "unlink {path}"),
            Step::Rmdir(path) => write!(f, "rmdir {path}"),
            Step::Rename(from, to) => write!(f, "rename {from} {to}"),
            Step::RenameNew(from, to) => write!(f, "rename-new {from} {to}"),
            Step::Whiteout(from, to) => write!(f, "whiteout {from} {to}"),
            Step::Exchange(from, to) => write!(f, "exchange {from} {to}"),
            Step::Write(path, offset, length, seed) => write!(f, "write {path} {offset} {length} {seed}"),
            Step::WriteBack(path, offset, length, seed) => write!(f, "write-back {path} {offset} {length} {seed}"),
            Step::Truncate(path, size) => write!(f, "truncate {path} {size}"),
            Step::Allocate(path, offset, length) => write!(f, "allocate {path} {offset} {length}"),
            Step::Reserve(path, offset, length) => write!(f, "reserve {path} {offset} {length}"),
            Step::Punch(path, offset, length) => write!(f, "punch {path} {offset} {length}"),
            Step::Zero(path, offset, length) => write!(f, "zero {path} {offset} {length}"),
            Step::ZeroKeep(path, offset, length) => write!(f, "zero-keep {path} {offset} {length}"),
            Step::SetXattr(path, name, length, seed) => write!(f, "setxattr {path} {name} {length} {seed}"),
            Step::RemoveXattr(path, name) => write!(f, "removexattr {path} {name}"),
            Step::Chmod(path, permissions) => write!(f, "chmod {path} {permissions:o}"),
            Step::Chown(path, uid, gid) => write!(f, "chown {path} {uid} {gid}"),
            Step::Utimes(path, seconds, nanoseconds) => write!(f, "utimes {path} {seconds} {nanoseconds}"),
            Step::Flags(path, flags) => write!(f, "chattr {path} {flags}"),
            Step::SetAcl(path, number) => write!(f, "setacl {path} {number}"),
            Step::Hold(path) => write!(f, "hold {path}"),
            Step::Release => write!(f, "release"),
            Step::Fsync(path) => write!(f, "fsync {path}"),
            Step::Fdatasync(path) => write!(f, "fdatasync {path}"),
            Step::Defragment(path) => write!(f, "defragment {path}"),
            Step::Sync => write!(f, "sync"),
            Step::Tick(seconds) => write!(f, "tick {seconds}"),
            Step::Statfs => write!(f, "statfs"),
            Step::Trim => write!(f, "trim"),
            Step::Walk => write!(f, "walk"),
            Step::Remount => write!(f, "remount"),
        }
    }
}

/// The words of a line, taken one by one.
pub(crate) struct Words<'a> {
    line: &'a str,
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a str) -> Words<'a> {
        Words { line, words: line.split_whitespace() }
    }

    /// The next word; an error that says which one is missing.
    pub(crate) fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.words.next().ok_or_else(|| format!("`{}`: {what} is missing", self.line))
    }

    /// The next word as a number.
    pub(crate) fn number<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("`{}`: {what} `{word}` is no number in range", self.line))
    }

    /// Fails if something is left.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.words.next().map_or(Ok(()), |word| Err(format!("`{}`: `{word}` is too much", self.line)))
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Step, String> {
        let mut words = Words::new(line);
        let verb = words.word("a step")?;
        let path = |words: &mut Words<'_>| words.word("the path").map(str::to_owned);
        let step = match verb {
            "create" => Step::Create(path(&mut words)?),
            "mkdir" => Step::Mkdir(path(&mut words)?),
            "symlink" => Step::Symlink(path(&mut words)?, words.number("the length")?),
            "mknod" => {
                let (path, word) = (path(&mut words)?, words.word("the kind")?);
                let kind = Special::ALL.into_iter().find(|(_, name)| *name == word);
                let (kind, _) = kind.ok_or_else(|| format!("`{line}`: there is no kind `{word}`"))?;
                Step::Special(path, kind, words.number("the device number")?)
            }
            "tmpfile" => Step::Unnamed(path(&mut words)?),
            "link" => Step::Link(path(&mut words)?, path(&mut words)?),
            "unlink" => Step::Unlink(path(&mut words)?),
            "rmdir" => Step::Rmdir(path(&mut words)?),
            "rename" => Step::Rename(path(&mut words)?, path(&mut words)?),
            "rename-new" => Step::RenameNew(path(&mut words)?, path(&mut words)?),
            "whiteout" => Step::Whiteout(path(&mut words)?, path(&mut words)?),
            "exchange" => Step::Exchange(path(&mut words)?, path(&mut words)?),
            "write" | "write-back" => {
                let make = if verb == "write" { Step::Write } else { Step::WriteBack };
                let (path, offset) = (path(&mut words)?, words.number("the offset")?);
                make(path, offset, words.number("the length")?, words.number("the seed")?)
            }
            "truncate" => Step::Truncate(path(&mut words)?, words.number("the size")?),
            "allocate" | "reserve" | "punch" | "zero" | "zero-keep" => {
                let make = match verb {
                    "allocate" => Step::Allocate,
                    "reserve" => Step::Reserve,
                    "punch" => Step::Punch,
                    "zero" => Step::Zero,
                    _ => Step::ZeroKeep,
                };
                make(path(&mut words)?, words.number("the offset")?, words.number("the length")?)
            }
            "setxattr" => Step::SetXattr(
                path(&mut words)?,
                words.number("the attribute")?,
                words.number("the length")?,
                words.number("the seed")?,
            ),
            "removexattr" => Step::RemoveXattr(path(&mut words)?, words.number("the attribute")?),
            "chmod" => {
                let path = path(&mut words)?;
                let bits = words.word("the permissions")?;
                let bits = u32::from_str_radix(bits, 8).map_err(|_| format!("`{line}`: `{bits}` is not octal"))?;
                Step::Chmod(path, bits & 0o7777)
            }
            "chown" => Step::Chown(path(&mut words)?, words.number("the owner")?, words.number("the group")?),
            "utimes" => Step::Utimes(path(&mut words)?, words.number("the seconds")?, words.number("the nanoseconds")?),
            "chattr" => Step::Flags(path(&mut words)?, words.number("the flags")?),
            "setacl" => Step::SetAcl(path(&mut words)?, words.number("the number")?),
            "hold" => Step::Hold(path(&mut words)?),
            "release" => Step::Release,
            "fsync" => Step::Fsync(path(&mut words)?),
            "fdatasync" => Step::Fdatasync(path(&mut words)?),
            "defragment" => Step::Defragment(path(&mut words)?),
            "sync" => Step::Sync,
            "tick" => Step::Tick(words.number("the seconds")?),
            "statfs" => Step::Statfs,
            "trim" => Step::Trim,
            "walk" => Step::Walk,
            "remount" => Step::Remount,
            _ => return Err(format!("`{line}`: there is no step `{verb}`")),
        };
        words.end()?;
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_read_back() {
        let all = "create a\nmkdir d\nsymlink d/s 40\nlink a d/b\nunlink a\nrmdir d\nrename d/b c\nexchange c d\n\
                   write c 4096 70000 17\ntruncate c 5\nallocate c 0 9000\npunch c 4096 4096\nsetxattr c 2 300 9\n\
                   removexattr c 2\nchmod c 4755\nchown c 7 8\nutimes c -5 9\nchattr c 64\nsetacl d 3\nmknod p block 2049\n\
                   tmpfile @0\nrename-new a b\nwhiteout b a\nwrite-back c 0 5 6\nreserve c 0 9\nzero c 1 2\nzero-keep c 1 2\n\
                   statfs\ntrim\nwalk\nhold c\nrelease\nfsync c\nfdatasync c\nsync\ntick 6\nremount";
        for line in all.lines() {
            assert_eq!(line.parse::<Step>().unwrap().to_string(), line.trim());
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        for (line, complaint) in [
            ("fly a", "no step `fly`"),
            ("write a 0 x 1", "the length `x`"),
            ("write a 0 4", "the seed is missing"),
            ("sync now", "`now` is too much"),
            ("chmod a 9", "not octal"),
            ("", "a step is missing"),
        ] {
            let error = line.parse::<Step>().unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
