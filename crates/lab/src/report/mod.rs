//! Reports: one self-contained HTML page with tables and plots, for a phone, a desktop and paper, light and dark.
//!
//! | module | what |
//! |---|---|
//! | `page` | the page around everything, and its style |
//! | `table` | [`Table`], [`Cell`] |
//! | `plot` | [`Plot`]: lines and grouped bars as inline SVG |
//! | `text` | escaping, numbers, units |
//!
//! The page loads nothing, runs no script, and contains no time of its making: the same report gives the same bytes. Every text
//! is escaped. Each plot is drawn twice, for narrow and for wide windows, and the style sheet shows the one that fits: letters keep
//! their size on a phone.
//!
//! ```
//! use basalt_lab::report::{Axis, Plot, Report, Section, Series};
//!
//! let mut report = Report::new("Write cost over utilization");
//! report.parameter("volume", "1 GiB");
//! let plot = Plot::lines("Write cost", Axis::new("utilization (%)"), Axis::new("write cost"))
//!     .with(Series::new("greedy", [(60.0, 1.4), (80.0, 2.3)]));
//! report.add(Section::new("Result").text("Greedy cleaning alone.").plot(plot));
//! assert!(report.to_html().contains("<svg"));
//! ```

mod page;
mod plot;
mod table;
mod text;

pub use plot::{Axis, Bars, Plot, Point, Series};
pub use table::{Cell, Mark, Table};
pub use text::{Unit, escape, number};

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    title: String,
    summary: String,
    command: String,
    parameters: Vec<(String, String)>,
    sections: Vec<Section>,
}

impl Report {
    /// A report without sections.
    pub fn new(title: impl Into<String>) -> Report {
        Report {
            title: title.into(),
            summary: String::new(),
            command: String::new(),
            parameters: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Says in a sentence or two, below the title, what was found or looked at.
    pub fn summary(&mut self, summary: impl Into<String>) {
        self.summary = summary.into();
    }

    /// Names the command that repeats everything.
    pub fn command(&mut self, command: impl Into<String>) {
        self.command = command.into();
    }

    /// Adds a parameter that holds for the whole report.
    pub fn parameter(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.parameters.push((name.into(), value.into()));
    }

    /// Adds a section.
    pub fn add(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// The page.
    #[must_use]
    pub fn to_html(&self) -> String {
        page::html(self)
    }
}

/// A part of a report: a heading, and what is below it.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    title: String,
    blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Debug, Clone, PartialEq)]
enum Block {
    Text(String),
    Code(String),
    Table(Table),
    Plot(Plot),
    Bars(Bars),
}

impl Section {
    /// An empty section; an empty title leaves the heading out.
    pub fn new(title: impl Into<String>) -> Section {
        Section { title: title.into(), blocks: Vec::new() }
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Section {
        self.block(Block::Text(text.into()))
    }

    /// Adds text that keeps its lines, such as a command.
    #[must_use]
    pub fn code(self, code: impl Into<String>) -> Section {
        self.block(Block::Code(code.into()))
    }

    /// Adds a table.
    #[must_use]
    pub fn table(self, table: Table) -> Section {
        self.block(Block::Table(table))
    }

    /// Adds a plot of lines.
    #[must_use]
    pub fn plot(self, plot: Plot) -> Section {
        self.block(Block::Plot(plot))
    }

    /// Adds a plot of bars.
    #[must_use]
    pub fn bars(self, bars: Bars) -> Section {
        self.block(Block::Bars(bars))
    }

    fn block(mut self, block: Block) -> Section {
        self.blocks.push(block);
        self
    }
}
