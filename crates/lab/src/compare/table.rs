//! The rows as a table of text.

use std::fmt::Write;

use super::row::{Measured, Row};

/// Two lines of a heading, and the cell of a row.
type Column = (&'static str, &'static str, fn(&Measured) -> String);

/// The columns that are numbers: what they are called, in two lines, and what they show.
const COLUMNS: [Column; 10] = [
    ("device", "time (s)", |m| format!("{:.2}", m.device_seconds)),
    ("", "WAF", |m| format!("{:.2}", m.waf)),
    ("page-level", "WA", |m| format!("{:.2}", m.wa)),
    ("flash", "pages/page", |m| format!("{:.2}", m.flash_pages_per_page)),
    ("erases", "per block", |m| format!("{:.2}", m.erases_per_block)),
    ("FAST", "WA", |m| format!("{:.2}", m.wa_fast)),
    ("flash", "pages/page", |m| format!("{:.2}", m.flash_pages_per_page_fast)),
    ("erases", "per block", |m| format!("{:.2}", m.erases_per_block_fast)),
    ("p99", "(ms)", |m| format!("{:.3}", m.p99_ms)),
    ("", "flushes", |m| m.flushes.to_string()),
];

/// What the columns mean, for whoever reads the table.
pub const LEGEND: &str = "WAF: bytes to the device for each byte written by the application; WA: flash pages programmed for each page to the \
    device; pages/page: for each page written by the application; erases per block: of the flash, spare \
    blocks included; p99: of the device's requests";

/// A table for each workload, in the order of the rows.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for same in rows.chunk_by(|one, next| one.device == next.device && workload_of(one) == workload_of(next)) {
        let Some(first) = same.first() else { continue };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} on {}, {}, {} % written before, {} % full, seed {}",
            crate::size::workload(&same.iter().find(|row| row.measured.is_some()).unwrap_or(first).workload),
            first.device,
            crate::size::human(first.size_bytes),
            first.fill_percent,
            first.utilization_percent,
            first.seed
        );
        lines(same, &mut text);
        if let Some(warning) = warning(same) {
            let _ = writeln!(text, "  {warning}");
        }
        text.push('\n');
    }
    text
}

/// What to say of rows whose flash erased less than every block once in the measured phase: which they are, and what helps.
pub(super) fn warning(rows: &[Row]) -> Option<String> {
    let found: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let measured = row.measured.as_ref()?;
            let layers = [("page-level", measured.erases_per_block), ("FAST", measured.erases_per_block_fast)];
            let few: Vec<_> = layers.iter().filter(|(_, erases)| *erases < 1.0).map(|layer| layer.0).collect();
            (!few.is_empty()).then(|| format!("{} ({})", row.fs, few.join(", ")))
        })
        .collect();
    (!found.is_empty()).then(|| {
        format!(
            "Warning: less than one erase per block was measured with {}, so WA may not be steady: write more (--measure), with a larger set \
             (set=)",
            found.join(", ")
        )
    })
}

/// The name without options: rows that did not begin have only what was asked for.
pub(super) fn workload_of(row: &Row) -> &str {
    row.workload.split(':').next().unwrap_or(&row.workload)
}

fn lines(rows: &[Row], text: &mut String) {
    let cells: Vec<Option<Vec<String>>> = rows
        .iter()
        .map(|row| row.measured.as_ref().map(|m| COLUMNS.iter().map(|column| (column.2)(m)).collect()))
        .collect();
    let widths: Vec<usize> = COLUMNS
        .iter()
        .enumerate()
        .map(|(index, (above, below, _))| {
            let widest = cells.iter().flatten().map(|row: &Vec<String>| row[index].len()).max().unwrap_or(0);
            widest.max(above.len()).max(below.len())
        })
        .collect();
    let name_width = rows.iter().map(|row| row.fs.len()).max().unwrap_or(0);
    let head = |text: &mut String, words: &dyn Fn(usize) -> &'static str| {
        let _ = write!(text, "  {:name_width$}", "");
        for (index, width) in widths.iter().enumerate() {
            let _ = write!(text, "  {:>width$}", words(index));
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    };
    head(text, &|index| COLUMNS[index].0);
    head(text, &|index| COLUMNS[index].1);
    for (row, cells) in rows.iter().zip(&cells) {
        let _ = write!(text, "  {:name_width$}", row.fs);
        match cells {
            Some(cells) => {
                for (cell, width) in cells.iter().zip(&widths) {
                    let _ = write!(text, "  {cell:>width$}");
                }
            }
            None => {
                let _ = write!(text, "  {}", row.error.as_deref().unwrap_or("nothing was measured"));
            }
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fs: &'static str, error: Option<&str>) -> Row {
        let measured = error.is_none().then(|| Measured {
            device_seconds: 12.5,
            device_seconds_page_level: 13.0,
            device_seconds_fast: 14.0,
            waf: 1.25,
            wa: 2.0,
            wa_fast: 3.0,
            flash_pages_per_page: 2.5,
            flash_pages_per_page_fast: 3.75,
            erases: 1234,
            erases_fast: 5678,
            erases_per_block: 1.25,
            erases_per_block_fast: 4.5,
            p50_ms: 0.1,
            p99_ms: 1.5,
            p99_page_level_ms: 1.6,
            p99_fast_ms: 1.7,
            p99_9_ms: 3.0,
            requests: 10,
            flushes: 7,
            application_bytes: 4096,
            operations: 1,
            fsyncs: 1,
            written_bytes: 5120,
            read_bytes: 0,
            discarded_bytes: 0,
            reached_utilization_percent: 85.0,
            operation_hash: "0".repeat(16),
        });
        Row {
            fs,
            workload: "zipf:0.99".to_owned(),
            device: "ssd".to_owned(),
            size_bytes: 1 << 30,
            utilization_percent: 85,
            fill_percent: 100,
            seed: 1,
            measured,
            elapsed_seconds: 1.0,
            error: error.map(str::to_owned),
            skipped: false,
        }
    }

    #[test]
    fn numbers_stand_below_their_heads_and_errors_beside_their_names() {
        let text = table(&[row("basalt", None), row("btrfs", Some("no space"))]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("zipf:0.99 on ssd"));
        let end = lines[2].find("WAF").unwrap() + 3;
        assert_eq!(&lines[3][end - 4..end], "1.25");
        assert_eq!(lines[4], "  btrfs   no space");
    }
    #[test]
    fn few_erases_are_warned_of_below_the_table() {
        let measured = |fs, page_level, fast| {
            let mut row = row(fs, None);
            let numbers = row.measured.as_mut().unwrap();
            (numbers.erases_per_block, numbers.erases_per_block_fast) = (page_level, fast);
            row
        };
        let enough = [measured("basalt", 1.0, 1.5), row("btrfs", Some("no space"))];
        assert_eq!(warning(&enough), None);
        assert!(!table(&enough).contains("Warning"));
        let few = [measured("basalt", 0.99, 0.5), measured("ext4", 0.2, 3.0), measured("xfs", 2.0, 2.0)];
        let text = table(&few);
        let warnings: Vec<&str> = text.lines().filter(|line| line.contains("Warning")).collect();
        assert_eq!(warnings.len(), 1, "{text}");
        assert!(warnings[0].contains("with basalt (page-level, FAST), ext4 (page-level), so"), "{text}");
        assert!(warnings[0].contains("--measure"), "{text}");
    }
}
