//! The kernel's side of a connection, in memory: what the session is tested against where no mount is needed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use basalt_fuse::protocol::wire::{InHeader, InitFlags2In, InitIn, InitOut, OutHeader};
use basalt_fuse::{ReceiveError, SendError, Transport};
use basalt_testkit::limit;
use parking_lot::{Condvar, Mutex};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Every feature bit.
const EVERYTHING: u32 = u32::MAX;

/// Makes requests and looks at what comes back.
pub struct Kernel {
    wire: Arc<Wire>,
    next: u64,
}

/// The session's end: one channel of it.
#[derive(Debug)]
pub struct MemoryTransport {
    wire: Arc<Wire>,
    channel: usize,
}

#[derive(Debug, Default)]
struct Wire {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Vec<u8>>,
    /// What the session is told when no request is left: each once, and the last one from then on.
    ends: VecDeque<ReceiveError>,
    messages: VecDeque<Message>,
    /// By which channel a request went that has no reply yet.
    taken: HashMap<u64, usize>,
    /// Channels opened beside the first.
    channels: usize,
    /// Requests whose callers have gone.
    interrupted: HashSet<u64>,
    /// Requests that did not fit the session's buffer.
    too_large: usize,
}

/// What the session has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The request that it answers; 0 for a notification.
    pub unique: u64,
    /// Of a reply: 0, or minus an error number. Of a notification: its code.
    pub code: i32,
    pub payload: Vec<u8>,
}

impl Message {
    /// The structure that a reply consists of.
    #[track_caller]
    pub fn content<T: FromBytes>(&self) -> T {
        assert_eq!(self.code, 0, "{self:?}");
        T::read_from_bytes(&self.payload).unwrap_or_else(|_| panic!("another structure: {self:?}"))
    }
}

/// Both ends of a new connection.
pub fn connection() -> (Kernel, MemoryTransport) {
    let wire = Arc::new(Wire::default());
    (Kernel { wire: Arc::clone(&wire), next: 1 }, MemoryTransport { wire, channel: 0 })
}

impl Kernel {
    /// Hands over any bytes as one message.
    pub fn hand_over(&self, message: Vec<u8>) {
        self.wire.state.lock().requests.push_back(message);
        self.wire.changed.notify_all();
    }

    /// Makes a request; returns its number.
    pub fn request(&mut self, opcode: u32, node: u64, arguments: &[u8]) -> u64 {
        let unique = self.number();
        self.hand_over(message(unique, opcode, node, arguments));
        unique
    }

    /// Makes a request whose caller is gone before the reply comes.
    pub fn interrupted_request(&mut self, opcode: u32, node: u64, arguments: &[u8]) {
        let unique = self.number();
        self.wire.state.lock().interrupted.insert(unique);
        self.hand_over(message(unique, opcode, node, arguments));
    }

    /// Makes the handshake's request, as a kernel of this version that can do everything.
    pub fn offer(&mut self, major: u32, minor: u32) -> u64 {
        let offer = InitIn { major, minor, max_readahead: 128 << 10, flags: EVERYTHING };
        let arguments = [offer.as_bytes(), InitFlags2In { flags2: EVERYTHING }.as_bytes(), &[0; 44]].concat();
        self.request(26, 0, &arguments)
    }

    /// The reply to the handshake's request.
    #[track_caller]
    pub fn agreed(&self, unique: u64) -> InitOut {
        let reply = self.next_message();
        assert_eq!(reply.unique, unique, "{reply:?}");
        reply.content()
    }

    /// Makes a request and waits for what comes next, which must be its reply.
    #[track_caller]
    pub fn ask(&mut self, opcode: u32, node: u64, arguments: &(impl IntoBytes + Immutable + ?Sized)) -> Message {
        let unique = self.request(opcode, node, arguments.as_bytes());
        let reply = self.next_message();
        assert_eq!(reply.unique, unique, "{reply:?}");
        reply
    }

    /// Waits for the next message.
    #[track_caller]
    pub fn next_message(&self) -> Message {
        let deadline = Instant::now() + limit::SHORT;
        let mut state = self.wire.state.lock();
        loop {
            if let Some(message) = state.messages.pop_front() {
                return message;
            }
            assert!(!self.wire.changed.wait_until(&mut state, deadline).timed_out(), "no message comes");
        }
    }

    /// Messages that have come and were not looked at.
    pub fn messages_left(&self) -> usize {
        self.wire.state.lock().messages.len()
    }

    /// Requests that did not fit the session's buffer so far.
    pub fn too_large(&self) -> usize {
        self.wire.state.lock().too_large
    }

    /// From now on there are no more requests, for this reason.
    pub fn end(&self, why: ReceiveError) {
        self.end_differently([why]);
    }

    /// From now on there are no more requests, for another reason each time that somebody asks.
    pub fn end_differently(&self, reasons: impl IntoIterator<Item = ReceiveError>) {
        self.wire.state.lock().ends.extend(reasons);
        self.wire.changed.notify_all();
    }

    fn number(&mut self) -> u64 {
        // Odd numbers are those of interrupts.
        self.next += 2;
        self.next - 1
    }
}

/// A request as bytes.
pub fn message(unique: u64, opcode: u32, node: u64, arguments: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + arguments.len()) as u32;
    let header = InHeader { len, opcode, unique, node, ..Default::default() };
    [header.as_bytes(), arguments].concat()
}

impl Transport for MemoryTransport {
    const NAME: &'static str = "the kernel in memory";

    fn receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        let mut state = self.wire.state.lock();
        loop {
            let request = state.requests.pop_front();
            let end = match state.ends.len() {
                2.. if request.is_none() => state.ends.pop_front(),
                _ => state.ends.front().copied(),
            };
            match (request, end) {
                (Some(request), _) => match buffer.get_mut(..request.len()) {
                    Some(space) => {
                        space.copy_from_slice(&request);
                        if let Ok((header, _)) = InHeader::read_from_prefix(&request) {
                            state.taken.insert(header.unique, self.channel);
                        }
                        return Ok(request.len());
                    }
                    None => state.too_large += 1,
                },
                (None, Some(end)) => return Err(end),
                (None, None) => self.wire.changed.wait(&mut state),
            }
        }
    }

    fn send(&self, header: &[u8], payload: &[u8]) -> Result<(), SendError> {
        let OutHeader { len, error, unique } = OutHeader::read_from_bytes(header).unwrap();
        assert_eq!(len as usize, header.len() + payload.len(), "the header's length is the message's");
        let mut state = self.wire.state.lock();
        // As the kernel, which keeps the requests under way by channel.
        if unique != 0 && state.taken.get(&unique) != Some(&self.channel) {
            return Err(SendError::NotWanted);
        }
        state.taken.remove(&unique);
        if state.interrupted.remove(&unique) {
            return Err(SendError::NotWanted);
        }
        state.messages.push_back(Message { unique, code: error, payload: payload.to_vec() });
        self.wire.changed.notify_all();
        Ok(())
    }

    fn channel(&self) -> Option<Self> {
        let mut state = self.wire.state.lock();
        state.channels += 1;
        Some(MemoryTransport { wire: Arc::clone(&self.wire), channel: state.channels })
    }
}
