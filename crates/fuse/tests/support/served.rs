//! A session over a connection in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;

use basalt_fuse::protocol::wire::{CreateIn, EntryOut};
use basalt_fuse::protocol::{MAJOR, MINOR, ROOT_NODE};
use basalt_fuse::{Losses, MountOptions, ReceiveError, Serving, SessionError};
use basalt_testkit::limit;
use zerocopy::FromBytes;

use super::kernel::{Kernel, connection};
use super::memory::MemoryFs;

const STATFS: u32 = 17;
const TMPFILE: u32 = 51;

/// With one loop, which answers in the order of the requests.
pub fn options() -> MountOptions {
    MountOptions { wakeful: false, threads: 1, ..MountOptions::new("/nowhere", "memory") }
}

/// A session that is served by a thread.
pub struct Served {
    pub kernel: Kernel,
    pub fs: Arc<MemoryFs>,
    pub server: JoinHandle<Result<(), SessionError>>,
    pub losses: Losses,
}

impl Served {
    pub fn new() -> Served {
        Served::with(&options())
    }

    pub fn with(options: &MountOptions) -> Served {
        Served::of(MemoryFs::new(), options)
    }

    pub fn of(fs: MemoryFs, options: &MountOptions) -> Served {
        let (mut kernel, transport) = connection();
        let fs = Arc::new(fs);
        let offer = kernel.offer(MAJOR, MINOR);
        let serving = Serving::connect(fs.clone(), transport, options).unwrap();
        kernel.agreed(offer);
        let losses = serving.losses();
        Served { kernel, fs, server: std::thread::spawn(move || serving.run()), losses }
    }

    /// Still answers.
    #[track_caller]
    pub fn expect_alive(&mut self) {
        assert_eq!(self.kernel.ask(STATFS, ROOT_NODE, &[0_u8; 0]).code, 0);
    }

    /// Ends the connection; what the session says of that.
    pub fn end(self, why: ReceiveError) -> Result<(), SessionError> {
        self.kernel.end(why);
        let outcome = limit::join(self.server, limit::SHORT);
        assert_eq!(self.kernel.messages_left(), 0);
        assert_eq!(self.fs.calls.closes.load(SeqCst), 1, "closed once, whatever the end");
        outcome
    }

    pub fn unmount(self) {
        self.end(ReceiveError::Unmounted).unwrap();
    }

    /// Makes a file without a name.
    pub fn unnamed_file(&mut self) -> EntryOut {
        let reply = self.kernel.ask(TMPFILE, ROOT_NODE, &CreateIn { mode: 0o600, ..Default::default() });
        assert_eq!(reply.code, 0);
        EntryOut::read_from_prefix(&reply.payload).unwrap().0
    }
}
