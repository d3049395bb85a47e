//! `postmark`: many files created and deleted in one directory, as on a mail server.
//!
//! Shape `flashlight` (the default), as the FlashLight paper runs it (section 5.3): 1,300 files of 128 KiB on 256 MiB, 30,000 transactions that
//! create or delete a file, none that read or append, requests of 2 KiB; then all that is left is deleted. Here files and
//! transactions in proportion to the volume, or fewer where the utilization leaves less.
//! Shape `classic`: J. Katcher's defaults (Network Appliance TR3022, 1997): files of 500 to 9,999 bytes, requests of 512 bytes, and each
//! transaction also reads or appends, alike often.
//! Creations and deletions come alike often; the number of files is kept within a quarter of where it began, as neither PostMark
//! nor the papers' volumes could go on outside.

use basalt_random::Rng;

use super::{Phase, Workload, set_bytes};
use crate::error::{Error, Result};
use crate::fileset::{FileSet, read_range, write_range};
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{BLOCK, Limit, Plan, Settings, blocks};
use crate::specification::Specification;

const FILE: File = File(0);
/// 1,300 files of 128 KiB on 256 MiB.
const SET_PERCENT: f64 = 63.5;
/// 30,000 transactions on 1,300 files.
const TRANSACTIONS_PER_FILE: u64 = 23;
/// The greatest size of a file in the classic shape.
const CLASSIC_MAX: u64 = 9999;

/// PostMark.
pub(crate) struct Postmark {
    name: String,
    rng: Rng,
    set: FileSet,
    files: u32,
    request: u32,
    classic: bool,
    transactions: u64,
    plan: Plan,
}

impl Postmark {
    /// Value: the shape. Options: `set` (bytes of the files at first), `files`, `transactions`, `request` (bytes).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<Postmark> {
        let shape = options.text("").unwrap_or_else(|| "flashlight".to_owned());
        let classic = match shape.as_str() {
            "classic" => true,
            "flashlight" => false,
            _ => {
                let line = format!("postmark: there is no shape `{shape}`; there are flashlight and classic");
                return Err(Error::Specification(line));
            }
        };
        let (mean, request) = if classic { ((500 + CLASSIC_MAX) / 2, 512) } else { (128 << 10, 2 << 10) };
        let set = options.bytes("set", set_bytes(settings, SET_PERCENT), settings)?;
        // Small files may grow to whole blocks, a block for the inode of each, and their number by a quarter.
        let each = if classic { (blocks(CLASSIC_MAX) + BLOCK) * 5 / 4 } else { mean };
        let files = options.number("files", (set / each).clamp(4, 50_000_000) as u32, 4, 50_000_000)?;
        let transactions = u64::from(files) * TRANSACTIONS_PER_FILE;
        let transactions = options.number("transactions", transactions, 0, u64::MAX)?;
        let request = options.bytes("request", request, settings)?.clamp(1, u64::from(MAX_REQUEST)) as u32;
        options.finish()?;
        let mut rng = Rng::new(settings.seed);
        let entries = files + files / 4;
        let size = |rng: &mut Rng| if classic { rng.between(500, CLASSIC_MAX) } else { mean };
        let sizes: Vec<u64> = (0..entries).map(|_| size(&mut rng)).collect();
        let set = FileSet::new("mail", &sizes, u32::MAX, |entry| entry < files);
        let largest = blocks(if classic { CLASSIC_MAX } else { mean });
        let initial_bytes = set.bytes();
        let plan = Plan {
            initial_bytes,
            // Files grow to the greatest size by appending.
            peak_bytes: if classic {
                u64::from(entries) * largest
            } else {
                sizes.iter().map(|size| blocks(*size)).sum()
            },
            files: set.count(),
            age: Limit::Operations(0),
            measure: Limit::Operations(u64::MAX),
        };
        let name = format!("postmark:{shape},files={files},transactions={transactions},request={request}");
        Ok(Postmark { name, rng, set, files, request, classic, transactions, plan })
    }

    fn create(&mut self, operations: &mut Vec<Operation>) {
        if let Some(entry) = self.set.take_missing(&mut self.rng) {
            operations.push(Operation::Create(FILE, self.set.path(entry)));
            write_range(FILE, 0, self.set.size(entry), self.request, operations);
            operations.push(Operation::Close(FILE));
            self.set.put(entry, true);
        }
    }

    fn delete(&mut self, operations: &mut Vec<Operation>) {
        if let Some(entry) = self.set.take(&mut self.rng) {
            operations.push(Operation::Unlink(self.set.path(entry)));
            self.set.put(entry, false);
        }
    }

    fn read_or_append(&mut self, operations: &mut Vec<Operation>) {
        let Some(entry) = self.set.take(&mut self.rng) else { return };
        let size = self.set.size(entry);
        operations.push(Operation::Open(FILE, self.set.path(entry)));
        if self.rng.chance(50) || size >= CLASSIC_MAX {
            read_range(FILE, 0, size, self.request, operations);
        } else {
            let length = self.rng.between(1, CLASSIC_MAX - size);
            write_range(FILE, size, length, self.request, operations);
            self.set.resize(entry, size + length);
        }
        operations.push(Operation::Close(FILE));
        self.set.put(entry, true);
    }
}

impl Workload for Postmark {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        match phase {
            Phase::Prepare => return self.set.prepare(self.request, operations),
            Phase::Age | Phase::Dummy => return false,
            Phase::Measure => {}
        }
        if self.transactions == 0 {
            // The last part: everything goes.
            self.delete(operations);
            return !operations.is_empty();
        }
        self.transactions -= 1;
        if self.classic {
            self.read_or_append(operations);
        }
        let count = self.set.available() as u64;
        let files = u64::from(self.files);
        let few = count * 4 <= files * 3;
        let many = count * 4 >= files * 5;
        if few || !many && self.rng.chance(50) {
            self.create(operations)
        } else {
            self.delete(operations)
        }
        !operations.is_empty()
    }
}
