//! Stories that were violated once, shortened by the simulator. Each is played to its end on a fresh volume.

use std::sync::Arc;
use std::time::Duration;

use basalt_crash::engine::{Engine, StepClock};
use basalt_crash::f2fs::volume;
use basalt_crash::scenario::Scenario;
use basalt_device::{BlockDevice, MemoryDevice};
use basalt_vfs::FileSystem;

/// Plays a story; what it violates, if anything.
fn play(text: &str) -> Result<(), String> {
    let scenario: Scenario = text.parse()?;
    let engine = volume(&scenario.volume).ok_or_else(|| format!("there is no volume `{}`", scenario.volume))?;
    scenario.play(engine).map(drop)
}

/// Made first, and then so many others that memory pressure writes the inode before its fsync: that has something to do all the same.
fn written_by_pressure(volume: &str, made: &str) -> String {
    let others: String = (0..40).map(|number| format!("create other{number}\n")).collect();
    format!("volume {volume}\nsync\n{made}\n{others}fsync made\ncut 1000000 lost 0\ncreate after\nfsync after\n")
}

#[test]
fn fsync_covers_inodes_that_memory_pressure_wrote() {
    for volume in ["roomy", "tightest", "plain", "flexible"] {
        for made in
            ["symlink made 20", "symlink made 3000", "create made", "create made\nsetxattr made 0 1500 7", "mkdir made"]
        {
            let text = written_by_pressure(volume, made);
            assert_eq!(play(&text), Ok(()), "{text}");
        }
    }
}

/// A volume that is nearly full, `story`, and then so much overwriting that cleaning needs checkpoints, before the power goes and all that
/// was not flushed is lost.
fn cleaned_behind(volume: &str, story: &str) -> String {
    let fill: String =
        (0..10).map(|file| format!("create fill{file}\nwrite fill{file} 0 524288 {}\n", file + 1)).collect();
    // Each file as often as the others, in an order without a period.
    let overwritten: String =
        (0..80).map(|step| format!("write fill{} 0 524288 {}\n", (step * step + step / 10) % 10, step + 100)).collect();
    format!("volume {volume}\n{fill}sync\n{story}{overwritten}cut 1000000 lost 0\n")
}

/// Checkpoints of cleaning leave dirty pages in memory, but not those without which a size or a name is worth nothing.
#[test]
fn sizes_and_links_are_durable_with_what_they_cover() {
    let stories = [
        ("symlink s 4000\n", "create x\n"),
        (
            "create g\nwrite g 0 5000 3\nsync\ncreate t\nwrite t 0 6000 5\nrename t g\ncreate n\nwrite n 0 9000 6\n",
            "create x\n",
        ),
        ("create f\nwrite f 0 10000 77\nsync\ntruncate f 5000\n", "write f 6000 100 9\nsync\n"),
        ("create f\nwrite f 0 10000 77\nsync\ntruncate f 5000\n", "truncate f 8000\nsync\n"),
        ("create f\nwrite f 0 10000 77\nsync\ntruncate f 5000\n", "allocate f 5000 3000\nsync\n"),
    ];
    for volume in ["tight", "tight-journal", "tight-small-journal", "sections", "sections-journal"] {
        for (before, after) in stories {
            let text = format!("{}{after}cut 1000000 kept 0\ncreate y\n", cleaned_behind(volume, before));
            assert_eq!(play(&text), Ok(()), "{text}");
        }
    }
}

/// Found on volumes with a cleaning journal: recovery wrote over what a seal lists, found no room, or went on in a reused segment.
#[test]
fn recovery_that_is_cut_off_leaves_everything_for_the_next() {
    let stories = [
        include_str!("stories/recovery-cut-behind-a-seal.txt"),
        include_str!("stories/recovery-without-room.txt"),
        include_str!("stories/log-in-a-reused-segment.txt"),
    ];
    for text in stories {
        assert_eq!(play(text), Ok(()), "{text}");
    }
}

/// A checkpoint counted a segment as used in which a log that it does not name had written, and all was dead.
#[test]
fn a_segment_of_a_group_that_died_is_counted_as_free() {
    let text = include_str!("stories/all-that-a-group-wrote-is-dead.txt");
    assert_eq!(play(text), Ok(()), "{text}");
}

/// The last block of a checkpoint is torn, and behind recovery the first block of the same one, written anew: the older one counts, and is
/// written to.
#[test]
fn a_checkpoint_torn_at_one_end_and_then_at_the_other_is_no_damage() {
    let stories = [
        include_str!("stories/checkpoint-torn-at-one-end-then-the-other.txt"),
        include_str!("stories/checkpoint-torn-at-one-end-then-the-other-2.txt"),
    ];
    for text in stories {
        assert_eq!(play(text), Ok(()), "{text}");
    }
}

/// A single block was recovered in a segment that had held nodes: its summary went on to call it one of nodes.
#[test]
fn summaries_say_what_recovery_made_of_a_segment() {
    let text = include_str!("stories/one-block-in-a-former-node-segment.txt");
    assert_eq!(play(text), Ok(()));
}

