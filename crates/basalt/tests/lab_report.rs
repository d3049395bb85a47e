//! The report of a real experiment in a real browser: headless Chromium, as a phone and as a desktop, light and dark.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use basalt_testkit::{limit, skip};
use support::{Scratch, basalt};

/// The longest a page may take; then Chromium is killed, and tried once more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plots of lines and of bars, with repetitions, and points that fail.
const EXPERIMENT: &str = r#"
title = "Cleaning <policies> & utilization"
about = "What the policies cost."
kind = "volume"
metrics = ["write_amplification", "write_cost", "writes", "copies", "victims", "copies_per_victim", "victim_utilization", "memory_bytes"]
[settings]
stream = ["zipf:0.99", "hotcold:90/10", "uniform"]
policy = ["greedy", "cost-benefit"]
utilization = [50, 60, 70, 99]
size = "128M"
writes = 20000
warm-up = 20000
seed = [1, 2]

[[plot]]
title = "Write amplification"
x = "utilization"
y = ["write_amplification"]
mark = [
  { y = 1.13, text = "paper, section VI.E: least gain" },
  { y = 3, text = "paper, table 2" },
  { x = 70, y = 1.9, text = "paper, figure 7" },
]

[[plot]]
title = "Copies by stream"
shape = "bars"
x = "stream"
y = ["copies"]
logarithmic = ["y"]
mark = [{ x = "uniform", y = 50000, text = "paper, table 3" }, { y = 900, text = "paper, table 4" }]
"#;

/// Runs in the page and tells the page around it what it finds.
const PROBE: &str = r#"<script>
addEventListener("load", () => {
  const seen = element => element.getBoundingClientRect().width > 0 && element.getBoundingClientRect().height > 0;
  const plots = [...document.querySelectorAll("svg.plot")].filter(seen);
  const overlaps = [];
  for (const plot of plots) {
    const frame = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
    texts.forEach(([text, box], index) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1) overlaps.push(text + " leaves its plot");
      for (const [other, there] of texts.slice(index + 1)) {
        const wide = Math.min(box.right, there.right) - Math.max(box.left, there.left);
        const high = Math.min(box.bottom, there.bottom) - Math.max(box.top, there.top);
        if (wide > 1 && high > 3) overlaps.push(text + " lies over " + other);
      }
    });
  }
  const found = {
    width: innerWidth,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    background: getComputedStyle(document.body).backgroundColor,
    page: document.documentElement.scrollWidth,
    plots: plots.length,
    marks: plots.map(plot => plot.querySelectorAll("circle, rect, path.line").length),
    stated: plots.map(plot => plot.querySelectorAll("path.stated").length),
    colors: new Set(plots.flatMap(plot => [...plot.querySelectorAll("path.line")].map(line => getComputedStyle(line).stroke))).size,
    rows: document.querySelectorAll("tbody tr").length,
    tables: [...document.querySelectorAll("div.box")].map(box => box.getBoundingClientRect().right <= innerWidth),
    cut: [...document.querySelectorAll("div.box")].filter(box => box.scrollWidth > box.clientWidth + 1).length,
    overlaps,
  };
  parent.postMessage(JSON.stringify(found), "*");
});
</script>"#;

/// The page around it, in which it is as wide as a window: Chromium's own are never narrower than 500 pixels.
fn frame(width: u32) -> String {
    format!(
        r#"<!DOCTYPE html><html style="color-scheme: light dark"><head><link rel="icon" href="data:,"></head><body style="margin: 0">
<iframe src="probed.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>addEventListener("message", event => {{
  const text = document.createElement("pre");
  text.id = "probe";
  text.textContent = event.data;
  document.body.append(text);
}});</script></body></html>"#
    )
}

/// Runs Chromium on a page; every run has a profile of its own.
fn chromium(page: &Path, width: u32, height: u32, dark: bool, more: &[String]) -> Output {
    let attempt = || {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(browser());
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
            .args(more)
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null());
        limit::output(&mut command, PATIENCE)
    };
    attempt().or_else(|_| attempt()).expect("Chromium did not finish in time, twice")
}

fn browser() -> std::path::PathBuf {
    skip::find_program("chromium").expect("asked for before")
}

/// What the page wrote to the console.
fn console(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect()
}

