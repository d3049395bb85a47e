//! docs/policies.md does what it says: a copy of the sources gets its two policies, and the program built from that has them everywhere.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use basalt_testkit::{limit, skip};
use support::{Scratch, program};

/// What building half the workspace may take on a machine under load.
const BUILD_LIMIT: Duration = Duration::from_secs(800);

const DOCUMENT: &str = "docs/policies.md";
const PROGRAM: &str = "basalt-with-policies";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The sources that are built, below another directory, as old as they are: what has not changed since is not built again.
fn copy_sources(to: &Path) {
    let from = workspace();
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    fs::create_dir_all(to).unwrap();
    let names =
        ["Cargo.toml", "Cargo.lock", "crates", "experiments", "README.md", "docs", "rust-toolchain.toml", ".cargo"];
    let present: Vec<PathBuf> = names.map(|name| from.join(name)).into_iter().filter(|path| path.exists()).collect();
    let copied = Command::new("cp").arg("-a").args(present).arg(to).status().unwrap();
    assert!(copied.success());
    // Its program has a name of its own in the directory that both are built in.
    let manifest = to.join("crates/basalt/Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap().replacen("[package]\n", "[package]\nautobins = false\n", 1);
    let program = format!("\n[[bin]]\nname = \"{PROGRAM}\"\npath = \"src/main.rs\"\n");
    write(&manifest, &(text + &program), to);
    // Nor may the crate that is changed be taken for the one that is not: in one directory, equal versions are one package.
    let manifest = to.join("crates/segments/Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("version.workspace = true"));
    write(&manifest, &text.replacen("version.workspace = true", "version = \"0.1.1\"", 1), to);
}

/// Writes a file that counts as no newer than what it was made from.
fn write(path: &Path, text: &str, root: &Path) {
    let age = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let newest = age(path).max(age(&root.join(DOCUMENT)));
    fs::write(path, text).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(newest.unwrap()).unwrap();
}

/// Does what the document says: makes the files that its Rust blocks name, and changes lines as its differences say.
fn follow(document: &str, root: &Path) -> usize {
    let mut steps = 0;
    for block in document.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        match language {
            "rust" => {
                let path = text.split_whitespace().nth(1).unwrap().trim_end_matches(':');
                assert!(!root.join(path).exists(), "{path} is there already");
                write(&root.join(path), text, root);
            }
            "diff" => change(text, root),
            _ => continue,
        }
        steps += 1;
    }
    steps
}

/// A line taken out is replaced by the one added next to it; one that is only added goes in front of the first `mod`.
fn change(difference: &str, root: &Path) {
    let mut lines = difference.lines();
    let path = root.join(lines.next().unwrap().trim_start_matches("--- "));
    let mut text = fs::read_to_string(&path).unwrap();
    let mut removed: Option<&str> = None;
    for line in lines {
        match (line.split_at(1), removed) {
            (("-", old), _) => removed = Some(old),
            (("+", new), Some(old)) => {
                assert_eq!(text.matches(old).count(), 1, "{}: `{old}`", path.display());
                text = text.replace(old, new);
            }
            (("+", new), None) => text = text.replacen("\nmod ", &format!("\n{new}\nmod "), 1),
            _ => panic!("`{line}`"),
        }
    }
    write(&path, &text, root);
}

/// The program with the policies of the document.
fn built() -> PathBuf {
    let target = Path::new(program()).parent().unwrap().parent().unwrap();
    let root = target.join("policies");
    copy_sources(&root);
    let document = fs::read_to_string(root.join(DOCUMENT)).unwrap();
    assert_eq!(follow(&document, &root), 4, "files and differences");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline", "--package", "basalt", "--bin", PROGRAM, "--target-dir"]).arg(target);
    if program().contains("/release/") {
        cargo.arg("--release");
    }
    let built = limit::output(cargo.current_dir(&root), BUILD_LIMIT).unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Path::new(program()).with_file_name(PROGRAM)
}

fn run(program: &Path, line: &str) -> String {
    let done = limit::output(Command::new(program).args(line.split_whitespace()), limit::LONG).unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn json(program: &Path, line: &str) -> serde_json::Value {
    serde_json::from_str(&run(program, line)).unwrap()
}

#[test]
fn policies_that_are_added_as_the_document_says_can_be_chosen_everywhere() {
    let scratch = Scratch::new();
    let program = built();

    let simulate = |more: &str| {
        let line = format!("lab volume --size 256M --utilization 80 --writes 100000 --age 100000 --json {more}");
        json(&program, &line)["statistics"]["copies"].as_u64().unwrap()
    };
    let usual = simulate("");
    assert_eq!(simulate("--policy greedy --placement static"), usual);
    assert!(simulate("--policy oldest") > usual, "greedy copies the least");
    assert_ne!(simulate("--placement striped"), usual);

    let experiment = |more: &str| {
        let line = format!("lab point engine size=128M workload=zipf:0.99 age=128M measure=64M --json {more}");
        json(&program, &line)["metrics"]["blocks_copied"].as_f64().unwrap()
    };
    let usual = experiment("");
    assert_eq!(experiment("placement=static victim=greedy background-victim=cost-benefit"), usual);
    assert_ne!(experiment("victim=oldest"), usual);
    assert_ne!(experiment("placement=striped"), usual);

    for name in ["oldest", "striped"] {
        assert!(run(&program, "mount --help").contains(name), "{name}");
        assert!(run(&program, "lab volume --help").contains(name), "{name}");
    }
    mount_with(&program, &scratch);
}

/// A volume that is used under these policies is sound, and what is in it is whole under the usual ones.
fn mount_with(program: &Path, scratch: &Scratch) {
    if !skip::fuse_or_skip() || !skip::root_or_skip() {
        return;
    }
    let (image, place) = (scratch.text("image"), scratch.directory("mnt"));
    run(program, &format!("mkfs -q --size 64M {image}"));
    let content = vec![7; 5 << 20];
    let options = ["noloop,placement=striped,victim=oldest,background_victim=oldest", "noloop"];
    for (at, options) in options.into_iter().enumerate() {
        run(program, &format!("mount -o {options} {image} {}", place.display()));
        let file = place.join("file");
        if at == 0 {
            fs::write(&file, &content).unwrap();
        }
        assert!(fs::read(&file).unwrap() == content, "{options}");
        support::umount(&place).ok();
        run(program, &format!("fsck {image}"));
    }
}
