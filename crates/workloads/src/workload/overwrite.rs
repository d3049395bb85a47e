//! `zipf`, `uniform`, `hotcold`, `sequential`: one file, overwritten block by block in the order of a stream.
//!
//! Sizes follow the SFS paper (section 4.1 and `sfs-reading`): a set of 12.5 % of the volume (8 GB of 64 GB), blocks of 4 KiB, about
//! 5/16 of the volume written for ageing and 1/8 measured (20 GiB and 8 GiB of 64 GB). fsync after every 256 writes bounds what the
//! page cache absorbs; `sync_every` 0 leaves it out, as the paper's replay does.

use super::{Phase, Workload, overwritten, steady};
use crate::error::Result;
use crate::fileset::write_range;
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{BLOCK, Plan, Settings, blocks};
use crate::specification::Specification;
use crate::stream::Stream;

const FILE: File = File(0);
const PATH: &str = "data";
/// fsync after that many writes, unless the settings say otherwise.
const SYNC_EVERY: u64 = 256;

/// Overwrites of one file.
pub(crate) struct Overwrite {
    name: String,
    stream: Stream,
    request: u32,
    bytes: u64,
    prepared: u64,
    sync_every: u64,
    writes: u64,
    plan: Plan,
}

impl Overwrite {
    /// Options: `set` (bytes or share of the volume), `request` (bytes), and those of the stream.
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<Overwrite> {
        let set = options.bytes("set", settings.share(12.5), settings)?;
        let request = options.bytes("request", BLOCK, settings)?.clamp(512, u64::from(MAX_REQUEST));
        let count = u32::try_from(set / request).unwrap_or(u32::MAX).max(1);
        let stream = Stream::of(&mut options, count, settings.seed)?;
        options.finish()?;
        let bytes = u64::from(count) * request;
        let colon = if stream.name().contains(':') { ',' } else { ':' };
        let name = format!("{}{colon}set={bytes},request={request}", stream.name());
        let (age, measure) = steady(settings);
        let plan = Plan { initial_bytes: blocks(bytes), peak_bytes: blocks(bytes), files: 1, age, measure };
        let sync_every = settings.sync_every.unwrap_or(SYNC_EVERY);
        Ok(Overwrite { name, stream, request: request as u32, bytes, prepared: 0, sync_every, writes: 0, plan })
    }
}

impl Workload for Overwrite {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase == Phase::Prepare {
            return overwritten(FILE, PATH, self.bytes, &mut self.prepared, operations);
        }
        let offset = u64::from(self.stream.next_block()) * u64::from(self.request);
        write_range(FILE, offset, u64::from(self.request), self.request, operations);
        self.writes += 1;
        if self.sync_every > 0 && self.writes.is_multiple_of(self.sync_every) {
            operations.push(Operation::Sync(FILE));
        }
        true
    }
}
