//! Tests of the queue in front of a device.

use std::time::Duration;

use basalt_device::{FaultyDevice, MemoryDevice, RequestKind};
use basalt_testkit::rng::Rng;

use super::*;
use crate::layout::Address;
use crate::log::writer::BlockWriter;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A device whose block N is full of N, and the queue in front of it.
fn numbered(blocks: u64) -> (Arc<FaultyDevice<MemoryDevice>>, Submission) {
    let memory = MemoryDevice::new(blocks * BLOCK, 512);
    (0..blocks).for_each(|block| memory.write_at(block * BLOCK, &[block as u8; BLOCK_SIZE]).unwrap());
    let device = Arc::new(FaultyDevice::new(memory));
    (device.clone(), Submission::new(device, FlashPages::BLOCKS))
}

fn stage(submission: &Submission, first: u64, bytes: &[u8]) {
    let blocks: Vec<[u8; BLOCK_SIZE]> = bytes.iter().map(|&byte| [byte; BLOCK_SIZE]).collect();
    // A third of what the tests write is copied, a third given away, a third shared.
    assert!(match first % 3 {
        0 => submission.stage(first * BLOCK, Source::Slices(&[blocks.as_flattened()])),
        1 => submission.take(first * BLOCK, &mut blocks.into_iter().map(|block| Box::new(RawBlock(block))).collect()),
        _ => submission.keep(first * BLOCK, blocks.as_flattened().to_vec().into()),
    }
    .unwrap());
}

fn read(device: &dyn BlockDevice, first: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0; blocks * BLOCK_SIZE];
    device.read_at(first * BLOCK, &mut bytes).unwrap();
    bytes.chunks(BLOCK_SIZE).for_each(|block| assert!(block.iter().all(|byte| *byte == block[0])));
    bytes.chunks(BLOCK_SIZE).map(|block| block[0]).collect()
}

#[test]
fn reads_see_the_newest_of_what_waits_wherever_it_begins() {
    let (device, queue) = numbered(8);
    stage(&queue, 2, &[102, 103, 104]);
    stage(&queue, 3, &[203]);
    stage(&queue, 6, &[106]);
    let all = [0, 1, 102, 203, 104, 5, 106, 7];
    for first in 0..8 {
        for end in first + 1..=8 {
            assert_eq!(read(&queue, first as u64, end - first), all[first..end], "{first} to {end}");
        }
    }
    assert_eq!(read(&*device, 0, 8), [0, 1, 2, 3, 4, 5, 6, 7], "no request was made");
    queue.submit().unwrap();
    assert_eq!((read(&*device, 0, 8), queue.is_waiting()), (all.to_vec(), false));
}

/// A read begins and ends anywhere.
#[test]
fn parts_of_blocks_that_wait_are_read() {
    for first in [1, 2, 3] {
        let (_, queue) = numbered(8);
        stage(&queue, first, &[101, 102, 103]);
        let mut whole = vec![0; 8 * BLOCK_SIZE];
        queue.read_at(0, &mut whole).unwrap();
        for (offset, length) in [(5000, 100), (4096, 8192), (8000, 200), (6000, 9000), (100, 20_000), (12_287, 2)] {
            let mut part = vec![0; length];
            queue.read_at(offset as u64, &mut part).unwrap();
            assert_eq!(part, whole[offset..offset + length], "{length} bytes at {offset}, written at block {first}");
        }
    }
}

/// Whoever gives blocks away gets those of earlier writes instead.
#[test]
fn given_blocks_come_back_when_they_are_written() {
    let (device, queue) = numbered(8);
    let mut blocks = vec![Box::new(RawBlock([101; BLOCK_SIZE])), Box::new(RawBlock([102; BLOCK_SIZE]))];
    let lent: Vec<*const RawBlock> = blocks.iter().map(|block| &raw const **block).collect();
    assert!(queue.take(BLOCK, &mut blocks).unwrap());
    assert!(blocks.is_empty(), "the queue needs them still");
    queue.submit().unwrap();
    assert_eq!(read(&*device, 0, 4), [0, 101, 102, 3]);
    blocks.push(Box::new(RawBlock([105; BLOCK_SIZE])));
    assert!(queue.take(5 * BLOCK, &mut blocks).unwrap());
    assert_eq!(blocks.iter().map(|block| &raw const **block).collect::<Vec<_>>(), lent);
    assert_eq!(read(&queue, 4, 3), [4, 105, 6]);
}

