//! Volumes as a power cut leaves them, for tools to work on.

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::geometry::Geometry;
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::inode::RawInode;
use basalt_testkit::rng::Rng;
use zerocopy::{FromBytes, IntoBytes};

use crate::enumerate::{OPERATIONS, add_operation};
use crate::f2fs::F2fsVolume;
use crate::generate::{Flavour, steps};
use crate::script::Step;
use crate::session::Session;

/// Most fsyncs of one file: more than a segment of its nodes, so that segments of the chain hold nothing that recovery needs in the end.
const FSYNCS_MAX: u64 = 1100;

/// What is left on a volume when the power goes after a few operations, most of which were fsynced, now and then in front of hundreds of fsyncs.
pub(crate) fn interrupted(
    engine: &'static F2fsVolume,
    image: MemoryDevice,
    rng: &mut Rng,
) -> Result<MemoryDevice, String> {
    let mut session = Session::open(engine, image, None, 0)?;
    if engine.is_journaled() && rng.chance(50) {
        // Cleaned as well, so that the journal is live.
        let flavour = Flavour::Cleaning(engine.user_bytes() / 100 * rng.between(50, 70));
        steps(rng, flavour, 200).iter().try_for_each(|step| session.run(step))?;
    }
    for _ in 0..rng.between(1, 6) {
        let mut steps = Vec::new();
        let path = add_operation(&mut steps, OPERATIONS[rng.index(OPERATIONS.len())]);
        if rng.chance(80) {
            steps.extend(path.map(Step::Fsync));
        }
        steps.iter().try_for_each(|step| session.run(step))?;
    }
    // Last: most operations end the chain with a checkpoint.
    if rng.chance(30) {
        fsync_often(&mut session, rng)?;
    }
    Ok(session.image())
}

/// Fsyncs one file for so long that the chain goes on in other segments.
fn fsync_often(session: &mut Session<'_>, rng: &mut Rng) -> Result<(), String> {
    let parse = |line: String| line.parse::<Step>().map_err(|error| format!("{line}: {error}"));
    session.run(&parse("create often".to_owned())?)?;
    for number in 0..rng.between(200, FSYNCS_MAX) {
        session.run(&parse(format!("write often 0 8 {number}"))?)?;
        session.run(&parse("fsync often".to_owned())?)?;
    }
    Ok(())
}

/// Gives some inodes that the last checkpoint has an extent that is not there: nobody reads it, a check finds it, and a repair writes the
/// inode anew. What was written behind the checkpoint stays as it is.
pub(crate) fn disturb(image: &MemoryDevice, rng: &mut Rng) -> Result<(), String> {
    // A live cleaning journal says where nodes are: what is found without it may be out of date.
    let Ok((geometry, _)) = Geometry::read(image) else { return Ok(()) };
    let newest = newest_version(image, &geometry)?;
    let share = [5, 50, 100][rng.index(3)];
    let mut block = [0; 4096];
    for address in Address::all(geometry.main..geometry.main + geometry.main_blocks()) {
        let offset = u64::from(address) * 4096;
        image.read_at(offset, &mut block).map_err(|error| error.to_string())?;
        let Ok(inode) = RawInode::mut_from_bytes(&mut block) else { continue };
        let footer = inode.footer;
        let is_inode = footer.nid == footer.ino && footer.nid.get() > 3 && inode.i_mode.get() & 0xF000 == 0x8000;
        let is_old = (footer.cp_ver.get() as u32).wrapping_sub(newest).cast_signed() < 0;
        if !is_inode || !is_old || !rng.chance(share) {
            continue;
        }
        inode.i_ext.len.set(7);
        let checksum = inode.expected_checksum(geometry.checksum_seed);
        if geometry.features.contains(basalt_f2fs::layout::superblock::Features::INODE_CHECKSUM) {
            inode.extra_mut().i_inode_checksum.set(checksum);
        }
        image.write_at(offset, inode.as_bytes()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The version of the newest checkpoint, as nodes carry it.
fn newest_version(image: &MemoryDevice, geometry: &Geometry) -> Result<u32, String> {
    let pack = basalt_f2fs::checkpoint::choose::choose_pack(image, geometry).map_err(|error| error.to_string())?.0;
    Ok(pack.raw.checkpoint_ver.get() as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use basalt_f2fs::check::{CheckOptions, FaultKind, check};
    use basalt_f2fs::{F2fs, OpenOptions};

    use super::*;
    use crate::engine::{Engine, StepClock};
    use crate::prepare::Image;
    use crate::tools::LATER;

    /// A repair of what a power cut left has something to recover: else it shows nothing.
    #[test]
    fn what_a_power_cut_left_is_not_closed() {
        for engine in ["roomy", "tight-journal"].map(|name| crate::f2fs::volume(name).unwrap()) {
            let image = Image::Few.base(engine).unwrap().device;
            let has_fsynced = |seed: &u64| {
                let left = interrupted(engine, image.snapshot(), &mut Rng::new(*seed)).unwrap();
                let fs = F2fs::open(Arc::new(left), OpenOptions::default(), StepClock::starting(LATER)).unwrap();
                fs.warnings().iter().any(|warning| warning.contains("recovered"))
            };
            let recovered = (0..60).filter(has_fsynced).count();
            assert!(recovered >= 12, "{}: {recovered} of 60", engine.name());
        }
    }

    /// What is disturbed is found by a check, and read by nobody.
    #[test]
    fn what_is_disturbed_is_a_fault() {
        let engine = crate::f2fs::volume("roomy").unwrap();
        let image = Image::Few.base(engine).unwrap().device;
        let left = interrupted(engine, image.snapshot(), &mut Rng::new(3)).unwrap();
        let found = (0..4).map(|seed| {
            let image = left.snapshot();
            disturb(&image, &mut Rng::new(seed)).unwrap();
            let report = check(&image, &CheckOptions::default(), &mut |_| {}).unwrap();
            report.faults.iter().filter(|fault| fault.kind == FaultKind::InodeExtent).count()
        });
        assert!(found.sum::<usize>() > 0);
    }
}
