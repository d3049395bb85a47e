//! A document in Prometheus's text format, version 0.0.4.
//!
//! Base units and names as Prometheus asks for: bytes, seconds, `_total` for counters.
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::Write;
use std::time::Duration;

use basalt_vfs::{CleaningWork, Live};

use super::document::Document;
use super::fields::{self, LOGS};

/// A document as Prometheus reads it: whole, with a line end at its end.
pub fn exposition(document: &Document) -> String {
    let mut text = Exposition { text: String::new(), name: "", mount_point: &document.mount.mount_point };
    about(document, &mut text);
    space(document, &mut text);
    written(&document.live, &mut text);
    cleaning(&document.live, &mut text);
    logs(&document.live, &mut text);
    further(&document.live, &mut text);
    text.text
}

fn about(document: &Document, text: &mut Exposition) {
    let Document { mount, volume, live, .. } = document;
    text.metric("basalt_mount_info", Kind::Gauge, "The mounted volume; always 1.");
    let labels = [
        ("target", mount.target.as_str()),
        ("device_number", &mount.device_number),
        ("label", &volume.label),
        ("uuid", &volume.uuid),
        ("placement", &mount.placement),
        ("victim", &mount.victim),
        ("background_victim", &mount.background_victim),
        ("keep_free", &mount.keep_free),
        ("reclaim", &mount.reclaim),
        ("profile", &mount.profile),
    ];
    text.sample(&labels, 1);
    if let Some(planned) = &mount.planned_by {
        let help = "Time to write neighbouring blocks somewhere, as plans have it: of a class of devices, of a file, or of requests in use.";
        text.metric("basalt_planned_write_seconds", Kind::Gauge, help);
        for (blocks, nanoseconds) in [("1", planned.write_1_ns), ("512", planned.write_512_ns)] {
            let labels = [("blocks", blocks), ("from", planned.from.as_str())];
            text.sample(&labels, seconds(Duration::from_nanos(nanoseconds)));
        }
    }
    text.single("basalt_uptime_seconds", Kind::Gauge, "Time since the volume was mounted.", mount.uptime_seconds);
    text.single("basalt_read_only", Kind::Gauge, "1 if the mount is read-only, else 0.", u8::from(live.read_only));
    let failed = u8::from(live.failed.is_some());
    text.single("basalt_failed", Kind::Gauge, "1 if an error made the volume read-only, else 0.", failed);
}

fn space(document: &Document, text: &mut Exposition) {
    let live = &document.live;
    let bytes = |blocks| bytes(live, blocks);
    let usage = &live.usage;
    let user = bytes(usage.user_blocks);
    text.single("basalt_user_bytes", Kind::Gauge, "Space available to users, used or free.", user);
    text.single("basalt_used_bytes", Kind::Gauge, "Space in use, with reserved blocks.", bytes(usage.used_blocks));
    text.single(
        "basalt_utilization_ratio",
        Kind::Gauge,
        "Used share of the space available to users.",
        document.utilization,
    );
    text.metric("basalt_live_bytes", Kind::Gauge, "Live blocks on the device.");
    text.sample(&[("kind", "data")], bytes(live.live_data_blocks));
    text.sample(&[("kind", "node")], bytes(live.live_node_blocks));
    text.metric("basalt_dirty_bytes", Kind::Gauge, "Data in memory that is not yet written.");
    text.sample(&[("kind", "data")], bytes(live.dirty_data_blocks));
    text.sample(&[("kind", "node")], bytes(live.dirty_node_blocks));
    if let Some(blocks) = live.named.get("pre_invalid_blocks") {
        let help = "Dead blocks that the last checkpoint or an fsync needs.";
        text.single("basalt_pre_invalid_bytes", Kind::Gauge, help, bytes(blocks));
    }
    text.single("basalt_inodes", Kind::Gauge, "Inodes in use.", usage.inodes);
    if let Some(nodes) = live.named.get("usage/nodes") {
        text.single("basalt_nodes", Kind::Gauge, "Nodes in use, with inodes.", nodes);
    }
    text.metric("basalt_segments", Kind::Gauge, "Segments of the main area by state.");
    let segments = &live.segments;
    for (state, count) in
        [("free", segments.free), ("active", segments.active), ("dirty", segments.dirty), ("full", segments.full)]
    {
        text.sample(&[("state", state)], count);
    }
    if let Some(count) = live.named.get("segments/prefree") {
        text.sample(&[("state", "prefree")], count);
    }
}

