//! A document as people read it.

use std::time::Duration;

use basalt_vfs::{CleaningWork, Counters, Live};

use super::document::{Document, MountFacts};
use super::fields::{self, LOGS};
use crate::failure::one_line;
use crate::size::human;
use crate::time;

/// The lines of a document. With an `earlier` one of the same mount, counters show what was added a second since then as well.
pub fn lines(document: &Document, earlier: Option<&Document>) -> Vec<String> {
    let mut lines = facts(document);
    let live = &document.live;
    let unit = Unit(live.block_size);
    let change = earlier.and_then(|earlier| {
        let seconds = document.seconds_since(earlier)?;
        Some(Change { counters: live.counters.since(&earlier.live.counters), seconds, unit })
    });
    let change = change.as_ref();
    let parts = [
        written(&live.counters, unit, change),
        checkpoints(&live.counters, change),
        cleaning(&live.counters, unit, change),
        logs(live, unit),
        further(live, change),
    ];
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        lines.push(String::new());
        lines.extend(part);
    }
    lines
}

/// What was done in some time.
struct Change {
    counters: Counters,
    seconds: f64,
    unit: Unit,
}

/// Bytes of a block.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// Blocks as bytes.
    fn blocks(self, count: u64) -> String {
        human(count.saturating_mul(self.0.into()))
    }
}

impl Change {
    /// A count for each second.
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    /// Blocks as bytes for each second.
    fn bytes(&self, blocks: u64) -> String {
        // A rate beyond what fits is cut off.
        format!("{}/s", human((self.rate(blocks) * f64::from(self.unit.0)) as u64))
    }

    fn events(&self, count: u64) -> String {
        format!("{:.1}/s", self.rate(count))
    }

    /// Which part of the time something took.
    fn share(&self, time: Duration) -> String {
        format!("{:.1} %", 100.0 * time.as_secs_f64() / self.seconds)
    }
}

/// What the mount is and how full, as `basalt info` shows a volume.
fn facts(document: &Document) -> Vec<String> {
    let Document { mount, volume, live, .. } = document;
    let blocks = |count| Unit(live.block_size).blocks(count);
    let mut lines = Vec::new();
    let mut row = |name: &str, value: String| lines.push(format!("{name:<16}{}", one_line(&value)));
    let uptime = Duration::try_from_secs_f64(mount.uptime_seconds).unwrap_or_default();
    row("mount", format!("{}, for {}", mount.mount_point, time::duration(uptime)));
    row("device", format!("{} (number {}, served by process {})", mount.target, mount.device_number, mount.process));
    if !mount.placement.is_empty() {
        let MountFacts { victim, background_victim, keep_free, reclaim, profile, touches, .. } = mount;
        let reclaim = if reclaim.is_empty() { String::new() } else { format!(", reclaim {reclaim}") };
        let profile = if profile.is_empty() { String::new() } else { format!(", profile {profile}") };
        let groups = mount.groups.map(|groups| format!(" groups={groups}")).unwrap_or_default();
        let touches = if touches.is_empty() { String::new() } else { format!(" touches={touches}") };
        let placement = format!("{}{groups}{touches}", mount.placement);
        row(
            "policies",
            format!(
                "placement {placement}, victim {victim}, while idle {background_victim}, keep_free {keep_free}{reclaim}{profile}"
            ),
        );
    }
    if let Some(bytes) = mount.flash_page_bytes {
        row(
            "flash page",
            if u64::from(bytes) <= u64::from(live.block_size) {
                "not known, or a block".to_owned()
            } else {
                human(u64::from(bytes))
            },
        );
    }
    if let Some(planned) = &mount.planned_by {
        let from = match &*planned.from {
            "requests" => "measured in use",
            "file" => "measured before",
            _ => "usual for such devices",
        };
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let (block, segment) = (milliseconds(planned.write_1_ns), milliseconds(planned.write_512_ns));
        row("device times", format!("{block:.2} ms to write a block, {segment:.1} ms for 512 ({from})"));
    }
    row("label", if volume.label.is_empty() { "-".to_owned() } else { volume.label.clone() });
    row("uuid", volume.uuid.clone());
    row(
        "changes",
        match (&live.failed, &live.read_only_reason) {
            (Some(reason), _) => format!("none any more: {reason}"),
            (None, _) if !live.read_only => "possible".to_owned(),
            (None, Some(reason)) => format!("none: {reason}"),
            (None, None) => "none: mounted read-only".to_owned(),
        },
    );
    let usage = &live.usage;
    let share = 100.0 * document.utilization;
    row("used", format!("{} of {} ({share:.1} %)", blocks(usage.used_blocks), blocks(usage.user_blocks)));
    let nodes = live.named.get("usage/nodes").map(|nodes| format!(", {nodes} nodes in total"));
    row("inodes", format!("{}{}", usage.inodes, nodes.unwrap_or_default()));
    let states = &live.segments;
    let prefree = live.named.get("segments/prefree").map(|count| format!(", {count} free after the next checkpoint"));
    row(
        "main segments",
        format!(
            "{} free, {} active, {} dirty, {} full{}",
            states.free,
            states.active,
            states.dirty,
            states.full,
            prefree.unwrap_or_default()
        ),
    );
    row("live blocks", format!("{} of data, {} of nodes", live.live_data_blocks, live.live_node_blocks));
    row(
        "not yet written",
        format!("{} of data, {} of nodes", blocks(live.dirty_data_blocks), blocks(live.dirty_node_blocks)),
    );
    if let Some(count) = live.named.get("pre_invalid_blocks") {
        row("pre-invalid", format!("{} (dead, but needed by the last checkpoint)", blocks(count)));
    }
    let amplification = document.write_amplification.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    row("amplification", format!("{amplification} (all blocks written for each new data block)"));
    lines
}

