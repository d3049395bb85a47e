//! Drawing lines.

use std::fmt::Write;

use super::marks::{Look, mark};
use super::scale::Scale;
use super::{LETTER, Plot, Point, Series, Size, fitting, look, stated, text_width};
use crate::report::text::{Unit, escape};

/// From how many points on a line has no marks.
const DENSE: usize = 80;
/// Free space between two labels along the bottom.
const GAP: f64 = 10.0;

/// Where in the drawing the data are, and on which scales.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Scale,
    y: Scale,
}

impl Frame {
    fn new(plot: &Plot, size: Size) -> Frame {
        let shown = || plot.series.iter().flat_map(|series| &series.points).filter(|point| plot.shows(point));
        let heights = shown().flat_map(|point| {
            let (low, high) = point.range.unwrap_or((point.y, point.y));
            [point.y, low, high]
        });
        let stated = || plot.stated.iter().filter(|stated| plot.shows_stated(stated));
        let heights = heights.chain(stated().map(|stated| stated.value));
        let y = Scale::new(&plot.y, heights, if size.is_narrow() { 4 } else { 5 }, !plot.y.fitted);
        let wanted = if size.is_narrow() { 4 } else { 8 };
        let along = shown().map(|point| point.x).chain(stated().filter_map(|stated| stated.place));
        let x = Scale::new(&plot.x, along, wanted, false);
        let labels = y.ticks.iter().map(|tick| text_width(&tick.1)).fold(0.0, f64::max);
        let left = labels + 12.0;
        Frame { left, right: size.width - 16.0, top: 30.0, bottom: size.height - 46.0, x, y }
    }

    fn x(&self, value: f64) -> f64 {
        // A little inside, so that marks at both ends do not lie on the axis.
        let inset = 8.0;
        self.left + inset + self.x.place(value) * (self.right - self.left - 2.0 * inset)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }
}

/// The drawing, and its height.
pub(super) fn svg(plot: &Plot, size: Size) -> (f64, String) {
    let frame = Frame::new(plot, size);
    let mut out = String::new();
    axes(plot, &frame, size, &mut out);
    if !plot.series.iter().flat_map(|series| &series.points).any(|point| plot.shows(point)) {
        let (x, y) = (f64::midpoint(frame.left, frame.right), f64::midpoint(frame.top, frame.bottom));
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">nothing to show</text>"
        );
    }
    for (index, series) in plot.series.iter().enumerate() {
        line(plot, series, look(index, series), &frame, &mut out);
    }
    stated_values(plot, &frame, &mut out);
    (size.height, out)
}

/// Values that were not measured here: a line across, or a diamond at its place.
fn stated_values(plot: &Plot, frame: &Frame, out: &mut String) {
    // Behind all lines: the rim of one would hide the letter of another.
    let mut letters = String::new();
    for (index, stated) in plot.stated.iter().enumerate().filter(|(_, stated)| plot.shows_stated(stated)) {
        let (y, shown) = (frame.y(stated.value), plot.y.unit.show(stated.value));
        // Below the line where above it there is no room.
        let beside = if y < frame.top + LETTER { y + LETTER } else { y - 4.0 };
        if let Some(place) = stated.place {
            let x = frame.x(place);
            let title = format!("{}: {shown} at {}", stated.text, plot.x.unit.show(place));
            stated::path(&stated::diamond(x, y), &title, out);
            let (x, anchor) = if x > frame.right - 24.0 { (x - 10.0, "end") } else { (x + 10.0, "start") };
            stated::label(index, (x, beside), anchor, &mut letters);
        } else {
            let path = format!("M{:.1} {y:.1}H{:.1}", frame.left, frame.right);
            stated::path(&path, &format!("{}: {shown}", stated.text), out);
            // In turn from the right, so that lines close to each other can be told apart.
            let x = frame.right - 4.0 - 16.0 * (index % 4) as f64;
            stated::label(index, (x, beside), "end", &mut letters);
        }
    }
    out.push_str(&letters);
}

fn axes(plot: &Plot, frame: &Frame, size: Size, out: &mut String) {
    let Frame { left, right, top, bottom, .. } = *frame;
    for (value, label) in &frame.y.ticks {
        let y = frame.y(*value);
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
        let (x, y) = (left - 6.0, y + LETTER / 3.0);
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
            escape(label)
        );
    }
    let mut free_from = 0.0;
    for (value, label) in &frame.x.ticks {
        let (x, half) = (frame.x(*value), text_width(label) / 2.0);
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v4\"/>");
        let middle = x.min(size.width - half - 1.0).max(half + 1.0);
        // A label that would touch the one before it is left out; its tick stays.
        if middle - half < free_from {
            continue;
        }
        free_from = middle + half + GAP;
        let y = bottom + 18.0;
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            escape(label)
        );
    }
    let _ = writeln!(out, "<path class=\"axis\" fill=\"none\" d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\"/>");
    let _ = writeln!(out, "<text x=\"2\" y=\"16\">{}</text>", escape(&fitting(&plot.y.label, size.width - 4.0)));
    let (x, y) = (f64::midpoint(left, right), size.height - 8.0);
    let label = fitting(&plot.x.label, right - left);
    // Centred below the data, unless it would leave the drawing there.
    let x = x.min(size.width - text_width(&label) / 2.0);
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", escape(&label));
}

fn line(plot: &Plot, series: &Series, look: Look, frame: &Frame, out: &mut String) {
    let shown: Vec<&Point> = series.points.iter().filter(|point| plot.shows(point)).collect();
    let mut path = String::new();
    for (index, point) in shown.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{:.1} {:.1}", frame.x(point.x), frame.y(point.y));
    }
    if shown.len() > 1 {
        let _ = writeln!(out, "<path class=\"line {}\"{} d=\"{path}\"/>", look.stroke(), look.dash());
    }
    if shown.len() > DENSE {
        return;
    }
    for point in shown {
        let x = frame.x(point.x);
        if let Some((low, high)) = point.range.filter(|(low, high)| low < high) {
            let (low, high) = (frame.y(low), frame.y(high));
            let class = look.stroke();
            let _ = writeln!(
                out,
                "<path class=\"range {class}\" d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6m-6 0M{:.1} {high:.1}h6\"/>",
                x - 3.0,
                x - 3.0
            );
        }
        let _ = writeln!(out, "{}", mark(look, x, frame.y(point.y), &escape(&said(plot, series, point))));
    }
}

/// What pointing at a mark shows.
fn said(plot: &Plot, series: &Series, point: &Point) -> String {
    let show = |unit: Unit, value: f64| unit.show(value);
    let (x, y) = (show(plot.x.unit, point.x), show(plot.y.unit, point.y));
    let range = point.range.map_or_else(String::new, |(low, high)| {
        format!(" ({} to {})", show(plot.y.unit, low), show(plot.y.unit, high))
    });
    // A plot of one series has no name for it.
    let name = if series.name.is_empty() { String::new() } else { format!("{}: ", series.name) };
    format!("{name}{y}{range} at {x}")
}
