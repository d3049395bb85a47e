//! `lab reproduce`: rows, seeds, and what no row covers, through the program.

mod support;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

use basalt_lab::reproduce::uncovered;
use basalt_testkit::limit;
use serde_json::Value;
use support::{Scratch, run};

/// Rows of a figure that takes a second or two at this size.
const SMALL: &str = "lab reproduce --small --json sfs 11";

fn lines(json: &str) -> Vec<Value> {
    json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Standard output; steps are told on standard error.
fn rows(line: &str) -> (Vec<Value>, String) {
    let finished = run(line);
    assert_eq!(finished.code(), 0, "{}", finished.err());
    (lines(&finished.out()), finished.err())
}

#[test]
fn seeds_are_run_one_after_the_other_and_merged() {
    let alone: Vec<_> = [7, 8].into_iter().map(|seed| rows(&format!("{SMALL} --seed {seed}")).0).collect();
    let (both, told) = rows(&format!("{SMALL} --seed 7 --seeds 2"));
    assert!(told.starts_with("SFS figure 11: "), "{told}");
    assert!(!both.is_empty() && both.len() == alone[0].len() && both.len() == alone[1].len());
    let mut spread = 0;
    for (row, ones) in both.iter().zip(alone[0].iter().zip(&alone[1])) {
        let values = [ones.0, ones.1].map(|one| {
            assert_eq!(one["item"], row["item"]);
            assert_eq!((&one["ours_min"], &one["ours_max"]), (&one["ours"], &one["ours"]), "{one}");
            one["ours"].as_f64().unwrap()
        });
        assert_eq!(row["seeds"], serde_json::json!([7, 8]));
        let number = |name: &str| row[name].as_f64().unwrap();
        let near = |name: &str, expected: f64| assert!((number(name) - expected).abs() < 1e-12, "{name}: {row}");
        near("ours", f64::midpoint(values[0], values[1]));
        near("ours_min", values[0].min(values[1]));
        near("ours_max", values[0].max(values[1]));
        assert_eq!(row["seed_verdicts"], serde_json::json!([ones.0["verdict"], ones.1["verdict"]]));
        spread += usize::from(values[0] != values[1]);
    }
    assert!(spread > 0, "both seeds gave the same");
}

/// The verdict follows from what the row says of the paper and of ours.
#[test]
fn a_row_has_what_its_verdict_was_decided_from() {
    let (rows, _) = rows(SMALL);
    for row in &rows {
        let number = |name: &str| row[name].as_f64();
        let (low, high) = (number("paper_low"), number("paper_high"));
        assert_eq!(number("paper_value"), low.or(high), "{row}");
        let slack = match row["tolerance_of"].as_str() {
            Some("value") => number("tolerance").unwrap() * number("paper_value").unwrap().abs(),
            Some("gain") => number("tolerance").unwrap() * (number("paper_value").unwrap() - 1.0).abs(),
            _ => 0.0,
        };
        let ours = number("ours").unwrap();
        let holds = match row["relation"].as_str().unwrap() {
            "near" => (low.unwrap() - slack..=high.unwrap() + slack).contains(&ours),
            "above" => ours > low.unwrap(),
            "below" => ours < high.unwrap(),
            other => panic!("{other}: {row}"),
        };
        assert_eq!(row["verdict"], if holds { "holds" } else { "differs" }, "{row}");
        assert!(["stated", "derived", "ours"].contains(&row["source"].as_str().unwrap()), "{row}");
        assert!(!row["source_note"].as_str().unwrap().is_empty() && !row["why"].as_str().unwrap().is_empty(), "{row}");
        assert_eq!((&row["on_paper_terms"], &row["baseline"]), (&false.into(), &Value::Null), "{row}");
    }
    let victims = rows.iter().find(|row| row["item"] == "Zipf: live share of the victims of SFS, in percent").unwrap();
    assert_eq!((&victims["paper_low"], &victims["source"]), (&10.0.into(), &"stated".into()));
    assert_eq!((&victims["tolerance"], &victims["tolerance_of"]), (&0.35.into(), &"value".into()));
}

/// Ratios to the baseline carry the paper's and our number of it.
#[test]
fn a_ratio_tells_its_baseline() {
    let scratch = Scratch::new();
    let line = format!("lab reproduce --small --json scj 7 --output {}", scratch.text("kept"));
    let (rows, _) = rows(&line);
    assert_kept(&line, &scratch, &rows);
    let row = rows.iter().find(|row| row["baseline"] != Value::Null).expect("a ratio to the baseline");
    let (baseline, ours) = (&row["baseline"], row["baseline"]["ours"].as_f64().unwrap());
    assert_eq!((&baseline["paper"], &baseline["tolerance"]), (&0.52.into(), &0.35.into()));
    assert_eq!(baseline["is_alike"], (ours - 0.52).abs() <= 0.35 * 0.52, "{row}");
    assert!(0.0 < ours && ours < 1.0, "{row}");
    assert_eq!((&row["source"], &row["tolerance_of"]), (&"derived".into(), &"gain".into()));
    assert!(rows.iter().any(|row| row["source"] == "ours"), "{rows:?}");
    // Never better than the paper on a smaller volume.
    assert!(rows.iter().all(|row| row["verdict"] != "bettered"), "{rows:?}");
}

/// What is kept is not measured again, and belongs to its seeds.
fn assert_kept(line: &str, scratch: &Scratch, rows: &[Value]) {
    let directory = scratch.path("kept").join("scj-figure-7");
    assert!(std::fs::read_to_string(directory.join("report.html")).unwrap().contains("the paper and ours"));
    let results = directory.join("results.jsonl");
    let text = std::fs::read_to_string(&results).unwrap();
    let point: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let mean = point["metrics"]["cleaning_mean_ns"].to_string();
    // As if the baseline cleaned in a microsecond.
    let changed = text.replacen(&format!("\"cleaning_mean_ns\":{mean}"), "\"cleaning_mean_ns\":1000", 1);
    assert_ne!(changed, text);
    std::fs::write(&results, &changed).unwrap();
    let again = self::rows(line).0;
    assert_eq!(again.len(), rows.len());
    assert!(again[0]["ours"].as_f64().unwrap() > 10.0 * rows[0]["ours"].as_f64().unwrap(), "{}", again[0]);
    let other = run(&format!("{line} --seed 2"));
    assert_eq!(other.code(), 1);
    assert!(other.err().contains("holds the results of another experiment"), "{}", other.err());
    assert_eq!(std::fs::read_to_string(&results).unwrap(), changed);
}

/// Whoever runs a campaign by a script sees that it is not complete. Every point is a process, and each of them is killed.
#[test]
fn a_point_that_fails_is_told_by_the_exit_code() {
    let mut command = Command::new(support::program());
    command.args("lab reproduce --small --quiet --json -j 1 scj 7".split(' ')).stdin(Stdio::null());
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let threads = format!("/proc/{}/task", running.id());
    let deadline = Instant::now() + limit::LONG;
    let status = loop {
        if let Some(status) = running.try_wait().unwrap() {
            break status;
        }
        for thread in std::fs::read_dir(&threads).into_iter().flatten().flatten() {
            for child in std::fs::read_to_string(thread.path().join("children")).unwrap_or_default().split_whitespace()
            {
                // It may have ended meanwhile; that of another point comes.
                let _ = Command::new("kill").args(["-KILL", child]).stderr(Stdio::null()).status();
            }
        }
        assert!(Instant::now() < deadline, "it does not end");
    };
    let mut told = String::new();
    running.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.starts_with("SCJ figure 7: failed: ") && told.contains("signal"), "{told}");
}

