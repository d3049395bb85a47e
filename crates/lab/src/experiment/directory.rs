//! The directory of an experiment's results: what is in it, and how it is written so that an interruption loses nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::change::{Change, with_changes};
use super::entry::Entry;
use super::file::{Experiment, FileError};
use super::inputs::Inputs;
use super::point::Point;
use super::report::Measurement;
use super::result::Record;
use super::{parquet, report};
use crate::verdicts::{Row, VerdictFile};

/// The copy of the experiment.
const EXPERIMENT: &str = "experiment.toml";
/// The copy of its verdicts, if it has some.
const VERDICTS: &str = "experiment.verdict.toml";
/// One line a point.
const RESULTS: &str = "results.jsonl";
/// The same as a table for data programs.
const PARQUET: &str = "results.parquet";
/// The report.
const REPORT: &str = "report.html";
/// The longest line of results read.
const LONGEST_LINE: usize = 1 << 20;

/// Why results cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A file or directory cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The experiment in it is wrong.
    #[error(transparent)]
    Experiment(#[from] FileError),
    /// It holds another experiment.
    #[error("{} holds the results of another experiment; choose another directory, or remove this one", path.display())]
    OtherExperiment {
        /// The directory.
        path: PathBuf,
    },
    /// It holds results of points that the experiment does not have.
    #[error("{}: results.jsonl has {foreign} points that experiment.toml has not; they are of another experiment: choose another directory, or move them away", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// How many.
        foreign: usize,
    },
    /// It holds results of points whose job file, trace or device file was another one.
    #[error("{}: files that {changed} of its results were measured with have changed; choose another directory, or move results.jsonl away", path.display())]
    OtherInputs {
        /// The directory.
        path: PathBuf,
        /// How many results.
        changed: usize,
    },
    /// Somebody else writes results there.
    #[error("{} is in use by another run; wait for it, or choose another directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A line of the results is none.
    #[error("{}, line {line}: {reason}; remove the line to have its point run again", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The table cannot be written.
    #[error("{}: {reason}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::Io { path, source }
}

/// A directory of results, locked against other runs while it is open.
#[derive(Debug)]
pub struct ResultsDirectory {
    path: PathBuf,
    /// The directory itself, whose lock keeps other runs away.
    _lock: File,
    results: File,
    experiment: Experiment,
    verdicts: Option<VerdictFile>,
    done: HashMap<Point, Record>,
    /// Only this run adds results, and may write all of them anew.
    is_ours: bool,
}

impl ResultsDirectory {
    /// Opens the directory for the experiment in `file` with some settings changed, making what is missing. It may hold results of an
    /// experiment with fewer points. What was measured earlier is kept; points that failed are forgotten, and so is a last line that an
    /// interruption cut off. Verdicts come from the file beside it, [`verdicts_of`], if there is one.
    ///
    /// # Errors
    /// When the file is wrong, the directory holds another experiment, or is in use.
    pub fn create(path: &Path, file: &Path, changes: &[Change]) -> Result<ResultsDirectory, DirectoryError> {
        let text = super::file::read(file)?;
        let verdicts = match super::file::read(&verdicts_of(file)) {
            Ok(text) => Some(text),
            Err(_) if !verdicts_of(file).exists() => None,
            Err(error) => return Err(error.into()),
        };
        Self::create_from(path, &with_changes(&text, changes), verdicts.as_deref(), file)
    }

