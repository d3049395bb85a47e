//! Shared flushes under schedules that shuttle chooses: whoever is told that all is well has its writes on the medium, one flush runs
//! at a time, after a failure nobody is told so any more, and nobody waits for ever (shuttle takes that for a failure).

#[path = "../../f2fs/src/flushes.rs"]
mod flushes;

/// What the flushes are made of.
mod error {
    pub(crate) use basalt_f2fs_shuttled::{Error, Result};
}

/// What they lock with here.
mod sync {
    pub(crate) use basalt_testkit::shuttled::{Condvar, Mutex};
}

use std::sync::Arc;

use basalt_testkit::shuttled::shuttle::{self, thread};
use basalt_testkit::shuttled::{AtomicBool, AtomicU64, Ordering};

use flushes::Flushes;

/// Schedules tried of each kind.
const SCHEDULES: usize = 4_000;
const WRITERS: u64 = 4;
/// Writes of each, with a flush behind each.
const ROUNDS: u64 = 3;

/// A device that counts writes and those that are durable.
#[derive(Default)]
struct Device {
    written: AtomicU64,
    durable: AtomicU64,
    flushes: AtomicU64,
    flushing: AtomicBool,
    failed: AtomicBool,
}

impl Device {
    fn flush(&self, failing: Option<u64>) -> error::Result<()> {
        assert!(!self.flushing.swap(true, Ordering::SeqCst), "two flushes at once");
        assert!(!self.failed.load(Ordering::SeqCst), "a flush after one that failed");
        let number = self.flushes.fetch_add(1, Ordering::SeqCst) + 1;
        let covered = self.written.load(Ordering::SeqCst);
        thread::yield_now();
        let fails = failing == Some(number);
        if fails {
            self.failed.store(true, Ordering::SeqCst);
        } else {
            self.durable.store(covered, Ordering::SeqCst);
        }
        self.flushing.store(false, Ordering::SeqCst);
        if fails { Err(basalt_vfs::Error::Io("the medium is gone".to_owned()).into()) } else { Ok(()) }
    }
}

/// Writers with a flush after each write; whether flush number `failing` fails.
fn writers(failing: Option<u64>) {
    let (device, flushes) = (Arc::new(Device::default()), Arc::new(Flushes::default()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (device, flushes) = (Arc::clone(&device), Arc::clone(&flushes));
            thread::spawn(move || {
                let mut refused = false;
                for _ in 0..ROUNDS {
                    let write = device.written.fetch_add(1, Ordering::SeqCst) + 1;
                    let number = flushes.next();
                    let result = flushes.wait_for(number, || device.flush(failing));
                    if let Err(error) = &result {
                        assert!(error.to_string().contains("the medium is gone"), "{error}");
                    } else {
                        assert!(device.durable.load(Ordering::SeqCst) >= write, "told so, but not durable");
                        assert!(flushes.has_succeeded(number), "it forgets");
                    }
                    if flushes.has_succeeded(number) {
                        assert!(
                            device.durable.load(Ordering::SeqCst) >= write,
                            "said to whoever asks, but not durable"
                        );
                    }
                    assert!(!(refused && result.is_ok()), "all is well again after a failure");
                    refused = result.is_err();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(device.failed.load(Ordering::SeqCst), failing.is_some());
    let flushed = device.flushes.load(Ordering::SeqCst);
    assert!((1..=WRITERS * ROUNDS).contains(&flushed), "{flushed} flushes");
    assert!(failing.is_none_or(|last| last == flushed), "flushes go on after a failure");
}

#[test]
fn everybody_is_told_once_it_is_durable() {
    shuttle::check_random(|| writers(None), SCHEDULES);
    shuttle::check_pct(|| writers(None), SCHEDULES, 3);
}

#[test]
fn a_failure_reaches_everybody() {
    for failing in [1, 2, ROUNDS] {
        shuttle::check_random(move || writers(Some(failing)), SCHEDULES);
        shuttle::check_pct(move || writers(Some(failing)), SCHEDULES, 3);
    }
}
