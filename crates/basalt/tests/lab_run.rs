//! `basalt lab run`, `plan`, `point` and `report`: experiments through the program.

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use basalt_testkit::{limit, skip};
use rustix::process::{Pid, Signal, kill_process};
use support::{Finished, Scratch, basalt, program, run};

/// Four points of a few milliseconds.
const SMALL: &str = r#"
title = "Small"
kind = "volume"
[settings]
policy = ["greedy", "cost-benefit"]
utilization = [60, 80]
size = "128M"
writes = 20000
warm-up = 20000
"#;

/// Names are bytes, and a command for a shell has them as words.
#[test]
fn a_comparison_has_its_report_wherever_it_is() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let arguments =
        "lab compare --workload sequential --fs basalt --device ssd-m --size 64M --measure 1M --age 0 --output";
    for name in [&b"two words"[..], b"no text \xff"] {
        let directory = scratch.path("").join(std::ffi::OsStr::from_bytes(name));
        let arguments = arguments.split(' ').map(std::ffi::OsStr::new);
        basalt(arguments.chain([directory.as_os_str()])).ok();
        let report = fs::read_to_string(directory.join("report.html")).unwrap();
        assert!(
            report.contains("basalt lab compare --workload sequential") && !report.contains("--output /"),
            "{report}"
        );
    }
}

/// A comparison takes minutes: what it measured before it was interrupted is kept.
#[test]
fn an_interrupted_comparison_keeps_its_rows() {
    let scratch = Scratch::new();
    let endless = scratch.file("endless.fio", "[a]\nrw=write\nsize=1m\nloops=1000000000\n");
    let output = scratch.text("compared");
    let mut command = Command::new(program());
    command.args("lab compare --fs basalt --device ssd-m --size 64M --measure 1M --age 0 --json --workload".split(' '));
    command.args([&format!("sequential,{endless}"), "--output", &output]);
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut row = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(running.stdout.as_mut().unwrap()), &mut row).unwrap();
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_to_string(Path::new(&output).join("results.jsonl")).unwrap(), row);
    assert!(Path::new(&output).join("report.html").exists());
}

/// Both call their lines results.jsonl.
#[test]
fn a_comparison_does_not_replace_the_results_of_an_experiment() {
    let scratch = Scratch::new();
    scratch.directory("results");
    scratch.file("results/experiment.toml", SMALL);
    let lines = scratch.file("results/results.jsonl", "");
    let arguments =
        "lab compare --workload sequential --fs basalt --device ssd-m --size 64M --measure 1M --age 0 --output";
    let refused = basalt(arguments.split(' ').chain([scratch.text("results").as_str()]));
    refused.fails(1, &["results", "of an experiment", "choose another directory"]);
    assert_eq!(fs::read_to_string(lines).unwrap(), "");
}

/// No machine finishes it.
const ENDLESS: &str = "writes = 1000000000000";

fn run_experiment(scratch: &Scratch, text: &str, more: &[&str]) -> Finished {
    let file = scratch.file("small.toml", text);
    let directory = scratch.text("results");
    let mut arguments = vec!["lab", "run", &file, "--output", &directory];
    arguments.extend(more);
    basalt(arguments)
}

#[test]
fn a_run_measures_once_and_keeps_everything() {
    let scratch = Scratch::new();
    let first = run_experiment(&scratch, SMALL, &["--json", "--jobs", "2"]).ok();
    let lines: Vec<serde_json::Value> = first.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert_eq!(line["kind"], "volume");
        assert!(line["metrics"]["write_amplification"].as_f64().unwrap() >= 1.0, "{line}");
    }
    assert_eq!(fs::read_to_string(scratch.path("results/results.jsonl")).unwrap(), first);
    assert!(fs::read(scratch.path("results/results.parquet")).unwrap().starts_with(b"PAR1"));
    assert!(fs::read_to_string(scratch.path("results/report.html")).unwrap().contains("<svg"));

    let again = run_experiment(&scratch, SMALL, &[]).ok();
    assert!(again.contains("4 points measured (4 of them earlier)"), "{again}");
    let other = run_experiment(&scratch, &SMALL.replace("128M", "192M"), &[]);
    other.fails(1, &["results", "another experiment"]);
}

#[test]
fn points_that_fail_or_take_too_long_are_recorded() {
    let scratch = Scratch::new();
    let text = SMALL.replace("utilization = [60, 80]", "utilization = [60, 99]");
    let ended = run_experiment(&scratch, &text, &[]);
    assert_eq!(ended.code(), 1, "{}", ended.err());
    assert!(ended.out().contains("2 points measured, 2 failed"), "{}", ended.out());
    assert_eq!(ended.out().matches("failed: volume ").count(), 2, "{}", ended.out());

    let scratch = Scratch::new();
    let text = SMALL.replace("policy = [\"greedy\", \"cost-benefit\"]", "policy = \"greedy\"");
    let text = text.replace("utilization = [60, 80]", "utilization = 60").replace("writes = 20000", ENDLESS);
    let started = Instant::now();
    let ended = run_experiment(&scratch, &text, &["--limit", "0.5"]);
    assert!(started.elapsed() < limit::SHORT, "{:?}", started.elapsed());
    assert_eq!(ended.code(), 1);
    assert!(ended.out().contains("not finished after 0.5 s"), "{}", ended.out());
}