#[test]
fn a_write_overtakes_what_was_read_ahead_and_what_is_being_read() {
    let (_, queue) = numbered(8);
    let ahead = queue.begin_reading(vec![0..4 * BLOCK, 4 * BLOCK..8 * BLOCK]);
    queue.read_ahead(ahead);
    stage(&queue, 3, &[103]);
    assert_eq!(read(&queue, 0, 4), [0, 1, 2, 103]);
    queue.submit().unwrap();
    assert_eq!(read(&queue, 0, 4), [0, 1, 2, 103]);
    assert_eq!(read(&queue, 4, 4), [4, 5, 6, 7]);
    // Written between the lock and the read, and while that was under way.
    queue.end_reading();
    let ahead = queue.begin_reading(vec![0..4 * BLOCK, 6 * BLOCK..7 * BLOCK]);
    stage(&queue, 0, &[100]);
    queue.read_ahead(ahead);
    assert_eq!(read(&queue, 0, 4), [100, 1, 2, 103]);
    let ahead = queue.begin_reading(vec![0..BLOCK, 4 * BLOCK..8 * BLOCK]);
    queue.write_at(5 * BLOCK, &[105; BLOCK_SIZE]).unwrap();
    queue.read_ahead(ahead);
    assert_eq!(read(&queue, 4, 4), [4, 105, 6, 7]);
}

#[test]
fn no_more_waits_than_there_may() {
    let (device, queue) = numbered(1);
    let bytes = vec![1; 1 << 20];
    for megabyte in 0..64 {
        assert!(queue.stage(megabyte << 20, Source::Slices(&[&bytes])).unwrap(), "{megabyte}");
    }
    assert!(!queue.stage(64 << 20, Source::Slices(&[&bytes])).unwrap());
    assert!(queue.is_crowded());
    assert_eq!(read(&*device, 0, 1), [0]);
}

/// A device whose writes wait until so many have begun.
struct Together {
    device: MemoryDevice,
    wanted: usize,
    begun: std::sync::Mutex<usize>,
    changed: std::sync::Condvar,
}

impl Together {
    fn new(wanted: usize) -> Arc<Together> {
        let device = MemoryDevice::new(64 * BLOCK, 512);
        Arc::new(Together { device, wanted, begun: Default::default(), changed: Default::default() })
    }
}

impl DeviceLayer for Together {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.device
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let mut begun = self.begun.lock().unwrap();
        *begun += 1;
        self.changed.notify_all();
        let (begun, late) =
            self.changed.wait_timeout_while(begun, Duration::from_secs(60), |begun| *begun < self.wanted).unwrap();
        assert!(!late.timed_out(), "only {begun} writes at once");
        self.device.write_vectored_at(offset, slices)
    }
}

#[test]
fn as_many_writes_are_under_way_as_threads_submit() {
    let device = Together::new(3);
    let queue = Submission::new(device.clone(), FlashPages::BLOCKS);
    (0..3).for_each(|block| stage(&queue, block, &[block as u8 + 1]));
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(|| queue.submit().unwrap())));
    });
    assert_eq!(read(&*device, 0, 3), [1, 2, 3]);
    assert!(!queue.is_waiting());
}

/// The newer bytes win, also where a thread could have begun with them.
#[test]
fn writes_that_overlap_are_made_one_after_the_other() {
    for round in 0..50 {
        let (device, queue) = numbered(4);
        stage(&queue, 0, &[101, 102, 103]);
        stage(&queue, 2, &[203, 204]);
        stage(&queue, 1, &[255 - round, 255 - round]);
        let made = Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = made.clone();
        device.fail_when(move |request| {
            log.lock().unwrap().push(request.offset / BLOCK);
            std::thread::yield_now();
            None
        });
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| queue.submit().unwrap())));
        });
        assert_eq!(*made.lock().unwrap(), [0, 2, 1], "round {round}");
        assert_eq!(read(&*device, 0, 4), [101, 255 - round, 255 - round, 204], "round {round}");
    }
}