fn written(live: &Live, text: &mut Exposition) {
    let counters = &live.counters;
    let bytes = |blocks| bytes(live, blocks);
    let written = &counters.written;
    text.metric("basalt_written_bytes_total", Kind::Counter, "Written to the device, with copies made by cleaning.");
    for (kind, blocks) in [
        ("data", written.data_blocks),
        ("node", written.node_blocks),
        ("metadata", written.metadata_blocks),
        ("journal", written.journal_blocks),
    ] {
        text.sample(&[("kind", kind)], bytes(blocks));
    }
    let new = bytes(counters.new_data_blocks());
    text.single(
        "basalt_new_data_bytes_total",
        Kind::Counter,
        "Data written, without data that cleaning only moved.",
        new,
    );
    let checkpoints = |cause: &str| counters.named.get(&format!("checkpoints/{cause}"));
    let causes = ["open", "fsync", "sync", "interval", "memory", "cleaning", "trim", "resize", "close"];
    let causes = causes.into_iter().filter_map(|cause| Some((cause, checkpoints(cause)?)));
    for (index, (cause, count)) in causes.enumerate() {
        if index == 0 {
            text.metric("basalt_checkpoints_total", Kind::Counter, "Checkpoints by cause.");
        }
        text.sample(&[("cause", cause)], count);
    }
}

/// Logs of data, in bytes.
fn logs(live: &Live, text: &mut Exposition) {
    let logs = fields::logs(live);
    let metrics = [
        ("basalt_log_written_bytes_total", Kind::Counter, "Data of users written to a log.", "written_blocks"),
        ("basalt_log_copied_bytes_total", Kind::Counter, "Data that cleaning copied to a log.", "copied_blocks"),
        ("basalt_log_dead_bytes_total", Kind::Counter, "Data of a log's segments that died.", "dead_blocks"),
        (
            "basalt_log_moved_bytes_total",
            Kind::Counter,
            "Data that cleaning copied from a log's segments.",
            "moved_blocks",
        ),
        ("basalt_log_live_bytes", Kind::Gauge, "Live data of a log's segments.", "live_blocks"),
        ("basalt_log_segments_bytes", Kind::Gauge, "Segments of a log, live or not.", "blocks"),
    ];
    for (name, kind, help, what) in metrics {
        if !logs.is_empty() {
            text.metric(name, kind, help);
        }
        for log in &logs {
            let path = format!("{LOGS}{log}/{what}");
            let blocks = live.counters.named.get(&path).or_else(|| live.named.get(&path)).unwrap_or(0);
            text.sample(&[("log", log)], blocks.saturating_mul(live.block_size.into()));
        }
    }
}

/// What one engine has besides, by its name; logs have metrics of their own.
fn further(live: &Live, text: &mut Exposition) {
    let is_other = |(name, _): &(&str, u64)| !name.starts_with(LOGS);
    let (counters, facts): (Vec<_>, Vec<_>) = (
        fields::further_counters(live).filter(is_other).collect(),
        fields::further_facts(live).filter(is_other).collect(),
    );
    for (numbers, name, kind, help) in [
        (counters, "basalt_engine_total", Kind::Counter, "What only this engine counts, by name."),
        (facts, "basalt_engine", Kind::Gauge, "Facts that only this engine has, by name."),
    ] {
        if !numbers.is_empty() {
            text.metric(name, kind, help);
        }
        numbers.into_iter().for_each(|(name, value)| text.sample(&[("name", name)], value));
    }
}

fn cleaning(live: &Live, text: &mut Exposition) {
    type Count = fn(&CleaningWork) -> u64;
    let cleaning = &live.counters.cleaning;
    let causes =
        [("foreground", &cleaning.foreground), ("background", &cleaning.background), ("resize", &cleaning.resize)];
    // In bytes where the name says so.
    let counters: [(&str, &str, Count); 7] = [
        ("basalt_cleaning_victims_total", "Sections that were emptied.", |work| work.victims),
        ("basalt_cleaning_read_bytes_total", "Read from sections that were emptied.", |work| work.blocks_read),
        ("basalt_cleaning_copied_bytes_total", "Blocks moved.", |work| work.blocks_copied),
        (
            "basalt_cleaning_pre_invalid_copied_bytes_total",
            "Blocks moved that were dead, but needed by the last checkpoint or by an fsync.",
            |work| work.pre_invalid_copied,
        ),
        ("basalt_cleaning_copied_data_bytes_total", "Live data blocks moved.", |work| work.data_blocks_copied),
        ("basalt_cleaning_checkpoints_total", "Checkpoints that freed sections.", |work| work.checkpoints),
        ("basalt_cleaning_journal_commits_total", "Journal commits that freed sections.", |work| work.journal_commits),
    ];
    for (name, help, count) in counters {
        text.metric(name, Kind::Counter, help);
        for (cause, work) in causes {
            let count = count(work);
            text.sample(&[("cause", cause)], if name.contains("_bytes_") { bytes(live, count) } else { count });
        }
    }
    text.metric("basalt_cleaning_seconds_total", Kind::Counter, "Time spent cleaning, by phase.");
    for (cause, work) in causes {
        for (phase, time) in [("select", work.select), ("copy", work.copy), ("commit", work.commit)] {
            text.sample(&[("cause", cause), ("phase", phase)], seconds(time));
        }
    }
}

