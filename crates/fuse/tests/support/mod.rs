//! What the tests of mounts share.
#![allow(dead_code, missing_docs, reason = "each test binary uses its part")]

pub mod kernel;
pub mod memory;
pub mod served;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use basalt_fuse::{MountOptions, Session, SessionError, UnmountError, Unmounter};
use basalt_testkit::limit;
use memory::MemoryFs;

/// Why mounts cannot be tested here, if so.
pub fn obstacle() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        Some("/dev/fuse is missing")
    } else if !rustix::process::geteuid().is_root() {
        Some("mounting directly needs root")
    } else {
        None
    }
}

/// A file system in memory, mounted and served by a thread until dropped.
pub struct Mounted {
    pub fs: Arc<MemoryFs>,
    pub unmounter: Unmounter,
    server: Option<JoinHandle<Result<(), SessionError>>>,
    dir: tempfile::TempDir,
}

impl Mounted {
    /// Mounts with `change`d options; `None` (and a line that says why) where that is impossible.
    pub fn new(change: impl FnOnce(&mut MountOptions)) -> Option<Self> {
        Self::with(MemoryFs::new(), change)
    }

    pub fn with(fs: MemoryFs, change: impl FnOnce(&mut MountOptions)) -> Option<Self> {
        Self::again(Arc::new(fs), change)
    }

    /// Mounts a file system that may have been mounted before.
    pub fn again(fs: Arc<MemoryFs>, change: impl FnOnce(&mut MountOptions)) -> Option<Self> {
        if let Some(why) = obstacle() {
            println!("skipped: {why}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut options = MountOptions::new(dir.path(), "memory");
        change(&mut options);
        let session = Session::mount(fs.clone(), &options).expect("mounting");
        let unmounter = session.unmounter();
        let server = Some(std::thread::spawn(move || session.run()));
        Some(Mounted { fs, unmounter, server, dir })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Unmounts and mounts again: the kernel has then forgotten what it had cached.
    pub fn remount(mut self, change: impl FnOnce(&mut MountOptions)) -> Self {
        self.unmount().unwrap();
        Self::again(self.fs.clone(), change).expect("it worked before")
    }

    /// Waits until the session has ended.
    #[track_caller]
    pub fn join(&mut self) -> Result<(), SessionError> {
        limit::join(self.server.take().expect("joined once"), limit::SHORT)
    }

    /// Unmounts, however long someone else (an indexer, say) keeps it busy, and waits for the session's end.
    pub fn unmount(&mut self) -> Result<(), SessionError> {
        for _ in 0..50 {
            match self.unmounter.unmount() {
                Err(UnmountError::Busy(_)) => std::thread::sleep(Duration::from_millis(20)),
                other => {
                    other.unwrap();
                    return self.join();
                }
            }
        }
        panic!("busy for a second");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_none() {
            return;
        }
        if std::thread::panicking() {
            // Files may still be open: the test has failed, get rid of the mount.
            let _ = rustix::mount::unmount(self.root(), rustix::mount::UnmountFlags::DETACH);
        } else {
            self.unmount().unwrap();
        }
    }
}
