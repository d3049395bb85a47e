//! Numbers and sizes as fio writes them.

use crate::settings::Settings;

/// A whole number: decimal, or hexadecimal behind `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
        None if text.bytes().all(|digit| digit.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// A size in bytes. With fio's default `kb_base=1024`, `4k`, `4kb` and `4ki` are 4096 bytes, and `4kib` is 4000: the reverse of what the
/// words say, and what fio 3.33 does.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let end = lower.strip_prefix("0x").map_or(0, |_| 2);
    let hexadecimal = end == 2;
    let digits = lower[end..].chars().take_while(|digit| match hexadecimal {
        true => digit.is_ascii_hexdigit(),
        false => digit.is_ascii_digit(),
    });
    let split = end + digits.count();
    let (digits, unit) = lower.split_at(split);
    let base: u64 = if unit.len() == 3 { 1000 } else { 1024 };
    let power = match unit {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 1,
        "m" | "mb" | "mi" | "mib" => 2,
        "g" | "gb" | "gi" | "gib" => 3,
        "t" | "tb" | "ti" | "tib" => 4,
        "p" | "pb" | "pi" | "pib" => 5,
        _ => return None,
    };
    if digits.len() == end {
        return None;
    }
    number(digits)?.checked_mul(base.pow(power))
}

/// A size in bytes, or in percent of the volume.
pub(super) fn share(text: &str, settings: &Settings) -> Option<u64> {
    percent(text).map_or_else(|| bytes(text), |percent| Some(settings.share(percent)))
}

/// `12%`: from 1 to 100.
pub(super) fn percent(text: &str) -> Option<f64> {
    let percent = number(text.strip_suffix('%')?)?;
    (1..=100).contains(&percent).then_some(percent as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_fio() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4ki", 4096),
            ("4KiB", 4000),
            ("1m", 1 << 20),
            ("1Mi", 1 << 20),
            ("1MiB", 1_000_000),
            ("0x1000", 4096),
            ("0x10k", 16384),
            ("16383p", 16383 << 50),
        ] {
            assert_eq!(bytes(text), Some(size), "{text}");
        }
        for text in ["", "k", "-1", "1.5m", "4kk", "0x", "16384p", "99999999999999999999", "4 k", "१"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        let settings = Settings { size_bytes: 1000, ..Settings::default() };
        assert_eq!(share("10%", &settings), Some(100));
        assert_eq!(share("101%", &settings), None);
    }
}
