//! Event loops: receive, answer, reply.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::SessionError;
use super::buffer::{Inboxes, PAGE};
use super::cache_thread::{self, Task};
use super::notify;
use super::reply::Reply;
use super::server::{Server, Verdict};
use super::ticker;
use super::token::Token;
use super::wakeful::Wakeful;
use crate::protocol::wire::{InHeader, WriteIn};
use crate::protocol::{Fault, Operation, Request};
use crate::transport::{ReceiveError, SendError, Transport};
use basalt_vfs::FileSystem;

/// Where a request starts in its buffer, so that the data of a WRITE starts on a page boundary.
const START: usize = PAGE - size_of::<InHeader>() - size_of::<WriteIn>();

/// A payload from which on another loop receives meanwhile, in bytes.
const LARGE: u32 = 128 << 10;
/// A write from which on the file system may keep the buffer, in bytes: less would hold much memory for few bytes.
const KEPT: u32 = 512 << 10;
/// A receive that is over so quickly has found its request waiting.
const AT_ONCE: Duration = Duration::from_micros(2);
/// From so many requests found waiting one after the other on, loops work in parallel.
const PILE: u32 = 4;

/// Looks without a new request after which the token's monitor sleeps.
pub(super) const IDLE_LOOKS: u32 = 100;

/// The loops of a session: one from the beginning, others started while requests that take long keep all there are.
struct Loops<'t, T> {
    server: &'t Server,
    token: &'t Token,
    transport: &'t T,
    /// Channels of the loops but the first, opened when they are started.
    channels: &'t [OnceLock<T>],
    /// Buffers that loops receive requests in.
    inboxes: &'t Inboxes,
    /// Loops that may work in parallel on what takes processor time.
    useful: usize,
    /// Those that do so and have let others receive.
    parallel: AtomicUsize,
    pool: Mutex<Pool<'t, T>>,
}

/// Who is there.
struct Pool<'t, T> {
    /// Loops that were ever started.
    started: usize,
    /// Loops that have not ended.
    alive: usize,
    /// For the loops to come; `None` when all have ended.
    cache_tasks: Option<Sender<Task<'t, T>>>,
    /// The first failure.
    outcome: Result<(), SessionError>,
}

/// Hands writes to the device that callers leave. A panic has failed the volume, or else callers do it themselves from then on.
fn write_behind(fs: &dyn FileSystem) {
    if catch_unwind(AssertUnwindSafe(|| fs.write_behind())).is_err() {
        tracing::error!("writing behind panicked");
    }
}

/// Serves a connection with up to `threads` loops, the ticker and a thread that writes behind, until the kernel hangs up on all of them.
pub(super) fn serve_all<T: Transport>(
    server: &Server,
    transport: T,
    threads: usize,
    wakeful: Wakeful,
) -> Result<(), SessionError> {
    let channels: Vec<OnceLock<T>> = (1..threads).map(|_| OnceLock::new()).collect();
    let token = Token::new(IDLE_LOOKS);
    let inboxes = Inboxes::new(PAGE + server.max_payload());
    let (cache_tasks, queue) = mpsc::channel();
    let loops = Loops {
        server,
        token: &token,
        transport: &transport,
        channels: &channels,
        inboxes: &inboxes,
        useful: std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8).min(threads),
        parallel: AtomicUsize::new(0),
        pool: Mutex::new(Pool { started: 0, alive: 1, cache_tasks: Some(cache_tasks), outcome: Ok(()) }),
    };
    let (all, monitor) = (&loops, &token);
    let write_back = || cache_thread::write_all_back(server, &transport);
    // Everybody ends with the last loop.
    std::thread::scope(|scope| {
        scope.spawn(move || cache_thread::run(server, &queue));
        scope.spawn(move || ticker::run(&server.control, server.file_system(), write_back));
        let behind = Builder::new().name("write-behind".to_owned());
        if let Err(error) = behind.spawn_scoped(scope, move || write_behind(server.file_system())) {
            tracing::debug!(%error, "nobody writes behind");
        }
        scope.spawn(move || monitor.watch(wakeful, || all.start_loop(scope)));
        all.work(scope, &transport);
    });
    loops.pool.into_inner().outcome
}

