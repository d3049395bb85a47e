//! Results that are on record: a change that means to leave them alone is held to that, one that means to change them records them anew.

use std::path::Path;

/// The environment variable that has results recorded instead of compared.
const RECORD: &str = "BASALT_RECORD";

/// Compares lines with those in a file, or with `BASALT_RECORD=1` writes them there.
///
/// # Panics
/// Where a line differs, or the file cannot be read or written.
pub fn expect(path: &Path, lines: &[String]) {
    let found: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if std::env::var_os(RECORD).is_some() {
        std::fs::write(path, found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let recorded = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differ: Vec<String> = recorded
        .lines()
        .zip(lines)
        .filter(|(before, now)| before != now)
        .map(|(before, now)| format!("\n  was {before}\n  is  {now}"))
        .collect();
    assert!(
        recorded == found,
        "{} lines, {} on record in {}; different:{}\n{RECORD}=1 records them anew, if that is meant",
        lines.len(),
        recorded.lines().count(),
        path.display(),
        differ.concat()
    );
}
