//! What workloads consist of: a stream of operations that depends on the seed and the settings alone, never on the target.

use std::hash::Hasher;

use serde::{Deserialize, Serialize};

/// A file that the workload has open, by a small number of its own choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct File(pub u32);

/// One operation. Lengths and offsets are in bytes; what is written is chosen by the runner from the seed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Makes a directory.
    MakeDirectory(String),
    /// Removes an empty directory.
    RemoveDirectory(String),
    /// Makes a new file and opens it as this number.
    Create(File, String),
    /// Opens an existing file as this number.
    Open(File, String),
    /// Closes a file.
    Close(File),
    /// Reads `length` bytes from `offset`, in one request.
    Read {
        /// The file.
        file: File,
        /// First byte.
        offset: u64,
        /// Bytes; at most [`MAX_REQUEST`].
        length: u32,
    },
    /// Writes `length` bytes at `offset`, in one request.
    Write {
        /// The file.
        file: File,
        /// First byte.
        offset: u64,
        /// Bytes; at most [`MAX_REQUEST`].
        length: u32,
    },
    /// Sets a file's size.
    Truncate(File, u64),
    /// Makes a file durable (`fsync`).
    Sync(File),
    /// Makes a file's content durable (`fdatasync`).
    SyncData(File),
    /// Asks for a path's attributes.
    Stat(String),
    /// Lists a directory.
    List(String),
    /// Removes a file's name.
    Unlink(String),
    /// Renames, replacing an existing target.
    Rename(String, String),
    /// Makes everything durable.
    SyncAll,
}

/// Largest length of one read or write, in bytes.
pub const MAX_REQUEST: u32 = 1 << 20;

/// The kinds of operations, as reports count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// [`Operation::MakeDirectory`].
    MakeDirectory,
    /// [`Operation::RemoveDirectory`].
    RemoveDirectory,
    /// [`Operation::Create`].
    Create,
    /// [`Operation::Open`].
    Open,
    /// [`Operation::Close`].
    Close,
    /// [`Operation::Read`].
    Read,
    /// [`Operation::Write`].
    Write,
    /// [`Operation::Truncate`].
    Truncate,
    /// [`Operation::Sync`].
    Fsync,
    /// [`Operation::SyncData`].
    Fdatasync,
    /// [`Operation::Stat`].
    Stat,
    /// [`Operation::List`].
    List,
    /// [`Operation::Unlink`].
    Unlink,
    /// [`Operation::Rename`].
    Rename,
    /// [`Operation::SyncAll`].
    Sync,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 15;

    /// All, in the order of their numbers.
    pub const ALL: [Kind; Kind::COUNT] = [
        Kind::MakeDirectory,
        Kind::RemoveDirectory,
        Kind::Create,
        Kind::Open,
        Kind::Close,
        Kind::Read,
        Kind::Write,
        Kind::Truncate,
        Kind::Fsync,
        Kind::Fdatasync,
        Kind::Stat,
        Kind::List,
        Kind::Unlink,
        Kind::Rename,
        Kind::Sync,
    ];

    /// Its name, as the system call's where there is one.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::MakeDirectory => "mkdir",
            Kind::RemoveDirectory => "rmdir",
            Kind::Create => "create",
            Kind::Open => "open",
            Kind::Close => "close",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Truncate => "truncate",
            Kind::Fsync => "fsync",
            Kind::Fdatasync => "fdatasync",
            Kind::Stat => "stat",
            Kind::List => "list",
            Kind::Unlink => "unlink",
            Kind::Rename => "rename",
            Kind::Sync => "sync",
        }
    }

    /// Whether it changes the file system or what is durable of it.
    pub const fn changes(self) -> bool {
        match self {
            Kind::Open | Kind::Close | Kind::Read | Kind::Stat | Kind::List => false,
            Kind::MakeDirectory
            | Kind::RemoveDirectory
            | Kind::Create
            | Kind::Write
            | Kind::Truncate
            | Kind::Fsync
            | Kind::Fdatasync
            | Kind::Unlink
            | Kind::Rename
            | Kind::Sync => true,
        }
    }
}

impl Operation {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Operation::MakeDirectory(_) => Kind::MakeDirectory,
            Operation::RemoveDirectory(_) => Kind::RemoveDirectory,
            Operation::Create(..) => Kind::Create,
            Operation::Open(..) => Kind::Open,
            Operation::Close(_) => Kind::Close,
            Operation::Read { .. } => Kind::Read,
            Operation::Write { .. } => Kind::Write,
            Operation::Truncate(..) => Kind::Truncate,
            Operation::Sync(_) => Kind::Fsync,
            Operation::SyncData(_) => Kind::Fdatasync,
            Operation::Stat(_) => Kind::Stat,
            Operation::List(_) => Kind::List,
            Operation::Unlink(_) => Kind::Unlink,
            Operation::Rename(..) => Kind::Rename,
            Operation::SyncAll => Kind::Sync,
        }
    }
}

/// A running hash of operations (FNV-1a over their fields): two runs with the same hash did the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationHash(u64);

impl Default for OperationHash {
    fn default() -> OperationHash {
        OperationHash(0xCBF2_9CE4_8422_2325)
    }
}

impl OperationHash {
    /// Takes one more operation in.
    pub fn add(&mut self, operation: &Operation) {
        self.write_u8(operation.kind() as u8);
        match operation {
            Operation::MakeDirectory(path)
            | Operation::RemoveDirectory(path)
            | Operation::Stat(path)
            | Operation::List(path)
            | Operation::Unlink(path) => self.text(path),
            Operation::Create(file, path) | Operation::Open(file, path) => {
                self.number(u64::from(file.0));
                self.text(path);
            }
            Operation::Close(file) | Operation::Sync(file) | Operation::SyncData(file) => {
                self.number(u64::from(file.0));
            }
            Operation::Read { file, offset, length } | Operation::Write { file, offset, length } => {
                self.number(u64::from(file.0) << 32 | u64::from(*length));
                self.number(*offset);
            }
            Operation::Truncate(file, size) => {
                self.number(u64::from(file.0));
                self.number(*size);
            }
            Operation::Rename(from, to) => {
                self.text(from);
                self.text(to);
            }
            Operation::SyncAll => {}
        }
    }

    /// The hash of all so far.
    pub fn value(&self) -> u64 {
        self.0
    }

    fn number(&mut self, value: u64) {
        // One multiplication a word: hashing must not cost what the operations cost.
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn text(&mut self, text: &str) {
        self.write(text.as_bytes());
        self.write_u8(0);
    }
}

impl Hasher for OperationHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
}
