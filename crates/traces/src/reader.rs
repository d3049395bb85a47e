//! Reading traces: a stream of requests out of a file of any known format.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, Cursor, Read};
use std::path::Path;

use basalt_device::RequestKind;

use crate::error::{BadLine, Result, TraceError};
use crate::format::{self, Entry, Event, Format, LineParser, Parsed};
use crate::lines::{LONGEST_LINE, Line, Lines};
use crate::packed::{self, Input};
use crate::recording::trace_path;
use crate::request::{LONGEST_TRANSFER, TraceRequest};

/// How much of a trace is looked at to find out its format, in bytes.
const SAMPLE: u64 = 64 << 10;
/// How many volumes are told apart; more are not counted.
const MOST_VOLUMES: usize = 1 << 16;
/// How many volumes are named.
const NAMED_VOLUMES: usize = 32;
/// How much of a volume's name is kept, in characters.
const NAME_KEPT: usize = 128;

/// How to read a trace.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The format; found out from the content if not given.
    pub format: Option<Format>,
    /// Which events of a blkparse text count.
    pub event: Event,
    /// Stop at the first bad line instead of counting it.
    pub strict: bool,
    /// Read only the requests to this volume: a device number, a file name, `host,disk`. Without it, the volumes of a trace lie
    /// over each other.
    pub volume: Option<String>,
}

/// What has been read so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines, empty ones included.
    pub lines: u64,
    /// Requests that came out.
    pub requests: u64,
    /// Lines that are no lines of the format.
    pub bad_lines: u64,
    /// Lines that are right but carry no request: heads, events of other kinds.
    pub other_lines: u64,
    /// Lines about volumes that were not asked for.
    pub other_volume_lines: u64,
    /// Volumes seen, at most 65,536.
    pub volumes: u64,
    /// The names of the first volumes.
    pub volume_names: Vec<String>,
    /// The first bad line.
    pub first_bad_line: Option<BadLine>,
}

/// The requests of a trace, in the order of its lines. Memory is bounded, whatever the trace.
///
/// A bad line comes out as [`TraceError::BadLine`], is counted, and reading goes on behind it, unless
/// [`strict`](ReadOptions::strict). Behind every other error nothing comes any more.
pub struct TraceReader {
    name: String,
    format: Format,
    lines: Lines<Input>,
    parser: Box<dyn LineParser>,
    options: ReadOptions,
    /// What the last line said and has not come out yet: at most a flush, a transfer and another flush.
    pending: VecDeque<TraceRequest>,
    first_time: Option<u64>,
    counts: Counts,
    volumes: HashSet<u64>,
    last_volume: String,
    ended: bool,
}

impl TraceReader {
    /// Opens a trace file, packed by gzip, zstd or lz4 or not, or the trace in the directory of a recording.
    ///
    /// # Errors
    /// When it cannot be read, or its format is not known.
    pub fn open(path: impl AsRef<Path>, options: &ReadOptions) -> Result<TraceReader> {
        let given = path.as_ref();
        let path = &*if given.is_dir() { Cow::Owned(trace_path(given)) } else { Cow::Borrowed(given) };
        let file = File::open(path).map_err(|source| TraceError::File {
            path: path.to_owned(),
            doing: "opening the trace",
            source,
        })?;
        TraceReader::new(path.display().to_string(), file, options)
    }

    /// Reads a trace from `input`; `name` is for messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn new(
        name: impl Into<String>,
        input: impl Read + Send + 'static,
        options: &ReadOptions,
    ) -> Result<TraceReader> {
        let name = name.into();
        let failed = |source| TraceError::Read { name: name.clone(), line: 0, source };
        let mut input = packed::unpack(input).map_err(failed)?;
        let format = match options.format {
            Some(format) => format,
            None => {
                let (found, all) = recognise(input).map_err(failed)?;
                input = all;
                found.ok_or_else(|| TraceError::Unrecognized { name: name.clone() })?
            }
        };
        Ok(TraceReader {
            name,
            format,
            lines: Lines::new(input),
            parser: format.parser(options.event),
            options: options.clone(),
            pending: VecDeque::with_capacity(3),
            first_time: None,
            counts: Counts::default(),
            volumes: HashSet::new(),
            last_volume: String::new(),
            ended: false,
        })
    }

    /// The format that is read.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The trace, as the user named it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether reading ends at the first bad line.
    pub fn is_strict(&self) -> bool {
        self.options.strict
    }

    /// What has been read so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes the next line apart; false at the end.
    fn read_line(&mut self) -> Result<bool> {
        let read = self.lines.next();
        let line = match read {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(false),
            Err(source) => {
                return Err(TraceError::Read { name: self.name.clone(), line: self.counts.lines, source });
            }
        };
        self.counts.lines += 1;
        let parsed = match line {
            Line::Text(text) if text.trim().is_empty() => Ok(Parsed::Nothing),
            Line::Text(text) => self.parser.parse(text).and_then(sound),
            Line::TooLong => Err(format!("longer than {LONGEST_LINE} bytes")),
            Line::NotText => Err("not text (no UTF-8)".to_owned()),
        };
        match parsed {
            Ok(Parsed::Nothing) => self.counts.other_lines += 1,
            Ok(Parsed::Request(entry)) => {
                if entry.volume != self.last_volume || self.volumes.is_empty() {
                    note_volume(entry.volume, &mut self.volumes, &mut self.counts);
                    self.last_volume.clear();
                    self.last_volume.push_str(entry.volume);
                }
                if self.options.volume.as_deref().is_some_and(|wanted| wanted != entry.volume) {
                    self.counts.other_volume_lines += 1;
                } else {
                    let first = *self.first_time.get_or_insert(entry.time_ns);
                    queue(&entry, entry.time_ns.saturating_sub(first), &mut self.pending);
                }
            }
            Err(reason) => {
                self.counts.bad_lines += 1;
                let bad = BadLine { name: self.name.clone(), line: self.counts.lines, reason };
                self.counts.first_bad_line.get_or_insert_with(|| bad.clone());
                return Err(bad.into());
            }
        }
        Ok(true)
    }

    /// What is wrong with the trace as a whole, now that it has been read to its end.
    fn check_whole(&self) -> Result<()> {
        let counts = &self.counts;
        if let Some(wanted) = self.options.volume.clone().filter(|_| counts.requests == 0 && counts.volumes > 0) {
            let more = counts.volumes - counts.volume_names.len() as u64;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let found = counts.volume_names.join(", ") + &more;
            return Err(TraceError::NoSuchVolume { name: self.name.clone(), wanted, found });
        }
        let read = counts.requests + counts.other_volume_lines;
        if self.format == Format::Blkparse && read == 0 && counts.other_lines > 0 {
            let wanted = self.options.event.letter();
            return Err(TraceError::NoSuchEvent { name: self.name.clone(), wanted, found: counts.other_lines });
        }
        Ok(())
    }
}

