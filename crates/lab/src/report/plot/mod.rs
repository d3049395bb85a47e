//! Plots: what is in them. How they are drawn is in `lines` and `bars`.
//!
//! Own SVG instead of a crate: the colours must follow the reader's choice of light or dark, so every mark gets its colour from
//! a class of the page's style sheet, and the plot crates write colours into their marks.

mod bars;
mod lines;
mod marks;
mod scale;
mod stated;

use std::fmt::Write;

pub use bars::Bars;
use stated::Stated;

use super::text::{Unit, escape};

/// What is measured along one side of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    label: String,
    unit: Unit,
    logarithmic: bool,
    fitted: bool,
}

impl Axis {
    /// A linear axis with plain numbers; the label names their unit, if they have one: `throughput (MB/s)`.
    pub fn new(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), unit: Unit::Plain, logarithmic: false, fitted: false }
    }

    /// How its numbers are written.
    #[must_use]
    pub fn unit(self, unit: Unit) -> Axis {
        Axis { unit, ..self }
    }

    /// Makes it logarithmic. What is not positive is left out then, and the plot says so.
    #[must_use]
    pub fn logarithmic(self) -> Axis {
        Axis { logarithmic: true, ..self }
    }

    /// Shows the range of the data alone, without zero. Axes across the bottom always do.
    #[must_use]
    pub fn fitted(self) -> Axis {
        Axis { fitted: true, ..self }
    }
}

/// A point of a line, with the range of repeated measurements where there are some.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Along the bottom.
    pub x: f64,
    /// The height.
    pub y: f64,
    /// The lowest and the highest height measured.
    pub range: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Point {
        Point { x, y, range: None }
    }
}

/// A line of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<Point>,
    reference: bool,
    color: Option<usize>,
}

impl Series {
    /// A line through points, which are sorted by x.
    pub fn new<P: Into<Point>>(name: impl Into<String>, points: impl IntoIterator<Item = P>) -> Series {
        let mut points: Vec<Point> = points.into_iter().map(Into::into).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series { name: name.into(), points, reference: false, color: None }
    }

    /// Draws it dashed with hollow marks: a value that was not measured here, such as a paper's.
    #[must_use]
    pub fn reference(self) -> Series {
        Series { reference: true, ..self }
    }

    /// Gives it the colour of the series with this number, from 0: a paper's value beside ours.
    #[must_use]
    pub fn color_of(self, series: usize) -> Series {
        Series { color: Some(series), ..self }
    }
}

/// Lines over a continuous axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    stated: Vec<Stated<f64>>,
}

impl Plot {
    /// A plot without lines. `x` shows the range of the data; `y` begins at zero unless it is logarithmic or fitted.
    pub fn lines(title: impl Into<String>, x: Axis, y: Axis) -> Plot {
        Plot { title: title.into(), x, y, series: Vec::new(), stated: Vec::new() }
    }

    /// The same plot with one more line.
    #[must_use]
    pub fn with(mut self, series: Series) -> Plot {
        self.series.push(series);
        self
    }

    /// The same plot with a value that was not measured here: a point at this x, or a line across the plot.
    #[must_use]
    pub fn stated(mut self, x: Option<f64>, y: f64, text: impl Into<String>) -> Plot {
        self.stated.push(Stated { place: x, value: y, text: text.into() });
        self
    }

    pub(super) fn html(&self, out: &mut String) {
        let left_out = self.series.iter().flat_map(|series| &series.points).filter(|point| !self.shows(point)).count();
        let left_out = left_out + self.stated.iter().filter(|stated| !self.shows_stated(stated)).count();
        let note = left_out_note(left_out, self.x.logarithmic || self.y.logarithmic);
        let notes = [stated::note(&self.stated, self.y.unit, |x| self.x.unit.show(*x)), note];
        figure(&self.title, &self.legend(), &notes, out, |size| lines::svg(self, size));
    }

    fn shows_stated(&self, stated: &Stated<f64>) -> bool {
        scale::can_show(&self.y, stated.value) && stated.place.is_none_or(|x| scale::can_show(&self.x, x))
    }

    fn shows(&self, point: &Point) -> bool {
        scale::can_show(&self.x, point.x) && scale::can_show(&self.y, point.y)
    }

    fn legend(&self) -> Vec<(String, String)> {
        let entry = |(index, series): (usize, &Series)| (marks::line_sample(&look(index, series)), series.name.clone());
        let diamond = stated::diamond(8.0, 6.0);
        self.series.iter().enumerate().map(entry).chain(stated::legend(&self.stated, &diamond)).collect()
    }
}

/// How a series looks: the index of its colour and shape, and whether it is dashed.
fn look(index: usize, series: &Series) -> marks::Look {
    marks::Look { index: series.color.unwrap_or(index), reference: series.reference }
}

fn left_out_note(count: usize, logarithmic: bool) -> String {
    let why = if logarithmic { "not positive, or no number" } else { "no number" };
    match count {
        0 => String::new(),
        1 => format!("One value is left out: it is {why}."),
        _ => format!("{count} values are left out: they are {why}."),
    }
}

/// The size a plot is drawn for, in CSS pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Size {
    width: f64,
    /// Of a plot whose height does not follow from what is in it.
    height: f64,
    class: &'static str,
}

const WIDE: Size = Size { width: 760.0, height: 380.0, class: "wide" };
const NARROW: Size = Size { width: 340.0, height: 280.0, class: "narrow" };

impl Size {
    fn is_narrow(self) -> bool {
        self == NARROW
    }
}

/// Height of the letters in a plot.
const LETTER: f64 = 12.5;

/// About how wide a text is in a plot.
fn text_width(text: &str) -> f64 {
    // Digits of the usual fonts are 0.56 of the height wide, capitals up to 0.75; beyond Latin and its punctuation twice that.
    text.chars().map(|letter| if letter < '\u{2e80}' { 0.58 } else { 1.05 }).sum::<f64>() * LETTER
}

/// A text that is at most about `width` wide, shortened if need be.
fn fitting(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for letter in text.chars() {
        short.push(letter);
        if text_width(&short) + LETTER > width {
            break;
        }
    }
    short.pop();
    short.push('…');
    short
}

/// A figure: caption, the drawing in both sizes, legend, notes.
fn figure(
    title: &str,
    legend: &[(String, String)],
    notes: &[String],
    out: &mut String,
    draw: impl Fn(Size) -> (f64, String),
) {
    out.push_str("<figure>\n");
    if !title.is_empty() {
        let _ = writeln!(out, "<figcaption>{}</figcaption>", escape(title));
    }
    for size in [WIDE, NARROW] {
        let (height, drawing) = draw(size);
        let Size { width, class, .. } = size;
        let _ = write!(
            out,
            "<svg class=\"plot {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n{drawing}</svg>\n",
            escape(title)
        );
    }
    if legend.iter().any(|(_, name)| !name.is_empty()) {
        out.push_str("<ul class=\"legend\">\n");
        for (sample, name) in legend.iter().filter(|(_, name)| !name.is_empty()) {
            let _ = writeln!(out, "<li>{sample}<span>{}</span></li>", escape(name));
        }
        out.push_str("</ul>\n");
    }
    for note in notes.iter().filter(|note| !note.is_empty()) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str("</figure>\n");
}
