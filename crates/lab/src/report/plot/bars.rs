//! Grouped bars, lying: names of any length have room, on a phone above their bars.

use std::fmt::Write;

use super::marks::{Look, bar_sample};
use super::scale::{Scale, can_show};
use super::stated::{self, Stated};
use super::{Axis, LETTER, Size, figure, fitting, left_out_note, text_width};
use crate::report::text::escape;

/// Height of a bar.
const BAR: f64 = 17.0;
/// Between bars of a group.
const BETWEEN: f64 = 3.0;
/// Between groups.
const GROUP_GAP: f64 = 13.0;
/// Room for a name above its bars.
const NAME: f64 = 19.0;
/// Above the first group.
const TOP: f64 = 30.0;
/// Widest a name beside its bars may be.
const WIDEST_NAME: f64 = 230.0;

/// Groups of bars: one group a thing compared, one bar in each for every series.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    title: String,
    axis: Axis,
    series: Vec<String>,
    groups: Vec<(String, Vec<Option<f64>>)>,
    stated: Vec<Stated<String>>,
}

impl Bars {
    /// A plot without groups. With one series its name may be empty: no legend is shown then.
    pub fn new<S: Into<String>>(title: impl Into<String>, axis: Axis, series: impl IntoIterator<Item = S>) -> Bars {
        let series = series.into_iter().map(Into::into).collect();
        Bars { title: title.into(), axis, series, groups: Vec::new(), stated: Vec::new() }
    }