impl<'t, T: Transport> Loops<'t, T> {
    /// Starts one more loop, if there may be more.
    fn start_loop<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        let mut pool = self.pool.lock();
        let Some(place) = self.channels.get(pool.started).filter(|_| pool.alive > 0) else { return };
        if place.get().is_none()
            && let Some(channel) = self.transport.channel()
        {
            let _ = place.set(channel);
        }
        let channel = place.get().unwrap_or(self.transport);
        match Builder::new().name("fuse-loop".to_owned()).spawn_scoped(scope, move || self.work(scope, channel)) {
            Ok(_) => {
                pool.started += 1;
                pool.alive += 1;
            }
            Err(error) => tracing::debug!(%error, "no further event loop"),
        }
    }

    /// One loop from its beginning to its end; the last one sends everybody else home.
    fn work<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>, channel: &'t T) {
        let cache_tasks = self.pool.lock().cache_tasks.clone();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            cache_tasks.map_or(Ok(()), |cache_tasks| self.serve(scope, channel, &cache_tasks))
        }));
        // A loop answers panics of the file system with EIO; one that panics itself counts as failed.
        let ended = ended.unwrap_or(Err(failed::<T>(Errno::IO)));
        if self.leave(ended) {
            // Without the pool's lock: the monitor takes it while it has the token's state locked.
            self.server.control.stop();
            self.token.close();
            self.server.file_system().end_write_behind();
        }
    }

    /// Takes note that a loop has ended; whether it was the last.
    fn leave(&self, ended: Result<(), SessionError>) -> bool {
        let mut pool = self.pool.lock();
        pool.alive -= 1;
        if pool.outcome.is_ok() {
            pool.outcome = ended;
        }
        if pool.alive == 0 {
            pool.cache_tasks = None;
        }
        pool.alive == 0
    }

    /// Receives and answers; returns when the kernel hangs up.
    fn serve<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        channel: &'t T,
        cache_tasks: &Sender<Task<'t, T>>,
    ) -> Result<(), SessionError> {
        let mut inbox = self.inboxes.take();
        let mut reply = Reply::new(self.server.max_payload().max(2 * PAGE));
        let mut waiting = 0;
        self.token.take();
        loop {
            let start = Instant::now();
            let received = channel.receive(&mut inbox.bytes_mut()[START..]);
            waiting = if start.elapsed() < AT_ONCE { waiting + 1 } else { 0 };
            let ticket = self.token.begin();
            let len = match received.and_then(|len| if len == 0 { Err(ReceiveError::Unmounted) } else { Ok(len) }) {
                Ok(len) => len,
                Err(end) => {
                    self.server.control.end();
                    // The next loop is told the same.
                    self.token.pass(ticket);
                    return match end {
                        ReceiveError::Unmounted => Ok(()),
                        ReceiveError::Aborted => Err(SessionError::Aborted),
                        ReceiveError::Failed(errno) => Err(failed::<T>(errno)),
                    };
                }
            };
            let parsed = Request::parse(&inbox.bytes()[START..START + len]);
            let in_parallel = (waiting >= PILE || parsed.as_ref().is_ok_and(is_large)) && self.begin_in_parallel();
            if (in_parallel || parsed.as_ref().is_ok_and(may_wait)) && self.token.pass(ticket) {
                self.start_loop(scope);
            }
            if parsed.as_ref().is_ok_and(may_be_kept) {
                let all = self.inboxes.share(std::mem::replace(&mut inbox, self.inboxes.take()));
                let parsed = Request::parse(&all[START..START + len]);
                let parsed = parsed.map(|request| Request { shared: Some(&all), ..request });
                self.carry_out(parsed, channel, cache_tasks, &mut reply);
            } else {
                self.carry_out(parsed, channel, cache_tasks, &mut reply);
            }
            if in_parallel {
                self.parallel.fetch_sub(1, Ordering::SeqCst);
            }
            if !self.token.finish(ticket) {
                self.token.take();
            }
        }
    }

    /// Whether one more loop may work while another receives: on more than there are processors they would only contend.
    fn begin_in_parallel(&self) -> bool {
        let one_more = |busy: usize| (busy + 1 < self.useful).then_some(busy + 1);
        self.parallel.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    fn carry_out(
        &self,
        parsed: Result<Request<'_>, Fault>,
        channel: &'t T,
        cache_tasks: &Sender<Task<'t, T>>,
        reply: &mut Reply,
    ) {
        let request = match parsed {
            Ok(request) => request,
            Err(fault) => return refuse(channel, fault, reply),
        };
        unless_it_panics(channel, &request.header, reply, |reply| self.answer(&request, channel, cache_tasks, reply));
    }

    /// Answers a request, or leaves that to the thread beside the loops, and looks at what follows from it.
    fn answer(&self, request: &Request<'_>, channel: &'t T, cache_tasks: &Sender<Task<'t, T>>, reply: &mut Reply) {
        let brings_shortage = self.server.brings_shortage(&request.header, &request.operation);
        if brings_shortage {
            // First: a loop that looks at the free space now must see a shortage.
            self.server.shortage.expect();
            ask_and_write_back(channel, cache_tasks, &self.server.begin_shortage());
        }
        let is_for_later = |operation: &Operation<'_>| brings_shortage || self.server.wants_pages_first(operation);
        if let Some(operation) = alone(&request.operation).filter(is_for_later) {
            let takes_much = matches!(operation, Operation::Fallocate(_));
            if takes_much && !brings_shortage {
                self.server.shortage.expect();
            }
            let handed_over = cache_tasks.send(Task::Answer { channel, header: request.header, operation });
            if handed_over.is_ok() {
                reply.settle();
            } else {
                if takes_much {
                    self.server.shortage.meet();
                }
                send(channel, &request.header, reply, Some(Errno::IO));
            }
            return;
        }
        let error = handle(self.server, channel, request, reply, Some(cache_tasks));
        if self.server.kernel_keeps_dirty_pages() {
            let written =
                self.server.watch(request, error, reply, |node| drop(cache_tasks.send(Task::Distrust(channel, node))));
            ask_and_write_back(channel, cache_tasks, &written);
        }
    }
}

