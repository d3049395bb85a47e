//! The machine, the day and the command, without which numbers say nothing.

use std::fs;

use basalt_testkit::command::run;

use crate::options::Options;

/// Facts by name, in the order of the report. What cannot be found out is left out.
pub fn facts(options: &Options) -> Vec<(String, String)> {
    let cores = std::thread::available_parallelism().map(|cores| cores.to_string()).ok();
    let arguments: Vec<String> = shown_arguments();
    let facts = [
        ("date", first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("command", Some(format!("`scripts/bench{}`", arguments.concat()))),
        ("runs", Some(options.runs().to_string())),
        ("Basalt", first_line("git", &["describe", "--always", "--dirty"])),
        ("kernel", first_line("uname", &["-srm"])),
        (
            "processor",
            field("/proc/cpuinfo", "model name").zip(cores).map(|(name, cores)| format!("{name}, {cores} cores")),
        ),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("disk", disk(options)),
        ("load average at the start", fs::read_to_string("/proc/loadavg").ok().map(|text| words(&text, 3))),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// What the user gave to the script.
fn shown_arguments() -> Vec<String> {
    let arguments = std::env::args().skip(1);
    let ours = |word: &String| word.starts_with("--directory=") || word.starts_with("--basalt=");
    arguments.filter(|word| !ours(word)).map(|word| format!(" {word}")).collect()
}

fn disk(options: &Options) -> Option<String> {
    let directory = options.directory.display().to_string();
    let line = first_line("findmnt", &["-n", "-o", "SOURCE,FSTYPE", "--target", &directory])?;
    let device = line.split_whitespace().next()?.to_owned();
    let rest = first_line("lsblk", &["--nodeps", "-n", "-o", "SIZE,MODEL,SCHED", &device]).unwrap_or_default();
    Some(words(&format!("{line} {rest}"), usize::MAX))
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = run(program, arguments).ok()?.success().ok()?.output;
    output.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The value of the first `name : value` line.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn words(text: &str, limit: usize) -> String {
    text.split_whitespace().take(limit).collect::<Vec<_>>().join(" ")
}