/// Whoever flushes waits also for what others are making.
#[test]
fn a_flush_waits_for_writes_of_others() {
    let device = Together::new(2);
    let queue = Submission::new(device.clone(), FlashPages::BLOCKS);
    stage(&queue, 0, &[1]);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| queue.submit().unwrap());
        while *device.begun.lock().unwrap() == 0 {
            std::thread::yield_now();
        }
        let flush = scope.spawn(|| queue.flush().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!flush.is_finished(), "the flush did not wait");
        // A second write lets the first one end.
        *device.begun.lock().unwrap() += 1;
        device.changed.notify_all();
        other.join().unwrap();
        flush.join().unwrap();
    });
    assert_eq!(read(&*device, 0, 1), [1]);
}

/// What the device has takes no room any more, however much there was.
#[test]
fn what_was_submitted_makes_room() {
    let (device, queue) = numbered(256);
    for round in 0..70 {
        stage(&queue, 0, &[round; 256]);
        assert!(!queue.is_crowded(), "round {round}");
        queue.submit().unwrap();
    }
    assert_eq!(read(&*device, 255, 1), [69]);
}

/// Nothing behind a write that failed reaches the device, and whoever reads sees what was written all the same.
#[test]
fn a_write_that_failed_stops_all_behind_it() {
    let (device, queue) = numbered(8);
    device.fail_when(|request| {
        (request.kind == RequestKind::Write && request.offset == 2 * BLOCK).then_some(io::ErrorKind::StorageFull)
    });
    stage(&queue, 1, &[101]);
    stage(&queue, 2, &[102]);
    stage(&queue, 3, &[103]);
    for _ in 0..2 {
        let error = queue.submit().unwrap_err();
        assert!(matches!(error, DeviceError::Io { operation: "write", offset: 8192, .. }), "{error}");
    }
    assert!(queue.flush().is_err() && queue.stage(4 * BLOCK, Source::Slices(&[&[4; BLOCK_SIZE]])).is_err());
    assert_eq!(read(&*device, 0, 8), [0, 101, 2, 3, 4, 5, 6, 7]);
    assert_eq!(read(&queue, 0, 8), [0, 101, 102, 103, 4, 5, 6, 7]);
}

/// Knows where its zeros are.
struct Sparse(MemoryDevice);

impl DeviceLayer for Sparse {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.0
    }
    fn on_next_data(&self, offset: u64) -> Option<u64> {
        let is_data = |block: &u64| read(&self.0, *block, 1) != [0];
        (offset / BLOCK..self.0.size() / BLOCK).find(is_data).map(|block| offset.max(block * BLOCK))
    }
}

#[test]
fn what_waits_is_no_hole() {
    let queue = Submission::new(Arc::new(Sparse(MemoryDevice::new(8 * BLOCK, 512))), FlashPages::BLOCKS);
    assert_eq!(queue.next_data(0), None);
    stage(&queue, 5, &[105]);
    for offset in [0, 4 * BLOCK + 1, 5 * BLOCK, 6 * BLOCK - 1] {
        let found = queue.next_data(offset).expect("a write waits behind it");
        assert!((offset..=offset.max(5 * BLOCK)).contains(&found), "{found} from {offset} on");
    }
    assert_eq!(queue.next_data(8 * BLOCK), None);
    queue.submit().unwrap();
    assert_eq!((queue.next_data(0), queue.next_data(6 * BLOCK)), (Some(5 * BLOCK), None));
}

