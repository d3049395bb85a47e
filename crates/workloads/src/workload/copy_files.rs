//! `copy-files`: a tree copied beside itself.
//!
//! CopyFiles of the FlashLight paper (section 5.4, table VII, run with Filebench): 500 files of 128 KiB on 256 MiB, 20 a directory,
//! requests of 4 KiB. Sizes of the gamma distribution (shape 1.5). Here as many files in proportion to the volume, or fewer where the
//! utilization leaves less.

use basalt_random::Rng;

use super::create_files::CHIP;
use super::{Phase, Workload, set_bytes};
use crate::error::Result;
use crate::fileset::FileSet;
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Limit, Plan, Settings};
use crate::specification::Specification;

const FROM: File = File(0);
const TO: File = File(1);

/// A copied tree.
pub(crate) struct CopyFiles {
    name: String,
    from: FileSet,
    to: FileSet,
    request: u32,
    copied: u32,
    plan: Plan,
}

impl CopyFiles {
    /// Options: `files`, `mean` (bytes of a file), `width` (files a directory), `request` (bytes).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<CopyFiles> {
        let mean = options.bytes("mean", 128 << 10, settings)?.max(1);
        let files = settings.size_bytes / 1024 * 500 / (CHIP / 1024);
        let files = files.min(set_bytes(settings, 100.0) / 2 / mean).clamp(1, 50_000_000) as u32;
        let files = options.number("files", files, 1, 50_000_000)?;
        let width = options.number("width", 20, 2, 1_000_000)?;
        let request = options.bytes("request", 4096, settings)?.clamp(1, u64::from(MAX_REQUEST)) as u32;
        options.finish()?;
        let mut rng = Rng::new(settings.seed);
        let from = FileSet::gamma("from", files, width, mean, 100, &mut rng);
        let sizes: Vec<u64> = (0..files).map(|entry| from.size(entry)).collect();
        let to = FileSet::new("to", &sizes, width, |_| false);
        let plan = Plan {
            initial_bytes: from.bytes(),
            peak_bytes: from.bytes() * 2,
            files: from.count() * 2,
            age: Limit::Operations(0),
            measure: Limit::Operations(u64::MAX),
        };
        let name = format!("copy-files:files={files},mean={mean},width={width},request={request}");
        Ok(CopyFiles { name, from, to, request, copied: 0, plan })
    }
}

impl Workload for CopyFiles {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        match phase {
            Phase::Prepare => {
                return self.from.prepare(self.request, operations) || self.to.prepare(self.request, operations);
            }
            Phase::Age | Phase::Dummy => return false,
            Phase::Measure => {}
        }
        let entry = self.copied;
        if entry >= self.from.entries() {
            return false;
        }
        self.copied += 1;
        operations.push(Operation::Open(FROM, self.from.path(entry)));
        operations.push(Operation::Create(TO, self.to.path(entry)));
        let size = self.from.size(entry);
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(u64::from(self.request)) as u32;
            operations.push(Operation::Read { file: FROM, offset, length });
            operations.push(Operation::Write { file: TO, offset, length });
            offset += u64::from(length);
        }
        operations.extend([Operation::Close(TO), Operation::Close(FROM)]);
        true
    }
}
