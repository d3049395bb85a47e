//! Tables.

use std::fmt::Write;

use super::text::{Unit, escape, number};

/// What a cell says beyond its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mark {
    /// Nothing.
    #[default]
    None,
    /// Good: shown green.
    Good,
    /// Neither good nor bad, but worth a look: shown amber.
    Notice,
    /// Bad: shown red.
    Bad,
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    text: String,
    numeric: bool,
    mark: Mark,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), numeric: false, mark: Mark::None }
    }

    /// A number, to about three significant digits, as its unit is written.
    #[must_use]
    pub fn quantity(value: f64, unit: Unit) -> Cell {
        Cell::numeric(if value.is_finite() { unit.show(value) } else { number(value) })
    }

    /// A number that is a text already.
    pub fn numeric(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), numeric: true, mark: Mark::None }
    }

    /// Nothing was measured.
    #[must_use]
    pub fn missing() -> Cell {
        Cell::quantity(f64::NAN, Unit::Plain)
    }

    /// The same cell, marked.
    #[must_use]
    pub fn marked(self, mark: Mark) -> Cell {
        Cell { mark, ..self }
    }

    fn html(&self, out: &mut String) {
        let mark = match self.mark {
            Mark::None => "",
            Mark::Good => " good",
            Mark::Notice => " notice",
            Mark::Bad => " bad",
        };
        let kind = if self.numeric { "number" } else { "words" };
        // Writing to a string cannot fail.
        let _ = write!(out, "<td class=\"{kind}{mark}\">{}</td>", escape(&self.text));
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::text(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::quantity(value, Unit::Plain)
    }
}

impl From<u64> for Cell {
    /// All digits, whatever the size.
    fn from(value: u64) -> Cell {
        Cell::numeric(super::text::count(value))
    }
}

impl From<Option<f64>> for Cell {
    /// A dash for `None`.
    fn from(value: Option<f64>) -> Cell {
        value.map_or_else(Cell::missing, Cell::from)
    }
}

/// A table: a caption, columns, rows. A wide one scrolls inside its own box.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    caption: String,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table with a caption (may be empty) and the headings of its columns.
    pub fn new<S: Into<String>>(caption: impl Into<String>, columns: impl IntoIterator<Item = S>) -> Table {
        Table { caption: caption.into(), columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row. Cells beyond the columns are dropped; missing ones stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut cells: Vec<Cell> = cells.into_iter().take(self.columns.len()).collect();
        cells.resize(self.columns.len(), Cell::text(""));
        self.rows.push(cells);
    }

    /// The same table with one more row.
    #[must_use]
    pub fn with(mut self, cells: impl IntoIterator<Item = Cell>) -> Table {
        self.row(cells);
        self
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn html(&self, out: &mut String) {
        out.push_str("<div class=\"box wide\" tabindex=\"0\"><table>");
        if !self.caption.is_empty() {
            let _ = write!(out, "<caption>{}</caption>", escape(&self.caption));
        }
        out.push_str("<thead><tr>");
        for (index, heading) in self.columns.iter().enumerate() {
            let numeric = self.rows.iter().any(|row| row[index].numeric);
            let kind = if numeric { "number" } else { "words" };
            let _ = write!(out, "<th scope=\"col\" class=\"{kind}\">{}</th>", escape(heading));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            row.iter().for_each(|cell| cell.html(out));
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }
}