/// Has the kernel ask before it takes more for any of these nodes, and then write back what it has, before what is handed over later is
/// answered. Writing one back takes long enough for others to bring more than there is room for.
fn ask_and_write_back<'t, T>(channel: &'t T, cache_tasks: &Sender<Task<'t, T>>, nodes: &[u64]) {
    // Whoever gets it ends after the loops.
    nodes.iter().for_each(|&node| drop(cache_tasks.send(Task::Distrust(channel, node))));
    nodes.iter().for_each(|&node| drop(cache_tasks.send(Task::WriteBack(channel, node))));
}

/// The same operation without its request, of those that may need the kernel's pages first.
fn alone(operation: &Operation<'_>) -> Option<Operation<'static>> {
    match *operation {
        Operation::Lseek(arguments) => Some(Operation::Lseek(arguments)),
        Operation::GetAttr { by_file } => Some(Operation::GetAttr { by_file }),
        Operation::Fallocate(arguments) => Some(Operation::Fallocate(arguments)),
        _ => None,
    }
}

/// Whether a request moves so much that another loop should receive meanwhile.
fn is_large(request: &Request<'_>) -> bool {
    match request.operation {
        Operation::Write { arguments, .. } => arguments.size >= LARGE,
        Operation::Read(arguments) => arguments.size >= LARGE,
        _ => false,
    }
}

/// Whether the file system may keep the buffer of a request.
fn may_be_kept(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Write { arguments, .. } if arguments.size >= KEPT)
}

