//! Workloads of files: the jobs of fio, and the language of Filebench.
//!
//! | module | what |
//! |---|---|
//! | this one | which specifications name a file, reading it, and its errors |
//! | `fio` | job files of fio |
//! | `filebench` | files in Filebench's language |
//!
//! A file is a program of strangers: it is read up to [`LARGEST`], nothing in it is run or included, and every count that costs memory has a
//! limit. What cannot change the operations is accepted and ignored; everything else that is not supported is an error that names
//! file, line and option.

mod filebench;
mod fio;

use std::fmt::Display;
use std::io::Read;

use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::specification::Specification;
use crate::workload::Workload;

/// Job files are not larger, in bytes.
const LARGEST: u64 = 1 << 20;
/// Logical threads of a file at most.
const THREADS: u64 = 1000;
/// Open files of all threads at most.
const OPEN_FILES: u64 = 10_000;

/// The workload of a specification that names a file.
///
/// # Errors
/// [`Error::Specification`] with file and line.
pub(crate) fn workload(options: Specification, settings: &Settings) -> Result<Box<dyn Workload>> {
    let source = Source::read(options.name())?;
    if source.is_filebench() {
        return Ok(Box::new(filebench::Filebench::new(&source, options, settings)?));
    }
    Ok(Box::new(fio::FioJobs::new(&source, options, settings)?))
}

/// A job file: its path, as it was given, and its text.
#[derive(Debug)]
pub(crate) struct Source {
    path: String,
    text: String,
}

/// A line of a job file, counted from 1; 0 is an option behind the file's path.
pub(crate) type Line = usize;

impl Source {
    fn read(path: &str) -> Result<Source> {
        let failed = |what: &dyn Display| Error::Specification(format!("{path}: {what}"));
        // Pipes and devices would wait, or never end.
        if !std::fs::metadata(path).map_err(|error| failed(&error))?.is_file() {
            return Err(failed(&"is not a file; a workload is a name, or a job file of fio or Filebench"));
        }
        let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > LARGEST {
            return Err(failed(&format_args!("is larger than {LARGEST} bytes; a job file is not")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed(&"is not text (UTF-8)"))?;
        Ok(Source { path: path.to_owned(), text })
    }

    /// Whether it is in Filebench's language, by its name; with another name than `.f` and `.fio`, if it does not begin with a section.
    fn is_filebench(&self) -> bool {
        if self.path.ends_with(".fio") || self.path.ends_with(".f") {
            return self.path.ends_with(".f");
        }
        let mut lines = self.text.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with(['#', ';']));
        !first.is_some_and(|line| line.starts_with('['))
    }

    /// What is wrong with a line.
    fn error(&self, line: Line, what: impl Display) -> Error {
        let path = &self.path;
        Error::Specification(match line {
            0 => format!("{path}: option {what}"),
            line => format!("{path}:{line}: {what}"),
        })
    }

    /// A path below the target: without a slash in front, and without leaving the target.
    fn below_target(&self, line: Line, path: &str) -> Result<String> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") || path.contains('\0') {
            return Err(self.error(line, format_args!("`{path}` leaves the target; name a path without `..`")));
        }
        if parts.iter().any(|part| part.len() > 255) || path.len() > 4000 {
            return Err(self.error(line, "a name is longer than 255 bytes, or a path longer than 4000"));
        }
        // The runner's own data, and what mkfs makes.
        if matches!(parts.first(), Some(&("dummy" | "lost+found"))) {
            return Err(self.error(line, format_args!("`{}` is in use by the lab itself; use another name", parts[0])));
        }
        Ok(parts.join("/"))
    }
}

/// Directories that have to be made for files at these paths, each behind the one it is in.
fn directories<'p>(paths: impl Iterator<Item = &'p str>) -> Vec<String> {
    let mut known = std::collections::BTreeSet::new();
    for path in paths {
        known.extend(path.match_indices('/').map(|(end, _)| path[..end].to_owned()));
    }
    known.into_iter().collect()
}
