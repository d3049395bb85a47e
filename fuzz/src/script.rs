//! Operations on a mounted volume, whatever it holds: first everything is looked at, then things are changed.

use std::collections::{BTreeMap, VecDeque};

use arbitrary::Arbitrary;
use basalt_vfs::{
    Error, FallocateMode, FileKind, FileSystem, InodeFlags, OpenFlags, RenameFlags, Seek, SetAttributes, SetTime, Time,
    XattrFlags,
};

use super::base::{CALLER, new_node};

/// Inodes visited by a walk.
const INODES: usize = 400;
/// Entries taken from one directory: one with every block the same would list for long, but not for ever.
const ENTRIES: usize = 2000;
/// Names looked up in one directory.
const LOOKUPS: usize = 30;

/// One change. Numbers choose among the names that the walk found.
#[derive(Debug, Clone, Arbitrary)]
pub enum Change {
    Write { name: u16, offset: Offset, length: u16 },
    Read { name: u16, offset: Offset },
    Resize { name: u16, size: Offset },
    Fallocate { name: u16, mode: u8, offset: Offset, length: Offset },
    Seek { name: u16, offset: Offset, hole: bool },
    Create { name: u16, kind: u8, long: bool },
    CreateMany { name: u16, count: u8 },
    Unnamed { name: u16 },
    Link { name: u16, to: u16 },
    Unlink { name: u16 },
    RemoveDirectory { name: u16 },
    Rename { name: u16, to: u16, flags: u8, onto: bool },
    SetXattr { name: u16, which: u8, length: u16 },
    RemoveXattr { name: u16, which: u8 },
    SetFlags { name: u16, flags: u8 },
    SetOwner { name: u16 },
    Forget { name: u16 },
    ByNumber { ino: u64 },
    Trim { offset: u64 },
    Sync,
    Tick,
    Fsync { name: u16, data_only: bool },
}

/// A place in a file, or a length.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Offset {
    Start,
    Small(u16),
    Block(u16),
    /// Around the first file block of the second direct node, an indirect one, the double indirect one.
    Edge(u8, i8),
    Any(u64),
}

impl Offset {
    fn bytes(self) -> u64 {
        match self {
            Offset::Start => 0,
            Offset::Small(bytes) => bytes.into(),
            Offset::Block(block) => u64::from(block) * 4096,
            Offset::Edge(which, by) => {
                let blocks =
                    [873, 914, 923, 923 + 1018, 923 + 2036, 923 + 2036 + 1018 * 1018, 923 + 2036 + 2 * 1018 * 1018]
                        [usize::from(which) % 7];
                (blocks * 4096u64).saturating_add_signed(by.into())
            }
            Offset::Any(offset) => offset,
        }
    }
}

/// A name that was found.
#[derive(Debug, Clone)]
struct Known {
    parent: u64,
    name: Vec<u8>,
    ino: u64,
}

/// A mounted volume under test.
pub struct Run<'a> {
    fs: &'a dyn FileSystem,
    names: Vec<Known>,
    directories: Vec<u64>,
    /// References taken, by inode.
    held: BTreeMap<u64, u64>,
    /// The first thing that contradicted itself.
    pub damage_met: Option<String>,
}

