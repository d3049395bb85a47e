//! Values in plots that were not measured here.

use std::fs;
use std::sync::atomic::AtomicBool;

use basalt_lab::experiment::{InProcess, ResultsDirectory, run};
use basalt_lab::report::{Axis, Bars, Plot, Report, Section, Series};

fn page(section: Section) -> String {
    let mut report = Report::new("t");
    report.add(section);
    report.to_html()
}

/// The drawings of a page, the wide one first.
fn drawings(page: &str) -> Vec<&str> {
    page.split("<svg class=\"plot ").skip(1).map(|part| part.split("</svg>").next().unwrap()).collect()
}

#[test]
fn lines_have_them_where_they_belong() {
    let plot = Plot::lines("p", Axis::new("x"), Axis::new("y"))
        .with(Series::new("ours", [(10.0, 1.0), (20.0, 4.2)]))
        .stated(None, 2.5, "across")
        .stated(Some(20.0), 5.0, "there");
    let page = page(Section::new("s").plot(plot));
    // The drawing has 380 pixels, 30 above and 46 below the data; the axis goes from 0 to 5, of which 2.5 is the middle. Labels on the left
    // are one letter of 7.25 pixels and 12 more wide; 16 are free on the right.
    let wide = drawings(&page)[0];
    assert!(wide.contains("<path class=\"stated\" d=\"M19.2 182.0H744.0\"><title>across: 2.5</title>"), "{wide}");
    // The last x is 8 pixels within, and the diamond begins 6 above its middle.
    assert!(wide.contains("<path class=\"stated\" d=\"M736.0 24.0l6 6l-6 6l-6 -6z\"><title>there: 5 at 20</title>"));
    for drawing in drawings(&page) {
        assert!(drawing.contains(">A</text>") && drawing.contains(">B</text>"), "{drawing}");
    }
    assert!(page.contains("<p class=\"note\">Not measured here: A: 2.5 (across); B: 5 at 20 (there).</p>"), "{page}");
    let entry = |path: &str, name: &str| format!("d=\"{path}\"/><text class=\"letter\" x=\"19\" y=\"10.5\">{name}");
    assert!(page.contains(&entry("M1 6H16", "A</text></svg><span>across</span>")), "{page}");
    assert!(page.contains(&entry("M8.0 0.0l6 6l-6 6l-6 -6z", "B</text></svg><span>there</span>")), "{page}");
}

#[test]
fn an_axis_reaches_as_far_as_what_is_stated() {
    let plot = Plot::lines("p", Axis::new("x"), Axis::new("y")).with(Series::new("ours", [(1.0, 1.0), (2.0, 1.0)]));
    let without = page(Section::new("s").plot(plot.clone()));
    assert!(without.contains(">1</text>") && !without.contains(">20</text>"));
    let with = page(Section::new("s").plot(plot.clone().stated(None, 20.0, "far above")));
    assert!(with.contains(">20</text>"), "{with}");
    // What cannot be shown is said.
    let logarithmic = Plot::lines("p", Axis::new("x"), Axis::new("y").logarithmic()).stated(None, 0.0, "nothing");
    assert!(page(Section::new("s").plot(logarithmic)).contains("One value is left out"));
}

#[test]
fn bars_have_them_over_their_group_or_all() {
    let bars = Bars::new("p", Axis::new("y"), [""])
        .group("g", [4.0])
        .group("h", [1.0])
        .stated(Some("h".to_owned()), 2.0, "of h")
        .stated(None, 3.0, "of all");
    let page = page(Section::new("s").bars(bars));
    // Data from 19.25 (a name of 7.25 pixels) to 740.75 for 0 to 4; groups of 33 pixels from 30 on; a bar has 17, with 2 more on both sides.
    let wide = drawings(&page)[0];
    assert!(wide.contains("<path class=\"stated\" d=\"M380.0 67.5V88.5\"><title>of h: 2</title>"), "{wide}");
    assert!(wide.contains("<path class=\"stated\" d=\"M560.4 30.0V96.0\"><title>of all: 3</title>"), "{wide}");
    assert!(page.contains("A: 2 at h (of h); B: 3 (of all)."), "{page}");
    // The one series has no name, and so no line of the legend.
    assert_eq!(page.matches("<li>").count(), 2, "{page}");
}

#[test]
fn marks_of_a_file_are_in_its_report() {
    const FILE: &str = r#"
title = "t"
kind = "volume"
[settings]
policy = ["greedy", "cost-benefit"]
utilization = [60, 70]
size = "64M"
writes = 1000
warm-up = 1000
[[plot]]
title = "over a number"
x = "utilization"
y = ["write_amplification"]
mark = [{ y = 1.13, text = "paper, section <VI.E>" }, { x = "70", y = 4, text = "paper, figure 7" }]
[[plot]]
title = "over words"
shape = "bars"
x = "policy"
y = ["write_amplification"]
only = { utilization = 60 }
mark = [{ x = "greedy", y = 1.5, text = "paper, table 2" }]
[[plot]]
title = "over what is not varied"
x = "size"
y = ["write_amplification"]
mark = [{ x = 67108864, y = 1.5, text = "paper, table 3" }]
"#;
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("x.toml");
    fs::write(&file, FILE).unwrap();
    let mut results = ResultsDirectory::create(&scratch.path().join("results"), &file, &[]).unwrap();
    run(&mut results, 1, &InProcess, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    results.finish().unwrap();
    let page = fs::read_to_string(scratch.path().join("results/report.html")).unwrap().replace('\u{a0}', " ");
    for said in [
        "A: 1.13 (paper, section &lt;VI.E&gt;); B: 4 at 70 % (paper, figure 7).",
        "A: 1.5 at greedy (paper, table 2).",
        "A: 1.5 at 64 MiB (paper, table 3).",
    ] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    // Drawn in both sizes.
    assert_eq!(page.matches("<path class=\"stated\" d=\"M").count(), 4 + 2 * 4, "with the legends");
}