    /// The same plot with one more group: a value for each series, `None` where there is none.
    #[must_use]
    pub fn group<V: Into<Option<f64>>>(mut self, name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Bars {
        let mut values: Vec<Option<f64>> = values.into_iter().map(Into::into).take(self.series.len()).collect();
        values.resize(self.series.len(), None);
        self.groups.push((name.into(), values));
        self
    }

    /// The same plot with a value that was not measured here: a line across a group, or across all.
    #[must_use]
    pub fn stated(mut self, group: Option<String>, value: f64, text: impl Into<String>) -> Bars {
        self.stated.push(Stated { place: group, value, text: text.into() });
        self
    }

    pub(in crate::report) fn html(&self, out: &mut String) {
        let all = self.groups.iter().flat_map(|(_, values)| values.iter().flatten());
        let left_out = all.chain(self.stated.iter().map(|stated| &stated.value));
        let left_out = left_out.filter(|&&value| !can_show(&self.axis, value)).count();
        let legend: Vec<(String, String)> = self
            .series
            .iter()
            .enumerate()
            .map(|(index, name)| (bar_sample(&Look { index, reference: false }), name.clone()))
            .chain(stated::legend(&self.stated, stated::LINE))
            .collect();
        let note = stated::note(&self.stated, self.axis.unit, Clone::clone);
        let notes = [note, left_out_note(left_out, self.axis.logarithmic)];
        figure(&self.title, &legend, &notes, out, |size| self.svg(size));
    }

    fn scale(&self, size: Size) -> Scale {
        let stated = || self.stated.iter().map(|stated| stated.value);
        let values = || self.groups.iter().flat_map(|(_, values)| values.iter().flatten().copied()).chain(stated());
        // A logarithmic axis begins well below the least value, which would have no bar otherwise.
        let shown = values().filter(|&value| self.axis.logarithmic && can_show(&self.axis, value));
        let begin = shown.min_by(f64::total_cmp).map(|least| least / 3.0);
        let values = values().chain(begin);
        Scale::new(&self.axis, values, if size.is_narrow() { 4 } else { 7 }, true)
    }

    /// The drawing, and its height.
    fn svg(&self, size: Size) -> (f64, String) {
        let scale = self.scale(size);
        let names = self.groups.iter().map(|(name, _)| text_width(name)).fold(0.0, f64::max).min(WIDEST_NAME);
        let said = self.groups.iter().flat_map(|(_, values)| values.iter().flatten());
        let said = said.map(|&value| text_width(&self.axis.unit.show(value))).fold(0.0, f64::max);
        let left = if size.is_narrow() { 4.0 } else { names + 12.0 };
        let right = size.width - said - 12.0;
        let above = if size.is_narrow() { NAME } else { 0.0 };
        let group = above + self.series.len() as f64 * (BAR + BETWEEN) + GROUP_GAP;
        let bottom = TOP + group * self.groups.len() as f64;
        let height = bottom + 24.0;

        let mut out = String::new();
        let place = |value: f64| left + scale.place(value) * (right - left);
        let mut free_from = 0.0;
        for (value, label) in &scale.ticks {
            let (x, half) = (place(*value), text_width(label) / 2.0);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{x:.1} {TOP:.1}V{bottom:.1}\"/>");
            let middle = x.max(half + 1.0).min(size.width - half - 1.0);
            if middle - half >= free_from {
                free_from = middle + half + 10.0;
                let y = bottom + 17.0;
                let label = escape(label);
                let _ = writeln!(
                    out,
                    "<text class=\"soft\" x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>"
                );
            }
        }
        let _ = writeln!(out, "<text x=\"2\" y=\"16\">{}</text>", escape(&fitting(&self.axis.label, size.width - 4.0)));
        for (index, (name, values)) in self.groups.iter().enumerate() {
            let top = TOP + group * index as f64 + GROUP_GAP / 2.0;
            self.name(name, size, (left, top, group - GROUP_GAP), &mut out);
            self.bars(name, values, top + above, &place, &mut out);
            let within = top + above..top + group - GROUP_GAP;
            self.stated_values(Some(name), (within.start - 2.0, within.end - BETWEEN + 2.0), &place, &mut out);
        }
        self.stated_values(None, (TOP, bottom), &place, &mut out);
        let zero = if self.axis.logarithmic { left } else { place(0.0) };
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{zero:.1} {TOP:.1}V{bottom:.1}\"/>");
        (height, out)
    }

    /// Values that were not measured here, of a group or of all: lines across the bars from top to bottom, letters at an end of them.
    fn stated_values(
        &self,
        group: Option<&str>,
        (top, bottom): (f64, f64),
        place: &impl Fn(f64) -> f64,
        out: &mut String,
    ) {
        for (index, stated) in self.stated.iter().enumerate() {
            if stated.place.as_deref() == group && can_show(&self.axis, stated.value) {
                let x = place(stated.value);
                let title = format!("{}: {}", stated.text, self.axis.unit.show(stated.value));
                stated::path(&format!("M{x:.1} {top:.1}V{bottom:.1}"), &title, out);
                let y = if group.is_some() { bottom + LETTER - 3.0 } else { top - 2.0 };
                stated::label(index, (x, y), "middle", out);
            }
        }
    }

    /// The name of a group: above its bars on a phone, else beside them.
    fn name(&self, name: &str, size: Size, (left, top, height): (f64, f64, f64), out: &mut String) {
        let _ = if size.is_narrow() {
            let (name, y) = (fitting(name, size.width - 12.0), top + LETTER);
            writeln!(out, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", left + 4.0, escape(&name))
        } else {
            let (name, y) = (fitting(name, WIDEST_NAME), top + (height - BETWEEN) / 2.0 + LETTER / 3.0);
            writeln!(out, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", left - 8.0, escape(&name))
        };
    }

    fn bars(&self, group: &str, values: &[Option<f64>], top: f64, place: &impl Fn(f64) -> f64, out: &mut String) {
        for (index, value) in values.iter().enumerate() {
            let y = top + index as f64 * (BAR + BETWEEN);
            let (label, end) = match *value {
                Some(value) if can_show(&self.axis, value) => {
                    let zero = if self.axis.logarithmic { place(f64::MIN_POSITIVE) } else { place(0.0) };
                    let (from, to) = (zero.min(place(value)), zero.max(place(value)));
                    let look = Look { index, reference: false };
                    let series = &self.series[index];
                    let shown = self.axis.unit.show(value);
                    let title =
                        escape(&format!("{group}{}{series}: {shown}", if series.is_empty() { "" } else { ", " }));
                    let _ = writeln!(
                        out,
                        "<rect class=\"{}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"><title>{title}</title></rect>",
                        look.fill(),
                        (to - from).max(1.0)
                    );
                    (shown, to)
                }
                Some(value) => (self.axis.unit.show(value), place(0.0)),
                None => ("–".to_owned(), place(0.0)),
            };
            let (x, y) = (end + 5.0, y + BAR / 2.0 + LETTER / 3.0);
            let _ = writeln!(out, "<text class=\"soft\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(&label));
        }
    }
}