/// A thousand seeds at full size take days.
#[test]
fn a_figure_stops_when_it_is_told_to() {
    let mut command = Command::new(support::program());
    command.args("lab reproduce --full --quiet --seeds 1000 sfs 9".split(' ')).stdin(Stdio::null());
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", running.id());
    support::wait_until("it takes signals", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        // SIGTERM.
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << 14 != 0
    });
    assert!(Command::new("kill").arg(running.id().to_string()).status().unwrap().success());
    let deadline = Instant::now() + limit::SHORT;
    while running.try_wait().unwrap().is_none() {
        if Instant::now() >= deadline {
            running.kill().unwrap();
            panic!("it goes on");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut told = String::new();
    running.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(1));
    assert!(told.starts_with("basalt: lab: SFS figure 9: stopped with ") && told.ends_with(" points left\n"), "{told}");
}

#[test]
fn tables_show_source_spread_and_disagreement() {
    let text = run("lab reproduce --small sfs 11 --seeds 2").out();
    assert!(text.starts_with("SFS figure 11: ") && text.contains("(stated)") && text.contains(" to "), "{text}");
    assert!(!text.contains("What no row covers"), "{text}");
    let markdown = run("lab reproduce --small --markdown sfs 11").out();
    assert!(
        markdown.contains("| what | paper | source | ours | spread | verdict | conditions and reasons |"),
        "{markdown}"
    );
}

