//! The serving process killed again and again under threads that use fsync; an oracle knows what was acknowledged.
//!
//! `BASALT_KILLS` says how often (10 without it, 200 in `make kill-campaign`), `BASALT_KILL_SEED` where to begin.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basalt_testkit::limit;
use basalt_testkit::rng::Rng;

use crate::fixture::Volume;
use crate::support::basalt;

const WRITERS: u64 = 4;
/// Logs that a writer keeps; then the oldest goes.
const LOGS: usize = 6;
/// Bytes after which a writer begins the next log.
const LOG_FULL: usize = 400_000;
/// `fsck.f2fs` looks after so many kills; Basalt's own check after each.
const SAMPLED: u64 = 10;

/// How often to kill: the variable's number, or `usual`.
pub fn rounds(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |number| number.parse().expect("a number"))
}

/// A file that only grows.
#[derive(Default)]
struct Log {
    /// What was handed to write(2), whether it returned or not.
    written: Vec<u8>,
    /// So much of it is durable.
    durable: usize,
    /// The name may have gone already.
    doomed: bool,
}

/// One thread's directory, and what must be in it.
pub struct Writer {
    directory: PathBuf,
    rng: Rng,
    logs: BTreeMap<u64, Log>,
    next: u64,
    /// A file that is replaced as a whole: the last version that is durable, and the last one begun.
    version: (u64, u64),
    /// Calls of fsync and fdatasync that returned success.
    acknowledged: u64,
}

impl Writer {
    pub fn new(root: &Path, number: u64, seed: u64) -> Writer {
        let directory = root.join(format!("writer{number}"));
        fs::create_dir(&directory).unwrap();
        sync_path(&directory).unwrap();
        let rng = Rng::new(seed.wrapping_mul(1_000) + number);
        Writer { directory, rng, logs: BTreeMap::new(), next: 0, version: (0, 0), acknowledged: 0 }
    }

    /// Works until the mount is dead, which is soon.
    fn work(&mut self) {
        let start = Instant::now();
        while self.step().is_ok() {
            assert!(start.elapsed() < limit::SHORT, "the server was killed, and the mount goes on");
        }
    }

    /// One operation, and the fsync that makes it durable.
    pub fn step(&mut self) -> io::Result<()> {
        match self.rng.below(10) {
            0 => self.replace(),
            1 if self.logs.len() >= LOGS => self.remove_oldest(),
            _ => self.append(),
        }
    }

    fn log_path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("log{number}"))
    }

    /// Appends a few records to the youngest log, or begins one, and makes it durable.
    fn append(&mut self) -> io::Result<()> {
        let youngest = self.logs.last_key_value().filter(|(_, log)| log.written.len() < LOG_FULL);
        let number = youngest.map_or(self.next, |(number, _)| *number);
        self.next = self.next.max(number + 1);
        self.logs.entry(number).or_default();
        let mut file = File::options().append(true).create(true).open(self.log_path(number))?;
        for _ in 0..self.rng.between(1, 4) {
            let mut record = vec![0; self.rng.size(9_000) as usize + 1];
            self.rng.fill(&mut record);
            if let Some(log) = self.logs.get_mut(&number) {
                log.written.extend_from_slice(&record);
            }
            file.write_all(&record)?;
        }
        if self.rng.chance(50) { file.sync_all() } else { file.sync_data() }?;
        self.acknowledged += 1;
        if let Some(log) = self.logs.get_mut(&number) {
            log.durable = log.written.len();
        }
        Ok(())
    }

    /// Replaces a file as editors do: a new one, fsync, rename, fsync of the directory.
    fn replace(&mut self) -> io::Result<()> {
        self.version.1 += 1;
        let version = self.version.1;
        let (new, name) = (self.directory.join("new"), self.directory.join("replaced"));
        let mut file = File::create(&new)?;
        file.write_all(&content_of(version))?;
        file.sync_all()?;
        fs::rename(&new, &name)?;
        sync_path(&self.directory)?;
        self.acknowledged += 2;
        self.version.0 = version;
        Ok(())
    }

    /// Removes the oldest log, for good.
    fn remove_oldest(&mut self) -> io::Result<()> {
        let Some(mut oldest) = self.logs.first_entry() else { return Ok(()) };
        oldest.get_mut().doomed = true;
        let number = *oldest.key();
        fs::remove_file(self.log_path(number))?;
        sync_path(&self.directory)?;
        self.acknowledged += 1;
        self.logs.remove(&number);
        Ok(())
    }

    /// Compares with what is there after the kill, and takes that as the new truth: the mount has made it durable.
    pub fn verify(&mut self, round: &str) {
        let kept: BTreeMap<u64, Log> = std::mem::take(&mut self.logs);
        for (number, log) in kept {
            let path = self.log_path(number);
            let what = format!("{round}: {}", path.display());
            match fs::read(&path) {
                Ok(found) => {
                    expect_log(&what, &found, &log);
                    let durable = found.len();
                    self.logs.insert(number, Log { written: found, durable, doomed: false });
                }
                // Its name was never made durable, or is just going.
                Err(error) if error.kind() == io::ErrorKind::NotFound && (log.doomed || log.durable == 0) => {}
                Err(error) => panic!("{what}: {error}"),
            }
        }
        self.verify_replaced(round);
        self.verify_names(round);
    }

    fn verify_replaced(&mut self, round: &str) {
        let path = self.directory.join("replaced");
        let found = match fs::read(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.version.0 == 0 => return,
            Err(error) => panic!("{round}: {}: {error}", path.display()),
        };
        let version = (self.version.0..=self.version.1).find(|version| found == content_of(*version));
        let (durable, begun) = self.version;
        let version = version.unwrap_or_else(|| {
            panic!("{round}: {}: {} bytes, no version from {durable} to {begun}", path.display(), found.len())
        });
        self.version = (version, begun);
    }

    /// Nothing else is there: what was removed for good stays away.
    fn verify_names(&self, round: &str) {
        for entry in fs::read_dir(&self.directory).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let number = name.strip_prefix("log").and_then(|number| number.parse().ok());
            let known = number.is_some_and(|number: u64| self.logs.contains_key(&number));
            assert!(known || name == "new" || name == "replaced", "{round}: {name} is back in {:?}", self.directory);
        }
    }
}

