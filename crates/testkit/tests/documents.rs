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

#[test]
fn links_lead_somewhere() {
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/performance.md"] {
        let path = root().join(document);
        for target in read(&path).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") || target.starts_with('#') {
                continue;
            }
            let linked = path.parent().expect("a folder").join(target.split('#').next().unwrap_or(target));
            assert!(linked.exists(), "{document} links to {target}, which does not exist");
        }
    }
}