/// Its name has a dash. Every row is of it, and says what both sides amplify.
#[test]
fn the_page_cache_papers_figures_are_found_by_its_name() {
    let list = run("lab reproduce --list page-cache").ok();
    let begins: Vec<_> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(begins, ["page-cache 2", "page-cache 3"]);
    run("lab reproduce page-cache 1").fails(2, &["page-cache 1: no such paper or figure"]);
    let (rows, told) = rows("lab reproduce --small --json page-cache 2");
    assert!(told.starts_with("PAGE-CACHE figure 2: "), "{told}");
    assert!(rows.len() > 20, "{rows:?}");
    for row in &rows {
        assert_eq!((&row["paper"], &row["figure"]), (&"page-cache".into(), &"2".into()), "{row}");
        assert!(row["ours"].is_number() && row["why"].as_str().unwrap().contains("write amplification"), "{row}");
    }
    let stated: Vec<_> = rows.iter().filter(|row| row["relation"] == "near" && row["source"] == "stated").collect();
    let papers: Vec<_> = stated.iter().map(|row| row["paper_value"].as_f64().unwrap()).collect();
    assert_eq!(papers, [6.1, 4.6]);
}

/// One of its figures has a name instead of a number.
#[test]
fn the_partial_gc_figures_are_found() {
    let list = run("lab reproduce --list partial-gc").ok();
    let begins: Vec<_> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(begins, ["partial-gc 3", "partial-gc 5", "partial-gc improvement"]);
    let (rows, told) = rows("lab reproduce --small --json partial-gc 5");
    assert!(told.starts_with("PARTIAL-GC figure 5: "), "{told}");
    assert!(
        rows.iter().all(|row| row["ours"].is_number() && row["why"].as_str().unwrap().contains("MB/s")),
        "{rows:?}"
    );
    let verdict = |item: &str| {
        rows.iter().find(|row| row["item"].as_str().unwrap().starts_with(item)).unwrap()["verdict"].clone()
    };
    // The slow card's table falls from 4 to 16 KiB.
    assert_eq!((verdict("sd-l, random"), verdict("sd-a, random")), ("holds".into(), "differs".into()));
}

#[test]
fn the_documents_list_what_no_row_covers() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.md")).unwrap();
    let lines = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.json")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for one in uncovered(None) {
        let row = format!("| {} | {} | {} | {} |", one.paper.to_uppercase(), one.place, one.uncovered, one.why);
        assert!(document.contains(&row), "docs/reproduction.md lacks\n{row}");
        assert!(lines.contains(&serde_json::to_value(one).unwrap()), "docs/reproduction.json lacks {one:?}");
    }
    let rows = lines.iter().filter(|line| line["uncovered"] == Value::Null);
    assert!(rows.clone().count() > 100);
    for row in rows {
        assert!(row["paper_text"].is_string() && row["source"].is_string() && row["seeds"].is_array(), "{row}");
    }
}

#[test]
fn what_cannot_be_run_is_refused() {
    run("lab reproduce sfs 1").fails(2, &["sfs 1: no such paper or figure"]);
    for (arguments, part) in [
        ("--seeds 0", "0"),
        ("--seeds 1001", "1001"),
        ("--small --full", "--full"),
        ("--seed 18446744073709551615", "too large"),
    ] {
        let finished = run(&format!("lab reproduce sfs 9 {arguments}"));
        assert_eq!(finished.code(), 2, "{arguments}: {}", finished.err());
        assert!(finished.err().contains(part), "{}", finished.err());
    }
    let list = run("lab reproduce --list").ok();
    assert!(list.lines().all(|line| line.split('\t').count() == 3));
    let lines = run("lab reproduce --list --json").ok();
    assert_eq!(lines.lines().count(), list.lines().count());
    for (line, shown) in lines.lines().zip(list.lines()) {
        let figure: Value = serde_json::from_str(line).unwrap();
        assert!(shown.starts_with(&format!(
            "{} {}\t",
            figure["paper"].as_str().unwrap(),
            figure["figure"].as_str().unwrap()
        )));
    }
    assert!(run("lab reproduce scj 8 --jobs 0").err().contains("expected a whole number from 1"));
}