/// What was acknowledged is there; behind it only what was written, or zeros where it has not arrived.
#[track_caller]
fn expect_log(what: &str, found: &[u8], log: &Log) {
    assert!(found.len() >= log.durable, "{what}: {} bytes, {} were durable", found.len(), log.durable);
    assert!(found.len() <= log.written.len(), "{what}: {} bytes, {} written", found.len(), log.written.len());
    let wrong = (0..log.durable).find(|&at| found[at] != log.written[at]);
    assert_eq!(wrong, None, "{what}: byte differs, {} were durable", log.durable);
    let foreign = (log.durable..found.len()).find(|&at| found[at] != 0 && found[at] != log.written[at]);
    assert_eq!(foreign, None, "{what}: a byte that nobody wrote there");
}

fn content_of(version: u64) -> Vec<u8> {
    let mut content = vec![0; 10 + (version * 7_919 % 60_000) as usize];
    Rng::new(version).fill(&mut content);
    content
}

fn sync_path(path: &Path) -> io::Result<()> {
    let opened = File::open(path)?;
    Ok(rustix::fs::fsync(opened.as_fd())?)
}

#[test]
fn what_fsync_acknowledged_outlives_every_kill() {
    let kills = rounds("BASALT_KILLS", 10);
    let seed = rounds("BASALT_KILL_SEED", 1);
    let Some(volume) = Volume::with_options("256M", "commit=0.5,checkpoint=0.5") else { return };
    let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(&volume.root(), number, seed)).collect();
    let mut rng = Rng::new(seed);
    let start = Instant::now();
    for kill in 0..kills {
        let round = format!("seed {seed}, kill {kill}");
        let _end = volume.end_after(2 * limit::SHORT);
        std::thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| writer.work());
            }
            std::thread::sleep(Duration::from_millis(20 + rng.size(700)));
            volume.kill_server();
        });
        volume.clean_up();
        basalt(["fsck".as_ref(), volume.image().as_os_str()]).ok();
        if kill % SAMPLED == 0 {
            let mut report = volume.fsck_f2fs();
            report.faults.retain(|fault| !fault.starts_with("Invalid CP CRC"));
            if !report.gave_up() {
                report.expect_clean();
            }
        }
        volume.mount();
        writers.iter_mut().for_each(|writer| writer.verify(&round));
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    assert!(acknowledged > kills, "{acknowledged} calls of fsync");
    println!("{kills} kills, {acknowledged} acknowledged calls of fsync, {:.0?}", start.elapsed());
}