fn bytes(live: &Live, blocks: u64) -> u64 {
    blocks.saturating_mul(live.block_size.into())
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// Metrics as they are written one after the other; all carry the mount point as a label.
struct Exposition<'a> {
    text: String,
    /// The metric whose samples are being written.
    name: &'static str,
    mount_point: &'a str,
}

// Writing to a String cannot fail.
impl Exposition<'_> {
    /// Begins a metric; its samples follow.
    fn metric(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self.name = name;
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.text, "{}{{mount_point=\"{}\"", self.name, escape(self.mount_point));
        for (label, text) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escape(text));
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    /// A metric with one sample.
    fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: impl std::fmt::Display) {
        self.metric(name, kind, help);
        self.sample(&[], value);
    }
}

/// A label's value: backslashes, quotation marks and line ends are escaped, everything else stays.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::document::tests::{example, recorded};
    use super::*;

    #[test]
    fn the_metrics_of_f2fs_stay_as_they_are_to_the_byte() {
        assert_eq!(exposition(&recorded()[1]), include_str!("golden/metrics.txt"));
    }

    #[test]
    fn what_only_one_engine_has_carries_its_name() {
        let mut document = example();
        document.live = Live { block_size: 2048, ..Live::default() };
        document.live.counters.written.data_blocks = 3;
        document.live.counters.named = [("erases/wear", 7)].into();
        document.live.named = [("bad_blocks", 2)].into();
        let text = exposition(&document);
        let has = |metric: &str, end: &str| text.lines().any(|line| line.starts_with(metric) && line.ends_with(end));
        assert!(has("basalt_written_bytes_total{", "kind=\"data\"} 6144"), "{text}");
        assert!(has("basalt_engine_total{", "name=\"erases/wear\"} 7"), "{text}");
        assert!(has("basalt_engine{", "name=\"bad_blocks\"} 2"), "{text}");
        assert!(!text.contains("basalt_checkpoints_total") && !text.contains("basalt_nodes"), "{text}");
    }

    #[test]
    fn values_are_in_base_units_with_their_labels() {
        let text = exposition(&example());
        let point = r#"mount_point="/mnt/a \"b\"\\c""#;
        for line in [
            format!("basalt_uptime_seconds{{{point}}} 3725.5"),
            format!("basalt_planned_write_seconds{{{point},blocks=\"1\",from=\"requests\"}} 0.003413"),
            format!("basalt_planned_write_seconds{{{point},blocks=\"512\",from=\"requests\"}} 0.173"),
            format!("basalt_written_bytes_total{{{point},kind=\"data\"}} 2097152"),
            format!("basalt_written_bytes_total{{{point},kind=\"journal\"}} 32768"),
            format!("basalt_pre_invalid_bytes{{{point}}} 102400"),
            format!("basalt_cleaning_pre_invalid_copied_bytes_total{{{point},cause=\"foreground\"}} 40960"),
            format!("basalt_cleaning_journal_commits_total{{{point},cause=\"foreground\"}} 6"),
            format!("basalt_checkpoints_total{{{point},cause=\"sync\"}} 5"),
            format!("basalt_cleaning_victims_total{{{point},cause=\"foreground\"}} 3"),
            format!("basalt_cleaning_copied_bytes_total{{{point},cause=\"foreground\"}} 819200"),
            format!("basalt_cleaning_seconds_total{{{point},cause=\"foreground\",phase=\"copy\"}} 0.0015"),
            format!("basalt_cleaning_seconds_total{{{point},cause=\"background\",phase=\"commit\"}} 2"),
            format!("basalt_segments{{{point},state=\"prefree\"}} 2"),
            format!("basalt_utilization_ratio{{{point}}} 0.25"),
            format!("basalt_new_data_bytes_total{{{point}}} 1310720"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn every_metric_is_declared_once_and_followed_by_its_samples() {
        let text = exposition(&example());
        let (mut declared, mut samples, mut current) = (BTreeSet::new(), BTreeSet::new(), None);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let name = rest.split(' ').next().unwrap();
                assert!(declared.insert(name), "{name} is declared twice");
                current = Some(name);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(current, Some(name));
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            } else {
                let name = line.split('{').next().unwrap();
                assert_eq!(current, Some(name), "{line}");
                assert!(samples.insert(line.rsplit_once(' ').unwrap().0), "{line}: twice");
            }
        }
        assert!(declared.len() > 20 && text.ends_with('\n'));
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escape("a\\b\"c\nd é"), "a\\\\b\\\"c\\nd é");
    }
}
