//! The tables of docs/reproduction.md.

use std::fmt::Write as _;

use super::{Figure, Uncovered};
use crate::verdicts::Row;

/// The rows of figures as Markdown: a heading and a table each.
pub fn markdown(results: &[(&Figure, Vec<Row>)]) -> String {
    let mut text = String::new();
    for (figure, rows) in results {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "### {}: {}\n", figure.label(), figure.title);
        let head = ["what", "paper", "source", "ours", "spread", "verdict", "conditions and reasons"];
        table(&mut text, &head, rows.iter().map(cells));
        text.push('\n');
    }
    text
}

/// What no row covers, as a Markdown table.
pub fn markdown_uncovered(list: &[&Uncovered]) -> String {
    let mut text = String::from("### What no row covers\n\n");
    let row = |one: &&Uncovered| [one.paper.to_uppercase(), one.place.into(), one.uncovered.into(), one.why.into()];
    table(&mut text, &["paper", "where", "what", "why not"], list.iter().map(row));
    text.push('\n');
    text
}

fn cells(row: &Row) -> [String; 7] {
    let source = format!("{}: {}", row.source, row.source_note);
    let verdict = row.verdict.name().to_owned();
    [row.item.clone(), row.paper_text.clone(), source, row.ours_text(), row.spread_text(), verdict, row.remarks()]
}

fn table<const N: usize>(text: &mut String, head: &[&str; N], rows: impl Iterator<Item = [String; N]>) {
    let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(N));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.map(|text| cell(&text)).join(" | "));
    }
}

/// Text that stays within its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::uncovered;

    #[test]
    fn a_cell_keeps_its_text_and_a_table_its_columns() {
        let list: Vec<_> = uncovered(Some("scj")).collect();
        let text = markdown_uncovered(&list);
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 2 + list.len());
        assert!(lines.iter().all(|line| line.matches('|').count() == 5), "{text}");
        assert_eq!(cell("a|b\nc"), "a\\|b c");
    }
}
