//! `basalt lab record`, `replay` and `trace`, and `basalt mount -o record`: what was recorded gives the same bytes again.
//!
//! Nothing here can wait for ever: programs run under `timeout`, and a test that fails aborts its mounts.

mod support;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use basalt_testkit::rng::Rng;
use basalt_testkit::skip;
use support::{Finished, Scratch, can_mount, mount_line, program};

/// The longest that any one program may take, in seconds.
const LIMIT: &str = "60";
/// The longest that a test waits for something that should happen at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a program to its end, or kills it.
fn timed<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Finished {
    let output = Command::new("timeout").args(["-k", "5", LIMIT]).args(words).stdin(Stdio::null()).output();
    Finished(output.expect("timeout(1)"))
}

/// Runs `basalt` with arguments.
fn basalt<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Finished {
    let mut words = vec![program().into()];
    words.extend(arguments.into_iter().map(|word| word.as_ref().to_owned()));
    timed(words)
}

/// Things to take away when a test ends, in any way; the last first.
#[derive(Default)]
struct Cleanup {
    mounts: Vec<PathBuf>,
    loops: Vec<String>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // FUSE mounts first: whatever hangs on one gets an error then.
        for mount in &self.mounts {
            if let Some(line) = mount_line(mount).filter(|line| line.contains(" fuse")) {
                let minor = line.split_whitespace().nth(2).and_then(|device| device.split_once(':'));
                if let Some((_, minor)) = minor {
                    let _ = fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
                }
            }
        }
        for mount in self.mounts.iter().rev().filter(|mount| mount_line(mount).is_some()) {
            timed([OsStr::new("umount"), OsStr::new("-l"), mount.as_os_str()]);
        }
        for device in &self.loops {
            timed(["losetup", "--detach", device]);
        }
    }
}

