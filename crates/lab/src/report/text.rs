//! Text in a page: escaping, numbers and quantities as people read them.

/// How the numbers of a column or an axis are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// As they are; a unit, where there is one, is said by the label.
    #[default]
    Plain,
    /// Percent.
    Percent,
    /// Bytes, shown in powers of 1024.
    Bytes,
    /// Nanoseconds, shown as ns, µs, ms or s.
    Nanoseconds,
}

impl Unit {
    /// A value with its unit, to about three significant digits: `1.25 ms`, `64 KiB`, `85 %`, `12 345`.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        let (scale, suffix) = self.scale_of(value);
        format!("{}{suffix}", number(value / scale))
    }

    /// A tick of an axis whose ticks are `step` apart: as many decimals as tell neighbours apart.
    pub(crate) fn tick(self, value: f64, step: f64) -> String {
        let (scale, suffix) = match self {
            Unit::Plain => compact(value),
            _ => self.scale_of(value),
        };
        let decimals = (-(step / scale).abs().log10() - 1e-9).ceil().clamp(0.0, 9.0) as usize;
        let mut text = format!("{:.decimals$}", value / scale);
        if text.contains('.') {
            text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        }
        if text == "-0" {
            text = "0".to_owned();
        }
        format!("{text}{suffix}")
    }

    /// What to divide by, and what to write behind, for a number of this size.
    fn scale_of(self, value: f64) -> (f64, &'static str) {
        const BYTES: [(f64, &str); 5] = [
            (1_099_511_627_776.0, "\u{a0}TiB"),
            (1_073_741_824.0, "\u{a0}GiB"),
            (1_048_576.0, "\u{a0}MiB"),
            (1024.0, "\u{a0}KiB"),
            (0.0, "\u{a0}B"),
        ];
        const TIMES: [(f64, &str); 4] = [(1e9, "\u{a0}s"), (1e6, "\u{a0}ms"), (1e3, "\u{a0}µs"), (0.0, "\u{a0}ns")];
        let scales: &[(f64, &'static str)] = match self {
            Unit::Plain => return (1.0, ""),
            Unit::Percent => return (1.0, "\u{a0}%"),
            Unit::Bytes => &BYTES,
            Unit::Nanoseconds => &TIMES,
        };
        let found = scales.iter().find(|(least, _)| value.abs() >= *least).copied();
        found.map_or((1.0, ""), |(scale, suffix)| (if scale == 0.0 { 1.0 } else { scale }, suffix))
    }
}

/// A large number on an axis: thousands, millions, and so on.
fn compact(value: f64) -> (f64, &'static str) {
    match value.abs() {
        size if size >= 1e12 => (1e12, "T"),
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    }
}

/// A number to about three significant digits, all of its digits before the point, thousands apart; `–` for what is none.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{value:.2e}");
    }
    let decimals = match size {
        _ if value.fract() == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        size if size >= 0.1 => 3,
        size if size >= 0.01 => 4,
        _ => 6,
    };
    let text = format!("{size:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let sign = if value < 0.0 { "−" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", grouped(whole))
}

/// A count with all its digits, thousands apart.
pub(super) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// Digits in threes, from five digits on.
fn grouped(digits: &str) -> String {
    if digits.len() < 5 {
        return digits.to_owned();
    }
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Text for HTML and SVG, in elements and in quoted attributes. Control characters, which neither allows, become blanks.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_where_they_can_be() {
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (-2.5, "−2.5"),
            (1.23456, "1.235"),
            (0.0123, "0.0123"),
            (123.456, "123.5"),
            (1234.0, "1234"),
            (1_234_567.0, "1\u{202f}234\u{202f}567"),
            (f64::NAN, "–"),
            (1e-9, "1.00e-9"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn quantities_have_units() {
        assert_eq!(Unit::Bytes.show(65536.0), "64\u{a0}KiB");
        assert_eq!(Unit::Nanoseconds.show(1_250_000.0), "1.25\u{a0}ms");
        assert_eq!(Unit::Nanoseconds.show(0.0), "0\u{a0}ns");
        assert_eq!(Unit::Percent.tick(85.0, 5.0), "85\u{a0}%");
        assert_eq!(Unit::Plain.tick(150_000.0, 50_000.0), "150k");
        assert_eq!(Unit::Plain.tick(0.25, 0.05), "0.25");
        assert_eq!(Unit::Plain.tick(-0.0, 1.0), "0");
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<a href=\"x\">'&\u{1b}"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp; ");
    }
}
