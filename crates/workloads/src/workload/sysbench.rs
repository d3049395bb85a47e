//! `sysbench`: one file written from beginning to end.
//!
//! SysBench's file test as the FlashLight paper runs it (section 5.2): 190 MB on 256 MiB, one thread, requests of 2 to 64 KiB (4 KiB here unless
//! said). The volume's share is the same here, or less where the utilization leaves less. SysBench by itself syncs at
//! the end, as here; `sync_every` adds an fsync after so many requests (SysBench's own option has 100).

use super::{Phase, Workload, set_bytes};
use crate::error::Result;
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Limit, Plan, Settings, blocks};
use crate::specification::Specification;

const FILE: File = File(0);
/// 190 MB of 256 MiB.
const SET_PERCENT: f64 = 74.2;

/// Sequential writing.
pub(crate) struct SysBench {
    name: String,
    bytes: u64,
    request: u64,
    written: u64,
    requests: u64,
    sync_every: u64,
    finished: bool,
}

impl SysBench {
    /// Value: bytes of a request. Options: `set` (bytes to write).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<SysBench> {
        let request = options.bytes("", 4096, settings)?.clamp(512, u64::from(MAX_REQUEST));
        let bytes = options.bytes("set", set_bytes(settings, SET_PERCENT), settings)?.max(request) / request * request;
        options.finish()?;
        let name = format!("sysbench:{request},set={bytes}");
        let sync_every = settings.sync_every.unwrap_or(0);
        Ok(SysBench { name, bytes, request, written: 0, requests: 0, sync_every, finished: false })
    }
}

impl Workload for SysBench {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        Plan {
            initial_bytes: 0,
            peak_bytes: blocks(self.bytes),
            files: 1,
            age: Limit::Operations(0),
            measure: Limit::Operations(u64::MAX),
        }
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase != Phase::Measure || self.finished {
            return false;
        }
        if self.written == self.bytes {
            operations.extend([Operation::Sync(FILE), Operation::Close(FILE)]);
            self.finished = true;
            return true;
        }
        if self.written == 0 {
            operations.push(Operation::Create(FILE, "sysbench".to_owned()));
        }
        operations.push(Operation::Write { file: FILE, offset: self.written, length: self.request as u32 });
        self.written += self.request;
        self.requests += 1;
        if self.sync_every > 0 && self.requests.is_multiple_of(self.sync_every) {
            operations.push(Operation::Sync(FILE));
        }
        true
    }
}