/// A child that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something that must become true soon.
#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes a tree, changes it and removes part of it, with some fsyncs.
fn write_tree(root: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    for number in 0..60 {
        let directory = root.join(format!("d{}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        let mut file = File::create(directory.join(format!("f{number}"))).unwrap();
        let bytes: Vec<u8> = (0..rng.between(1, 200_000)).map(|_| rng.next_u64() as u8).collect();
        file.write_all(&bytes).unwrap();
        if number % 5 == 0 {
            file.sync_all().unwrap();
        }
    }
    for number in (0..60).step_by(3) {
        let path = root.join(format!("d{}/f{number}", number % 7));
        if number % 2 == 0 {
            fs::remove_file(path).unwrap();
        } else {
            File::options().write(true).open(path).unwrap().write_all_at(b"changed", 3).unwrap();
        }
    }
}

/// Expects the same bytes in both files.
#[track_caller]
fn expect_same(one: &Path, other: &Path) {
    let (mut first, mut second) = (File::open(one).unwrap(), File::open(other).unwrap());
    let size = first.seek(SeekFrom::End(0)).unwrap();
    assert_eq!(size, second.seek(SeekFrom::End(0)).unwrap());
    first.rewind().unwrap();
    second.rewind().unwrap();
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for at in (0..size).step_by(1 << 20) {
        let length = usize::try_from((size - at).min(1 << 20)).unwrap();
        first.read_exact(&mut left[..length]).unwrap();
        second.read_exact(&mut right[..length]).unwrap();
        let differs = left[..length].iter().zip(&right[..length]).position(|(left, right)| left != right);
        assert_eq!(differs.map(|within| at + within as u64), None, "the first different byte");
    }
}

fn description(recording: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(recording.join("recording.json")).unwrap()).unwrap()
}

fn count(recording: &Path, what: &str) -> u64 {
    description(recording)["totals"][what].as_u64().unwrap()
}

/// Whether the kernel's own ext4 can be recorded here.
fn can_record_ext4() -> bool {
    let loops = Path::new("/dev/loop-control").exists();
    if !loops {
        skip::skip("no loop devices");
    }
    loops && can_mount() && skip::tools_or_skip(&["mkfs.ext4", "e2fsck", "losetup", "timeout"])
}

#[test]
fn a_recorded_ext4_replays_to_the_same_bytes() {
    if !can_record_ext4() {
        return;
    }
    let scratch = Scratch::new();
    let (image, recording) = (scratch.path("image"), scratch.path("recording"));
    let (shown, mounted) = (scratch.directory("shown"), scratch.directory("mounted"));
    let mut cleanup = Cleanup { mounts: vec![shown.clone(), mounted.clone()], loops: Vec::new() };
    let arguments = ["lab", "record", "--size", "96M", "--output", recording.to_str().unwrap()];
    basalt(arguments.iter().map(OsStr::new).chain([image.as_os_str(), shown.as_os_str()])).ok();

    let attach = ["losetup", "--find", "--show", "--direct-io=on"].map(OsStr::new);
    let file = shown.join("image");
    let device = timed(attach.into_iter().chain([file.as_os_str()])).ok().trim().to_owned();
    cleanup.loops.push(device.clone());
    timed(["mkfs.ext4", "-q", &device]).ok();
    let with_discard = ["mount", "-t", "ext4", "-o", "discard", &device, mounted.to_str().unwrap()];
    timed(with_discard).ok();
    write_tree(&mounted, 1);
    timed(["sync", "-f", mounted.to_str().unwrap()]).ok();
    timed(["umount", mounted.to_str().unwrap()]).ok();
    timed(["losetup", "--detach", &device]).ok();
    basalt([OsStr::new("umount"), shown.as_os_str()]).ok();

    assert_eq!(description(&recording)["complete"], true);
    for what in ["reads", "writes", "flushes", "discards", "bytes_written"] {
        assert!(count(&recording, what) > 0, "{what}");
    }
    let copy = scratch.path("copy");
    basalt([OsStr::new("lab"), OsStr::new("replay"), OsStr::new("-q"), recording.as_os_str(), copy.as_os_str()]).ok();
    expect_same(&image, &copy);
    timed(["e2fsck", "-fn", copy.to_str().unwrap()]).0.status.success().then_some(()).expect("e2fsck finds nothing");

    // The recording is a trace like any other.
    let trace = basalt([OsStr::new("lab"), OsStr::new("trace"), OsStr::new("--json"), recording.as_os_str()]).json();
    assert_eq!(trace["statistics"]["writes"]["requests"], count(&recording, "writes"));
    assert_eq!(trace["statistics"]["flushes"], count(&recording, "flushes"));
    assert_eq!(trace["bad_lines"], 0);
}

#[test]
fn a_recorded_mount_replays_to_the_same_bytes() {
    if !can_mount() || !skip::tools_or_skip(&["timeout"]) {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let (image, copy, recording) = (scratch.path("image"), scratch.path("copy"), scratch.path("recording"));
    let mounted = scratch.directory("mnt");
    let _cleanup = Cleanup { mounts: vec![mounted.clone()], loops: Vec::new() };
    fs::copy(&image, &copy).unwrap();
    let record = format!("record={}", recording.display());
    let mount = |options: &str| {
        basalt([OsStr::new("mount"), OsStr::new("-o"), OsStr::new(options), image.as_os_str(), mounted.as_os_str()])
    };
    mount(&record).ok();
    write_tree(&mounted, 2);
    basalt([OsStr::new("umount"), mounted.as_os_str()]).ok();

    assert_eq!(description(&recording)["complete"], true);
    assert!(count(&recording, "writes") > 0 && count(&recording, "flushes") > 0);
    basalt([OsStr::new("lab"), OsStr::new("replay"), OsStr::new("-q"), recording.as_os_str(), copy.as_os_str()]).ok();
    expect_same(&image, &copy);
    scratch.expect_clean();

    // A recording is never written over; the volume stays unmounted and whole.
    mount(&record).fails(32, &["recording", "exists"]);
    assert!(mount_line(&mounted).is_none());
}

#[test]
fn a_signal_ends_a_recording_that_is_complete() {
    if !can_mount() || !skip::tools_or_skip(&["timeout"]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, recording, shown) = (scratch.path("image"), scratch.path("recording"), scratch.directory("shown"));
    fs::write(&image, vec![7; 4 << 20]).unwrap();
    let _cleanup = Cleanup { mounts: vec![shown.clone()], loops: Vec::new() };
    let mut command = Command::new(program());
    command.args(["lab", "record", "--foreground", "--output"]).arg(&recording).arg(&image).arg(&shown);
    let mut server = Killed(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("the image is shown", || mount_line(&shown).is_some());

    let file = File::options().read(true).write(true).open(shown.join("image")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 << 20);
    file.write_all_at(&[1; 10_000], 5_000).unwrap();
    file.sync_all().unwrap();
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 1 << 20, 1 << 20).unwrap();
    let mut bytes = [9; 8192];
    file.read_exact_at(&mut bytes, (1 << 20) - 4096).unwrap();
    assert!(bytes[..4096] == [7; 4096] && bytes[4096..] == [0; 4096], "a punched hole reads as zeros");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::ZERO_RANGE, 3 << 20, 4096).unwrap();
    file.set_len(1).unwrap_err();
    file.write_all_at(&[1; 2], 4 << 20).unwrap_err();
    drop(file);

    let id = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    wait_for("the server ends", || server.0.try_wait().unwrap().is_some());
    assert!(server.0.wait().unwrap().success());
    assert_eq!(description(&recording)["complete"], true);
    let found: Vec<u64> = ["reads", "writes", "flushes", "discards"].map(|what| count(&recording, what)).to_vec();
    assert_eq!(found, [1, 2, 1, 1]);

    let copy = scratch.path("copy");
    let replay = |options: &[&str]| {
        let words = ["lab", "replay", "-q"].iter().chain(options).map(OsStr::new);
        basalt(words.chain([recording.as_os_str(), copy.as_os_str()]))
    };
    replay(&[]).fails(1, &["not empty at the start"]);
    fs::write(&copy, vec![7; 4 << 20]).unwrap();
    replay(&["--upto", "1"]).ok();
    let mut expected = vec![7; 4 << 20];
    expected[5_000..15_000].fill(1);
    assert!(fs::read(&copy).unwrap() == expected);
    replay(&[]).ok();
    expect_same(&image, &copy);
}

#[test]
fn what_cannot_be_recorded_is_said_in_one_line() {
    let scratch = Scratch::new();
    let (recording, shown) = (scratch.text("recording"), scratch.directory("shown"));
    let record = |image: &str, directory: &str| {
        basalt(["lab", "record", "--wait", "0", "--output", &recording, image, directory])
    };
    let missing = scratch.text("missing");
    record(&missing, shown.to_str().unwrap()).fails(1, &["missing"]);
    let image = scratch.file("image", [0; 1 << 16]);
    record(&image, &scratch.text("nowhere")).fails(1, &["nowhere", "mkdir"]);
    assert!(!scratch.path("recording").exists());
    basalt(["lab", "replay", &scratch.text("nowhere"), &image]).fails(1, &["recording.json"]);
    basalt(["lab", "record", &image, "."]).fails(2, &["--output"]);
}

const TRACE: &str = "\
fio version 3 iolog
0 /dev/x add
0 /dev/x open
0 /dev/x write 0 8192
250 /dev/x write 8192 4096
300 /dev/x frobnicate 0 1
400 /dev/x read 0 4096
500 /dev/x datasync 0 0
600 /dev/x trim 4096 4096
700 /dev/x close
";

#[test]
fn traces_are_described_converted_and_simulated() {
    let scratch = Scratch::new();
    let trace = scratch.file("trace", TRACE);
    let shown = basalt(["lab", "trace", &trace]).ok();
    for part in
        ["(fio)", "1 bad", ":6: action `frobnicate` is not known", "writes        2, 12 KiB", "duration      0.001 s"]
    {
        assert!(shown.contains(part), "`{part}` is missing in: {shown}");
    }
    basalt(["lab", "trace", "--strict", &trace]).fails(1, &[":6:", "frobnicate"]);
    basalt(["lab", "trace", "--format", "csv", &trace]).fails(2, &["csv", "vscsi-csv"]);
    basalt(["lab", "trace", &scratch.file("text", "hello\nworld\n")]).fails(1, &["no known trace format"]);

    let converted = scratch.text("converted.fio");
    basalt(["lab", "trace", "--json", "--convert", &converted, &trace]).ok();
    let again = basalt(["lab", "trace", "--json", "--strict", &converted]).json();
    assert_eq!(again["requests"], 5);
    assert_eq!(again["statistics"]["duration_ns"], 600_000);
    basalt(["lab", "trace", "--convert", &converted, &trace]).fails(1, &["exists"]);

    let simulated = basalt(["lab", "trace", "--json", "--ftl", "both", &trace]).json();
    let outcome = &simulated["simulated"];
    assert_eq!(outcome["requests"]["writes"], 2);
    assert_eq!(outcome["layers"].as_array().unwrap().len(), 2);
    for layer in outcome["layers"].as_array().unwrap() {
        assert_eq!(layer["statistics"]["pages_written"], 3);
        assert_eq!(layer["statistics"]["pages_trimmed"], 1);
    }
    assert!(outcome["device_ns"].as_u64().unwrap() > 0);
    let same = basalt(["lab", "trace", "--json", "--ftl", "both", &trace]).out();
    assert_eq!(same, basalt(["lab", "trace", "--json", "--ftl", "both", &trace]).out());
    assert!(basalt(["lab", "trace", "--ftl", "fast", &trace]).ok().contains("\n  fast        WA "));
    basalt(["lab", "trace", "--size", "64M", "--device", "nowhere", &trace]).fails(2, &["nowhere"]);
}
