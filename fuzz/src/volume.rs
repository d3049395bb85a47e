//! A damaged volume: opened, walked, changed and closed, or checked.

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use basalt_device::MemoryDevice;
use basalt_f2fs::check::{CheckOptions, check as check_volume};
use basalt_f2fs::{Error, F2fs, OpenOptions};
use basalt_vfs::FileSystem;

use super::base::{StoppedClock, base};
use super::guarded::GuardedDevice;
use super::patch::{Patch, damage};
use super::script::{Change, Run};

/// Most damage, and most changes, of one run.
const PATCHES: usize = 10;
const CHANGES: usize = 40;

/// What one input means.
#[derive(Debug)]
pub struct Case {
    /// Which base volume.
    pub base: u8,
    /// Open it read-only.
    pub read_only: bool,
    /// Leave checksums as the damage made them.
    pub stale: bool,
    /// Cut the device short here, in blocks.
    pub blocks: Option<u16>,
    /// Remove everything at the end.
    pub remove: bool,
    /// The damage.
    pub patches: Vec<Patch>,
    /// What is done to the volume.
    pub changes: Vec<Change>,
}

impl Case {
    /// Reads a case from any bytes.
    pub fn parse(data: &[u8]) -> Option<Case> {
        let mut bytes = Unstructured::new(data);
        let head: [u8; 2] = bytes.arbitrary().ok()?;
        let blocks = if head[1] & 0x70 == 0x70 { Some(bytes.arbitrary().ok()?) } else { None };
        Some(Case {
            base: head[0],
            read_only: head[1] & 1 == 1,
            stale: head[1] & 0x0E == 0x0E,
            blocks,
            remove: head[1] & 0x80 != 0,
            patches: take(&mut bytes, usize::from(head[0] >> 2) % PATCHES + 1),
            changes: take(&mut bytes, CHANGES),
        })
    }

    fn device(&self) -> MemoryDevice {
        damage(base(self.base), &self.patches, self.stale)
    }

    fn size(&self) -> u64 {
        self.blocks.map_or(u64::MAX, |blocks| u64::from(blocks) * 4096)
    }
}

/// Up to `count` values, while there are bytes.
fn take<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>, count: usize) -> Vec<T> {
    let mut values = Vec::new();
    while values.len() < count && !bytes.is_empty() {
        let Ok(value) = bytes.arbitrary() else { break };
        values.push(value);
    }
    values
}

fn open(device: &MemoryDevice, size: u64, read_only: bool) -> Option<F2fs> {
    let guarded = Arc::new(GuardedDevice::new(device.snapshot(), size, !read_only));
    // Small caches, so that what was read once is read and checked again.
    let options = OpenOptions { read_only, cache_bytes: 1 << 20, ..OpenOptions::default() };
    match F2fs::open(guarded, options, Arc::new(StoppedClock)) {
        Ok(fs) => Some(fs),
        Err(error) => {
            let allowed = match &error {
                Error::Damaged { structure, place, found } => {
                    !structure.is_empty() && !place.is_empty() && !found.is_empty()
                }
                Error::Refused(inner) => matches!(inner, basalt_vfs::Error::NoSpace),
                _ => true,
            };
            assert!(allowed, "a volume must be refused for a reason with a place: {error:?}");
            None
        }
    }
}

/// Damages a volume, opens it, looks at everything, changes it, and closes it.
pub fn mount_walk_write(data: &[u8]) {
    let Some(case) = Case::parse(data) else { return };
    run(&case);
}

/// Runs a case; gives what damage was met first.
pub fn run(case: &Case) -> Option<String> {
    let device = case.device();
    let Some(fs) = open(&device, case.size(), case.read_only) else { return Some("not opened".into()) };
    let mut run = Run::new(&fs);
    run.walk();
    case.changes.iter().for_each(|change| run.change(change));
    if case.remove {
        run.remove_everything();
    }
    let damage_met = run.finish();
    // A volume that failed says so here.
    let _ = fs.sync();
    let _ = fs.close();
    let _ = (fs.warnings(), fs.failure(), fs.info());
    damage_met
}

/// Damages a volume and checks it.
pub fn check(data: &[u8]) {
    let Some(case) = Case::parse(data) else { return };
    check_case(&case);
}

/// Checks a case; whether the check found nothing.
pub fn check_case(case: &Case) -> bool {
    let device = GuardedDevice::new(case.device(), case.size(), false);
    let options = CheckOptions { max_faults: 200 };
    match check_volume(&device, &options, &mut |_| ()) {
        Ok(report) => {
            assert!(report.faults.len() <= options.max_faults + 1, "{} faults", report.faults.len());
            report.is_clean()
        }
        Err(_) => false,
    }
}
