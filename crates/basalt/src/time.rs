//! Times as people read them, in UTC, and durations.

use std::time::Duration;

use basalt_vfs::Time;

/// Days from 0000-03-01 to 1970-01-01 in the Gregorian calendar.
const DAYS_TO_EPOCH: i64 = 719_468;
/// Days in 400 Gregorian years.
const DAYS_PER_ERA: i64 = 146_097;

/// `2026-11-21 05:04:59.000000001 UTC`.
pub fn full(time: Time) -> String {
    format!("{}.{:09} UTC", seconds(time.seconds), time.nanoseconds)
}

/// `2026-11-21 05:04`.
pub fn minutes(time: Time) -> String {
    let mut text = seconds(time.seconds);
    text.truncate(text.len() - ":00".len());
    text
}

/// How long something took, in its two largest units: `0 s`, `250 µs`, `1.5 ms`, `12.3 s`, `3 min 20 s`, `2 d 5 h`.
pub fn duration(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = time.as_secs();
    match seconds {
        0 if time.is_zero() => "0 s".to_owned(),
        0 if time < Duration::from_millis(1) => format!("{} µs", time.as_micros().max(1)),
        0 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        1..MINUTE => format!("{:.1} s", time.as_secs_f64()),
        MINUTE..HOUR => format!("{} min {} s", seconds / MINUTE, seconds % MINUTE),
        HOUR..DAY => format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE),
        DAY.. => format!("{} d {} h", seconds / DAY, seconds % DAY / HOUR),
    }
}

fn seconds(since_epoch: i64) -> String {
    let (days, second) = (since_epoch.div_euclid(86_400), since_epoch.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day counted from 1970-01-01. Years begin in March here, so that the leap day is the last.
fn date(days: i64) -> (i64, i64, i64) {
    // At most 2^63 / 86400 days: nothing below overflows.
    let days = days + DAYS_TO_EPOCH;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, repeating: 153 days in five months.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (nanoseconds, text) in [
            (0, "0 s"),
            (1, "1 µs"),
            (250_000, "250 µs"),
            (1_500_000, "1.5 ms"),
            (12_300_000_000, "12.3 s"),
            (200_000_000_000, "3 min 20 s"),
            (7_500_000_000_000, "2 h 5 min"),
            (190_800_000_000_000, "2 d 5 h"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanoseconds)), text);
        }
        duration(Duration::MAX);
    }

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (1_795_237_499, "2026-11-21 05:04:59"),
        ] {
            assert_eq!(super::seconds(seconds), text);
        }
        assert_eq!(full(Time { seconds: 0, nanoseconds: 1 }), "1970-01-01 00:00:00.000000001 UTC");
        assert_eq!(minutes(Time { seconds: 61, nanoseconds: 0 }), "1970-01-01 00:01");
        // As far as times go, without overflow.
        full(Time { seconds: i64::MIN, nanoseconds: 0 });
        full(Time { seconds: i64::MAX, nanoseconds: 999_999_999 });
    }
}
