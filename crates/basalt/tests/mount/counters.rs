//! `basalt stats`: what a mount tells about itself, for how long, and that nobody can hold it up by asking.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use basalt_testkit::limit;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Volume, wait_for};
use crate::support::{Finished, basalt, mount_line, program};

pub fn stats(path: impl AsRef<Path>, option: &str) -> Finished {
    basalt(["stats".as_ref(), path.as_ref().as_os_str(), option.as_ref()])
}

/// Where a mount of root's has its socket.
pub fn socket(volume: &Volume) -> PathBuf {
    let device = fs::metadata(volume.root()).unwrap().dev();
    let name = format!("{}:{}.socket", rustix::fs::major(device), rustix::fs::minor(device));
    Path::new("/run/basalt").join(name)
}

fn number(document: &Value, pointer: &str) -> f64 {
    document.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer}: {document}"))
}

fn write_durably(path: &Path, length: usize) {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![7; length]).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn counters_rise_with_what_is_written() {
    let Some(volume) = Volume::new("128M") else { return };
    let before = stats(volume.root(), "--json").json();
    write_durably(&volume.path("file"), 8 << 20);
    fs::write(volume.path("other"), "content").unwrap();
    basalt(["sync".as_ref(), volume.root().as_os_str()]).ok();
    let after = stats(volume.path("file"), "--json").json();
    for (pointer, least) in [
        ("/live/statistics/written/data_blocks", 2048.0),
        ("/live/statistics/written/node_blocks", 2.0),
        ("/live/statistics/written/metadata_blocks", 1.0),
        ("/live/statistics/checkpoints/sync", 1.0),
        ("/live/usage/used_blocks", 2048.0),
        ("/live/live_data_blocks", 2048.0),
        ("/utilization", 0.01),
        ("/mount/uptime_seconds", 0.000_001),
    ] {
        let risen = number(&after, pointer) - number(&before, pointer);
        assert!(risen >= least, "{pointer} rose by {risen}, not {least}");
    }
    assert!((1.0..1.5).contains(&number(&after, "/write_amplification")), "{after}");
    assert_eq!((&after["live"]["read_only"], &after["live"]["failed"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(after["mount"]["mount_point"], volume.root().to_str().unwrap());
    assert_eq!(after["mount"]["target"], volume.image().to_str().unwrap());
    let server = volume.server().unwrap().as_raw_nonzero().get();
    assert_eq!(after["mount"]["process"], server);

    let info = basalt(["info".as_ref(), volume.image().as_os_str(), "--json".as_ref()]);
    let info: Value = serde_json::from_str(&info.out()).unwrap();
    assert_eq!(after["volume"]["uuid"], info["uuid"]);
    let table = basalt(["stats".as_ref(), volume.root().as_os_str()]).ok();
    assert!(table.starts_with("mount ") && table.contains("\n  foreground "), "{table}");
    volume.unmount();
    volume.mount_with("ro");
    assert_eq!(stats(volume.root(), "--json").json()["live"]["read_only"], true);
}

/// Every number and text of a document, by its path.
fn leaves(value: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(value, &format!("{path}/{name}"), found));
        }
        value => {
            found.insert(path.to_owned(), value.to_string());
        }
    }
}

