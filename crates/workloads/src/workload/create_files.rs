//! `create-files`: files made one after the other.
//!
//! CreateFiles of the FlashLight paper (section 5.4, table VII, run with Filebench): 100 files of 128 KiB on 256 MiB, 100 a directory,
//! requests of 4 KiB. Sizes of the gamma distribution (shape 1.5), as the paper says of its Filebench runs. Here as many files in
//! proportion to the volume.

use basalt_random::Rng;

use super::{Phase, Workload};
use crate::error::Result;
use crate::fileset::{FileSet, write_range};
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Limit, Plan, Settings, blocks};
use crate::specification::Specification;

const FILE: File = File(0);
/// The volume of the paper.
pub(super) const CHIP: u64 = 256 << 20;

/// Creation of files.
pub(crate) struct CreateFiles {
    name: String,
    rng: Rng,
    set: FileSet,
    request: u32,
    bytes: u64,
}

impl CreateFiles {
    /// Options: `files`, `mean` (bytes of a file), `width` (files a directory), `request` (bytes).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<CreateFiles> {
        let files = (settings.size_bytes / 1024 * 100 / (CHIP / 1024)).clamp(1, 50_000_000) as u32;
        let files = options.number("files", files, 1, 50_000_000)?;
        let mean = options.bytes("mean", 128 << 10, settings)?.max(1);
        let width = options.number("width", 100, 2, 1_000_000)?;
        let request = options.bytes("request", 4096, settings)?.clamp(1, u64::from(MAX_REQUEST)) as u32;
        options.finish()?;
        let mut rng = Rng::new(settings.seed);
        let set = FileSet::gamma("files", files, width, mean, 0, &mut rng);
        let bytes = (0..files).map(|entry| blocks(set.size(entry))).sum();
        let name = format!("create-files:files={files},mean={mean},width={width},request={request}");
        Ok(CreateFiles { name, rng, set, request, bytes })
    }
}

impl Workload for CreateFiles {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        Plan {
            initial_bytes: 0,
            peak_bytes: self.bytes,
            files: self.set.count(),
            age: Limit::Operations(0),
            measure: Limit::Operations(u64::MAX),
        }
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        match phase {
            Phase::Prepare => self.set.prepare(self.request, operations),
            Phase::Age | Phase::Dummy => false,
            Phase::Measure => {
                let Some(entry) = self.set.take_missing(&mut self.rng) else { return false };
                operations.push(Operation::Create(FILE, self.set.path(entry)));
                write_range(FILE, 0, self.set.size(entry), self.request, operations);
                operations.push(Operation::Close(FILE));
                self.set.put(entry, true);
                true
            }
        }
    }
}