impl Iterator for TraceReader {
    type Item = Result<TraceRequest>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(request) = self.pending.pop_front() {
                self.counts.requests += 1;
                return Some(Ok(request));
            }
            if self.ended {
                return None;
            }
            match self.read_line() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    return self.check_whole().err().map(Err);
                }
                Err(error) => {
                    self.ended = self.options.strict || !matches!(error, TraceError::BadLine(_));
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The format of a stream, if it is known, and the whole stream again.
fn recognise(mut input: Input) -> io::Result<(Option<Format>, Input)> {
    let mut sample = Vec::new();
    // An error behind a beginning comes out behind that beginning's requests.
    let late = match (&mut input).take(SAMPLE).read_to_end(&mut sample) {
        Err(error) if sample.is_empty() => return Err(error),
        read => read.err(),
    };
    let mut text = &sample[..];
    if sample.len() as u64 == SAMPLE {
        // The last line is cut off somewhere.
        let end = sample.iter().rposition(|&byte| byte == b'\n').unwrap_or(sample.len());
        text = &sample[..end];
    }
    let lines: Vec<&str> =
        text.split(|&byte| byte == b'\n').map(|line| std::str::from_utf8(line).unwrap_or("?")).collect();
    let found = format::detect(lines.iter().map(|line| line.trim_end_matches('\r')));
    let rest = Cursor::new(sample);
    Ok((
        found,
        if let Some(error) = late { Box::new(rest.chain(Failing(Some(error)))) } else { Box::new(rest.chain(input)) },
    ))
}

/// A stream that ends in an error.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl BufRead for Failing {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.take().map_or(Ok(&[]), Err)
    }

    fn consume(&mut self, _: usize) {}
}

/// The entry itself, if its range is one that a device can have.
fn sound(parsed: Parsed<'_>) -> std::result::Result<Parsed<'_>, String> {
    let Parsed::Request(Entry { transfer: Some(transfer), .. }) = parsed else { return Ok(parsed) };
    let operation = transfer.kind.operation();
    let (offset, length) = (transfer.offset, transfer.length);
    if length == 0 {
        return Err(format!("a {operation} of 0 bytes"));
    }
    if transfer.kind != RequestKind::Discard && length > LONGEST_TRANSFER {
        return Err(format!("a {operation} of {length} bytes; no request is longer than {LONGEST_TRANSFER}"));
    }
    match offset.checked_add(length).map(i64::try_from) {
        Some(Ok(_)) => Ok(parsed),
        _ => Err(format!("a {operation} of {length} bytes at {offset}, which is behind the end of any device")),
    }
}

fn note_volume(volume: &str, volumes: &mut HashSet<u64>, counts: &mut Counts) {
    // With fixed keys: the same for every run.
    let mut hasher = DefaultHasher::new();
    volume.hash(&mut hasher);
    if volumes.len() < MOST_VOLUMES && volumes.insert(hasher.finish()) {
        counts.volumes += 1;
        if counts.volume_names.len() < NAMED_VOLUMES {
            counts.volume_names.push(volume.chars().take(NAME_KEPT).collect());
        }
    }
}

/// The requests of one line, in the order in which a device gets them.
fn queue(entry: &Entry<'_>, time_ns: u64, pending: &mut VecDeque<TraceRequest>) {
    if entry.flush_before {
        pending.push_back(TraceRequest::flush(time_ns));
    }
    if let Some(transfer) = entry.transfer {
        let (kind, offset, length) = (transfer.kind, transfer.offset, transfer.length);
        pending.push_back(TraceRequest { time_ns, kind, offset, length });
    }
    if entry.flush_after {
        pending.push_back(TraceRequest::flush(time_ns));
    }
}
