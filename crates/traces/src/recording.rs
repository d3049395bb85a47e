//! What a recording is: a directory with the requests, the bytes written and a description.
//!
//! | file | what |
//! |---|---|
//! | `trace.fio` | every request in order, as fio's iolog of version 3 |
//! | `content.lz4` | the bytes of all writes in the same order, as one lz4 frame; absent if they were not wanted |
//! | `recording.json` | [`Description`]: the device, the numbers, whether the recording is complete |

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use basalt_device::RequestKind;
use lz4_flex::frame::FrameDecoder;
use serde::{Deserialize, Serialize};

use crate::error::{Result, TraceError};
use crate::format::Format;
use crate::reader::{ReadOptions, TraceReader};
use crate::request::TraceRequest;

/// Version of the directory's layout.
pub const VERSION: u32 = 1;

/// The longest description that is read, in bytes.
const LONGEST_DESCRIPTION: u64 = 1 << 20;

/// Requests and bytes by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, request: &TraceRequest) {
        let (requests, bytes) = match request.kind {
            RequestKind::Flush => return self.flushes += 1,
            RequestKind::Read => (&mut self.reads, &mut self.bytes_read),
            RequestKind::Write => (&mut self.writes, &mut self.bytes_written),
            RequestKind::Discard => (&mut self.discards, &mut self.bytes_discarded),
        };
        *requests += 1;
        *bytes = bytes.saturating_add(request.length);
    }

    /// Requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }
}

/// `recording.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// [`VERSION`].
    pub version: u32,
    /// The device, as the user named it.
    pub device: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its sector size in bytes.
    pub sector_size: u32,
    /// What was on it before, in words: a replay begins with the same content.
    pub initial_content: String,
    /// Whether `content.lz4` holds the bytes written.
    pub has_content: bool,
    /// Whether discarded ranges read as zeros.
    pub discards_read_zeros: bool,
    /// Requests that succeeded: those in `trace.fio`.
    pub totals: Totals,
    /// Requests that the device refused; they are left out of the trace.
    pub failed_requests: u64,
    /// Whether everything from the first request to the last is there.
    pub complete: bool,
    /// Why it is not, where that is known.
    pub error: Option<String>,
}

/// A recording that exists.
#[derive(Debug, Clone)]
pub struct Recording {
    directory: PathBuf,
    description: Description,
}

impl Recording {
    /// Opens a recording's directory.
    ///
    /// # Errors
    /// When its description is missing or wrong.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Recording> {
        let directory = directory.into();
        let path = description_path(&directory);
        let wrong = |reason: String| TraceError::Recording { path: path.clone(), reason };
        let mut text = String::new();
        let file = File::open(&path).map_err(file_error(&path, "opening the recording"))?;
        file.take(LONGEST_DESCRIPTION).read_to_string(&mut text).map_err(file_error(&path, "reading"))?;
        let description: Description = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if description.version != VERSION {
            return Err(wrong(format!("version {} is not known, only {VERSION}", description.version)));
        }
        Ok(Recording { directory, description })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Where its requests are; any reader of traces takes that file.
    pub fn trace_path(&self) -> PathBuf {
        trace_path(&self.directory)
    }

    /// The requests in order. A bad line ends them.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn requests(&self) -> Result<TraceReader> {
        let options = ReadOptions { format: Some(Format::Fio), strict: true, ..ReadOptions::default() };
        TraceReader::open(self.trace_path(), &options)
    }

    /// The bytes of all writes, one after the other.
    ///
    /// # Errors
    /// When the recording has none, or they cannot be read.
    pub fn content(&self) -> Result<impl Read + use<>> {
        let path = content_path(&self.directory);
        if !self.description.has_content {
            let reason = "the bytes written were not recorded, only the requests".to_owned();
            return Err(TraceError::Recording { path: self.directory.clone(), reason });
        }
        let file = File::open(&path).map_err(file_error(&path, "opening"))?;
        Ok(FrameDecoder::new(io::BufReader::with_capacity(1 << 20, file)))
    }
}

pub(crate) fn trace_path(directory: &Path) -> PathBuf {
    directory.join("trace.fio")
}

pub(crate) fn content_path(directory: &Path) -> PathBuf {
    directory.join("content.lz4")
}

pub(crate) fn description_path(directory: &Path) -> PathBuf {
    directory.join("recording.json")
}

/// Writes the description: all of it, or the one before stays.
pub(crate) fn write_description(directory: &Path, description: &Description) -> Result<()> {
    let path = description_path(directory);
    let new = path.with_extension("json.new");
    // A plain structure always has a JSON form.
    let mut text = serde_json::to_string_pretty(description)
        .map_err(|error| TraceError::Recording { path: path.clone(), reason: error.to_string() })?;
    text.push('\n');
    let write = || {
        std::fs::write(&new, &text)?;
        File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &path)
    };
    write().map_err(file_error(&path, "writing the description"))
}

/// Turns an error of the operating system into one about a file.
pub(crate) fn file_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> TraceError {
    let path = path.to_owned();
    move |source| TraceError::File { path, doing, source }
}