#[test]
fn the_document_has_all_fields() {
    let Some(volume) = Volume::new("64M") else { return };
    let mut found = BTreeMap::new();
    leaves(&stats(volume.root(), "--json").json(), "", &mut found);
    let mut expected: Vec<String> = [
        "/format /version /utilization /write_amplification /mount/mount_point /mount/target /mount/device_number",
        "/mount/process /mount/uptime_seconds /volume/label /volume/uuid /live/read_only /live/read_only_reason",
        "/live/pre_invalid_blocks /live/failed /live/dirty_pages /live/dirty_nodes /live/live_data_blocks /live/live_node_blocks",
        "/live/segments_per_section /live/usage/user_blocks /live/usage/used_blocks /live/usage/inodes",
        "/live/usage/nodes /live/usage/reserved_segments /live/usage/overprovision_segments",
    ]
    .join(" ")
    .split(' ')
    .map(str::to_owned)
    .collect();
    let mut add = |place: &str, names: &str| {
        expected.extend(names.split(' ').map(|name| format!("/live/{place}/{name}")));
    };
    add("segments", "free active dirty full prefree");
    add("statistics/written", "data_blocks node_blocks metadata_blocks checkpoints sections_cleaned blocks_moved");
    add("statistics/written", "journal_blocks");
    add("statistics/slack", "blocks");
    add("statistics/checkpoints", "open fsync sync interval cleaning trim resize close");
    for cause in ["foreground", "background", "resize"] {
        let place = format!("statistics/cleaning/{cause}");
        add(&place, "victims blocks_read blocks_copied data_blocks_copied checkpoints");
        add(&place, "pre_invalid_copied journal_commits");
        add(&place, "select/secs select/nanos copy/secs copy/nanos commit/secs commit/nanos");
    }
    let missing: Vec<&String> = expected.iter().filter(|name| !found.contains_key(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {found:?}");
    assert_eq!((found["/format"].as_str(), found["/version"].as_str()), ("\"basalt-statistics\"", "1"));
    let segments: u32 = found
        .iter()
        .filter(|(name, _)| name.starts_with("/live/segments/"))
        .map(|(_, n)| n.parse::<u32>().unwrap())
        .sum();
    let info = basalt(["info".as_ref(), volume.image().as_os_str(), "--json".as_ref()]).out();
    assert_eq!(serde_json::from_str::<Value>(&info).unwrap()["main_segments"], segments);
}

/// Reads Prometheus's text format as its rules say; panics where they are broken. Samples by name and labels.
fn parse_exposition(text: &str) -> BTreeMap<String, f64> {
    let is_name = |name: &str| {
        let ok = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.chars().all(ok) && name.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect(line);
            assert!(is_name(name) && !help.is_empty() && !kinds.contains_key(name), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            kinds.insert(name, kind);
            continue;
        }
        let (name, rest) = line.split_once('{').expect(line);
        assert!(kinds.contains_key(name), "no type: {line}");
        let (labels, value) = rest.rsplit_once("} ").expect(line);
        let mut rest = labels;
        loop {
            let (label, quoted) = rest.split_once("=\"").expect(line);
            assert!(is_name(label), "{line}");
            let mut escaped = false;
            let end = quoted.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            rest = &quoted[end.expect(line) + 1..];
            if rest.is_empty() {
                break;
            }
            rest = rest.strip_prefix(',').expect(line);
        }
        let value: f64 = value.parse().expect(line);
        assert!(samples.insert(format!("{name}{{{labels}}}"), value).is_none(), "twice: {line}");
    }
    samples
}

#[test]
fn prometheus_can_read_it() {
    let Some(volume) = Volume::new("64M") else { return };
    write_durably(&volume.path("file"), 1 << 20);
    let text = stats(volume.root(), "--prometheus").ok();
    assert!(text.ends_with('\n'));
    let samples = parse_exposition(&text);
    let point = format!("mount_point=\"{}\"", volume.root().display());
    let written = samples[&format!("basalt_written_bytes_total{{{point},kind=\"data\"}}")];
    assert!(written >= f64::from(1 << 20), "{written} bytes written");
    assert_eq!(samples[&format!("basalt_failed{{{point}}}")], 0.0);
    assert!(
        samples.contains_key(&format!("basalt_cleaning_seconds_total{{{point},cause=\"foreground\",phase=\"copy\"}}"))
    );
    assert!(samples.len() > 40, "{}", samples.len());
}

#[test]
fn several_mounts_are_told_apart() {
    let (Some(one), Some(other)) = (Volume::new("64M"), Volume::with_options("64M", "noloop")) else { return };
    for volume in [&one, &other] {
        let told = stats(volume.root(), "--json").json();
        assert_eq!(told["mount"]["target"], volume.image().to_str().unwrap());
        stats(volume.outside("mnt/.."), "--json").fails(1, &["is not on a mount of Basalt"]);
    }
    one.unmount();
    stats(one.root(), "--json").fails(1, &["is not on a mount of Basalt"]);
    stats(one.outside("missing"), "--json").fails(1, &["missing"]);
    stats("/proc", "--json").fails(1, &["/proc is not on a mount of Basalt"]);
    stats(other.root(), "--json").ok();
}

#[test]
fn a_killed_mount_is_said_to_be_gone_and_its_socket_is_replaced() {
    for options in ["noloop", ""] {
        let Some(volume) = Volume::with_options("64M", options) else { return };
        let socket = socket(&volume);
        volume.kill_server();
        wait_for("the server to end", || volume.server().is_none());
        let asked = stats(volume.root(), "--json");
        asked.fails(1, &[volume.root().to_str().unwrap()]);
        // Another mount that begins meanwhile sweeps the socket away, perhaps before this one was asked.
        let swept = !socket.exists() && asked.err().contains("the process has ended");
        assert!(swept || asked.err().contains("gone"), "{}", asked.err());
        volume.clean_up();
        volume.mount();
        stats(volume.root(), "--json").ok();
    }
}

#[test]
fn what_a_killed_mount_left_does_not_stay() {
    let (Some(killed), Some(next)) = (Volume::with_options("64M", "noloop"), Volume::new("64M")) else { return };
    let socket = socket(&killed);
    let inode = fs::symlink_metadata(&socket).unwrap().ino();
    killed.kill();
    next.remount();
    // The number may be another mount's by now.
    assert!(fs::symlink_metadata(&socket).map_or(true, |found| found.ino() != inode), "{} is dead", socket.display());
    killed.mount();
}

#[test]
fn clients_that_never_read_or_write_hold_nothing_up() {
    let Some(volume) = Volume::new("64M") else { return };
    let silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(socket(&volume)).unwrap()).collect();
    let start = Instant::now();
    stats(volume.root(), "--json").ok();
    write_durably(&volume.path("file"), 1 << 20);
    // Neither does what clients send.
    let mut talking = UnixStream::connect(socket(&volume)).unwrap();
    let _ = talking.write_all(&[b'x'; 100_000]);
    stats(volume.root(), "--json").ok();
    volume.unmount();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    wait_for("the server to end", || volume.server().is_none());
    drop(silent);
}

#[test]
fn many_who_ask_at_once_are_all_answered() {
    let Some(volume) = Volume::new("64M") else { return };
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let socket = socket(&volume);
            std::thread::spawn(move || {
                for _ in 0..50 {
                    let mut text = String::new();
                    UnixStream::connect(&socket).unwrap().read_to_string(&mut text).unwrap();
                    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["version"], 1);
                }
            })
        })
        .collect();
    write_durably(&volume.path("file"), 4 << 20);
    threads.into_iter().for_each(|thread| limit::join(thread, limit::SHORT));
}