    /// The same for an experiment, and its verdicts if it has some, that are in no file; `origin` is for messages.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_from(
        path: &Path,
        text: &str,
        verdicts: Option<&str>,
        origin: &Path,
    ) -> Result<ResultsDirectory, DirectoryError> {
        let experiment = Experiment::parse(text, origin)?;
        let checked = verdicts.map(|text| VerdictFile::parse(text, &verdicts_of(origin), &experiment)).transpose()?;
        fs::create_dir_all(path).map_err(io_error(path))?;
        let had_results = path.join(RESULTS).exists();
        // Nothing is written before the directory is known to be free, and to be this experiment's.
        let mut directory = match Self::attach(path, experiment, checked, true) {
            Err(DirectoryError::Foreign { path, .. }) => return Err(DirectoryError::OtherExperiment { path }),
            attached => attached?,
        };
        let copy = path.join(EXPERIMENT);
        let is_ours = match Experiment::load(&copy) {
            // It may have grown, by seeds or cases: nothing that was planned is lost.
            Ok(known) => {
                let ours: HashSet<Point> = directory.experiment.points().into_iter().collect();
                known.points().iter().all(|point| ours.contains(point))
            }
            // Results without their experiment may be anybody's, and so may a file that cannot be read.
            Err(_) => directory.done.is_empty() && !copy.exists(),
        };
        if !is_ours {
            if !had_results {
                remove(&path.join(RESULTS))?;
            }
            return Err(DirectoryError::OtherExperiment { path: path.to_owned() });
        }
        let mut files = Inputs::default();
        let changed = directory.done.values().filter(|record| record.has_other_inputs(&mut files)).count();
        if changed > 0 {
            return Err(DirectoryError::OtherInputs { path: path.to_owned(), changed });
        }
        replace(&copy, text.as_bytes())?;
        match verdicts {
            Some(verdicts) => replace(&path.join(VERDICTS), verdicts.as_bytes())?,
            None => remove(&path.join(VERDICTS))?,
        }
        directory.done.retain(|_, record| record.outcome.is_ok());
        Ok(directory)
    }

    /// Opens the directory of an experiment that has been run, here or elsewhere: `experiment.toml` and `results.jsonl`. As long as results
    /// are missing, somebody who knows no lock may still be adding them: that file stays as it is.
    ///
    /// # Errors
    /// When one of them is missing or wrong, or is being written.
    pub fn open(path: &Path) -> Result<ResultsDirectory, DirectoryError> {
        let experiment = Experiment::load(&path.join(EXPERIMENT))?;
        let results = path.join(RESULTS);
        fs::metadata(&results).map_err(io_error(&results))?;
        let verdicts = path.join(VERDICTS);
        let verdicts = match super::file::read(&verdicts) {
            Ok(text) => Some(VerdictFile::parse(&text, &verdicts, &experiment)?),
            Err(_) if !verdicts.exists() => None,
            Err(error) => return Err(error.into()),
        };
        Self::attach(path, experiment, verdicts, false)
    }

    fn attach(
        path: &Path,
        experiment: Experiment,
        verdicts: Option<VerdictFile>,
        is_ours: bool,
    ) -> Result<ResultsDirectory, DirectoryError> {
        let lock = File::open(path).map_err(io_error(path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DirectoryError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(io_error(path)(error)),
        }
        let file = path.join(RESULTS);
        let mut results = append_to(&file)?;
        let done = read_results(&mut results, &file, is_ours)?;
        // They would be gone with the next writing of the file.
        let known: HashSet<Point> = experiment.points().into_iter().collect();
        let foreign = done.keys().filter(|point| !known.contains(point)).count();
        if foreign > 0 {
            return Err(DirectoryError::Foreign { path: path.to_owned(), foreign });
        }
        Ok(ResultsDirectory { path: path.to_owned(), _lock: lock, results, experiment, verdicts, done, is_ours })
    }

    /// The experiment.
    #[must_use]
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Points without a result, in the order of the experiment.
    #[must_use]
    pub fn missing(&self) -> Vec<Point> {
        self.experiment.points().into_iter().filter(|point| !self.done.contains_key(point)).collect()
    }

    /// Records in the order of the experiment; those of points that it does not have are left out.
    #[must_use]
    pub fn records(&self) -> Vec<&Record> {
        self.experiment.points().iter().filter_map(|point| self.done.get(point)).collect()
    }

    /// The same, case by case, without the definitions of the verdict file.
    fn undefined(&self) -> Vec<Measurement<'_>> {
        let known = |entry: Entry| {
            let record = self.done.get(&entry.point)?;
            Some(Measurement { entry, record, defined: BTreeMap::new() })
        };
        self.experiment.entries().into_iter().filter_map(known).collect()
    }

    /// The records case by case, with the definitions of the verdict file.
    #[must_use]
    pub fn measurements(&self) -> Vec<Measurement<'_>> {
        let mut measured = self.undefined();
        if let Some(verdicts) = &self.verdicts {
            let defined = verdicts.definitions(&self.experiment, &measured);
            measured.iter_mut().zip(defined).for_each(|(one, defined)| one.defined = defined);
        }
        measured
    }

    /// What the verdict file makes of the results; nothing without one.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.verdicts.as_ref().map_or_else(Vec::new, |verdicts| verdicts.rows(&self.experiment, &self.undefined()))
    }

    /// Keeps a result: one line, written at once.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, record: Record) -> Result<(), DirectoryError> {
        let mut line = record.to_line();
        line.push('\n');
        self.results.write_all(line.as_bytes()).map_err(io_error(&self.path.join(RESULTS)))?;
        self.done.insert(record.point.clone(), record);
        Ok(())
    }

    /// Writes everything that follows from the results: `results.jsonl` in the order of the experiment, so that it does not depend
    /// on which point was done first; `results.parquet`; `report.html`.
    ///
    /// # Errors
    /// When one of them cannot be written. The results stay as they are then.
    pub fn finish(&mut self) -> Result<(), DirectoryError> {
        let records = self.records();
        let mut lines = String::new();
        for record in &records {
            lines.push_str(&record.to_line());
            lines.push('\n');
        }
        let file = self.path.join(PARQUET);
        let measurements = self.measurements();
        let table = parquet::table(&self.experiment, &measurements)
            .map_err(|reason| DirectoryError::Parquet { path: file.clone(), reason })?;
        replace(&file, &table)?;
        let rows = self.rows();
        let verdicts = self.verdicts.as_ref().map(|file| (file, rows.as_slice()));
        let page = report::report(&self.experiment, &measurements, verdicts).to_html();
        replace(&self.path.join(REPORT), page.as_bytes())?;
        if self.is_ours || self.missing().is_empty() {
            let file = self.path.join(RESULTS);
            replace(&file, lines.as_bytes())?;
            self.results = append_to(&file)?;
        }
        Ok(())
    }

    /// Where the report is.
    #[must_use]
    pub fn report_path(&self) -> PathBuf {
        self.path.join(REPORT)
    }
}

