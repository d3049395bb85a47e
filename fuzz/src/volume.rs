//! A damaged volume: opened, walked, changed and closed or cut off; checked, rescued, repaired, resized.

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check as check_volume};
use basalt_f2fs::repair::{RepairOptions, plan as plan_repair};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::resize::{plan as plan_resize, resize as resize_volume};
use basalt_f2fs::{Clock, Error, F2fs, OpenOptions};
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
    /// Leave the volume without closing it, and open it once more.
    pub cut: bool,
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
            cut: head[1] & 0x81 == 0x80,
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

fn open(guarded: Arc<GuardedDevice>, read_only: bool) -> Option<F2fs> {
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
    let device = Arc::new(GuardedDevice::new(case.device(), case.size(), !case.read_only));
    let Some(fs) = open(device.clone(), case.read_only) else { return Some("not opened".into()) };
    let mut run = Run::new(&fs);
    run.walk();
    case.changes.iter().for_each(|change| run.change(change));
    if case.remove {
        run.remove_everything();
    }
    let damage_met = run.finish();
    // A volume that failed says so here.
    let _ = (fs.info(), fs.warnings());
    if case.cut && !case.read_only {
        drop(fs);
        if let Some(fs) = open(device, false) {
            Run::new(&fs).walk();
            let _ = fs.close();
        }
        return damage_met;
    }
    let _ = fs.sync();
    let _ = fs.close();
    let _ = (fs.warnings(), fs.failure(), fs.info());
    damage_met
}

/// Damages a volume, rescues what is left, and looks at all of it; also through a mount that skips what is broken.
pub fn rescue(data: &[u8]) {
    let Some(case) = Case::parse(data) else { return };
    let device = || Arc::new(GuardedDevice::new(case.device(), case.size(), false));
    let options = RescueOptions { deleted: case.remove, nodes_only: case.read_only, ..RescueOptions::default() };
    if let Ok(rescued) = Rescued::open(device(), &options, Arc::new(StoppedClock), &mut |_| ()) {
        let mut run = Run::new(&rescued);
        run.walk();
        run.finish();
        let _ = rescued.report();
    }
    let options = OpenOptions { rescue: true, read_only: true, cache_bytes: 1 << 20, ..OpenOptions::default() };
    if let Ok(fs) = F2fs::open(device(), options, Arc::new(StoppedClock)) {
        let mut run = Run::new(&fs);
        run.walk();
        run.finish();
        let _ = fs.close();
    }
}

/// Damages a volume and repairs it: what is called clean then is, and takes changes.
pub fn repair(data: &[u8]) {
    let Some(case) = Case::parse(data) else { return };
    let device = Arc::new(GuardedDevice::new(case.device(), case.size(), true));
    let options = RepairOptions { max_listed: 200, clock: Arc::new(StoppedClock) };
    let Ok(plan) = plan_repair(device.clone(), &options, &mut |_| ()) else { return };
    assert!(plan.report().repairs.len() <= options.max_listed);
    let Ok(report) = plan.commit() else { return };
    if !report.clean {
        return;
    }
    let checked = check_volume(&*device, &CheckOptions { max_faults: 20 }, &mut |_| ());
    assert!(checked.as_ref().is_ok_and(basalt_f2fs::check::CheckReport::is_clean), "repaired, but {checked:?}");
    if let Some(fs) = open(device, false) {
        let mut run = Run::new(&fs);
        run.walk();
        case.changes.iter().for_each(|change| run.change(change));
        run.finish();
        let _ = fs.close();
    }
}

/// Damages a volume and resizes it: refused with a reason, or done, so that it can be opened.
pub fn resize(data: &[u8]) {
    let Some(case) = Case::parse(data) else { return };
    let room = base(case.base).device.size();
    // Sizes between nothing and twice the volume, on a device of twice its size.
    let size = room * 2 / 200 * (case.changes.len() as u64 * 5 + u64::from(case.base >> 2));
    let device = Arc::new(GuardedDevice::with_room(case.device(), case.size(), 2 * room));
    let planned = plan_resize(&*device, size).is_ok();
    let clock: Arc<dyn Clock> = Arc::new(StoppedClock);
    let options = OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::default() };
    let resized = resize_volume(&(device.clone() as _), size, &options, &clock, &mut |_, _, _| ());
    let was_sound = case.patches.is_empty();
    assert!(resized.is_ok() || !was_sound || !planned || size > device.size(), "{resized:?}");
    if let Some(fs) = open(device, false) {
        Run::new(&fs).walk();
        let _ = fs.close();
    }
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