/// One line of a table of counters: name, total, rate.
fn counter(name: &str, total: &str, rate: Option<String>) -> String {
    format!("{name:<16}{total:>12}{:>16}", rate.unwrap_or_default()).trim_end().to_owned()
}

fn head(name: &str, change: Option<&Change>) -> String {
    counter(name, "total", change.map(|_| "now".to_owned()))
}

fn written(counters: &Counters, unit: Unit, change: Option<&Change>) -> Vec<String> {
    type Count = fn(&Counters) -> u64;
    let rows: [(&str, Count); 6] = [
        ("  data", |s| s.written.data_blocks),
        ("  nodes", |s| s.written.node_blocks),
        ("  metadata", |s| s.written.metadata_blocks),
        ("  journal", |s| s.written.journal_blocks),
        ("  all", |s| s.written.blocks()),
        ("  new data", Counters::new_data_blocks),
    ];
    let row = |(name, count): (&str, Count)| {
        counter(name, &unit.blocks(count(counters)), change.map(|change| change.bytes(count(&change.counters))))
    };
    std::iter::once(head("written", change)).chain(rows.into_iter().map(row)).collect()
}

/// Checkpoints by cause; nothing where the engine counts none.
fn checkpoints(counters: &Counters, change: Option<&Change>) -> Vec<String> {
    type Count = fn(&Counters) -> Option<u64>;
    // No mount is resized, and none that is closed is asked any more.
    let rows: [(&str, Count); 8] = [
        ("  open", |c| c.named.get("checkpoints/open")),
        ("  fsync", |c| c.named.get("checkpoints/fsync")),
        ("  sync", |c| c.named.get("checkpoints/sync")),
        ("  interval", |c| c.named.get("checkpoints/interval")),
        ("  memory", |c| c.named.get("checkpoints/memory")),
        ("  cleaning", |c| c.named.get("checkpoints/cleaning")),
        ("  trim", |c| c.named.get("checkpoints/trim")),
        ("  all", |c| c.named.sum("checkpoints")),
    ];
    let row = |(name, count): (&str, Count)| {
        let rate = change.map(|change| change.events(count(&change.counters).unwrap_or(0)));
        Some(counter(name, &count(counters)?.to_string(), rate))
    };
    let rows: Vec<String> = rows.into_iter().filter_map(row).collect();
    if rows.is_empty() { rows } else { std::iter::once(head("checkpoints", change)).chain(rows).collect() }
}

