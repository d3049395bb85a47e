//! A device wrapper that writes every request to a recording, as it happens.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use basalt_device::{BlockDevice, DeviceError, DeviceLayer, RequestKind};
use lz4_flex::frame::FrameEncoder;
use parking_lot::Mutex;

use crate::error::{Result, TraceError};
use crate::recording::{self, Description, Totals, VERSION, file_error};
use crate::request::TraceRequest;
use crate::writer::{IologVersion, IologWriter};

/// Bytes that are gathered before they go to the recording's files.
const BUFFER: usize = 1 << 20;

/// Nanoseconds since some fixed moment.
pub type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// What a recording keeps, and what it says of itself.
pub struct RecordOptions {
    /// Keep the bytes written, not only the requests.
    pub content: bool,
    /// What is on the device now, in words for whoever replays it.
    pub initial_content: String,
    /// Whether discarded ranges of the device read as zeros; without that, what a replay leaves there may differ.
    pub discards_read_zeros: bool,
    /// The clock that dates requests; the first request has time 0.
    pub clock: Clock,
}

impl Default for RecordOptions {
    /// With content and the system's monotonic clock; nothing is known of the device.
    fn default() -> Self {
        let start = Instant::now();
        RecordOptions {
            content: true,
            initial_content: "unknown".to_owned(),
            discards_read_zeros: false,
            // 2^64 ns are 584 years.
            clock: Box::new(move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        }
    }
}

/// Wraps a device and records its requests; memory is bounded.
///
/// The order is one that a power cut could have met, as with [`RecordingDevice`](basalt_device::RecordingDevice): reads, writes and
/// discards stand where they returned, flushes where they began. The times are those at which requests arrived, raised where
/// they would fall. Failed requests are counted, not recorded.
///
/// **Trouble with the recording is no trouble of the device**: if the recording's files cannot be written, requests go on, the
/// recording ends there, an error is logged, and [`finish`](Self::finish) returns it; `recording.json` says that the
/// recording is not complete. It says the same until `finish` was called.
pub struct Recorder<D> {
    inner: D,
    clock: Clock,
    directory: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// `None` once the recording has ended, well or badly.
    files: Option<Files>,
    description: Description,
    first_time: Option<u64>,
}

struct Files {
    trace: IologWriter<BufWriter<File>>,
    content: Option<Box<FrameEncoder<BufWriter<File>>>>,
}

impl<D: BlockDevice> Recorder<D> {
    /// Begins a recording of `inner` in `directory`, which is made if it does not exist, and must hold no recording yet.
    ///
    /// # Errors
    /// When the directory or its files cannot be made.
    pub fn create(inner: D, directory: impl Into<PathBuf>, options: RecordOptions) -> Result<Recorder<D>> {
        // The program may change its working directory meanwhile, as background processes do.
        let directory = directory.into();
        let directory = std::path::absolute(&directory).map_err(file_error(&directory, "looking for the directory"))?;
        std::fs::create_dir_all(&directory).map_err(file_error(&directory, "making the recording's directory"))?;
        let RecordOptions { content, initial_content, discards_read_zeros, clock } = options;
        let description = Description {
            version: VERSION,
            device: inner.name().to_owned(),
            size: inner.size(),
            sector_size: inner.sector_size(),
            initial_content,
            has_content: content,
            discards_read_zeros,
            totals: Totals::default(),
            failed_requests: 0,
            complete: false,
            error: None,
        };
        let files = Files::create(&directory, content, inner.name())?;
        recording::write_description(&directory, &description)?;
        let state = Mutex::new(State { files: Some(files), description, first_time: None });
        Ok(Recorder { inner, clock, directory, state })
    }

