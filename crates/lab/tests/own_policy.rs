//! The example of docs/policies.md, a project outside the workspace, builds with the workspace's versions of everything, without a network,
//! and does what the document says.

use std::path::Path;
use std::process::Command;

/// A build directory of this test's own would build every dependency once more.
fn target() -> std::path::PathBuf {
    // The program of a test lies in PROFILE/deps of the target directory.
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().to_owned()
}

#[test]
fn an_own_placement_and_victim_policy_run_in_simulator_engine_and_report() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let project = root.join("examples/own-policy");
    // The same versions of other crates as everywhere; cargo leaves out what the project does not need.
    std::fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let report = scratch.path().join("own-policy.html");
    let run = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(target())
        .arg("--")
        .arg(&report)
        .current_dir(&project)
        .output()
        .unwrap();
    let printed = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{printed}{}", String::from_utf8_lossy(&run.stderr));

    let report = std::fs::read_to_string(&report).unwrap();
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