/// However a run ends, its points do not go on.
#[test]
fn points_end_with_their_run() {
    let scratch = Scratch::new();
    let file = scratch.file("small.toml", SMALL.replace("writes = 20000", ENDLESS));
    let mut command = Command::new(program());
    command.args(["lab", "run", &file, "--quiet", "--output", &scratch.text("results"), "--jobs", "2"]);
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let tasks = format!("/proc/{}/task", running.id());
    let points = || -> Vec<String> {
        let tasks = fs::read_dir(&tasks).unwrap().flatten();
        let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
        children.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    support::wait_until("two points run", || points().len() == 2);
    let points = points();
    kill_process(Pid::from_child(&running), Signal::KILL).unwrap();
    running.wait().unwrap();
    // They are taken care of by another process, or not yet.
    let has_ended = |point: &String| {
        let status = fs::read_to_string(format!("/proc/{point}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    };
    support::wait_until("they end too", || points.iter().all(has_ended));
}

#[test]
fn an_interrupted_run_keeps_what_is_done_and_goes_on() {
    let scratch = Scratch::new();
    // The points with the last policy never end.
    let text = SMALL.replace("writes = 20000", &format!("writes = [20000, {}]", 1_000_000_000_000_u64));
    let file = scratch.file("small.toml", &text);
    let directory = scratch.text("results");
    let mut child = Command::new(program())
        .args(["lab", "run", &file, "--output", &directory, "--jobs", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let results = scratch.path("results/results.jsonl");
    let deadline = Instant::now() + limit::SHORT;
    while fs::read_to_string(&results).map_or(0, |text| text.lines().count()) < 1 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = limit::wait(&mut child, limit::SHORT).unwrap();
    assert_eq!(status.code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("points left; run the same command to continue"), "{said}");
    assert_eq!(fs::read_to_string(&results).unwrap().lines().count(), 1);
    assert_eq!(left_over(), 0, "points outlived their run");

    let ended = basalt(["lab", "run", &file, "--output", &directory, "--limit", "0.5"]);
    assert!(ended.out().contains("4 points measured (1 of them earlier), 4 failed"), "{}", ended.out());
}

/// Endless points of ours that still run; none may.
fn left_over() -> usize {
    let parent = std::process::id().to_string();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let ours = status
            .lines()
            .any(|line| line.strip_prefix("PPid:").is_some_and(|id| id.trim() == parent || id.trim() == "1"));
        ours && line.contains("writes=1000000000000") && line.contains("policy=greedy")
    });
    processes.count()
}

#[test]
fn wrong_files_and_parameters_give_one_line() {
    let scratch = Scratch::new();
    let file = scratch.file("x.toml", "title = \"t\"\nkind = \"volume\"\n[settings]\nspeed = 1\n");
    for command in ["run", "plan"] {
        basalt(["lab", command, &file]).fails(2, &["x.toml, line 4: settings.speed"]);
    }
    run("lab run /nonexistent/x.toml").fails(2, &["/nonexistent/x.toml"]);
    run("lab report /nonexistent").fails(1, &["/nonexistent"]);
    run("lab point dream").fails(2, &["dream"]);
    run("lab point volume size=12X").fails(2, &["size: `12X` is not a size"]);
    run("lab point volume utilization=99 size=32M").fails(1, &["utilization=99", "fit"]);
    run("lab point replay trace=/nonexistent").fails(1, &["/nonexistent"]);
    run("lab point engine workload=dream").fails(2, &["dream"]);
}

#[test]
fn a_point_is_the_same_every_time() {
    let line = "lab point engine workload=zipf:0.99 size=128M utilization=60 age=2M measure=2M ftl=page-level --json";
    let first = run(line).ok();
    assert_eq!(first, run(line).ok());
    let value: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first.lines().count(), 1);
    assert_eq!(value["parameters"]["size"], "128M");
    assert!(value["metrics"]["ftl_write_amplification"].as_f64().unwrap() >= 1.0, "{first}");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/log-and-table.fio");
    let line = run(&format!("lab point engine workload={example} size=256M utilization=60 --json")).ok();
    let point: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(point["metrics"]["written_bytes"].as_u64().unwrap() > 20 << 20, "{line}");
    let list = run("lab point engine --list").ok();
    assert!(list.contains("utilization=85") && list.contains("write_cost"), "{list}");
}

#[test]
fn a_plan_that_gnu_parallel_runs_gives_the_same_results() {
    if !skip::tools_or_skip(&["parallel"]) {
        return;
    }
    let scratch = Scratch::new();
    run_experiment(&scratch, SMALL, &[]).ok();
    let plan = basalt(["lab", "plan", &scratch.text("small.toml")]).ok();
    assert_eq!(plan.lines().count(), 4);
    assert!(plan.lines().all(|line| line.starts_with("basalt lab point volume ")), "{plan}");

    let elsewhere = scratch.directory("elsewhere");
    fs::copy(scratch.path("small.toml"), elsewhere.join("experiment.toml")).unwrap();
    let printed = in_parallel(&plan, &elsewhere);
    fs::write(elsewhere.join("results.jsonl"), printed).unwrap();
    basalt(["lab", "report", elsewhere.to_str().unwrap()]).ok();
    for name in ["results.jsonl", "results.parquet", "report.html"] {
        let (there, here) =
            (fs::read(elsewhere.join(name)).unwrap(), fs::read(scratch.path("results").join(name)).unwrap());
        assert!(there == here, "{name} differs");
    }
}

/// What the jobs of a list print when GNU parallel runs them.
fn in_parallel(jobs: &str, home: &Path) -> Vec<u8> {
    let mut path = Path::new(program()).parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut child = Command::new("parallel")
        .args(["--will-cite", "--jobs", "2"])
        .env("PATH", path)
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A few lines, which fit the pipe.
    child.stdin.take().unwrap().write_all(jobs.as_bytes()).unwrap();
    let ended = limit::finish(child, limit::SHORT).unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    ended.stdout
}
