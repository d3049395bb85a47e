//! What a reader of the sources may count on: short files, short lines, words that everybody knows.

use std::path::Path;
use std::process::Command;

/// Lines of a source file, without its unit tests.
const SOURCE_MAX: usize = 500;
/// Lines of a file of tests: a table of cases reads well in one piece.
const TESTS_MAX: usize = 600;
/// Characters of a comment's line. Code is cut by rustfmt; tables and strings are as long as they are.
const COMMENT_MAX: usize = 160;
/// How tests in a source file begin: they do not count.
const TESTS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];
/// Longer files that are one table.
const TABLES: [&str; 2] = ["crates/fuse/src/protocol/wire.rs", "crates/f2fs/tests/check_faults.rs"];
/// Words that only insiders know, and what is not to be left behind. Written so that this file has none of them.
const WORDS: [[&str; 2]; 8] = [
    ["bat", "on"],
    ["watch", "man"],
    ["cre", "w"],
    ["todo", "!("],
    ["unimplemented", "!("],
    ["dbg", "!("],
    ["FIX", "ME"],
    ["XX", "X"],
];

/// Crates that start no thread, read no clock and print nothing: their `lib.rs` turns clippy.toml on.
const INJECTED: [&str; 12] = [
    "random",
    "nand",
    "flashlight",
    "flashlight-vfs",
    "device",
    "segments",
    "vfs",
    "f2fs",
    "flash",
    "workloads",
    "simulator",
    "schemes",
];

/// The Rust files of the repository, with their text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = Command::new("git").args(["ls-files", "-z", "*.rs"]).current_dir(&root).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let files = listed.split('\0').filter(|name| !name.is_empty() && root.join(name).exists());
    let files: Vec<_> =
        files.map(|name| (name.to_owned(), std::fs::read_to_string(root.join(name)).unwrap())).collect();
    assert!(files.len() > 500, "{} files", files.len());
    files
}

fn expect_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn a_file_has_one_subject() {
    let mut long = Vec::new();
    for (name, text) in sources() {
        let lines = text.lines().take_while(|line| !TESTS.iter().any(|start| line.starts_with(start))).count();
        let most = if name.contains("/src/") { SOURCE_MAX } else { TESTS_MAX };
        if lines > most && !TABLES.contains(&&*name) {
            long.push(format!("{name}: {lines} lines, at most {most}"));
        }
    }
    expect_none("files to be divided", &long);
}

#[test]
fn comments_fit_a_screen() {
    let mut long = Vec::new();
    for (name, text) in sources() {
        for (number, line) in (1..).zip(text.lines()) {
            let is_comment = line.trim_start().starts_with("//") && !line.contains("| ");
            if is_comment && line.chars().count() > COMMENT_MAX {
                long.push(format!("{name}:{number}: {} characters, at most {COMMENT_MAX}", line.chars().count()));
            }
        }
    }
    expect_none("comments to be wrapped", &long);
}

#[test]
fn words_are_known_to_everybody() {
    let is_part_of_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let mut found = Vec::new();
    for (name, text) in sources() {
        for word in WORDS.map(|halves| halves.concat()) {
            for (at, _) in text.match_indices(&word) {
                let is_whole = !is_part_of_word(text[..at].chars().next_back());
                let is_whole = is_whole && !is_part_of_word(text[at + word.len()..].chars().next());
                if is_whole || !word.ends_with(char::is_alphabetic) {
                    found.push(format!("{name}:{}: {word}", text[..at].lines().count()));
                }
            }
        }
    }
    expect_none("words to be replaced", &found);
}

#[test]
fn time_and_threads_are_injected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let has = |name: &&str| {
        let text = std::fs::read_to_string(root.join(format!("crates/{name}/src/lib.rs"))).unwrap();
        // rustfmt may put each word on a line of its own.
        let text: String = text.split_whitespace().collect();
        let lints =
            text.split("#![cfg_attr(not(test),warn(").nth(1).and_then(|rest| rest.split(")]").next()).unwrap_or("");
        ["disallowed_methods", "print_stderr", "print_stdout"]
            .iter()
            .all(|lint| lints.contains(&format!("clippy::{lint}")))
    };
    let without: Vec<String> = INJECTED.iter().filter(|name| !has(name)).map(|name| format!("crates/{name}")).collect();
    expect_none("crates whose lib.rs does not turn the lints of clippy.toml on", &without);
}