/// The logs of data that were written to: what users and cleaning wrote there, what died of it, and what is live in their segments.
fn logs(live: &Live, unit: Unit) -> Vec<String> {
    let row = |log: &str| {
        let counted = |what: &str| live.counters.named.get(&format!("{LOGS}{log}/{what}")).unwrap_or(0);
        let fact = |what: &str| live.named.get(&format!("{LOGS}{log}/{what}")).unwrap_or(0);
        let (written, copied, dead) = (counted("written_blocks"), counted("copied_blocks"), counted("dead_blocks"));
        let (moved, live, blocks) = (counted("moved_blocks"), fact("live_blocks"), fact("blocks"));
        let share = |part: u64, whole: u64| (whole > 0).then(|| format!("{:.1} %", 100.0 * part as f64 / whole as f64));
        let amplification =
            (written > 0).then(|| format!("{:.2}", written.saturating_add(copied) as f64 / written as f64));
        let nothing = || "-".to_owned();
        [written, copied, dead, moved, live, blocks].iter().any(|count| *count > 0).then(|| {
            let values = [
                unit.blocks(written),
                unit.blocks(copied),
                amplification.unwrap_or_else(nothing),
                unit.blocks(dead),
                unit.blocks(moved),
                unit.blocks(live),
                share(live, blocks).unwrap_or_else(nothing),
            ];
            cells(&format!("  {}", one_line(log)), &values)
        })
    };
    let rows: Vec<String> = fields::logs(live).into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    let names = ["written", "copied", "times", "died", "moved away", "live", "live share"].map(str::to_owned);
    std::iter::once(cells("logs of data", &names)).chain(rows).collect()
}

/// What one engine has besides, by its name: counters with their rates, then facts. Logs have a table of their own.
fn further(live: &Live, change: Option<&Change>) -> Vec<String> {
    let is_other = |(name, _): &(&str, u64)| !name.starts_with(LOGS);
    let rate = |name: &str| Some(change?.events(change?.counters.named.get(name).unwrap_or(0)));
    let counters = fields::further_counters(live).filter(is_other).map(|(name, value)| (name, value, rate(name)));
    let facts = fields::further_facts(live).filter(is_other).map(|(name, value)| (name, value, None));
    let row = |(name, value, rate): (&str, u64, Option<String>)| {
        format!("  {:<38}{value:>12}{:>16}", one_line(name), rate.unwrap_or_default()).trim_end().to_owned()
    };
    let rows: Vec<String> = counters.chain(facts).map(row).collect();
    if rows.is_empty() { rows } else { std::iter::once("engine".to_owned()).chain(rows).collect() }
}

/// One line of the table of cleaning.
fn columns(name: &str, values: [String; 9]) -> String {
    cells(name, &values)
}

/// One line of a table.
fn cells(name: &str, values: &[String]) -> String {
    let mut line = format!("{name:<16}");
    for value in values {
        line.push_str(&format!(" {value:>11}"));
    }
    line
}

/// Means of all victims.
fn each_victim(all: &CleaningWork, unit: Unit) -> [String; 9] {
    let mean = |count: u64| unit.blocks((count + all.victims / 2) / all.victims);
    let took = |time: Duration| time::duration(time / u32::try_from(all.victims).unwrap_or(u32::MAX));
    let nothing = || "-".to_owned();
    [
        nothing(),
        mean(all.blocks_read),
        mean(all.blocks_copied),
        mean(all.pre_invalid_copied),
        nothing(),
        nothing(),
        took(all.select),
        took(all.copy),
        took(all.commit),
    ]
}

