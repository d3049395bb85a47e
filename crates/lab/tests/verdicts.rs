//! Verdict files: rows from results, by numbers computed by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use basalt_lab::experiment::{Experiment, Point, Record, ResultsDirectory, Runner, run, verdicts_of};
use basalt_lab::verdicts::{Row, Verdict, VerdictFile};

const EXPERIMENT: &str = r#"
title = "Two policies"
kind = "volume"
[settings]
utilization = [60, 80]
seed = [1, 2, 3]
[[case]]
name = "base"
policy = "greedy"
[[case]]
name = "other"
policy = "cost-benefit"
section = ["2M", "4M", "8M"]
"#;

/// Copies are utilization × seed, of cost-benefit half of that and another share for each size of a section.
struct Made;

impl Runner for Made {
    fn run(&self, point: &Point) -> Option<Record> {
        let number = |name: &str| point.number(name).unwrap() as f64;
        let section = number("section") / f64::from(2 << 20);
        if (section, number("utilization")) == (4.0, 80.0) {
            return Some(Record {
                point: point.clone(),
                inputs: BTreeMap::new(),
                outcome: Err("too large".to_owned()),
            });
        }
        let share = if point.value("policy") == "greedy" { 1.0 } else { 0.5 / section };
        let mut metrics = BTreeMap::from([("copies".to_owned(), number("utilization") * number("seed") * share)]);
        if number("utilization") == 60.0 {
            metrics.insert("write_cost".to_owned(), 2.0);
        }
        Some(Record { point: point.clone(), inputs: BTreeMap::new(), outcome: Ok(metrics) })
    }
}