#[test]
fn a_stopped_server_is_not_waited_for_for_ever() {
    let Some(volume) = Volume::new("64M") else { return };
    let server = volume.server().unwrap();
    rustix::process::kill_process(server, Signal::STOP).unwrap();
    // Its threads stop one after the other, on a busy machine some time after the call.
    let is_stopped = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.as_raw_nonzero())).unwrap();
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        })
    };
    wait_for("stopped threads", is_stopped);
    let asked = stats(volume.root(), "--json");
    rustix::process::kill_process(server, Signal::CONT).unwrap();
    asked.fails(1, &["has not answered"]);
    stats(volume.root(), "--json").ok();
}

/// `basalt stats --watch` with its lines as they come.
struct Watching {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Watching {
    fn new(volume: &Volume, options: &[&str]) -> Watching {
        let mut command = Command::new(program());
        command.arg("stats").arg(volume.root()).args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Watching { child, lines }
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(limit::SHORT).expect("a line")
    }

    /// Waits for a line that begins like this; returns the rest.
    #[track_caller]
    fn line_with(&self, start: &str) -> String {
        let until = Instant::now() + limit::SHORT;
        while Instant::now() < until {
            if let Some(rest) = self.line().trim_start().strip_prefix(start) {
                return rest.to_owned();
            }
        }
        panic!("no line begins with {start}");
    }

