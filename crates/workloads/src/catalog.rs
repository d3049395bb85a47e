//! The workloads there are, and how to get one by its name.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::jobs;
use crate::settings::{BLOCK, Settings};
use crate::specification::Specification;
use crate::workload::Workload;
use crate::workload::copy_files::CopyFiles;
use crate::workload::create_delete::CreateDelete;
use crate::workload::create_files::CreateFiles;
use crate::workload::file_update::FileUpdate;
use crate::workload::fileserver::FileServer;
use crate::workload::mobile::Mobile;
use crate::workload::overwrite::Overwrite;
use crate::workload::postmark::Postmark;
use crate::workload::res::Res;
use crate::workload::sysbench::SysBench;
use crate::workload::tpcc::Tpcc;
use crate::workload::varmail::VarMail;
use crate::workload::ycsb::Ycsb;

/// What a workload is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub what: &'static str,
    /// Its options, with their defaults.
    pub options: &'static str,
    /// Where its numbers come from.
    pub source: &'static str,
}

/// Smallest volume that a workload is made for, in bytes.
const SMALLEST: u64 = 16 << 20;

type Make = fn(Specification, &Settings) -> Result<Box<dyn Workload>>;

/// One line a workload: what is known of it, and how it is made.
const WORKLOADS: &[(Description, Make)] = &[
    (
        Description {
            name: "zipf",
            what: "one file, blocks overwritten by Zipf's law",
            options: "θ (0.99), set (12.5%), request (4K)",
            source: "SFS paper, section 4.1",
        },
        |options, settings| Ok(Box::new(Overwrite::new(options, settings)?)),
    ),
    (
        Description {
            name: "uniform",
            what: "one file, every block overwritten equally often",
            options: "set (12.5%), request (4K)",
            source: "SFS paper, section 4.1",
        },
        |options, settings| Ok(Box::new(Overwrite::new(options, settings)?)),
    ),
    (
        Description {
            name: "hotcold",
            what: "one file, most overwrites on few blocks",
            options: "writes/blocks in percent (90/10), set (12.5%), request (4K)",
            source: "Rosenblum and Ousterhout, the log-structured file system (1992)",
        },
        |options, settings| Ok(Box::new(Overwrite::new(options, settings)?)),
    ),
    (
        Description {
            name: "sequential",
            what: "one file, overwritten from beginning to end again and again",
            options: "set (12.5%), request (4K)",
            source: "the closed form: write amplification 1",
        },
        |options, settings| Ok(Box::new(Overwrite::new(options, settings)?)),
    ),
    (
        Description {
            name: "tpcc",
            what: "an OLTP database: skewed page writes, and a log",
            options: "set (12.5%), log (40 % of the writes)",
            source: "SFS paper, section 2.2, and SCJ paper, table 1",
        },
        |options, settings| Ok(Box::new(Tpcc::new(options, settings)?)),
    ),
    (
        Description {
            name: "res",
            what: "a desktop: small files rewritten, folders written in place, temporary files",
            options: "set (30%)",
            source: "shape of the RES trace (Roselli 2000) as the SFS paper describes it",
        },
        |options, settings| Ok(Box::new(Res::new(options, settings)?)),
    ),
    (
        Description {
            name: "ycsb-a",
            what: "a database with a redo log: half reads, half updates",
            options: "set (75%), theta (0.99), reads (50 %)",
            source: "YCSB workload A; SCJ paper, table 1; InnoDB's defaults",
        },
        |options, settings| Ok(Box::new(Ycsb::new(options, settings)?)),
    ),
    (
        Description {
            name: "fileserver",
            what: "50 threads create, append to, read and delete files of 128 KiB",
            options: "set (68.6%), mean (128K), append (16K), width (20), threads (50)",
            source: "Filebench 1.4.9.1, fileserver.f; SCJ paper, table 1",
        },
        |options, settings| Ok(Box::new(FileServer::new(options, settings)?)),
    ),
    (
        Description {
            name: "varmail",
            what: "16 threads deliver, read and delete mails of 32 KiB, and sync each",
            options: "set (72.5%), mean (32K), append (16K), threads (16)",
            source: "Filebench 1.4.9.1, varmail.f; SCJ paper, table 1",
        },
        |options, settings| Ok(Box::new(VarMail::new(options, settings)?)),
    ),
    (
        Description {
            name: "postmark",
            what: "files created and deleted in one directory",
            options: "flashlight or classic, set (63.5%), files, transactions (23 a file), request (2K)",
            source: "FlashLight paper, section 5.3; Katcher 1997",
        },
        |options, settings| Ok(Box::new(Postmark::new(options, settings)?)),
    ),
    (
        Description {
            name: "sysbench",
            what: "one file written from beginning to end",
            options: "request (4K), set (74.2%)",
            source: "FlashLight paper, section 5.2",
        },
        |options, settings| Ok(Box::new(SysBench::new(options, settings)?)),
    ),
    (
        Description {
            name: "create-files",
            what: "files of 128 KiB made one after the other",
            options: "files (100 on 256M), mean (128K), width (100), request (4K)",
            source: "FlashLight paper, table VII",
        },
        |options, settings| Ok(Box::new(CreateFiles::new(options, settings)?)),
    ),
    (
        Description {
            name: "copy-files",
            what: "a tree of files of 128 KiB copied beside itself",
            options: "files (500 on 256M), mean (128K), width (20), request (4K)",
            source: "FlashLight paper, table VII",
        },
        |options, settings| Ok(Box::new(CopyFiles::new(options, settings)?)),
    ),
    (
        Description {
            name: "create-delete",
            what: "files of 128 KiB created, appended to and deleted",
            options: "set (35.2%), mean (128K), append (128K), width (20), request (64K), threads (1)",
            source: "FlashLight paper, section 5.4.2 and table VII",
        },
        |options, settings| Ok(Box::new(CreateDelete::new(options, settings)?)),
    ),
    (
        Description {
            name: "file-update",
            what: "parts of files rewritten, in one extent or in many",
            options: "sequential or random, extents, extent, set (78.2%), mean (128K), width (20), request (64K)",
            source: "FlashLight paper, section 5.4.3",
        },
        |options, settings| Ok(Box::new(FileUpdate::new(options, settings)?)),
    ),
    (
        Description {
            name: "mobile",
            what: "a telephone: small SQLite transactions, pictures, updates of applications",
            options: "databases (10%), pictures (30%)",
            source: "SQLite's file formats; shares are ours",
        },
        |options, settings| Ok(Box::new(Mobile::new(options, settings)?)),
    ),
];

