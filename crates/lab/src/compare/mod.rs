//! Comparison: the same workload on Basalt and on the file systems of Linux, their requests recorded and replayed on one simulated device.
//!
//! | module | what |
//! |---|---|
//! | this one | [`Comparison`]: what to compare, and doing it |
//! | [`system`] | [`System`]: the file systems that take part |
//! | [`row`] | [`Row`]: one file system under one workload |
//! | [`table`] | the rows as a table of text |
//! | [`page`] | the rows as a report |
//! | `engine` | Basalt in this process, on a device in virtual time |
//! | `log` | a device that writes its requests down |
//! | `recorded` | the requests of a recording as a device would have got them |
//! | `flash` | these requests on the simulated device, which was written before |
//! | `scale` | how large workloads are and how long they run here, if nobody says otherwise |
//!
//! The translation layers are filled before the first request, and what happens before the measured phase (mkfs, the workload's files, dummy
//! data, ageing) goes through them as well, so that they are aged; everything counted is of the measured phase, from its first
//! operation until the volume is unmounted.

mod engine;
mod flash;
mod log;
pub mod page;
mod recorded;
pub mod row;
pub(crate) mod scale;
pub mod system;
pub mod table;

use std::fs::File;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use basalt_flash::DeviceModel;
use basalt_traces::{IologVersion, IologWriter};
use basalt_workloads::Settings;

use crate::peers::{self, GuestTask, Machine, PeerRun, Stop};
use recorded::Recorded;
pub use row::{Measured, Row};
pub use system::System;

/// What to compare.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The workloads with their options.
    pub workloads: Vec<String>,
    /// The file systems.
    pub systems: Vec<System>,
    /// The device.
    pub device: Arc<DeviceModel>,
    /// Share of the device that was written once, in order, before a file system was made on it, in percent; 0 is a fresh device.
    pub fill_percent: u8,
    /// Size, utilization, seed. Where it leaves ageing and measuring open, endless workloads write 5/8 of the volume and the whole
    /// of it. Those that overwrite one set (`zipf`, `uniform`, `hotcold`, `sequential`, `tpcc`) have one of 25 % of the volume,
    /// unless it has less than 256 MiB.
    pub settings: Settings,
    /// How long each run may take in real time.
    pub limit: Duration,
    /// This program, which machines run: `PROGRAM lab guest TASK DIRECTORY`.
    pub program: PathBuf,
    /// A directory for images and recordings, which go away.
    pub place: PathBuf,
    /// A directory where the requests of every run are kept, as an iolog of fio each; they hold all phases.
    pub keep: Option<PathBuf>,
}

/// Why a comparison did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The caller broke off.
    #[error("interrupted")]
    Interrupted,
    /// A workload does not exist, or its options make no sense.
    #[error("{0}")]
    Workload(String),
}

impl Comparison {
    /// Checks what can be checked before anything runs.
    ///
    /// # Errors
    /// [`CompareError::Workload`].
    pub fn check(&self) -> Result<(), CompareError> {
        for workload in &self.workloads {
            let workload = scale::workload(workload, &self.settings);
            basalt_workloads::by_name(&workload, &self.settings)
                .map_err(|error| CompareError::Workload(error.to_string()))?;
        }
        Ok(())
    }

    /// Runs every workload on every file system, one after the other. `watch` is told of each run how far it is, and can break
    /// off; `done` gets each row when it is there.
    ///
    /// # Errors
    /// [`CompareError`]; what goes wrong with one file system is in its row.
    pub fn run(
        &self,
        watch: &mut dyn FnMut(&str, System, &str) -> ControlFlow<()>,
        done: &mut dyn FnMut(&Row),
    ) -> Result<Vec<Row>, CompareError> {
        self.check()?;
        let mut rows = Vec::new();
        for workload in &self.workloads {
            for &system in &self.systems {
                let requests = self.place.join(format!("{}.requests", system.name()));
                let row = self.row(workload, system, &requests, &mut |reached| watch(workload, system, reached))?;
                done(&row);
                // Where nothing was recorded there is nothing to remove.
                let _ = std::fs::remove_file(&requests);
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn row(
        &self,
        workload: &str,
        system: System,
        requests: &Path,
        watch: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Row, CompareError> {
        let mut row = Row::new(self, workload, system);
        if let System::Peer(peer) = system
            && let Some(why) = peer.missing()
        {
            row.error = Some(format!("skipped: {why}"));
            row.skipped = true;
            return Ok(row);
        }
        match self.one(workload, system, requests, watch) {
            Err(reason) => row.error = Some(reason),
            Ok((run, measured)) => {
                row.elapsed_seconds = run.elapsed.as_secs_f64();
                match &run.report {
                    // A job file is called as the caller calls it.
                    Ok(_) if basalt_workloads::is_file(workload) => {}
                    Ok(report) => row.workload.clone_from(&report.workload),
                    Err(Stop::Interrupted) => return Err(CompareError::Interrupted),
                    Err(stop) => row.error = Some(row::without_name(&stop.to_string(), workload)),
                }
                row.measured = measured;
            }
        }
        Ok(row)
    }

    /// Runs one workload on one file system and replays what it asked of the device.
    fn one(
        &self,
        workload: &str,
        system: System,
        requests: &Path,
        watch: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(PeerRun, Option<Measured>), String> {
        let scaled = scale::workload(workload, &self.settings);
        let settings = scale::settings(&scaled, &self.settings);
        let task = GuestTask { workload: scaled, settings, requests: requests.to_owned() };
        let (run, cut) = match system.options(&self.device) {
            Ok(options) => (engine::run(&task, options, &self.device, &self.place, self.limit, watch)?, None),
            Err(peer) => {
                let machine = Machine { program: &self.program, place: &self.place, limit: self.limit };
                (peers::run(peer, &machine, &task, watch)?, Some(peers::LONGEST_REQUEST))
            }
        };
        self.keep(workload, system, requests, cut)?;
        let (Some(measured_from), Ok(_)) = (run.measured_from, &run.report) else { return Ok((run, None)) };
        let recorded = Recorded::open(requests, cut, measured_from).map_err(|error| error.to_string())?;
        let outcome = flash::replay(&self.device, self.settings.size_bytes, self.fill_percent, recorded)?;
        let measured = Measured::new(&run, &outcome);
        Ok((run, measured))
    }

    /// Writes the recording where it is kept, if that is wanted.
    fn keep(&self, workload: &str, system: System, requests: &Path, cut: Option<u64>) -> Result<(), String> {
        let Some(directory) = &self.keep else { return Ok(()) };
        let name: String = workload
            .chars()
            .map(|letter| if letter.is_alphanumeric() || letter == '.' { letter } else { '-' })
            .collect();
        let path = directory.join(format!("{name}-{}.fio", system.name()));
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = BufWriter::new(File::create(&path).map_err(failed)?);
        let mut writer = IologWriter::new(file, IologVersion::Three, "/dev/disk").map_err(failed)?;
        let mut first = None;
        for marked in Recorded::open(requests, cut, u64::MAX).map_err(|error| error.to_string())? {
            let mut request = marked.map_err(|error| error.to_string())?.request;
            let begin = *first.get_or_insert(request.time_ns);
            request.time_ns = request.time_ns.saturating_sub(begin);
            writer.push(&request).map_err(failed)?;
        }
        writer.finish().map(drop).map_err(failed)
    }
}
