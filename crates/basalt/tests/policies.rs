//! docs/policies.md does what it says: a copy of the sources gets its two policies, and the program built from that has them everywhere;
//! its example, a project outside the workspace, builds without a network and does what the document says.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use basalt_testkit::{limit, skip};
use support::{Scratch, program};

/// What building a quarter of the workspace may take on a machine under load.
const BUILD_LIMIT: Duration = Duration::from_secs(800);
/// A test that every run of all tests has built. Cargo builds other crates with the features that all tests ask for
/// if it is to build one of them, and so finds them all there. It must not know where its sources are: one that does
/// is built anew, and would then look at the copy when its turn comes.
const ANY_TEST: &str = "chip";
/// What depends on the crate that the document changes, and takes long to optimise.
const UNOPTIMISED: [&str; 4] = ["basalt", "basalt-f2fs", "basalt-lab", "basalt-schemes"];

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
    let names = "Cargo.toml Cargo.lock crates examples experiments README.md docs rust-toolchain.toml .cargo";
    let present = names.split(' ').map(|name| from.join(name)).filter(|path| path.exists());
    let copied = Command::new("cp").arg("-a").args(present).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Makes of the copy below `root` what can be built beside the sources themselves, in one directory.
fn set_apart(root: &Path) {
    let manifest = root.join("crates/basalt/Cargo.toml");
    let program = format!("\n[[bin]]\nname = \"{PROGRAM}\"\npath = \"src/main.rs\"\n");
    edit(&manifest, root, |text| text.replacen("[package]\n", "[package]\nautobins = false\n", 1) + &program);
    // The crate that is changed may not be taken for the one that is not: in one directory, equal versions are one package.
    edit(&root.join("crates/segments/Cargo.toml"), root, |text| {
        assert!(text.contains("version.workspace = true"));
        text.replacen("version.workspace = true", "version = \"0.1.1\"", 1)
    });
    edit(&root.join("Cargo.toml"), root, |text| {
        let profiles = UNOPTIMISED.map(|name| format!("[profile.test.package.{name}]\nopt-level = 0\n"));
        text + &profiles.concat()
    });
}

fn edit(path: &Path, root: &Path, change: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(path).unwrap();
    write(path, &change(text), root);
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

/// Builds a program of the workspace in `root` where the tests were built, as they were: what has not changed is there.
fn build(root: &Path, program: &str) -> PathBuf {
    let built_tests = Path::new(support::program()).parent().unwrap();
    let target = built_tests.parent().unwrap();
    let profile = if built_tests.ends_with("release") { "bench" } else { "test" };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline", "--workspace", "--profile", profile, "--test", ANY_TEST, "--bin", program]);
    let built = limit::output(cargo.arg("--target-dir").arg(target).current_dir(root), BUILD_LIMIT).unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    built_tests.join(program)
}

/// A directory for copied sources beside what is built: on its disk they are copied fast, and stay as old as they are.
fn place_for_sources(name: &str) -> PathBuf {
    Path::new(program()).ancestors().nth(2).unwrap().join(name)
}

/// The program with the policies of the document.
fn with_policies() -> PathBuf {
    let root = place_for_sources("policies");
    copy_sources(&root);
    set_apart(&root);
    let document = fs::read_to_string(root.join(DOCUMENT)).unwrap();
    assert_eq!(follow(&document, &root), 4, "files and differences");
    build(&root, PROGRAM)
}

/// The program of the example, which is a member of the workspace here, or all that it needs would be built once more.
fn example() -> PathBuf {
    let root = place_for_sources("own-policy");
    copy_sources(&root);
    edit(&root.join("Cargo.toml"), &root, |text| {
        text.replacen("members = [", "members = [\n    \"examples/own-policy\",", 1)
    });
    edit(&root.join("examples/own-policy/Cargo.toml"), &root, |text| text.replacen("\n[workspace]\n", "\n", 1));
    build(&root, "own-policy")
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
    let program = with_policies();

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

/// Cargo takes the project as it is, outside the workspace, with the workspace's versions of everything and without a network.
fn resolve_by_itself(project: &Path) {
    fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        let done = limit::output(cargo.args(arguments).current_dir(project), limit::LONG).unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let root = cargo(&["locate-project", "--workspace", "--message-format", "plain"]);
    assert_eq!(Path::new(root.trim()), project.join("Cargo.toml"), "a workspace of its own");
    let tree = cargo(&["tree", "--offline", "--depth", "1"]);
    assert!(tree.contains("basalt-lab"), "{tree}");
}

#[test]
fn an_own_placement_and_victim_policy_run_in_simulator_engine_and_report() {
    resolve_by_itself(&workspace().join("examples/own-policy"));
    let scratch = Scratch::new();
    let report = scratch.text("own-policy.html");
    let printed = run(&example(), &report);
    let report = fs::read_to_string(&report).unwrap();
    let mut amplifications = Vec::new();
    for placement in ["static", "sepbit", "dac", "intervals"] {
        for victim in ["cost-benefit", "patient"] {
            let words = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let row = words.into_iter().find(|words| words[..2] == [placement, victim]).expect(placement);
            let numbers = [row[3], row[5]].map(|number| number.parse::<f64>().unwrap());
            assert!(numbers.iter().all(|&number| (0.5..20.0).contains(&number)), "{row:?}");
            amplifications.push(numbers);
            assert!(report.contains(placement) && report.contains(victim), "{placement}, {victim}");
        }
    }
    // Rows: two of each placement. The own idea is worth something in both.
    let [simulator, engine] = [0, 1].map(|column| amplifications.iter().map(|row| row[column]).collect::<Vec<_>>());
    for column in [&simulator, &engine] {
        assert!(column[6] < column[0], "static {}, intervals {}", column[0], column[6]);
    }
    // Groups leave so small a volume of the engine few sections to choose from: there the difference is F2FS's placement's.
    assert_ne!(simulator[6], simulator[7], "the victim policy makes a difference");
    assert_ne!(engine[0], engine[1], "the victim policy makes a difference");
}
