//! The documents tell the truth about the tree: files and names of ARCHITECTURE.md's map exist, links lead somewhere.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    // The crate lies two folders below the root.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pieces of a line between backticks.
fn quoted(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_map_names_what_exists() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let map = text.split("## Where is it?").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the map");
    let mut names = 0;
    for line in map.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let mut folder = root();
        let mut file: Option<PathBuf> = None;
        // Only the second column: the first is a subject in words.
        let column = line.trim_matches('|').split_once('|').expect("two columns").1;
        for word in quoted(column) {
            if word.ends_with(".rs") || word.ends_with('/') {
                let path = if word.contains("crates/") { root().join(word) } else { folder.join(word) };
                assert!(path.exists(), "{word} of `{line}` does not exist");
                if word.contains("crates/") {
                    folder = path.parent().expect("a folder").into();
                }
                file = word.ends_with(".rs").then_some(path);
                continue;
            }
            let name = word.rsplit([' ', ':']).next().unwrap_or(word);
            let file = file.as_ref().unwrap_or_else(|| panic!("{word} of `{line}` follows no file"));
            assert!(read(file).contains(name), "{name} is not in {}", file.display());
            names += 1;
        }
    }
    assert!(names >= 15, "the map has shrunk to {names} names");
}

/// All sources below a folder, one text.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &read(&path);
        }
    }
    text
}

#[test]
fn the_invariants_name_what_exists() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let tables =
        text.split("## Invariants").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the invariants");
    let folders = ["crates/f2fs/src", "crates/segments/src"].map(|folder| root().join(folder));
    let all = folders.iter().map(|folder| sources(folder)).collect::<String>();
    let mut names = 0;
    for line in tables.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let column = line.trim_matches('|').split('|').nth(1).expect("three columns");
        // A file may stand in the folder of the one before it.
        let mut before = root();
        for word in quoted(column) {
            if word.ends_with(".rs") {
                let places = [&folders[0], &folders[1], &root(), &before].map(|folder| folder.join(word));
                let file = places.into_iter().find(|path| path.exists());
                let file = file.unwrap_or_else(|| panic!("{word} of `{line}` does not exist"));
                before = file.parent().expect("a folder").into();
            } else {
                let name = word.rsplit([' ', ':']).next().unwrap_or(word);
                assert!(all.contains(name), "{name} of `{line}` is in no source");
                names += 1;
            }
        }
    }
    assert!(names >= 60, "the invariants have shrunk to {names} names");
}

/// Every document that git has.
fn documents() -> Vec<PathBuf> {
    let listed = std::process::Command::new("git").args(["ls-files", "-z", "*.md"]).current_dir(root()).output();
    let listed = String::from_utf8(listed.expect("git").stdout).expect("names in UTF-8");
    listed.split_terminator('\0').map(|name| root().join(name)).collect()
}

/// The anchors of a document's headings, as forges make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let slug = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() >= 20, "git knows only {} documents", documents.len());
    for path in documents {
        let text = read(&path);
        // Code is no link.
        let text: String = text.split("```").step_by(2).collect();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            assert!(linked.exists(), "{} links to {target}, which does not exist", path.display());
            let is_there = anchor.is_empty() || anchors(&read(&linked)).iter().any(|one| one == anchor);
            assert!(is_there, "{} links to {target}, but there is no such heading", path.display());
        }
    }
}
