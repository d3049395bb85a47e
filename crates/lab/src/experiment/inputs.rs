//! The files that a point reads, by content: a job file, a trace or a device's file may change between two runs, its path does not.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use basalt_flash::device::presets;

use super::point::Point;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 16;

/// Files as they are now, each read once.
#[derive(Default)]
pub(super) struct Inputs(HashMap<String, Option<String>>);

impl Inputs {
    /// The files that a point reads: the parameter, and its content as `LENGTH:CRC32`, in bytes and hexadecimal. Files that are not there, or
    /// are no files, are left out: running the point says what is wrong with them.
    pub(super) fn of(&mut self, point: &Point) -> BTreeMap<String, String> {
        let files = point.parameters().filter_map(|(name, value)| Some((name, path(name, value)?)));
        let known = files.filter_map(|(name, path)| {
            let content = self.0.entry(path.to_owned()).or_insert_with(|| content(Path::new(path)).ok());
            Some((name.to_owned(), content.clone()?))
        });
        known.collect()
    }
}

/// The path that a value names, if it names one.
fn path<'a>(parameter: &str, value: &'a str) -> Option<&'a str> {
    match parameter {
        "workload" => basalt_workloads::is_file(value).then(|| value.split(':').next().unwrap_or(value)),
        "device" => presets::preset(value).is_err().then_some(value),
        "trace" => (!value.is_empty()).then_some(value),
        _ => None,
    }
}

fn content(path: &Path) -> io::Result<String> {
    // A pipe would wait, and give its content away.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (mut file, mut buffer) = (File::open(path)?, vec![0; PIECE]);
    let (mut length, mut hasher) = (0, crc32fast::Hasher::new());
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(format!("{length}:{:08x}", hasher.finalize())),
            count => {
                length += count as u64;
                hasher.update(&buffer[..count]);
            }
        }
    }
}