/// Whether a request may wait for the device, or long: others must not wait for it.
fn may_wait(request: &Request<'_>) -> bool {
    matches!(
        request.operation,
        Operation::Fsync { .. }
            | Operation::FsyncDir { .. }
            | Operation::SyncFs
            | Operation::Destroy
            | Operation::Ioctl { .. }
            | Operation::Fallocate(_)
            | Operation::CopyFileRange(_)
            | Operation::CopyFileRange64(_)
    )
}

fn failed<T: Transport>(errno: Errno) -> SessionError {
    SessionError::Transport { name: T::NAME, errno }
}

/// Does `work` for a request. Where that panics, the request is answered with EIO if it has no answer yet, and all go on.
pub(super) fn unless_it_panics(
    channel: &impl Transport,
    header: &InHeader,
    reply: &mut Reply,
    work: impl FnOnce(&mut Reply),
) {
    reply.clear();
    if catch_unwind(AssertUnwindSafe(|| work(&mut *reply))).is_ok() {
        return;
    }
    tracing::error!(opcode = header.opcode, node = header.node, "the file system panicked");
    if !reply.is_settled() {
        send(channel, header, reply, Some(Errno::IO));
    }
}

/// Answers what is no request, as far as it can be answered.
fn refuse(channel: &impl Transport, fault: Fault, reply: &mut Reply) {
    tracing::error!(%fault, "request not understood");
    if let Fault::Arguments { unique, .. } = fault {
        let _ = reply.send(channel, unique, Some(Errno::INVAL));
    }
}

/// Answers one request; with which error, if any. A reply that has to wait goes `aside`.
pub(super) fn handle<'t, T: Transport>(
    server: &Server,
    channel: &'t T,
    request: &Request<'_>,
    reply: &mut Reply,
    aside: Option<&Sender<Task<'t, T>>>,
) -> Option<Errno> {
    reply.clear();
    let verdict = catch_unwind(AssertUnwindSafe(|| server.answer(request, reply))).unwrap_or_else(|_| {
        tracing::error!(opcode = request.header.opcode, node = request.header.node, "the file system panicked");
        Verdict::Error(Errno::IO)
    });
    let error = match verdict {
        Verdict::Silence => {
            reply.settle();
            return None;
        }
        Verdict::Reply => None,
        Verdict::Error(errno) => Some(errno),
    };
    // The request is done, whatever happens here.
    if catch_unwind(AssertUnwindSafe(|| server.watch_write(request, error, reply))).is_err() {
        tracing::error!(opcode = request.header.opcode, node = request.header.node, "the file system panicked");
    }
    // First, so that nobody whom the reply lets go on meets what is old.
    reply.outdated().iter().for_each(|&node| notify::distrust_attributes(channel, node));
    if let (Some(pages), Some(aside)) = (reply.stale_pages(), aside) {
        let outcome = error.map_or_else(|| Ok(reply.payload().to_vec()), Err);
        if aside.send(Task::Reply { channel, header: request.header, pages, outcome }).is_ok() {
            reply.settle();
            return error;
        }
        send(channel, &request.header, reply, Some(Errno::IO));
        return Some(Errno::IO);
    }
    let is_sent = send(channel, &request.header, reply, error);
    if error.is_some() || !is_sent {
        // The kernel does not know of these references, and will never give them back.
        reply.references().iter().for_each(|&ino| server.file_system().forget(ino, 1));
    }
    error
}

/// Sends a reply; whether the kernel has it.
pub(super) fn send(channel: &impl Transport, header: &InHeader, reply: &mut Reply, error: Option<Errno>) -> bool {
    reply.settle();
    let sent = reply.send(channel, header.unique, error);
    match sent {
        // The request was aborted meanwhile, or the file system unmounted.
        Ok(()) | Err(SendError::NotWanted | SendError::Unmounted) => {}
        Err(SendError::Failed(errno)) => tracing::error!(%errno, opcode = header.opcode, "reply refused"),
    }
    sent.is_ok()
}