    /// The device within; requests to it are not recorded.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Removes a recording that has become pointless, because nothing could be done with the device.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        state.files = None;
        for path in
            [recording::trace_path, recording::content_path, recording::description_path].map(|of| of(&self.directory))
        {
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!("{} stays: {error}", path.display());
            }
        }
        // Fails where something else is in it, which then stays.
        let _ = std::fs::remove_dir(&self.directory);
    }

    /// What was recorded so far: where in the recording the next request will stand.
    pub fn totals(&self) -> Totals {
        self.state.lock().description.totals
    }

    /// Ends the recording: everything is written and durable, and the description says so. Writes and discards that come
    /// later are refused, because the recording would not be true any more.
    ///
    /// # Errors
    /// What went wrong with the recording, now or since it began. A second call returns the same as the first.
    pub fn finish(&self) -> Result<Description> {
        let mut state = self.state.lock();
        if let Some(files) = state.files.take() {
            match files.finish(&self.directory) {
                Ok(()) => state.description.complete = true,
                Err(error) => state.description.error = Some(error.to_string()),
            }
            recording::write_description(&self.directory, &state.description)?;
        }
        match &state.description.error {
            None => Ok(state.description.clone()),
            Some(error) => {
                let reason = format!("the recording is not complete: {error}");
                Err(TraceError::Recording { path: self.directory.clone(), reason })
            }
        }
    }

    /// Adds a request that succeeded, with the bytes written.
    fn note(&self, arrived: u64, kind: RequestKind, offset: u64, length: u64, slices: &[&[u8]]) {
        if length == 0 && kind != RequestKind::Flush {
            return;
        }
        let mut state = self.state.lock();
        let first = *state.first_time.get_or_insert(arrived);
        let request = TraceRequest { time_ns: arrived.saturating_sub(first), kind, offset, length };
        let Some(files) = &mut state.files else {
            if state.description.complete && matches!(kind, RequestKind::Write | RequestKind::Discard) {
                state.description.complete = false;
                let late = io::Error::other("a request ended only after the recording was finished");
                self.give_up(&mut state, &late);
            }
            return;
        };
        match files.add(&request, slices) {
            Ok(()) => state.description.totals.add(&request),
            Err(error) => self.give_up(&mut state, &error),
        }
    }

    /// The recording's files cannot be written: says so at once, and on the disk as far as that works.
    fn give_up(&self, state: &mut State, error: &io::Error) {
        tracing::error!("{}: the recording ends here, incomplete: {error}", self.directory.display());
        state.files = None;
        state.description.error = Some(error.to_string());
        if let Err(error) = recording::write_description(&self.directory, &state.description) {
            tracing::error!("{error}");
        }
    }

    fn note_failure(&self) {
        self.state.lock().description.failed_requests += 1;
    }

    /// Refuses what would make a finished recording untrue.
    fn check_recording(&self, operation: &'static str, offset: u64, length: u64) -> basalt_device::Result<()> {
        if !self.state.lock().description.complete {
            return Ok(());
        }
        let source = io::Error::other("the recording of this device is finished");
        Err(DeviceError::Io { name: self.inner.name().to_owned(), operation, offset, length, source })
    }

    /// Runs a request and adds it to the recording once it has succeeded.
    fn record(
        &self,
        kind: RequestKind,
        offset: u64,
        length: u64,
        slices: &[&[u8]],
        run: impl FnOnce() -> basalt_device::Result<()>,
    ) -> basalt_device::Result<()> {
        let arrived = (self.clock)();
        let result = run();
        match &result {
            Ok(()) => self.note(arrived, kind, offset, length, slices),
            Err(_) => self.note_failure(),
        }
        result
    }
}

impl Files {
    fn create(directory: &Path, content: bool, device: &str) -> Result<Files> {
        let create = |path: &Path| {
            let file = File::create_new(path).map_err(file_error(path, "beginning a recording"))?;
            Ok::<_, TraceError>(BufWriter::with_capacity(BUFFER, file))
        };
        let path = recording::trace_path(directory);
        let trace =
            IologWriter::new(create(&path)?, IologVersion::Three, device).map_err(file_error(&path, "writing"))?;
        let content = if content {
            Some(Box::new(FrameEncoder::new(create(&recording::content_path(directory))?)))
        } else {
            None
        };
        Ok(Files { trace, content })
    }

    fn add(&mut self, request: &TraceRequest, slices: &[&[u8]]) -> io::Result<()> {
        if let Some(content) = &mut self.content {
            slices.iter().try_for_each(|slice| content.write_all(slice))?;
        }
        self.trace.push(request)
    }

    fn finish(self, directory: &Path) -> Result<()> {
        let path = recording::trace_path(directory);
        let trace = self.trace.finish().map_err(file_error(&path, "writing"))?;
        sync(trace).map_err(file_error(&path, "writing"))?;
        if let Some(content) = self.content {
            let path = recording::content_path(directory);
            let file = content.finish().map_err(|error| file_error(&path, "writing")(error.into()))?;
            sync(file).map_err(file_error(&path, "writing"))?;
        }
        Ok(())
    }
}

fn sync(file: BufWriter<File>) -> io::Result<()> {
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

impl<D: BlockDevice> DeviceLayer for Recorder<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> basalt_device::Result<()> {
        let length = buf.len() as u64;
        self.record(RequestKind::Read, offset, length, &[], || self.inner.read_at(offset, buf))
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> basalt_device::Result<()> {
        let length = slices.iter().map(|slice| slice.len() as u64).sum();
        self.check_recording("write", offset, length)?;
        self.record(RequestKind::Write, offset, length, slices, || self.inner.write_vectored_at(offset, slices))
    }

    fn on_flush(&self) -> basalt_device::Result<()> {
        self.note((self.clock)(), RequestKind::Flush, 0, 0, &[]);
        let result = self.inner.flush();
        if result.is_err() {
            self.note_failure();
        }
        result
    }

    fn on_discard(&self, offset: u64, length: u64) -> basalt_device::Result<()> {
        self.check_recording("discard", offset, length)?;
        self.record(RequestKind::Discard, offset, length, &[], || self.inner.discard(offset, length))
    }
}