fn cleaning(counters: &Counters, unit: Unit, change: Option<&Change>) -> Vec<String> {
    type Work = fn(&Counters) -> CleaningWork;
    let causes: [(&str, Work); 2] =
        [("  foreground", |s| s.cleaning.foreground), ("  background", |s| s.cleaning.background)];
    let names = ["victims", "read", "copied", "pre-invalid", "checkpoints", "journal", "select", "copy", "commit"];
    let mut lines = vec![columns("cleaning", names.map(str::to_owned))];
    for (name, work) in causes {
        let all = work(counters);
        lines.push(columns(
            name,
            [
                all.victims.to_string(),
                unit.blocks(all.blocks_read),
                unit.blocks(all.blocks_copied),
                unit.blocks(all.pre_invalid_copied),
                all.checkpoints.to_string(),
                all.journal_commits.to_string(),
                time::duration(all.select),
                time::duration(all.copy),
                time::duration(all.commit),
            ],
        ));
        if all.victims > 0 {
            lines.push(columns("    each", each_victim(&all, unit)));
        }
        if let Some(change) = change {
            let now = work(&change.counters);
            lines.push(columns(
                "    now",
                [
                    change.events(now.victims),
                    change.bytes(now.blocks_read),
                    change.bytes(now.blocks_copied),
                    change.bytes(now.pre_invalid_copied),
                    change.events(now.checkpoints),
                    change.events(now.journal_commits),
                    change.share(now.select),
                    change.share(now.copy),
                    change.share(now.commit),
                ],
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::{example, recorded};
    use super::*;

    #[test]
    fn a_flash_page_is_shown_where_it_is_known() {
        let mut document = example();
        let mut line = |bytes| {
            document.mount.flash_page_bytes = bytes;
            facts(&document).into_iter().find(|line| line.starts_with("flash page"))
        };
        assert_eq!(line(Some(16 << 10)).unwrap(), "flash page      16 KiB");
        assert_eq!(line(Some(4096)).unwrap(), "flash page      not known, or a block");
        assert_eq!(line(None), None, "an older Basalt serves the mount");
    }

    #[test]
    fn device_times_say_how_they_are_known() {
        let mut document = example();
        let line = |document: &Document| facts(document).into_iter().find(|line| line.starts_with("device times"));
        assert_eq!(
            line(&document).unwrap(),
            "device times    3.41 ms to write a block, 173.0 ms for 512 (measured in use)"
        );
        document.mount.planned_by.as_mut().unwrap().from = "class".into();
        assert!(line(&document).unwrap().ends_with("(usual for such devices)"));
        document.mount.planned_by = None;
        assert_eq!(line(&document), None, "an older Basalt serves the mount");
    }

    fn words(lines: &[String], name: &str) -> Vec<String> {
        let line = lines.iter().find(|line| line.trim_start().starts_with(name)).expect(name);
        line.trim_start()[name.len()..].split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_table_of_f2fs_stays_as_it_is_to_the_byte() {
        let [earlier, later] = recorded();
        assert_eq!(lines(&earlier, None).join("\n"), include_str!("golden/table.txt"));
        assert_eq!(lines(&later, Some(&earlier)).join("\n"), include_str!("golden/watched.txt"));
    }

    #[test]
    fn what_only_one_engine_has_stands_at_the_end() {
        let mut earlier = example();
        earlier.live = Live { block_size: 512, ..Live::default() };
        earlier.live.counters.written.data_blocks = 4;
        earlier.live.counters.named = [("erases/wear", 7)].into();
        earlier.live.named = [("bad_blocks", 2)].into();
        let table = lines(&earlier, None);
        assert_eq!(words(&table, "data"), ["2", "KiB"]);
        assert!(!table.iter().any(|line| line.contains("checkpoint") && !line.starts_with("cleaning")), "{table:#?}");
        assert_eq!(
            (words(&table, "erases/wear"), words(&table, "bad_blocks")),
            (vec!["7".to_owned()], vec!["2".to_owned()])
        );
        let mut later = earlier.clone();
        later.mount.uptime_seconds += 2.0;
        later.live.counters.named.set("erases/wear", 10);
        assert_eq!(words(&lines(&later, Some(&earlier)), "erases/wear"), ["10", "1.5/s"]);
    }

    #[test]
    fn logs_of_data_have_a_line_each_if_they_were_written_to() {
        let mut document = example();
        let names = ["written_blocks", "copied_blocks", "dead_blocks"];
        for (log, counts) in [("hot_data", [256, 64, 100]), ("more_1", [0, 512, 0]), ("cold_data", [0; 3])] {
            for (name, count) in names.into_iter().zip(counts) {
                document.live.counters.named.set(format!("logs/{log}/{name}"), count);
            }
        }
        document.live.counters.named.set("logs/hot_data/moved_blocks", 20);
        document.live.named.set("logs/hot_data/live_blocks", 128);
        document.live.named.set("logs/hot_data/blocks", 512);
        let table = lines(&document, None);
        assert_eq!(words(&table, "hot_data").join(" "), "1 MiB 256 KiB 1.25 400 KiB 80 KiB 512 KiB 25.0 %");
        assert_eq!(words(&table, "more_1").join(" "), "0 B 2 MiB - 0 B 0 B 0 B -");
        let named = table.iter().filter(|line| line.contains("_data") || line.contains("logs/")).count();
        assert_eq!(named, 1, "{table:#?}");
    }

    #[test]
    fn totals_have_units() {
        let lines = lines(&example(), None);
        assert_eq!(words(&lines, "data").join(" "), "2 MiB");
        assert_eq!(words(&lines, "all").join(" "), "2.5 MiB");
        assert_eq!(words(&lines, "journal").join(" "), "32 KiB");
        assert_eq!(words(&lines, "pre-invalid")[..2].join(" "), "100 KiB");
        assert_eq!(words(&lines, "new data").join(" "), "1.3 MiB");
        assert_eq!(words(&lines, "sync"), ["5"]);
        let foreground = "3 1.2 MiB 800 KiB 40 KiB 0 6 0 s 1.5 ms 0 s";
        assert_eq!(words(&lines, "foreground").join(" "), foreground);
        assert_eq!(words(&lines, "used").join(" "), "1000 KiB of 3.9 MiB (25.0 %)");
        assert_eq!(words(&lines, "mount").join(" "), "/mnt/a \"b\"\\c, for 1 h 2 min");
        assert_eq!(words(&lines, "amplification")[0], "2.00");
        assert_eq!(words(&lines, "changes"), ["possible"]);
        assert!(!lines.iter().any(|line| line.contains("now") || line.contains("/s")), "{lines:?}");
    }

    #[test]
    fn what_was_added_is_shown_for_each_second() {
        let earlier = example();
        let mut later = earlier.clone();
        later.mount.uptime_seconds += 2.0;
        let counters = &mut later.live.counters;
        counters.written.data_blocks += 512;
        counters.named.set("checkpoints/sync", 6);
        counters.cleaning.foreground.victims += 8;
        counters.cleaning.foreground.copy += Duration::from_millis(500);
        let lines = lines(&later, Some(&earlier));
        assert_eq!(words(&lines, "data").join(" "), "4 MiB 1 MiB/s");
        assert_eq!(words(&lines, "nodes").join(" "), "400 KiB 0 B/s");
        assert_eq!(words(&lines, "sync").join(" "), "6 0.5/s");
        assert_eq!(words(&lines, "now").join(" "), "4.0/s 0 B/s 0 B/s 0 B/s 0.0/s 0.0/s 0.0 % 25.0 % 0.0 %");
        // Of another mount there are no rates.
        later.mount.process += 1;
        assert_eq!(super::lines(&later, Some(&earlier)), super::lines(&later, None));
    }

    #[test]
    fn columns_are_aligned_and_nothing_breaks_out_of_its_line() {
        let mut document = example();
        document.live.read_only = true;
        document.live.failed = Some("write failed\non sda".into());
        let lines = lines(&document, None);
        assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:?}");
        assert_eq!(words(&lines, "changes").join(" "), "none any more: write failed\\non sda");
        let table = lines.iter().skip_while(|line| !line.starts_with("cleaning"));
        let widths: Vec<usize> = table.map(|line| line.chars().count()).collect();
        assert_eq!(widths, [widths[0]; 4]);
        document.live.failed = None;
        assert_eq!(words(&super::lines(&document, None), "changes").join(" "), "none: mounted read-only");
        document.live.read_only_reason = Some("feature".into());
        assert_eq!(words(&super::lines(&document, None), "changes").join(" "), "none: feature");
    }

    /// The document is what somebody else wrote.
    #[test]
    fn names_of_logs_stay_on_their_line() {
        let mut document = example();
        document.live.counters.named.set("logs/evil\n\u{1b}[2J/written_blocks".to_owned(), 5);
        let table = lines(&document, None);
        assert!(table.iter().all(|line| !line.contains(|one: char| one.is_control())), "{table:#?}");
    }

    #[test]
    fn huge_numbers_of_logs_do_not_overflow() {
        let mut document = example();
        for name in ["written_blocks", "copied_blocks", "dead_blocks"] {
            document.live.counters.named.set(format!("logs/hot_data/{name}"), u64::MAX);
        }
        assert!(!lines(&document, None).is_empty());
    }
}
