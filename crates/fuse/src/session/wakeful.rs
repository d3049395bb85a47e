//! Keeps idle processors quick to wake while many small requests come.
//!
//! Each request puts its caller to sleep and wakes a loop, each reply the other way round. Where a processor that has nothing to
//! do is given up (a virtual machine's goes back to the host) or sleeps deeply, one wake-up costs ten times what the request
//! does. During a burst of requests the kernel is therefore asked, through `/dev/cpu_dma_latency`, for shallow sleep only; two
//! milliseconds after the burst it is free again. Source: the kernel's "PM Quality Of Service Interface".

use std::fs::{File, OpenOptions};
use std::io::Write;

/// Where the kernel takes such wishes; root's, as a rule.
const INTERFACE: &str = "/dev/cpu_dma_latency";
/// Which driver puts idle processors to sleep.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The driver of virtual machines: its only sleep is giving the processor up.
const VIRTUAL: &str = "haltpoll";
/// From so many requests between two looks on it is a burst.
const BURST: u64 = 4;
/// After so many looks in a row without a burst it is over.
const CALM: u32 = 4;
/// The longest wake-up in microseconds: the first sleep state of most processors, at a small part of the power of staying awake.
const SHALLOW: i32 = 2;
/// The wish that is none, in microseconds: the kernel's default.
const NONE: i32 = 2_000_000_000;

/// The wish of one session; the kernel forgets it with the process.
pub(super) struct Wakeful {
    interface: Option<File>,
    /// The longest wake-up to wish for, in microseconds.
    latency: i32,
    /// Requests up to the last look.
    seen: u64,
    /// Looks since the last burst; `CALM` and more: no wish.
    calm: u32,
}

impl Wakeful {
    /// Makes wishes if `wanted` and where the interface may be used.
    pub(super) fn new(wanted: bool) -> Self {
        let interface = if wanted { OpenOptions::new().write(true).open(INTERFACE) } else { Err(not_wanted()) };
        let is_virtual = std::fs::read_to_string(DRIVER).is_ok_and(|driver| driver.trim() == VIRTUAL);
        tracing::debug!(available = interface.is_ok(), is_virtual, "short wake-ups in bursts");
        Self::with(interface.ok(), if is_virtual { 0 } else { SHALLOW })
    }

    fn with(interface: Option<File>, latency: i32) -> Self {
        Wakeful { interface, latency, seen: 0, calm: CALM }
    }

    /// A regular look: `begun` requests so far. Begins or ends the wish.
    pub(super) fn look(&mut self, begun: u64) {
        let burst = begun.saturating_sub(self.seen) >= BURST;
        self.seen = begun;
        match (burst, self.calm) {
            (true, CALM..) => self.wish(self.latency),
            (false, calm) if calm + 1 == CALM => self.wish(NONE),
            _ => {}
        }
        self.calm = if burst { 0 } else { self.calm.saturating_add(1) };
    }

    fn wish(&mut self, microseconds: i32) {
        if let Some(interface) = &mut self.interface
            && let Err(error) = interface.write_all(&microseconds.to_ne_bytes())
        {
            tracing::debug!(%error, "{INTERFACE}");
            self.interface = None;
        }
    }
}

fn not_wanted() -> std::io::Error {
    std::io::ErrorKind::Unsupported.into()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn wishes_last_as_long_as_a_burst() {
        let mut file = tempfile::tempfile().unwrap();
        let mut wakeful = Wakeful::with(Some(file.try_clone().unwrap()), 7);
        // Too slow, a burst, a gap that is too short to end it, more of it, and the end.
        let mut begun = 0;
        for (requests, wishes) in
            [(3, 0), (9, 1), (4, 1), (0, 1), (1, 1), (9, 1), (0, 1), (0, 1), (0, 1), (0, 2), (0, 2), (9, 3)]
        {
            begun += requests;
            wakeful.look(begun);
            assert_eq!(file.metadata().unwrap().len(), wishes * 4, "after {begun} requests");
        }
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [7, NONE, 7].map(i32::to_ne_bytes).concat());
    }
}