/// The job files of other programs, which [`by_name`] reads too.
const FILES: [Description; 2] = [
    Description {
        name: "PATH.fio",
        what: "the jobs of a job file of fio; a path has a `/` or ends with .fio",
        options: "any option of a job, for all of them: load.fio:size=20%,numjobs=4",
        source: "fio's documentation; docs/lab.md says what is read",
    },
    Description {
        name: "PATH.f",
        what: "the processes of a workload in Filebench's language",
        options: "any variable that the file sets: mail.f:nfiles=5000",
        source: "Filebench's workload model language; docs/lab.md says what is read",
    },
];

/// All workloads there are.
pub fn list() -> impl Iterator<Item = Description> {
    WORKLOADS.iter().map(|(description, _)| *description)
}

/// What is known of workloads in files.
pub fn files() -> impl Iterator<Item = Description> {
    FILES.into_iter()
}

/// The workload of a specification, `name`, `name:value` or `name:value,key=value,…`: `zipf:0.9,set=25%`;
/// or of a job file of fio or Filebench ([`is_file`]), with options likewise: `load.fio:size=20%`.
///
/// # Errors
/// [`Error::Specification`] if there is no such workload or option, or the settings make no sense.
pub fn by_name(specification: &str, settings: &Settings) -> Result<Box<dyn Workload>> {
    if settings.size_bytes < SMALLEST {
        let line = format!("a volume of {} bytes is too small for workloads; at least {SMALLEST}", settings.size_bytes);
        return Err(Error::Specification(line));
    }
    if settings.utilization_percent == 0 || settings.utilization_percent > 100 {
        let line = format!("a utilization of {} % is not from 1 to 100", settings.utilization_percent);
        return Err(Error::Specification(line));
    }
    let options = Specification::parse(specification)?;
    if is_file(specification) {
        return fitting(jobs::workload(options, settings)?, settings);
    }
    let found = WORKLOADS.iter().find(|(description, _)| description.name == options.name());
    let Some((_, make)) = found else {
        let names: Vec<&str> = WORKLOADS.iter().map(|(description, _)| description.name).collect();
        let line = format!(
            "there is no workload `{}`; there are {}, and job files (NAME.fio, NAME.f)",
            options.name(),
            names.join(", ")
        );
        return Err(Error::Specification(line));
    };
    fitting(make(options, settings)?, settings)
}

/// Whether a specification names a job file: the part before its options has a `/`, or ends with `.fio` or `.f`.
pub fn is_file(specification: &str) -> bool {
    let name = specification.split(':').next().unwrap_or_default();
    name.contains('/') || name.ends_with(".fio") || name.ends_with(".f")
}

/// The workload, unless it is larger than the volume.
fn fitting(workload: Box<dyn Workload>, settings: &Settings) -> Result<Box<dyn Workload>> {
    let plan = workload.plan();
    // What is larger than the volume can never fit; the run checks against the space there is.
    if plan.peak_bytes / BLOCK > settings.size_bytes / BLOCK {
        let (needed, size) = (plan.peak_bytes, settings.size_bytes);
        return Err(Error::TooLarge { workload: workload.name(), needed, size });
    }
    Ok(workload)
}