/// Where the verdicts of an experiment file are: `scj-figure-8.toml` has `scj-figure-8.verdict.toml` beside it.
#[must_use]
pub fn verdicts_of(file: &Path) -> PathBuf {
    file.with_extension("verdict.toml")
}

fn append_to(path: &Path) -> Result<File, DirectoryError> {
    File::options().read(true).append(true).create(true).open(path).map_err(io_error(path))
}

/// Replaces a file as a whole: readers see the old or the new one.
fn replace(path: &Path, content: &[u8]) -> Result<(), DirectoryError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_data()
    });
    written.map_err(io_error(&temporary))?;
    fs::rename(&temporary, path).map_err(io_error(path))
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> Result<(), DirectoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(path)(error)),
        _ => Ok(()),
    }
}

/// Reads all results. A last line without its end is one if it is whole; else its point was being written when the run was interrupted, and
/// it does not count. With `cuts` the file ends with a whole line then.
fn read_results(file: &mut File, path: &Path, cuts: bool) -> Result<HashMap<Point, Record>, DirectoryError> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).map_err(io_error(path))?;
    file.read_to_end(&mut bytes).map_err(io_error(path))?;
    let mut whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let rest = std::str::from_utf8(&bytes[whole..]).unwrap_or_default();
    if Record::from_line(rest).is_ok() {
        // As editors and programs leave it.
        whole = bytes.len();
        if cuts {
            file.write_all(b"\n").map_err(io_error(path))?;
        }
    } else if whole < bytes.len() && cuts {
        file.set_len(whole as u64).map_err(io_error(path))?;
    }
    let mut done = HashMap::new();
    for (index, line) in bytes[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let wrong = |reason: String| DirectoryError::Line { path: path.to_owned(), line: index + 1, reason };
        if line.len() > LONGEST_LINE {
            return Err(wrong("is too long".to_owned()));
        }
        let text = std::str::from_utf8(line).map_err(|_| wrong("is no text".to_owned()))?;
        let record = Record::from_line(text).map_err(wrong)?;
        done.insert(record.point.clone(), record);
    }
    Ok(done)
}
