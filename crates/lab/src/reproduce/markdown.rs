//! The tables of docs/reproduction.md.

use std::fmt::Write as _;

use super::{Figure, Item};

/// The items of figures as Markdown: a heading and a table each.
pub fn markdown(results: &[(&Figure, Vec<Item>)]) -> String {
    let mut text = String::new();
    for (figure, items) in results {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "### {}: {}\n", figure.label(), figure.title);
        let _ = writeln!(text, "| what | paper | ours | verdict | conditions and reasons |\n|---|---|---|---|---|");
        for item in items {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                cell(&item.item),
                cell(&item.paper_text),
                cell(&item.ours_text()),
                item.verdict.name(),
                cell(&item.why)
            );
        }
        text.push('\n');
    }
    text
}

/// Text that stays within its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
