//! The command line, and how much work a run does.

use std::path::PathBuf;

use basalt_testkit::{Error, Result};

use crate::workload::Workload;

/// Basalt's mount beside other file systems: speed, mount time, memory.
#[derive(Debug, clap::Parser)]
#[command(
    name = "bench",
    after_help = "Names for --only: sequential, random, files, untar, clone, fsync, varmail, overwrite, overwrite-files (on the host); cleaning \
(both of these with and without a cleaning journal); volume (mount time and memory of 1 TiB); fsck (a check of 500,000 files); uml (all but these two in User-Mode Linux), uml-sequential, uml-files, ….\n\
Progress goes to standard error, the tables to standard output."
)]
pub struct Options {
    /// One run with small sizes, for trying out; its numbers mean nothing
    #[arg(long)]
    pub quick: bool,

    /// Measure only this; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Runs, of which the median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: Option<u32>,

    /// Print JSON, every single measurement in it
    #[arg(long)]
    pub json: bool,

    /// Directory for images and mount points, on the disk to be measured
    #[arg(long, value_name = "DIR")]
    pub directory: PathBuf,

    /// The program `basalt`
    #[arg(long, value_name = "FILE")]
    pub basalt: PathBuf,

    /// Be the program inside User-Mode Linux
    #[arg(long, hide = true)]
    pub inside_guest: bool,
}

impl Options {
    /// How often everything is measured.
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 1 } else { 5 })
    }

    /// Whether a part is to be measured.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// The workloads asked for under this prefix: none for those on the host, `uml-` for those in User-Mode Linux.
    ///
    /// # Errors
    /// When `--only` names nothing that exists.
    pub fn workloads(&self, prefix: &str) -> Result<Vec<Workload>> {
        for name in &self.only {
            let workload = name.strip_prefix("uml-").unwrap_or(name);
            if !["cleaning", "volume", "fsck", "uml"].contains(&name.as_str())
                && Workload::ALL.iter().all(|known| known.name() != workload)
            {
                return Err(Error::Invalid(format!("--only {name}: unknown; --help lists the names")));
            }
        }
        let whole = !prefix.is_empty() && self.only.iter().any(|only| only == prefix.trim_end_matches('-'));
        let all = Workload::ALL.into_iter();
        let is_possible = |workload: &Workload| prefix.is_empty() || workload.is_for_guests();
        let is_wanted = |workload: &Workload| whole || self.wants(&format!("{prefix}{}", workload.name()));
        Ok(all.filter(|workload| is_possible(workload) && is_wanted(workload)).collect())
    }
}

/// How much work a run does.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Size of a volume.
    pub volume_bytes: u64,
    /// Size of the file that is written and read sequentially, and then at random places.
    pub file_bytes: u64,
    /// Random writes of 4 KiB.
    pub random_writes: u64,
    /// Random reads of 4 KiB.
    pub random_reads: u64,
    /// Small files.
    pub files: u32,
    /// Writes of 4 KiB, each with an fsync.
    pub fsyncs: u32,
    /// Turns of the mail server's threads, all together.
    pub mail_turns: u32,
    /// Size of a volume that is filled and then overwritten.
    pub full_bytes: u64,
    /// How much of the space that a new volume offers files take there, in percent.
    pub full_percent: u64,
    /// Overwrites of 4 KiB of a full volume that are measured; as many come before.
    pub overwrites: u64,
    /// How many times as long the slowest of a hundred overwrites is to take with the other contender, if that is an aim.
    pub slowest_aim: Option<f64>,
}

impl Scale {
    /// On the host.
    pub fn host(quick: bool) -> Scale {
        if quick {
            return Scale::small(128 << 20);
        }
        Scale {
            volume_bytes: 8 << 30,
            file_bytes: 1 << 30,
            random_writes: 65_536,
            random_reads: 16_384,
            files: 20_000,
            fsyncs: 2_000,
            mail_turns: 2_000,
            full_bytes: 1 << 30,
            full_percent: 90,
            overwrites: 65_536,
            slowest_aim: None,
        }
    }

    /// Inside User-Mode Linux, which has one processor and runs system calls several times slower.
    pub fn guest(quick: bool) -> Scale {
        if quick {
            return Scale { files: 1_000, ..Scale::small(64 << 20) };
        }
        Scale {
            files: 20_000,
            fsyncs: 1_000,
            mail_turns: 400,
            random_reads: 8_192,
            random_writes: 32_768,
            ..Scale::small(512 << 20)
        }
    }

    fn small(file_bytes: u64) -> Scale {
        let blocks = file_bytes / 4096;
        Scale {
            volume_bytes: 4 << 30,
            file_bytes,
            random_writes: blocks / 4,
            random_reads: blocks / 16,
            files: 2_000,
            fsyncs: 200,
            mail_turns: 200,
            full_bytes: 512 << 20,
            full_percent: 90,
            overwrites: 16_384,
            slowest_aim: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn names(only: &[&str], prefix: &str) -> Vec<&'static str> {
        let fixed = ["bench", "--directory=/d", "--basalt=/b"].into_iter();
        let options = Options::parse_from(fixed.chain(only.iter().flat_map(|name| ["--only", name])));
        options.workloads(prefix).unwrap().iter().map(|workload| workload.name()).collect()
    }

    #[test]
    fn only_chooses() {
        assert_eq!(names(&[], "").len(), Workload::ALL.len());
        assert_eq!(names(&[], "uml-").len(), Workload::ALL.len() - 2, "no full volumes");
        assert_eq!(names(&["files"], ""), ["files"]);
        assert!(names(&["files"], "uml-").is_empty());
        assert_eq!(names(&["uml"], "uml-").len(), Workload::ALL.len() - 2);
        assert!(names(&["uml"], "").is_empty());
        assert_eq!(names(&["uml-clone", "volume"], "uml-"), ["clone"]);
    }
}