    #[track_caller]
    fn ends_with_the_mount(self) {
        let ended = limit::finish(self.child, limit::SHORT).unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{said}");
        assert!(said.lines().count() == 1 && said.contains("no longer mounted"), "{said}");
    }
}

#[test]
fn watching_ends_with_the_mount() {
    let Some(volume) = Volume::new("64M") else { return };
    let json = Watching::new(&volume, &["--json", "--watch", "0.05"]);
    let table = Watching::new(&volume, &["--watch=0.2"]);
    let read = |line: String| serde_json::from_str::<Value>(&line).unwrap();
    let first = read(json.line());
    let second = read(json.line());
    assert!(number(&second, "/mount/uptime_seconds") > number(&first, "/mount/uptime_seconds"));
    // The first table has no rates, the second one has.
    assert_eq!(table.line_with("written").split_whitespace().collect::<Vec<_>>(), ["total"]);
    assert_eq!(table.line_with("written").split_whitespace().collect::<Vec<_>>(), ["total", "now"]);
    assert!(table.line_with("data").ends_with("/s"));
    volume.unmount();
    json.ends_with_the_mount();
    table.ends_with_the_mount();
}

#[test]
fn a_mount_that_was_detached_can_be_watched_to_its_end() {
    let Some(volume) = Volume::with_options("64M", "noloop") else { return };
    let watching = Watching::new(&volume, &["--json", "--watch", "0.05"]);
    watching.line();
    let mut file = File::create(volume.path("file")).unwrap();
    rustix::mount::unmount(volume.root(), UnmountFlags::DETACH).unwrap();
    stats(volume.root(), "--json").fails(1, &["is not on a mount of Basalt"]);
    file.write_all(&[1; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    let until = Instant::now() + limit::SHORT;
    loop {
        let line: Value = serde_json::from_str(&watching.line()).unwrap();
        if number(&line, "/live/statistics/written/data_blocks") >= 256.0 {
            break;
        }
        assert!(Instant::now() < until, "the counters of a detached mount stand still");
    }
    drop(file);
    watching.ends_with_the_mount();
    volume.wait_for_release();
}

#[test]
fn a_mount_in_the_foreground_tells_as_well() {
    let Some(volume) = Volume::in_image(None, "64M", "") else { return };
    let mut command = Command::new(program());
    command.args(["mount", "--foreground"]).arg(volume.image()).arg(volume.root());
    let mut server = command.stderr(Stdio::null()).spawn().unwrap();
    wait_for("the mount", || mount_line(&volume.root()).is_some());
    // It shows before it is served.
    wait_for("the counters", || stats(volume.root(), "--json").code() == 0);
    let socket = socket(&volume);
    assert_eq!(stats(volume.root(), "--json").json()["mount"]["process"], server.id());
    // A signal ends it in another way.
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(limit::wait(&mut server, limit::SHORT).unwrap().success());
    assert!(!socket.exists());
}

#[test]
fn a_mount_that_a_signal_closes_under_its_users_removes_its_socket() {
    let Some(volume) = Volume::with_options("64M", "noloop") else { return };
    let socket = socket(&volume);
    let in_use = File::create(volume.path("file")).unwrap();
    let server = volume.server().unwrap();
    rustix::process::kill_process(server, Signal::TERM).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    rustix::process::kill_process(server, Signal::TERM).unwrap();
    wait_for("the server to end", || volume.server().is_none());
    assert!(!socket.exists(), "{} is left behind", socket.display());
    drop(in_use);
    volume.clean_up();
}

#[test]
fn a_mount_tells_what_its_device_is_taken_for() {
    let profile = |volume: &Volume| stats(volume.root(), "--json").json().pointer("/mount/profile").cloned().unwrap();
    let Some(volume) = Volume::with_options("64M", "reclaim=partial,profile=sd") else { return };
    assert_eq!(profile(&volume), "sd");
    let directory = basalt_testkit::scratch::directory().unwrap();
    let card = directory.path().join("card.toml");
    fs::write(&card, basalt_flash::preset_text("sd-b").unwrap()).unwrap();
    let options = format!("reclaim=partial,profile={}", card.display());
    let Some(volume) = Volume::with_options("64M", &options) else { return };
    assert_eq!(profile(&volume), card.to_str().unwrap());
    let Some(volume) = Volume::new("64M") else { return };
    assert!(["ssd", "emmc", "sd", "hdd"].map(Value::from).contains(&profile(&volume)));
}
