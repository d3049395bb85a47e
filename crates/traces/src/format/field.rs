//! Fields of lines: numbers, and words for what is wrong with them.

use super::Reason;

/// How much of a field a message shows, in characters.
const SHOWN: usize = 40;

/// A decimal number.
pub(super) fn number(name: &str, text: &str) -> Result<u64, Reason> {
    // `parse` would take a plus sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{name} `{}` is not a number", shorten(text)));
    }
    text.parse().map_err(|_| format!("{name} `{}` is too large", shorten(text)))
}

/// A number of units of `unit` each: bytes of sectors, nanoseconds of microseconds.
pub(super) fn scaled(name: &str, text: &str, unit: u64) -> Result<u64, Reason> {
    number(name, text)?.checked_mul(unit).ok_or_else(|| format!("{name} `{}` is too large", shorten(text)))
}

/// The fields of a line of `N` comma-separated values, without blanks around them.
pub(super) fn values<const N: usize>(line: &str) -> Result<[&str; N], Reason> {
    exactly(line.split(',').map(str::trim))
}

/// The fields of a line of `N` columns separated by blanks.
pub(super) fn columns<const N: usize>(line: &str) -> Result<[&str; N], Reason> {
    exactly(line.split_whitespace())
}

fn exactly<'a, const N: usize>(fields: impl Iterator<Item = &'a str>) -> Result<[&'a str; N], Reason> {
    let mut found = [""; N];
    let mut count = 0;
    for field in fields {
        if let Some(place) = found.get_mut(count) {
            *place = field;
        }
        count += 1;
    }
    if count == N { Ok(found) } else { Err(format!("{N} fields are expected, not {count}")) }
}

/// The beginning of a text, for a message.
pub(super) fn shorten(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
