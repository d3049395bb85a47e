//! Placements and victim policies as options of mounts: a volume takes them in turns, and stays as it was written.

use std::fs::File;
use std::os::unix::fs::FileExt;

use basalt_testkit::rng::Rng;

use crate::fixture::Volume;
use crate::support::basalt;

const BLOCK: usize = 4096;

/// One mount after the other.
const MOUNTS: [&str; 5] = [
    "placement=sepbit,victim=cost-benefit",
    "placement=dac,victim=timestamp,keep_free=reserve,cache=4M",
    "",
    "placement=mdc,victim=declining-cost,background_victim=declining-cost",
    "placement=sepbit,nojournal,cache=4M",
];

#[test]
fn a_volume_takes_placements_in_turns() {
    let Some(volume) = Volume::in_image(None, "192M", "") else { return };
    let mut rng = Rng::new(17);
    // Four of five blocks that a user has.
    let mut blocks = vec![0_u8; 26_000];
    for (round, options) in MOUNTS.into_iter().enumerate() {
        volume.mount_with(options);
        let file =
            File::options().create(true).truncate(false).write(true).read(true).open(volume.path("file")).unwrap();
        let write = |block: usize, byte: u8| file.write_all_at(&[byte; BLOCK], (block * BLOCK) as u64).unwrap();
        if round == 0 {
            (0..blocks.len()).for_each(|block| write(block, 0));
        }
        // Most writes go to a tenth of the blocks.
        for step in 0..30_000_usize {
            let block = if rng.chance(80) { rng.index(blocks.len() / 10) } else { rng.index(blocks.len()) };
            blocks[block] = blocks[block].wrapping_add(1);
            write(block, blocks[block]);
            if step % 256 == 255 {
                file.sync_data().unwrap();
            }
        }
        drop(file);
        volume.unmount();
        volume.expect_clean();
        // By no placement of its own.
        let got = volume.outside("got");
        basalt(["get".as_ref(), volume.image().as_os_str(), "/file".as_ref(), got.as_os_str()]).ok();
        let bytes = std::fs::read(&got).unwrap();
        std::fs::remove_file(got).unwrap();
        let wrong = bytes.chunks(BLOCK).zip(&blocks).filter(|(found, byte)| **found != [**byte; BLOCK]).count();
        assert_eq!((bytes.len(), wrong), (blocks.len() * BLOCK, 0), "after `{options}`, seed 17");
    }
}

/// Where no option says otherwise, the class of the device decides.
#[test]
fn a_mount_does_what_suits_the_class_of_its_device() {
    let Some(volume) = Volume::in_image(None, "64M", "") else { return };
    for (options, wanted) in [
        ("profile=emmc", ["run-length", "greedy", "partial"]),
        ("profile=sd", ["run-length", "greedy", "clean"]),
        ("profile=emmc,reclaim=clean,placement=auto", ["auto", "auto", "clean"]),
        ("profile=hdd,logs=2,reclaim=slack", ["static", "greedy", "slack"]),
    ] {
        volume.mount_with(options);
        let mount = basalt(["stats".as_ref(), "--json".as_ref(), volume.root().as_os_str()]).json()["mount"].take();
        assert_eq!(["placement", "victim", "reclaim"].map(|name| mount[name].as_str().unwrap()), wanted, "{options}");
        volume.unmount();
    }
}

#[test]
fn a_placement_that_needs_six_logs_says_so() {
    let Some(volume) = Volume::in_image(None, "64M", "") else { return };
    let root = volume.root();
    let mount = ["mount".as_ref(), volume.image().as_os_str(), root.as_os_str(), "-o".as_ref()];
    let refused = basalt(mount.into_iter().chain(["logs=2,placement=sepbit".as_ref()]));
    assert_eq!(refused.code(), 1, "{}", refused.err());
    assert!(refused.err().contains("sepbit") && refused.err().contains("logs=6"), "{}", refused.err());
    assert!(!volume.is_mounted());
}