/// The chain ends soon behind the beginning of a segment that the checkpoint has as free. Recovery, cut off before its checkpoint holds, has not
/// written there.
#[test]
fn recovery_leaves_the_last_segment_of_the_chain_alone() {
    let files: String = (0..20).map(|file| format!("create a{file}\nwrite a{file} 0 20000 {file}\n")).collect();
    let fsyncs: String =
        (0..250).map(|step| format!("write a{0} 4096 4096 {1}\nfsync a{0}\n", step % 20, step + 100)).collect();
    for after in 1..6 {
        let text = format!("volume roomy\n{files}sync\n{fsyncs}cut 1000000 lost 0\ncut {after} kept 0\n");
        assert_eq!(play(&text), Ok(()), "cut after {after} requests of the recovery");
    }
}

/// A power cut leaves sectors that cannot be read: what had been promised is on the volume, or where the mount says that it is.
#[test]
fn sectors_that_cannot_be_read_cost_nothing_that_was_promised() {
    let stories = [
        include_str!("stories/read-fails-in-front-of-a-bad-block.txt"),
        include_str!("stories/first-commit-of-the-journal-unreadable.txt"),
        include_str!("stories/read-fails-of-what-an-unreadable-copy-was-made-from.txt"),
    ];
    for text in stories {
        assert_eq!(play(text), Ok(()), "{text}");
    }
}

/// Overwrites files so often that all logs have come round.
fn come_round(files: u64) -> String {
    (0..100)
        .map(|step: u64| format!("write fill{} 0 524288 {}\n", (step * step + step / 7) % files, step + 1000))
        .collect()
}

/// A segment of the chain in which nothing is live, and that no checkpoint needs, is not used again: an fsync behind it counts.
#[test]
fn a_commit_leaves_the_segments_of_the_chain_alone() {
    let made: String = (0..400).map(|file| format!("create a{file}\n")).collect();
    let filled: String = (0..10).map(|file| format!("create fill{file}\nwrite fill{file} 0 524288 {file}\n")).collect();
    let rewritten: String = (0..1600).map(|step| format!("write a{} 0 100 {step}\n", step % 400)).collect();
    let fsynced = "write f 0 200 7\nfsync f\ncut 1000000 lost 0\n";
    let text = format!(
        "volume wide-journal-reserve\ncreate f\nwrite f 0 100 1\n{made}{filled}sync\n{rewritten}{}{fsynced}",
        come_round(10)
    );
    assert_eq!(play(&text), Ok(()));
}

/// What the direct nodes of a large fsync point to stays when it is overwritten without another fsync.
#[test]
fn a_commit_leaves_what_a_large_fsync_has_written_alone() {
    let filled: String = (0..4).map(|file| format!("create fill{file}\nwrite fill{file} 0 524288 {file}\n")).collect();
    let fsynced =
        "write g 4194304 4194304 2\nfsync g\nwrite-back g 4194304 4194304 3\nwrite-back g 4194304 4194304 4\n";
    let text = format!(
        "volume wide-journal-reserve\ncreate g\nwrite g 0 8388608 1\n{filled}sync\n{fsynced}{}cut 1000000 lost 0\n",
        come_round(4)
    );
    assert_eq!(play(&text), Ok(()));
}

/// Where the mount says that rescue finds more, rescue finds no more than the mount, or there is no such word.
struct Deaf {
    engine: &'static dyn Engine,
    is_told: bool,
}

impl Engine for Deaf {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn device_size(&self) -> u64 {
        self.engine.device_size()
    }

    fn format(&self, device: &MemoryDevice) -> Result<(), String> {
        self.engine.format(device)
    }

    fn open(&self, device: Arc<dyn BlockDevice>, clock: Arc<StepClock>) -> Result<Box<dyn FileSystem>, String> {
        self.engine.open(device, clock)
    }

    fn open_to_look(&self, device: Arc<dyn BlockDevice>, clock: Arc<StepClock>) -> Result<Box<dyn FileSystem>, String> {
        self.engine.open_to_look(device, clock)
    }

    fn open_as_told(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<StepClock>,
    ) -> Option<Result<Box<dyn FileSystem>, String>> {
        self.is_told.then(|| self.open_to_look(device, clock))
    }

    fn check(&self, device: &MemoryDevice) -> Result<(), String> {
        self.engine.check(device)
    }

    fn directory_fsync_is_sync(&self) -> bool {
        self.engine.directory_fsync_is_sync()
    }

    fn commit_interval(&self) -> Duration {
        self.engine.commit_interval()
    }
}

/// What a mount does not show has to be said, and to be found.
#[test]
fn what_was_fsynced_must_be_where_the_mount_says() {
    let text = include_str!("stories/first-commit-of-the-journal-unreadable.txt");
    let scenario: Scenario = text.parse().unwrap();
    for is_told in [false, true] {
        let engine = Deaf { engine: volume(&scenario.volume).unwrap(), is_told };
        let error = scenario.play(&engine).map(drop).unwrap_err();
        assert!(error.contains("none that may be there"), "told {is_told}: {error}");
    }
}

/// The summary of a segment that a log of no checkpoint fills is written again at each checkpoint, in place. Where power makes it unreadable,
/// the nodes say what it said, and the mount itself has what was fsynced.
#[test]
fn a_summary_that_cannot_be_read_is_made_anew_from_the_nodes() {
    let scenario: Scenario = include_str!("stories/summary-of-an-unrecorded-log-unreadable.txt").parse().unwrap();
    let engine = Deaf { engine: volume(&scenario.volume).unwrap(), is_told: false };
    assert_eq!(scenario.play(&engine).map(drop), Ok(()));
}
