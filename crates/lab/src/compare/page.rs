//! The rows as a report.

use super::Comparison;
use super::row::{Measured, Row};
use super::table::{LEGEND, warning, workload_of};
use crate::report::{Axis, Bars, Cell, Mark, Report, Section, Table, Unit};

/// The report of a comparison; `command` repeats it.
pub fn report(comparison: &Comparison, rows: &[Row], command: &str) -> Report {
    let settings = &comparison.settings;
    let mut report = Report::new("File systems compared");
    report.summary(
        "The same operations on each file system; what each asked of its disk was recorded, and replayed on one simulated device and \
         through two flash translation layers. The file systems of Linux ran in User-Mode Linux.",
    );
    report.command(command);
    report.parameter("device", format!("{}: {}", comparison.device.name, comparison.device.description));
    report.parameter("written before", format!("{} % of the device, once and in order", comparison.fill_percent));
    report.parameter("volume", crate::size::human(settings.size_bytes));
    report.parameter("utilization", format!("{} % of what each file system offers", settings.utilization_percent));
    report.parameter("seed", settings.seed.to_string());
    for same in rows.chunk_by(|one, next| workload_of(one) == workload_of(next)) {
        report.add(section(same));
    }
    report.add(settings_section(comparison));
    report
}

fn section(rows: &[Row]) -> Section {
    let named = rows.iter().find(|row| row.measured.is_some()).or(rows.first());
    let title = named.map(|row| crate::size::workload(&row.workload)).unwrap_or_default();
    let mut section = Section::new(title)
        .bars(bars(
            rows,
            "Flash pages programmed for each page of the application",
            "pages",
            &["page-level", "FAST"],
            |m| vec![m.flash_pages_per_page, m.flash_pages_per_page_fast],
        ))
        .bars(bars(rows, "Time of the device", "seconds", &[""], |m| vec![m.device_seconds]))
        .table(numbers(rows))
        .text(format!("{LEGEND}."));
    if let Some(warning) = warning(rows) {
        section = section.text(format!("{warning}."));
    }
    for row in rows {
        if let Some(error) = &row.error {
            section = section.text(format!("{}: {error}.", row.fs));
        }
    }
    section
}

fn bars(rows: &[Row], title: &str, unit: &str, series: &[&str], values: fn(&Measured) -> Vec<f64>) -> Bars {
    let mut bars = Bars::new(title, Axis::new(unit), series.iter().copied());
    for row in rows {
        let values: Vec<Option<f64>> = match &row.measured {
            Some(measured) => values(measured).into_iter().map(Some).collect(),
            None => Vec::new(),
        };
        bars = bars.group(row.fs, values);
    }
    bars
}

fn numbers(rows: &[Row]) -> Table {
    let columns = [
        "file system",
        "device time",
        "WAF",
        "WA page-level",
        "pages/page",
        "erases",
        "per block",
        "WA FAST",
        "pages/page",
        "erases",
        "per block",
        "p50",
        "p99",
        "p99.9",
        "requests",
        "flushes",
        "written",
        "read",
        "discarded",
    ];
    let mut table = Table::new("The measured phase", columns);
    for row in rows {
        let mut cells = vec![Cell::text(row.fs).marked(if row.error.is_some() { Mark::Bad } else { Mark::None })];
        match &row.measured {
            Some(measured) => cells.extend(cells_of(measured)),
            None => cells.resize_with(columns.len(), Cell::missing),
        }
        table.row(cells);
    }
    table
}

fn cells_of(m: &Measured) -> Vec<Cell> {
    let plain = |value: f64| Cell::numeric(format!("{value:.2}"));
    let count = |value: u64| Cell::numeric(value.to_string());
    let bytes = |value: u64| Cell::quantity(value as f64, Unit::Bytes);
    let milliseconds = |value: f64| Cell::quantity(value * 1e6, Unit::Nanoseconds);
    vec![
        Cell::numeric(format!("{:.2} s", m.device_seconds)),
        plain(m.waf),
        plain(m.wa),
        plain(m.flash_pages_per_page),
        count(m.erases),
        plain(m.erases_per_block),
        plain(m.wa_fast),
        plain(m.flash_pages_per_page_fast),
        count(m.erases_fast),
        plain(m.erases_per_block_fast),
        milliseconds(m.p50_ms),
        milliseconds(m.p99_ms),
        milliseconds(m.p99_9_ms),
        count(m.requests),
        count(m.flushes),
        bytes(m.written_bytes),
        bytes(m.read_bytes),
        bytes(m.discarded_bytes),
    ]
}

fn settings_section(comparison: &Comparison) -> Section {
    let mut table = Table::new("How each is formatted and mounted", ["file system", "setting"]);
    for system in &comparison.systems {
        table.row([Cell::text(system.name()), Cell::text(system.setting())]);
    }
    Section::new("Settings").table(table).text(
        "Utilization is of what each file system offers to users, so those that keep less back for themselves hold more data. The \
         translation layers were filled before, and see every request since mkfs; what is counted is the measured phase, unmounting included. \
         Times of the device are those of its model, one request after the other.",
    )
}