/// What the probe found in a page.
fn probe(scratch: &Scratch, width: u32, dark: bool) -> serde_json::Value {
    scratch.file("frame.html", frame(width));
    let more = ["--dump-dom".to_owned(), "--virtual-time-budget=5000".to_owned()];
    let output = chromium(&scratch.path("frame.html"), width.max(500), 900, dark, &more);
    assert_eq!(console(&output), Vec::<String>::new());
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = dom.split_once("<pre id=\"probe\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.unwrap_or_else(|| panic!("no probe in: {dom}\n{}", String::from_utf8_lossy(&output.stderr)));
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&found).unwrap_or_else(|error| panic!("{error}: {found}"))
}

/// A scratch directory with the report of [`EXPERIMENT`], and a copy with the probe in it.
fn report() -> Scratch {
    let scratch = Scratch::new();
    let file = scratch.file("x.toml", EXPERIMENT);
    let ended = basalt(["lab", "run", &file, "--output", &scratch.text("results")]);
    assert_eq!(ended.code(), 1, "points at 99 % cannot be: {}", ended.err());
    let page = fs::read_to_string(scratch.path("results/report.html")).unwrap();
    assert!(!page.contains("<script") && !page.contains("http"), "the page is not self-contained");
    scratch.file("probed.html", page.replace("</body>", &format!("{PROBE}</body>")));
    scratch
}

#[test]
fn the_report_shows_its_plots_on_a_phone_and_on_a_desktop_in_light_and_dark() {
    if !skip::tools_or_skip(&["chromium"]) {
        return;
    }
    let scratch = report();
    let mut backgrounds = Vec::new();
    for (width, dark) in [(360, false), (360, true), (1200, false), (1200, true), (1280, false), (320, false)] {
        let found = probe(&scratch, width, dark);
        assert_eq!(found["width"], width, "{found}");
        assert_eq!(found["dark"], dark, "{found}");
        assert_eq!(found["plots"], 2, "{found}");
        assert!(found["marks"].as_array().unwrap().iter().all(|count| count.as_u64().unwrap() >= 6), "{found}");
        assert_eq!(found["stated"], serde_json::json!([3, 2]), "{found}");
        // A phone scrolls a wide table, a desktop shows all of it.
        assert!(width < 1280 || found["cut"] == 0, "{found}");
        assert_eq!(found["colors"], 6, "six lines: {found}");
        assert!(found["rows"].as_u64().unwrap() >= 24, "{found}");
        assert_eq!(found["overlaps"], serde_json::json!([]), "{width}");
        assert_eq!(found["page"], width, "the page is wider than its window: {found}");
        assert!(found["tables"].as_array().unwrap().iter().all(|fits| fits == true), "{found}");
        backgrounds.push(found["background"].clone());
    }
    assert_eq!(backgrounds[0], "rgb(255, 255, 255)");
    assert_ne!(backgrounds[0], backgrounds[1]);
    assert_eq!((&backgrounds[0], &backgrounds[1]), (&backgrounds[2], &backgrounds[3]));
}

#[test]
fn the_report_can_be_photographed_and_printed() {
    if !skip::tools_or_skip(&["chromium"]) {
        return;
    }
    let scratch = report();
    let page = scratch.path("results/report.html");
    for (name, width) in [("phone", 360), ("desktop", 1200)] {
        let picture = scratch.path(&format!("{name}.png"));
        let output = chromium(&page, width, 1600, false, &[format!("--screenshot={}", picture.display())]);
        assert_eq!(console(&output), Vec::<String>::new());
        let bytes = fs::read(&picture).unwrap();
        assert!(bytes.starts_with(b"\x89PNG"), "{name}");
        // The size stands at a fixed place of the first chunk; an empty page of this size has far fewer bytes.
        assert_eq!(u32::from_be_bytes(bytes[16..20].try_into().unwrap()), width);
        assert!(bytes.len() > 20_000, "{name}: {} bytes", bytes.len());
    }
    let paper = scratch.path("report.pdf");
    let output = chromium(&page, 1200, 900, true, &[format!("--print-to-pdf={}", paper.display())]);
    assert_eq!(console(&output), Vec::<String>::new());
    assert!(fs::read(&paper).unwrap().starts_with(b"%PDF"));
}

#[test]
fn a_page_with_an_error_is_found_out() {
    if !skip::tools_or_skip(&["chromium"]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("wrong.html", "<!DOCTYPE html><title>x</title><script>console.error('planted')</script>");
    let output = chromium(&scratch.path("wrong.html"), 360, 600, false, &["--dump-dom".to_owned()]);
    assert!(
        console(&output).iter().any(|line| line.contains("planted")),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