impl<'a> Run<'a> {
    /// A run that has seen nothing yet.
    pub fn new(fs: &'a dyn FileSystem) -> Run<'a> {
        Run { fs, names: Vec::new(), directories: vec![fs.root()], held: BTreeMap::new(), damage_met: None }
    }

    /// Takes note of a result: damage must be named.
    fn note<T>(&mut self, result: basalt_vfs::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::Corrupted(what)) => {
                assert!(what.contains(" at ") || what.contains("ACL"), "damage without a place: {what}");
                self.damage_met.get_or_insert(what);
                None
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                None
            }
        }
    }

    /// Looks at everything there is.
    pub fn walk(&mut self) {
        let mut queue = VecDeque::from([self.fs.root()]);
        let mut seen = std::collections::BTreeSet::from([self.fs.root()]);
        let stat = self.fs.stat_fs();
        self.note(stat);
        while let Some(ino) = queue.pop_front() {
            self.look_at(ino);
            for (name, _) in self.list(ino).into_iter().take(LOOKUPS) {
                let found = self.fs.lookup(ino, &name);
                let Some(attributes) = self.note(found) else { continue };
                *self.held.entry(attributes.ino).or_default() += 1;
                self.names.push(Known { parent: ino, name, ino: attributes.ino });
                if seen.len() < INODES && seen.insert(attributes.ino) {
                    queue.push_back(attributes.ino);
                    if attributes.kind == FileKind::Directory {
                        self.directories.push(attributes.ino);
                    }
                }
            }
        }
    }

    /// The first entries of a directory; nothing for anything else.
    fn list(&mut self, ino: u64) -> Vec<(Vec<u8>, u64)> {
        let mut found = Vec::new();
        let result = self.fs.read_directory(ino, 0, &mut |entry| {
            assert!(entry.next != 0 && !entry.name.is_empty() && entry.name.len() <= 255);
            found.push((entry.name.to_vec(), entry.next));
            found.len() < ENTRIES
        });
        self.note(result);
        // Once more from the middle, and from behind every end.
        let cursor = found.get(found.len() / 2).map_or(1, |entry| entry.1);
        for from in [cursor, u64::MAX, 1 << 40] {
            let mut count = 0;
            let result = self.fs.read_directory(ino, from, &mut |_| {
                count += 1;
                count < ENTRIES
            });
            self.note(result);
        }
        found
    }

    fn look_at(&mut self, ino: u64) {
        let fs = self.fs;
        let attributes = fs.attributes(ino);
        let Some(attributes) = self.note(attributes) else { return };
        let list = fs.list_xattrs(ino);
        let names = self.note(list).unwrap_or_default();
        for name in names.split(|&byte| byte == 0).take(8) {
            let value = fs.get_xattr(ino, name);
            self.note(value);
        }
        for name in [&b"system.posix_acl_access"[..], b"user.none", b"system.advise", b"nonsense", b""] {
            let value = fs.get_xattr(ino, name);
            self.note(value);
        }
        let target = fs.read_link(ino);
        self.note(target);
        let mut buf = vec![0; 70_000];
        let size = attributes.size;
        for offset in [0, size.saturating_sub(5), size / 2, size.saturating_add(1), 923 * 4096, u64::MAX - 3] {
            let read = fs.read(ino, offset, &mut buf);
            if let Some(length) = self.note(read) {
                assert!(length as u64 <= size.saturating_sub(offset));
            }
        }
        for (offset, whence) in [(0, Seek::Data), (0, Seek::Hole), (size / 2, Seek::Data), (u64::MAX, Seek::Hole)] {
            let found = fs.seek(ino, offset, whence);
            self.note(found);
        }
        let opened = fs.open(ino, OpenFlags::WRITE | OpenFlags::APPEND);
        self.note(opened);
    }

    fn known(&self, index: u16) -> Option<&Known> {
        self.names.get(usize::from(index) % self.names.len().max(1))
    }

    fn ino(&self, index: u16) -> u64 {
        self.known(index).map_or_else(|| self.fs.root(), |known| known.ino)
    }

    fn directory(&self, index: u16) -> u64 {
        self.directories[usize::from(index) % self.directories.len()]
    }

    fn hold(&mut self, parent: u64, name: &[u8], result: basalt_vfs::Result<basalt_vfs::Attributes>) {
        let Some(attributes) = self.note(result) else { return };
        *self.held.entry(attributes.ino).or_default() += 1;
        if !name.is_empty() {
            self.names.push(Known { parent, name: name.to_vec(), ino: attributes.ino });
        }
    }

    /// Makes one change.
    pub fn change(&mut self, change: &Change) {
        match change {
            Change::Create { .. } | Change::CreateMany { .. } | Change::Unnamed { .. } | Change::Link { .. } => {
                self.make(change);
            }
            Change::Unlink { .. } | Change::RemoveDirectory { .. } | Change::Rename { .. } => {
                self.rename_or_remove(change)
            }
            _ => self.change_one(change),
        }
    }

    fn make(&mut self, change: &Change) {
        let fs = self.fs;
        match *change {
            Change::Create { name, kind, long } => {
                const KINDS: [FileKind; 5] =
                    [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Fifo, FileKind::BlockDevice];
                let parent = self.directory(name);
                let text = format!("{}{name}", if long { "n".repeat(240) } else { "new ".into() });
                let kind = KINDS[usize::from(kind) % KINDS.len()];
                let target = if kind == FileKind::Symlink { vec![b't'; 3900] } else { Vec::new() };
                let made = fs.create(parent, text.as_bytes(), &new_node(kind, &target), &CALLER);
                self.hold(parent, text.as_bytes(), made);
            }
            Change::CreateMany { name, count } => {
                let parent = self.directory(name);
                for index in 0..count % 100 {
                    let text = format!("one of many files with a name {name} {index}");
                    let made = fs.create(parent, text.as_bytes(), &new_node(FileKind::Regular, b""), &CALLER);
                    self.hold(parent, text.as_bytes(), made);
                }
            }
            Change::Unnamed { name } => {
                let made = fs.create_unnamed(self.directory(name), 0o600, &CALLER);
                self.hold(0, b"", made);
            }
            Change::Link { name, to } => {
                let parent = self.directory(to);
                let linked = fs.link(self.ino(name), parent, b"one more name");
                self.hold(parent, b"one more name", linked);
            }
            _ => {}
        }
    }

    fn rename_or_remove(&mut self, change: &Change) {
        let fs = self.fs;
        match *change {
            Change::Unlink { name } => {
                let Some(known) = self.known(name).cloned() else { return };
                let result = fs.unlink(known.parent, &known.name);
                self.note(result);
            }
            Change::RemoveDirectory { name } => {
                let Some(known) = self.known(name).cloned() else { return };
                let result = fs.remove_directory(known.parent, &known.name);
                self.note(result);
            }
            Change::Rename { name, to, flags, onto } => {
                let Some(known) = self.known(name).cloned() else { return };
                let (parent, target) = match self.known(to) {
                    Some(other) if onto => (other.parent, other.name.clone()),
                    _ => (self.directory(to), b"renamed".to_vec()),
                };
                let flags = RenameFlags::from_bits_retain(u32::from(flags) % 9);
                let result = fs.rename(known.parent, &known.name, parent, &target, flags, &CALLER);
                self.note(result);
                self.names.push(Known { parent, name: target, ino: known.ino });
            }
            _ => {}
        }
    }

    fn change_one(&mut self, change: &Change) {
        let fs = self.fs;
        const ATTRIBUTES: [&[u8]; 5] =
            [b"user.short", b"user.long", b"trusted.other", b"user.new", b"system.posix_acl_default"];
        match *change {
            Change::Write { name, offset, length } => {
                let result = fs.write(self.ino(name), offset.bytes(), &vec![0x5A; length.into()], length % 2 == 0);
                self.note(result);
            }
            Change::Read { name, offset } => {
                let result = fs.read(self.ino(name), offset.bytes(), &mut [0; 9000]);
                self.note(result);
            }
            Change::Resize { name, size } => {
                let changes = SetAttributes { size: Some(size.bytes()), ..SetAttributes::default() };
                let result = fs.set_attributes(self.ino(name), &changes);
                self.note(result);
            }
            Change::Fallocate { name, mode, offset, length } => {
                // A length that fills the volume is fair, but takes too long to repeat.
                let length = length.bytes() % (8 << 20);
                let mode = FallocateMode::from_bits_retain(u32::from(mode) % 33);
                let result = fs.fallocate(self.ino(name), mode, offset.bytes(), length);
                self.note(result);
            }
            Change::Seek { name, offset, hole } => {
                let result = fs.seek(self.ino(name), offset.bytes(), if hole { Seek::Hole } else { Seek::Data });
                self.note(result);
            }
            Change::SetXattr { name, which, length } => {
                let attribute = ATTRIBUTES[usize::from(which) % ATTRIBUTES.len()];
                let value = vec![2; usize::from(length) % 5000];
                let result = fs.set_xattr(self.ino(name), attribute, &value, XattrFlags::empty());
                self.note(result);
            }
            Change::RemoveXattr { name, which } => {
                let result = fs.remove_xattr(self.ino(name), ATTRIBUTES[usize::from(which) % ATTRIBUTES.len()]);
                self.note(result);
            }
            Change::SetFlags { name, flags } => {
                let result = fs.set_flags(self.ino(name), InodeFlags::from_bits_retain(u32::from(flags)));
                self.note(result);
            }
            Change::SetOwner { name } => {
                let changes = SetAttributes {
                    uid: Some(5),
                    permissions: Some(0o4751),
                    atime: Some(SetTime::To(Time { seconds: i64::MIN, nanoseconds: 0 })),
                    mtime: Some(SetTime::Now),
                    ..SetAttributes::default()
                };
                let result = fs.set_attributes(self.ino(name), &changes);
                self.note(result);
            }
            Change::Forget { name } => {
                let ino = self.ino(name);
                fs.forget(ino, self.held.remove(&ino).unwrap_or(0));
            }
            Change::ByNumber { ino } => self.look_at(ino),
            Change::Trim { offset } => {
                let result = fs.trim(offset, u64::MAX, 4096);
                self.note(result);
            }
            Change::Sync => {
                let result = fs.sync();
                self.note(result);
            }
            Change::Fsync { name, data_only } => {
                let synced = fs.sync_file(self.ino(name), data_only);
                self.note(synced);
            }
            Change::Tick => {
                fs.tick(Time { seconds: 1_700_000_100, nanoseconds: 0 });
            }
            _ => {}
        }
    }

    /// Removes everything that was found, the deepest first, and gives back what was held: all that is freed is looked at.
    pub fn remove_everything(&mut self) {
        for known in std::mem::take(&mut self.names).into_iter().rev() {
            let mut removed = self.fs.unlink(known.parent, &known.name);
            if matches!(removed, Err(Error::IsDirectory)) {
                removed = self.fs.remove_directory(known.parent, &known.name);
            }
            self.note(removed);
            if let Some(count) = self.held.remove(&known.ino) {
                self.fs.forget(known.ino, count);
            }
        }
    }

    /// Ends the run: every reference goes back.
    pub fn finish(self) -> Option<String> {
        for (ino, count) in &self.held {
            self.fs.forget(*ino, *count);
        }
        self.damage_met
    }
}
