//! Insertions into a source file that keep each other's places.

use std::ops::Range;

/// Text put around a piece of the source.
#[derive(Debug, Clone)]
pub struct Wrapping {
    /// The bytes it goes around.
    pub around: Range<usize>,
    /// What is put in front of them.
    pub before: String,
    /// What is put behind them.
    pub after: String,
}

impl Wrapping {
    /// Whether both can be in one text: one within the other, or apart.
    pub fn goes_with(&self, other: &Wrapping) -> bool {
        let (a, b) = (&self.around, &other.around);
        let is_within = |a: &Range<usize>, b: &Range<usize>| b.start <= a.start && a.end <= b.end;
        a.end <= b.start || b.end <= a.start || is_within(a, b) || is_within(b, a)
    }
}

/// The text with all of them.
pub fn apply(text: &str, wrappings: &[Wrapping]) -> String {
    // Of insertions at one place, those that close come first; of these the inner ones, of those that open the outer ones.
    let mut places: Vec<(usize, u8, isize, &str)> = Vec::new();
    for (number, Wrapping { around, before, after }) in wrappings.iter().enumerate() {
        let (length, number) = (around.len() as isize, number as isize);
        let rank = length * 100_000 + number;
        places.push((around.start, 1, -rank, before));
        places.push((around.end, if length == 0 { 1 } else { 0 }, if length == 0 { 0 } else { rank }, after));
    }
    places.sort_by_key(|&(at, opens, rank, _)| (at, opens, rank));
    let mut result = String::with_capacity(text.len() * 2);
    let mut done = 0;
    for (at, _, _, insertion) in places {
        result.push_str(&text[done..at]);
        result.push_str(insertion);
        done = at;
    }
    result.push_str(&text[done..]);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(around: Range<usize>, before: &str, after: &str) -> Wrapping {
        Wrapping { around, before: before.into(), after: after.into() }
    }

    #[test]
    fn wrappings_nest() {
        let all = [around(0..1, "(", ")"), around(0..5, "[", "]"), around(4..5, "<", ">"), around(4..5, "{", "}")];
        assert_eq!(apply("a + b", &all), "[(a) + {<b>}]");
        assert!(all[0].goes_with(&all[1]));
        assert!(!around(0..3, "", "").goes_with(&around(2..5, "", "")));
    }

    #[test]
    fn neighbours_stay_apart() {
        assert_eq!(apply("ab", &[around(0..1, "(", ")"), around(1..2, "<", ">")]), "(a)<b>");
        assert_eq!(apply("ab", &[around(1..1, "-", "")]), "a-b");
    }
}
