//! Sizes and durations as people write them, on command lines and in experiment files.

use std::time::Duration;

/// Binary units, the smallest first.
const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// Reads a size in bytes: `4096`, `512M`, `1.5T`, `2GiB`. Units are powers of 1024.
///
/// # Errors
/// A text for the user when it is no size, or over 2^63 - 1 bytes.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write for example 512M, 1G or 1.5T");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = unit_shift(unit).ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || fraction.len() > 18 || fraction.contains('.') {
        return Err(wrong());
    }
    // Below 2^64 * 2^60, and the fraction below 10^18 * 2^60: both fit 128 bits.
    let whole = u128::from(whole.parse::<u64>().map_err(|_| wrong())?) << shift;
    let part = match fraction {
        "" => 0,
        digits => {
            let scale = 10_u128.pow(u32::try_from(digits.len()).map_err(|_| wrong())?);
            (u128::from(digits.parse::<u64>().map_err(|_| wrong())?) << shift) / scale
        }
    };
    match u64::try_from(whole + part) {
        Ok(size) if i64::try_from(size).is_ok() => Ok(size),
        _ => Err(format!("`{text}` is more than any file can hold")),
    }
}

/// By how many bits a unit shifts: nothing for bytes, 10 for `K`, `KB` and `KiB`, and so on.
fn unit_shift(unit: &str) -> Option<u32> {
    let mut letters = unit.chars();
    let Some(first) = letters.next().map(|letter| letter.to_ascii_uppercase()) else { return Some(0) };
    let position = UNITS.iter().position(|&unit| unit == first);
    match (position, letters.as_str()) {
        (Some(position), "" | "B" | "b" | "iB" | "ib") => u32::try_from(position * 10 + 10).ok(),
        (None, "") if first == 'B' => Some(0),
        _ => None,
    }
}

/// A size with a unit and at most one decimal: `512 B`, `1.5 MiB`.
pub fn human(bytes: u64) -> String {
    match scaled(bytes) {
        (number, None) => format!("{number} B"),
        (number, Some(unit)) => format!("{number} {unit}iB"),
    }
}

/// The same as `ls -h` writes it: `512`, `1.5M`.
pub fn short(bytes: u64) -> String {
    match scaled(bytes) {
        (number, None) => number,
        (number, Some(unit)) => format!("{number}{unit}"),
    }
}

/// The exact size with the largest unit that divides it: `1G`, `1536M`, `1000`. What [`parse`] reads back.
pub fn exact(bytes: u64) -> String {
    let steps = if bytes == 0 { 0 } else { (bytes.trailing_zeros() as usize / 10).min(UNITS.len()) };
    match steps.checked_sub(1) {
        Some(index) => format!("{}{}", bytes >> (steps * 10), UNITS[index]),
        None => bytes.to_string(),
    }
}

/// Options of workloads that are bytes.
const SIZES: [&str; 7] = ["append", "databases", "extent", "mean", "pictures", "request", "set"];

/// A workload with its options for people to read: `zipf:0.99, set 128 MiB, request 4 KiB`.
pub fn workload(name: &str) -> String {
    let option = |option: &str| match option.split_once('=') {
        Some((key, value)) => match value.parse().ok().filter(|_| SIZES.contains(&key)) {
            Some(bytes) => format!("{key} {}", human(bytes)),
            None => format!("{key} {value}"),
        },
        None => option.to_owned(),
    };
    let (kind, options) = name.split_once(':').unwrap_or((name, ""));
    let options: Vec<String> = options.split(',').filter(|one| !one.is_empty()).map(option).collect();
    match options.first() {
        None => kind.to_owned(),
        // What has no key belongs to the name.
        Some(_) if !name.split(',').next().is_some_and(|first| first.contains('=')) => {
            format!("{kind}:{}", options.join(", "))
        }
        Some(_) => format!("{kind}, {}", options.join(", ")),
    }
}

fn scaled(bytes: u64) -> (String, Option<char>) {
    // Tenths of the unit, rounded; 2^64 * 10 fits 128 bits. 1023.95 would be written as 1024.
    let tenths = |shift: usize| (u128::from(bytes) * 10 + ((1 << shift) >> 1)) >> shift;
    let steps = (0..=UNITS.len()).find(|&steps| tenths(steps * 10) < 10_235).unwrap_or(UNITS.len());
    let tenths = tenths(steps * 10);
    let text = if tenths.is_multiple_of(10) || tenths >= 1000 {
        ((tenths + 5) / 10).to_string()
    } else {
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    (text, steps.checked_sub(1).map(|index| UNITS[index]))
}

/// Reads a time in seconds: `5`, `0.5`.
///
/// # Errors
/// A text for the user when it is no time from 0 to a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    const DAY: f64 = 86_400.0;
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=DAY).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("`{text}` is not a time in seconds, from 0 to 86400")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_readable() {
        assert_eq!(workload("zipf:0.99,set=134217728,request=4096"), "zipf:0.99, set 128 MiB, request 4 KiB");
        assert_eq!(
            workload("fileserver:set=547608330,width=20,threads=50"),
            "fileserver, set 522 MiB, width 20, threads 50"
        );
        assert_eq!(workload("uniform"), "uniform");
        assert_eq!(workload("postmark:classic,files=2000,request=512"), "postmark:classic, files 2000, request 512 B");
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("1K", 1024),
            ("512M", 512 << 20),
            ("1g", 1 << 30),
            ("1.5T", 3 << 39),
            ("0.5KiB", 512),
            ("2GB", 2 << 30),
            ("7E", 7 << 60),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1X", "1.G", ".5G", "1.2.3", "1 G", "8E", "1e9", "18446744073709551616", "1Bi"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            (150 << 20, "150 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
        assert_eq!(short(1536), "1.5K");
        assert_eq!(short(12), "12");
    }

    #[test]
    fn exact_sizes_read_back() {
        for bytes in [0, 1, 1000, 1 << 10, 3 << 29, 1 << 40, u64::MAX >> 1] {
            assert_eq!(parse(&exact(bytes)), Ok(bytes));
        }
        assert_eq!(exact(3 << 29), "1536M");
    }

    #[test]
    fn seconds_are_read() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["", "-1", "NaN", "inf", "1e300", "5s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
