//! Values that were not measured here, such as those that a paper states: in a colour of their own, each with a letter that leads from the
//! drawing to the legend.

use std::fmt::Write;

use crate::report::text::{Unit, escape};

/// A value beside what was measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stated<P> {
    /// Where along the other axis; `None`: everywhere.
    pub place: Option<P>,
    /// The value.
    pub value: f64,
    /// Who says so, and what it is.
    pub text: String,
}

/// The path of a line in a legend.
pub(super) const LINE: &str = "M1 6H16";

/// The letter of a stated value: A, B, …; beyond Z they are all alike.
pub(super) fn letter(index: usize) -> char {
    u8::try_from(index).ok().filter(|index| *index < 26).map_or('*', |index| char::from(b'A' + index))
}

/// A line of an SVG path, with a rim that sets it off from bars and lines; `title` is what pointing at it shows.
pub(super) fn path(path: &str, title: &str, out: &mut String) {
    let title = escape(title);
    let _ = writeln!(
        out,
        "<path class=\"rim\" d=\"{path}\"/><path class=\"stated\" d=\"{path}\"><title>{title}</title></path>"
    );
}

/// The letter of a stated value, its baseline at this place; `anchor` as SVG has it.
pub(super) fn label(index: usize, (x, y): (f64, f64), anchor: &str, out: &mut String) {
    let letter = letter(index);
    let _ = writeln!(out, "<text class=\"letter\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{letter}</text>");
}

/// The path of a diamond around a place.
pub(super) fn diamond(x: f64, y: f64) -> String {
    format!("M{x:.1} {:.1}l6 6l-6 6l-6 -6z", y - 6.0)
}

/// What the legend says of stated values: a sample with the letter, and the text. `place` is how one with a place is drawn; others are lines.
pub(super) fn legend<P>(stated: &[Stated<P>], place: &str) -> impl Iterator<Item = (String, String)> {
    stated.iter().enumerate().map(move |(index, stated)| {
        let letter = letter(index);
        let path = if stated.place.is_some() { place } else { LINE };
        let sample = format!(
            "<svg viewBox=\"0 0 30 12\" aria-hidden=\"true\"><path class=\"stated\" d=\"{path}\"/>\
             <text class=\"letter\" x=\"19\" y=\"10.5\">{letter}</text></svg>"
        );
        (sample, stated.text.clone())
    })
}

/// The sentence below a drawing that gives the numbers.
pub(super) fn note<P>(stated: &[Stated<P>], unit: Unit, show: impl Fn(&P) -> String) -> String {
    let one = |(index, stated): (usize, &Stated<P>)| {
        let at = stated.place.as_ref().map_or_else(String::new, |place| format!(" at {}", show(place)));
        format!("{}: {}{at} ({})", letter(index), unit.show(stated.value), stated.text)
    };
    let all: Vec<String> = stated.iter().enumerate().map(one).collect();
    if all.is_empty() { String::new() } else { format!("Not measured here: {}.", all.join("; ")) }
}