/// Many may wait for one write, and none of them has another to wait for.
#[test]
fn all_who_wait_for_a_write_go_on_when_it_is_over() {
    const WAITERS: usize = 4;
    let device = Together::new(2);
    let queue = Arc::new(Submission::new(device.clone(), FlashPages::BLOCKS));
    stage(&queue, 0, &[1]);
    let submit = || {
        let queue = queue.clone();
        std::thread::spawn(move || queue.submit().unwrap())
    };
    let first = submit();
    while *device.begun.lock().unwrap() == 0 {
        std::thread::yield_now();
    }
    let waiters: Vec<_> = (0..WAITERS).map(|_| submit()).collect();
    std::thread::sleep(Duration::from_millis(50));
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    *device.begun.lock().unwrap() += 1;
    device.changed.notify_all();
    first.join().unwrap();
    for _ in 0..1000 {
        if waiters.iter().all(|waiter| waiter.is_finished()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("somebody still waits");
}

/// Whichever of those under way it is.
#[test]
fn a_write_waits_for_any_under_way_that_it_overlaps() {
    let (_, queue) = numbered(8);
    stage(&queue, 0, &[100]);
    stage(&queue, 4, &[104, 105]);
    stage(&queue, 5, &[205]);
    let mut writes = queue.queue.lock();
    let (Next::Make(_first), Next::Make(second)) = (writes.next(u64::MAX), writes.next(u64::MAX)) else {
        panic!("the first two do not overlap");
    };
    assert!(matches!(writes.next(u64::MAX), Next::Wait));
    writes.complete(second);
    assert!(matches!(writes.next(u64::MAX), Next::Make(write) if write.offset == 5 * BLOCK));
}

/// Whoever waits for another's write hears that it failed.
#[test]
fn those_who_wait_for_a_write_that_fails_get_its_error() {
    let (device, queue) = numbered(8);
    let queue = Arc::new(queue);
    let gate = Arc::new(std::sync::RwLock::new(()));
    let (entrance, begun) = (gate.clone(), Arc::new(AtomicBool::new(false)));
    let has_begun = begun.clone();
    let closed = gate.write().unwrap();
    device.fail_when(move |request| {
        if request.kind != RequestKind::Write {
            return None;
        }
        has_begun.store(true, SeqCst);
        drop(entrance.read());
        Some(io::ErrorKind::StorageFull)
    });
    stage(&queue, 0, &[1]);
    let submit = || {
        let queue = queue.clone();
        std::thread::spawn(move || queue.submit().is_err())
    };
    let first = submit();
    while !begun.load(SeqCst) {
        std::thread::yield_now();
    }
    let waiters: Vec<_> = (0..3).map(|_| submit()).collect();
    std::thread::sleep(Duration::from_millis(50));
    drop(closed);
    assert!(first.join().unwrap());
    for _ in 0..1000 {
        if waiters.iter().all(|waiter| waiter.is_finished()) {
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("somebody still waits");
}

/// A write that does not wait comes behind those that do.
#[test]
fn a_write_of_its_own_comes_behind_what_waits() {
    let (device, queue) = numbered(8);
    stage(&queue, 3, &[103, 104]);
    queue.write_at(3 * BLOCK, &[203; BLOCK_SIZE]).unwrap();
    assert_eq!(read(&queue, 3, 2), [203, 104]);
    queue.submit().unwrap();
    assert_eq!(read(&*device, 3, 2), [203, 104]);
}

/// A write of random bytes in one of three ways: a part of the slices may be empty, and shared bytes are a part of more.
fn stage_somehow(queue: &Submission, first: u64, bytes: &[u8], rng: &mut Rng) {
    let is_staged = match rng.below(3) {
        0 => {
            let cut = rng.below(bytes.len() as u64) as usize;
            queue.stage(first * BLOCK, Source::Slices(&[&bytes[..cut], &[], &bytes[cut..]]))
        }
        1 => {
            let blocks = bytes.chunks_exact(BLOCK_SIZE).map(|block| Box::new(RawBlock(block.try_into().unwrap())));
            let mut given: Vec<_> = blocks.collect();
            let taken = queue.take(first * BLOCK, &mut given);
            // What came back is free.
            given.iter_mut().for_each(|block| block.0.fill(0xEE));
            taken
        }
        _ => queue.keep(first * BLOCK, Bytes::from([&[0xDD; 100], bytes].concat()).slice(100..)),
    };
    assert!(is_staged.unwrap());
}

/// Given, shared and copied writes, joined or not, begun or not: reads see the newest bytes, and nothing is lost.
#[test]
fn writes_of_all_kinds_are_read_and_made() {
    const BLOCKS: u64 = 48;
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let (device, queue) = numbered(BLOCKS);
        // As if somebody wrote behind: writes join.
        queue.behind.fetch_add(usize::from(seed % 4 != 0), SeqCst);
        let mut model = vec![0; BLOCKS as usize * BLOCK_SIZE];
        device.read_at(0, &mut model).unwrap();
        let (mut under_way, mut next_block) = (Vec::new(), 0);
        for step in 0..300 {
            match rng.below(10) {
                0..=4 => {
                    let count = 1 + rng.below(6);
                    let follows = rng.below(3) > 0 && next_block + count <= BLOCKS;
                    let first = if follows { next_block } else { rng.below(BLOCKS - count) };
                    next_block = first + count;
                    let mut bytes = vec![0; count as usize * BLOCK_SIZE];
                    rng.fill(&mut bytes);
                    let start = first as usize * BLOCK_SIZE;
                    model[start..start + bytes.len()].copy_from_slice(&bytes);
                    stage_somehow(&queue, first, &bytes, &mut rng);
                }
                5..=7 => {
                    let from = rng.below(model.len() as u64) as usize;
                    let mut got = vec![1; rng.below((model.len() - from) as u64 + 1) as usize];
                    queue.read_at(from as u64, &mut got).unwrap();
                    assert!(got == model[from..from + got.len()], "seed {seed}, step {step}: {} at {from}", got.len());
                }
                8 => {
                    let next = queue.queue.lock().next(u64::MAX);
                    under_way.extend(if let Next::Make(write) = next { Some(write) } else { None });
                }
                _ if under_way.is_empty() => {}
                _ => {
                    let index = rng.below(under_way.len() as u64) as usize;
                    queue.make(under_way.swap_remove(index)).unwrap();
                }
            }
        }
        under_way.into_iter().for_each(|write| queue.make(write).unwrap());
        queue.submit().unwrap();
        assert_eq!(queue.queue.lock().bytes, 0);
        let mut got = vec![0; model.len()];
        device.read_at(0, &mut got).unwrap();
        assert!(got == model, "seed {seed}");
    }
}

/// An owner of shared bytes whose last use is over: whether the queue was locked then.
struct Owner(Vec<u8>, Arc<Submission>, Arc<AtomicBool>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.2.store(self.1.queue.try_lock().is_none(), SeqCst);
    }
}

/// Whoever shares bytes may do what he likes when they are free.
#[test]
fn owners_of_shared_bytes_learn_of_their_end_without_a_lock() {
    let queue = Arc::new(numbered(64).1);
    let was_locked = Arc::new(AtomicBool::new(true));
    let owner = Owner(vec![1; BLOCK_SIZE], queue.clone(), was_locked.clone());
    assert!(queue.keep(0, Bytes::from_owner(owner)).unwrap());
    queue.submit().unwrap();
    assert!(!was_locked.load(SeqCst));
}

/// Copied, given or shared, see `stage`: it is not read from what was read ahead.
#[test]
fn whatever_is_staged_overtakes_what_was_read_ahead() {
    for first in [3, 4, 5] {
        let (_, queue) = numbered(8);
        let ahead = queue.begin_reading(vec![0..4 * BLOCK, 4 * BLOCK..8 * BLOCK]);
        queue.read_ahead(ahead);
        stage(&queue, first, &[100]);
        assert_eq!(read(&queue, first, 1), [100], "block {first}, waiting");
        queue.submit().unwrap();
        assert_eq!(read(&queue, first, 1), [100], "block {first}, written");
    }
}

/// What the full queue refuses, the block writer writes.
#[test]
fn what_is_not_taken_is_written_to_the_device() {
    let (device, queue) = numbered(32);
    let queue = Arc::new(queue);
    let staged = Staged(queue.clone());
    let mut writer = BlockWriter::new(1);
    writer.give_to(queue.clone());
    let bytes = vec![9; 1 << 20];
    (1..65).for_each(|mib| assert!(queue.stage(mib << 20, Source::Slices(&[&bytes])).unwrap()));
    // As many as are given away.
    (2..20).for_each(|at| writer.append(&staged, 0, Address::new(at), &[100 + at as u8; BLOCK_SIZE]).unwrap());
    // The device ends before what waits does, so only the refusal counts here.
    queue.queue.lock().writes.clear();
    queue.waiting.store(0, SeqCst);
    writer.write_all(&staged).unwrap();
    writer.write_shared(&staged, 30 * BLOCK, vec![130; BLOCK_SIZE].into()).unwrap();
    let written: Vec<u8> = [0, 1].into_iter().chain(102..120).collect();
    assert_eq!((read(&*device, 0, 20), read(&*device, 29, 3)), (written, vec![29, 130, 31]));
}