/// The rows of a verdict file, and the report.
fn measured(verdicts: &str) -> Result<(Vec<Row>, String), String> {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("results");
    let directory = ResultsDirectory::create_from(&path, EXPERIMENT, Some(verdicts), Path::new("x.toml"));
    let mut directory = directory.map_err(|error| error.to_string())?;
    run(&mut directory, 2, &Made, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    directory.finish().unwrap();
    let rows = directory.rows();
    drop(directory);
    // The directory has all that it needs to be read again.
    assert_eq!(ResultsDirectory::open(&path).unwrap().rows(), rows);
    Ok((rows, fs::read_to_string(path.join("report.html")).unwrap()))
}

fn file(body: &str) -> String {
    format!("paper = \"scj\"\nfigure = \"8\"\ntitle = \"t\"\n{body}")
}

#[test]
fn rows_have_the_numbers_of_the_points_that_they_name() {
    let text = file(
        r#"
[constants]
left = { "60" = 0.5, "80" = 0.45 }
[define]
ratio = "copies / at(case='base').copies"
twice = "2 * ratio"
[baseline.copies]
what = "copies"
paper = 120
ours = "at(case='base').copies"
tolerance = 0.1
[[row]]
with = { utilization = [60, "80"], section = ["2M"], case = ["other"] }
item = "{{ utilization }} %: {{ case }}"
ours = "ratio"
near = "left[utilization ~ '']"
tolerance = { gain = 0.05 }
stated = "section 1"
better = "less"
on_paper_terms = "utilization == 60"
baseline = "copies"
why = "{{ copies }} of {{ at(case='base').copies|fixed(1) }}"
[[row]]
with = { utilization = ["60"] }
figure = "9"
item = "least"
ours = "all(case='other')|map(attribute='twice')|min"
at_most = 0.25
tolerance = { value = 0.0 }
derived = "so"
why = "{{ list(all(case='other'), 'section', 'ratio', 2) }}"
[[row]]
with = { which = ["copies", "write_cost"] }
item = "{{ which }}"
ours = "at(case='base', utilization=60)[which]"
band = [2, "at(case='base', utilization=60).copies"]
chosen = "we want it"
"#,
    );
    let (rows, report) = measured(&text).unwrap();
    let names: Vec<_> = rows.iter().map(|row| (row.figure.as_str(), row.item.as_str())).collect();
    assert_eq!(
        names,
        [("8", "60 %: other"), ("8", "80 %: other"), ("9", "least"), ("8", "copies"), ("8", "write_cost")]
    );
    // Half of the base's copies with each seed.
    let first = &rows[0];
    assert_eq!((first.ours, first.ours_min, first.ours_max), (Some(0.5), Some(0.5), Some(0.5)));
    assert_eq!((first.paper_value, first.tolerance, first.tolerance_of), (0.5, Some(0.05), Some("gain")));
    assert_eq!((first.source, &*first.source_note, &*first.paper), ("stated", "section 1", "scj"));
    assert_eq!((first.seeds.as_slice(), first.verdict, first.on_paper_terms), (&[1, 2, 3][..], Verdict::Holds, true));
    assert_eq!(first.why, "30 of 60.0");
    // The base has 60, 120 and 180 copies.
    let baseline = first.baseline.as_ref().unwrap();
    assert_eq!((baseline.ours, baseline.is_alike), (120.0, true));
    let second = &rows[1];
    assert_eq!((second.ours, second.paper_value, second.on_paper_terms), (Some(0.5), 0.45, false));
    // 160 are not 120, within a tenth.
    assert_eq!(second.verdict, Verdict::BaselineDiffers);
    // Twice a half of a quarter.
    assert_eq!((rows[2].ours, rows[2].verdict, rows[2].source), (Some(0.25), Verdict::Holds, "derived"));
    assert_eq!(rows[2].why, "2 MiB: 0.50, 4 MiB: 0.25, 8 MiB: 0.12");
    assert_eq!((rows[3].ours, rows[3].ours_min, rows[3].ours_max), (Some(120.0), Some(60.0), Some(180.0)));
    assert_eq!((rows[3].paper_low, rows[3].paper_high, rows[3].source), (Some(2.0), Some(60.0), "ours"));
    assert_eq!(rows[4].ours, Some(2.0));
    assert!(report.contains("SCJ figure 8: the paper and ours") && report.contains("3 of 5 rows hold"), "{report}");
}

#[test]
fn what_cannot_be_computed_was_not_measured_and_says_why() {
    let row = |ours: &str, with: &str| {
        format!(
            "[[row]]\nwith = {{ {with} }}\nitem = \"x\"\nours = \"{ours}\"\nabove = 0\nchosen = \"c\"\nwhy = \"w\"\n"
        )
    };
    let eighty = "case = ['base'], utilization = ['80']";
    for (ours, with, why) in [
        ("write_cost", eighty, "write_cost was not measured"),
        ("copies / 0", eighty, "unable to calculate 80 / 0"),
        ("at(case='other', section='8M').copies", eighty, "too large"),
        ("at(case='none').copies", eighty, "no point has"),
        ("at(case='other').copies", eighty, "several points have case=other"),
        ("copies", "case = ['base']", "several points have case=base seed="),
        ("at(section='x').copies", eighty, "section: "),
        ("at(colour=1).copies", eighty, "there is no parameter `colour`"),
        ("here.colour", eighty, "`colour` is no metric"),
        ("case", eighty, "is no number"),
        ("copies if 1 > 2", eighty, "no value"),
        ("all(case='none')|map(attribute='copies')|max", eighty, "no value"),
        ("around", eighty, "around is defined by itself"),
    ] {
        let text = file(&format!("[define]\naround = \"around + 1\"\n{}", row(ours, with)));
        let (rows, _) = measured(&text).unwrap_or_else(|error| panic!("{ours}: {error}"));
        assert_eq!((rows[0].ours, rows[0].verdict, rows[0].item.as_str()), (None, Verdict::Differs, "x"), "{ours}");
        assert!(rows[0].why.contains(why), "{ours}: {}", rows[0].why);
    }
    // A point that failed is no part of a list.
    let text = file(&row("all(case='other')|length", "utilization = ['80']"));
    assert_eq!(measured(&text).unwrap().0[0].ours, Some(2.0));
}

#[test]
fn wrong_files_name_the_line_and_the_field() {
    let row = "[[row]]\nitem = \"x\"\nours = \"copies\"\n";
    for (body, part) in [
        (format!("{row}above = 1\n"), "x.verdict.toml, line 4: row: has to have one of stated, derived and chosen"),
        (format!("{row}stated = \"s\"\n"), "row: has to have one of near"),
        (format!("{row}above = 1\nbelow = 2\nstated = \"s\"\n"), "row: has to have one of near"),
        (format!("{row}band = [3, 1]\nstated = \"s\"\n"), "band: 3 is above 1"),
        (format!("{row}near = 1\ntolerance = {{ value = -1 }}\nstated = \"s\"\n"), "tolerance: -1 is below 0"),
        (format!("{row}above = 1\nstated = \"s\"\nwith = {{ case = [[]] }}\n"), "with.case: `[]` is neither"),
        (format!("{row}near = 1\nstated = \"s\"\n"), "row: has to have a tolerance with near"),
        (format!("{row}above = 1\ntolerance = {{ gain = 1 }}\nstated = \"s\"\n"), "and none with the others"),
        (format!("{row}above = 1\nstated = \"s\"\ncolour = 1\n"), "unknown field `colour`"),
        (format!("{row}above = \"copie\"\nstated = \"s\"\n"), "`copie`: `copie` is no metric"),
        (format!("{row}above = \"1 +\"\nstated = \"s\"\n"), "row: `1 +`: "),
        (format!("{row}above = 1\nstated = \"s\"\nwhy = \"{{{{ x }}}}\"\n"), "why: `x` is no metric"),
        (format!("{row}above = 1\nstated = \"s\"\nbaseline = \"b\"\n"), "baseline: there is no `b`"),
        (format!("{row}above = 1\nstated = \"s\"\nwith = {{ case = [] }}\n"), "with.case: is an empty list"),
        (
            format!("[define]\nx = \"copies + y\"\n{row}above = 1\nstated = \"s\"\n"),
            "line 5: define.x: `y` is no metric",
        ),
        ("row = []\n[define]\nx = 1\n".to_owned(), "line 6"),
        (
            format!("{row}above = 1\nstated = \"s\"\nwith = {{ x = [{}], y = [{}] }}\n", many(40), many(40)),
            "1000 combinations",
        ),
        (format!("row = []\n[define]\n{}", chain(600, "d", "+")), "more than 500 rows or definitions"),
    ] {
        let error = measured(&file(&body)).unwrap_err();
        assert!(error.contains(part), "{error}\nexpected: {part}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

fn many(count: usize) -> String {
    (0..count).map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(", ")
}

/// Definitions that each use the next one, twice.
fn chain(count: usize, name: &str, operator: &str) -> String {
    let line = |index: usize| {
        let next = index + 1;
        format!("{name}{index} = \"{name}{next} {operator} {name}{next}\"\n")
    };
    (0..count).map(line).collect::<String>() + &format!("{name}{count} = \"'aaaaaaaaaaaaaaaa'\"\n")
}

/// Long chains of definitions end, in depth and in length.
#[test]
fn definitions_are_bounded() {
    let row = "[[row]]\nwith = { case = ['base'], utilization = ['80'] }\nitem = \"x\"\nours = \"d0\"\nabove = 0\nchosen = \"c\"\n";
    for (text, why) in [
        (format!("[define]\n{}{row}", chain(400, "d", "+")), "more than 32 deep"),
        (format!("[define]\n{}{row}", chain(30, "d", "~")), "more than 64 KiB"),
    ] {
        let (rows, _) = measured(&file(&text)).unwrap();
        assert!(rows[0].why.contains(why), "{}", rows[0].why);
    }
}

/// A point that is missing makes no row hold.
#[test]
fn a_part_of_the_results_gives_the_same_bounds() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("results");
    let verdicts = file(
        "[[row]]\nwith = { case = ['base'], utilization = ['60'] }\nitem = \"x\"\nours = \"copies\"\n\
         below = \"at(utilization=80).utilization / 100\"\nstated = \"s\"\n\
         on_paper_terms = \"at(utilization=80).utilization == 80\"\n",
    );
    let create = || ResultsDirectory::create_from(&path, EXPERIMENT, Some(&verdicts), Path::new("x.toml")).unwrap();
    let mut directory = create();
    run(&mut directory, 1, &Made, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    directory.finish().unwrap();
    drop(directory);
    let results = path.join("results.jsonl");
    let lines = fs::read_to_string(&results).unwrap();
    let is_first = |line: &&str| line.contains("\"utilization\":\"80\"") && line.contains("\"seed\":\"1\"");
    let kept: Vec<_> = lines.lines().filter(|line| !is_first(line)).collect();
    assert!(kept.len() < lines.lines().count());
    fs::write(&results, kept.join("\n") + "\n").unwrap();
    let row = ResultsDirectory::open(&path).unwrap().rows().remove(0);
    assert_eq!(
        (row.paper_text.as_str(), row.verdict, row.seeds.as_slice()),
        ("< 0.80", Verdict::Differs, &[1, 2, 3][..])
    );
}

/// Terms that cannot be computed are not the paper's; a baseline is held against a share of its value, and one that is no number is none.
#[test]
fn what_a_verdict_rests_on_is_known() {
    let row = |utilization: u32, more: &str| {
        let with =
            format!("with = {{ case = ['base'], utilization = ['{utilization}'] }}\nitem = \"x\"\nours = \"copies\"\n");
        let baseline = |name: &str, ours: &str| {
            format!("[baseline.{name}]\nwhat = \"w\"\npaper = 1.9\nours = \"{ours}\"\ntolerance = 0.1\n")
        };
        let baselines = baseline("cost", "write_cost") + &baseline("endless", "1e308 * 10");
        let text = format!("{baselines}[[row]]\n{with}{more}stated = \"s\"\n");
        measured(&file(&text)).unwrap().0.remove(0)
    };
    let bettered = "at_most = 200\ntolerance = { value = 0.0 }\non_paper_terms = \"write_cost == 2\"\n";
    let (known, unknown) = (row(60, bettered), row(80, bettered));
    assert_eq!((known.on_paper_terms, known.verdict), (true, Verdict::Bettered));
    assert_eq!((unknown.on_paper_terms, unknown.verdict), (false, Verdict::Holds));
    // 2 is within a tenth of 1.9, and not within a tenth of 0.9.
    let alike = row(60, "below = 1\nbaseline = \"cost\"\n");
    assert_eq!((alike.baseline.unwrap().is_alike, alike.verdict), (true, Verdict::Differs));
    let endless = row(60, "below = 1\nbaseline = \"endless\"\n");
    assert_eq!((endless.baseline, endless.verdict), (None, Verdict::Differs));
}

#[test]
fn seeds_are_in_the_order_of_their_numbers() {
    let scratch = tempfile::tempdir().unwrap();
    let verdicts = file(
        "[[row]]\nwith = { case = ['base'], utilization = ['60'] }\nitem = \"x\"\nours = \"copies\"\nabove = 1\nstated = \"s\"\n",
    );
    let experiment = EXPERIMENT.replace("seed = [1, 2, 3]", "seed = [10, 9]");
    let directory = ResultsDirectory::create_from(scratch.path(), &experiment, Some(&verdicts), Path::new("x.toml"));
    let mut directory = directory.unwrap();
    run(&mut directory, 1, &Made, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    assert_eq!(directory.rows().remove(0).seeds, [9, 10]);
}

/// The files of the papers: each has verdicts that are right for it, and the machine of all of its kind of its paper.
#[test]
fn the_papers_files_belong_together() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut machines: BTreeMap<_, Vec<(String, Vec<_>)>> = BTreeMap::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let verdicts = verdicts_of(&path);
        if !verdicts.exists() || verdicts == path {
            continue;
        }
        let experiment = Experiment::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let text = fs::read_to_string(&verdicts).unwrap();
        let file = VerdictFile::parse(&text, &verdicts, &experiment).unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name, format!("{}-figure-{}", file.paper, file.figure));
        let of_run = ["workload", "size", "utilization", "sync-every", "connections", "until"];
        // SFS has runs of two lengths, of two schemes, and on four devices.
        let of_scheme = ["stream", "age", "measure", "policy", "groups", "device"];
        // Partial GC has two ways to reclaim or three, behind two lengths of ageing.
        let of_reclaim = ["age", "device", "reclaim"];
        let differs = |name: &str| match file.paper.as_str() {
            "sfs" => of_scheme.contains(&name),
            "partial-gc" => of_reclaim.contains(&name),
            _ => false,
        };
        let of_machine = |name: &str| !of_run.contains(&name) && !differs(name);
        let machine: Vec<_> = experiment.settings.iter().filter(|(name, _)| of_machine(name)).cloned().collect();
        machines.entry((file.paper, experiment.kind.name())).or_default().push((name, machine));
    }
    let counts: Vec<_> = machines.iter().map(|((paper, kind), all)| (paper.as_str(), *kind, all.len())).collect();
    let expected = [("page-cache", "volume", 2), ("partial-gc", "engine", 2), ("partial-gc", "requests", 1)];
    assert_eq!(counts[..3], expected);
    assert_eq!(counts[3..], [("scj", "engine", 9), ("sfs", "volume", 9)]);
    for of_paper in machines.values() {
        for (name, machine) in of_paper {
            assert_eq!(machine, &of_paper[0].1, "{name}");
        }
    }
}

/// Each relation judges its own side: the base has 120 copies with the middle seed.
#[test]
fn each_relation_has_its_own_side() {
    let row = |relation: &str| {
        format!(
            "[[row]]\nitem = \"{relation}\"\nours = \"at(case='base', utilization=60).copies\"\n{relation}\nchosen = \"c\"\nwhy = \"w\"\n"
        )
    };
    let ten = "tolerance = { value = 0.1 }";
    for (relation, name, holds) in [
        (format!("near = 131\n{ten}"), "near", true),
        (format!("near = 134\n{ten}"), "near", false),
        (format!("at_most = 110\n{ten}"), "at most", true),
        (format!("at_most = 109\n{ten}"), "at most", false),
        (format!("at_least = 133\n{ten}"), "at least", true),
        (format!("at_least = 134\n{ten}"), "at least", false),
        (format!("at_least = 10\n{ten}"), "at least", true),
        ("band = [120, 121]".to_owned(), "band", true),
        ("band = [121, 122]".to_owned(), "band", false),
        ("below = 121".to_owned(), "below", true),
        ("below = 120".to_owned(), "below", false),
        ("above = 119".to_owned(), "above", true),
        ("above = 120".to_owned(), "above", false),
    ] {
        let item = relation.replace('\n', " ").replace('"', "");
        let text = file(&row(&relation).replace(&format!("item = \"{relation}\""), "item = \"x\""));
        let rows = measured(&text).unwrap().0;
        let expected = if holds { Verdict::Holds } else { Verdict::Differs };
        assert_eq!((rows[0].ours, rows[0].relation, rows[0].verdict), (Some(120.0), name, expected), "{item}");
    }
}

/// A definition that leads back to itself through another point, or another definition, is an error and no end of the process.
#[test]
fn definitions_that_lead_back_to_themselves_are_an_error() {
    let row = "[[row]]\nwith = { case = ['base'], utilization = ['80'] }\nitem = \"x\"\nours = \"around\"\nabove = 0\nchosen = \"c\"\nwhy = \"w\"\n";
    for define in [
        "around = \"here.around + 1\"",
        "around = \"at(utilization=60).around + 1\"",
        "around = \"at(utilization=80).other\"\nother = \"here.around\"",
        "around = \"all(case='base')|map(attribute='around')|max\"",
    ] {
        let (rows, _) = measured(&file(&format!("[define]\n{define}\n{row}"))).unwrap();
        assert_eq!((rows[0].ours, rows[0].verdict), (None, Verdict::Differs), "{define}");
        assert!(rows[0].why.contains("is defined by itself"), "{define}: {}", rows[0].why);
    }
}
