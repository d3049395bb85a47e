//! Loads of files on the simulated volume: they are written, read and removed, behind a kernel's page cache in which time passes.
//!
//! A stream has writes only, and blocks live until they are overwritten. Here pages wait in memory, many of them die there, and the
//! volume is as large as what reaches it needs.

mod memory;
mod operations;
mod server;

use std::sync::Arc;

use basalt_segments::{BLOCKS_PER_SEGMENT, Touches};
use basalt_simulator::{BLOCK_SIZE, Options, Volume};
use basalt_workloads::{Settings, by_name};
use memory::Nothing;
use operations::Operations;
use parking_lot::Mutex;

use super::priced::Shared;
use super::{Placing, Priced, Ran, Setup, defaults, size_of_blocks};
pub use memory::{Below, Memory, MemorySettings, MemoryStatistics};
pub use server::{Pick, Server};

/// How long a page is dirty before it is written back, unless told otherwise: Linux's `vm.dirty_expire_centisecs`.
const HOLD_SECONDS: f64 = 30.0;
/// How often the kernel looks for such pages: Linux's `vm.dirty_writeback_centisecs`.
const LOOKS_NS: u64 = 5_000_000_000;
/// Steps of a workload in a second, unless told otherwise.
const RATE: u32 = 20;

/// What files are written, read and removed.
#[derive(Debug, Clone, PartialEq)]
pub struct FileLoad {
    kind: Kind,
    /// Of the volume that it is made for, in bytes.
    made_for: u64,
    /// How long a file is dirty before it is written back, in seconds.
    hold: f64,
    /// Dirty pages at most.
    most_dirty: usize,
    /// Of the volume, if it is not to be as large as the utilization says.
    segments: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Server(Server),
    /// A specification of the workloads crate, and its steps a second.
    Workload(String, u32),
}

impl FileLoad {
    /// A load by its name, made for a volume of so many bytes: `server`, with options as in
    /// `server:runs=10,loops=4000,rate=60,files=2000,kib=128,append=16384,cold=60000,pick=random`, which are its own at 1 GiB
    /// ([`Server::made_for`]), or a workload of files such as `mobile`, with its own options and `rate`. Both take `hold=SECONDS` (how long
    /// a file is dirty), `dirty=PAGES` (dirty at most), and `segments=N` or `segments=N%` of those that
    /// it is made for (of the volume, whatever the utilization).
    ///
    /// # Errors
    /// In words, when there is no such load or option.
    pub fn parse(text: &str, made_for: u64) -> Result<FileLoad, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut options: Vec<(&str, &str)> = Vec::new();
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            options.push(part.split_once('=').unwrap_or(("", part)));
        }
        let mut own = Own { text, options };
        let hold = own.number("hold", HOLD_SECONDS)?;
        if !(0.0..=1e6).contains(&hold) {
            return Err(format!("{text}: hold is not from 0 to 1000000 seconds"));
        }
        let most_dirty = own.number("dirty", usize::MAX)?;
        let segments = own.segments(made_for)?;
        let kind = if name == "server" { own.server(Server::made_for(made_for))? } else { own.workload(name)? };
        Ok(FileLoad { kind, made_for, hold, most_dirty, segments })
    }

    /// Whether it can run as long.
    ///
    /// # Errors
    /// The reason, in one line, when it cannot.
    pub fn check(&self, lengths: &FileLengths) -> Result<(), String> {
        match self.kind {
            Kind::Server(_) if lengths.warm_up.is_some() || lengths.measured.is_some() => {
                Err("the runs of `server` are measured as a whole: writes and warm-up are for workloads".into())
            }
            _ => Ok(()),
        }
    }

    fn memory(&self, around: &AroundFiles) -> Memory {
        Memory::new(MemorySettings {
            pages: around.pages,
            most_dirty: self.most_dirty,
            // At most a million seconds.
            expires_ns: (self.hold * 1e9) as u64,
            looks_ns: LOOKS_NS,
            touches: around.touches,
        })
    }

    /// Runs it on what is below: `phase` is called where measuring begins, `progress` hears of what is done of all.
    fn run(
        &self,
        lengths: &FileLengths,
        until: u8,
        memory: &mut Memory,
        below: &mut dyn Below,
        mut phase: impl FnMut(&Memory),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), String> {
        match &self.kind {
            Kind::Server(server) => {
                phase(memory);
                let steps = share(server.steps(), until);
                server.run((lengths.seed, steps), memory, below, &mut |done| progress(done, steps))
            }
            Kind::Workload(specification, rate) => {
                let settings = Settings { size_bytes: self.made_for, seed: lengths.seed, ..Settings::default() };
                let workload = by_name(specification, &settings).map_err(|error| error.to_string())?;
                let usual = defaults::TIMES * workload.plan().initial_bytes.div_ceil(BLOCK_SIZE);
                let (warm_up, measured) = (lengths.warm_up.unwrap_or(usual), lengths.measured.unwrap_or(usual));
                let measured = share(measured, until);
                let total = warm_up.saturating_add(measured);
                let mut operations = Operations::new(workload, *rate);
                operations.prepare(memory, below)?;
                operations.write(warm_up, memory, below, &mut |done| progress(done, total))?;
                phase(memory);
                operations.write(measured, memory, below, &mut |done| progress(warm_up + done, total))
            }
        }
    }
}

/// The options of a load that nobody asked for yet.
struct Own<'a> {
    text: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Own<'a> {
    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.options.iter().position(|(known, _)| *known == key)?;
        Some(self.options.remove(at).1)
    }

    fn number<T: std::str::FromStr>(&mut self, key: &str, usual: T) -> Result<T, String> {
        match self.take(key) {
            None => Ok(usual),
            Some(value) => value.parse().map_err(|_| format!("{}: {key} `{value}` is no such number", self.text)),
        }
    }

    fn at_least_one(&mut self, key: &str, usual: u32) -> Result<u32, String> {
        match self.number(key, usual)? {
            number @ 1..=server::MOST => Ok(number),
            _ => Err(format!("{}: {key} is not from 1 to {}", self.text, server::MOST)),
        }
    }

    /// A number, or a share in percent of a volume of so many bytes; none where none or 0 is said.
    fn segments(&mut self, made_for: u64) -> Result<Option<u32>, String> {
        let Some(text) = self.take("segments") else { return Ok(None) };
        let wrong = || format!("{}: segments `{text}` is no number, and no share such as 44%", self.text);
        let segments = match text.strip_suffix('%').map(str::parse::<f64>) {
            None => text.parse().map_err(|_| wrong())?,
            Some(Ok(percent)) if percent > 0.0 && percent <= 1000.0 => {
                let all = made_for / (u64::from(BLOCKS_PER_SEGMENT) * BLOCK_SIZE);
                // More than there can be is the most there can be.
                (all as f64 * percent / 100.0).round().max(1.0) as u32
            }
            Some(_) => return Err(wrong()),
        };
        Ok((segments > 0).then_some(segments))
    }

    fn server(&mut self, usual: Server) -> Result<Kind, String> {
        let server = Server {
            files: self.at_least_one("files", usual.files)?,
            bytes: u64::from(self.at_least_one("kib", (usual.bytes >> 10) as u32)?) << 10,
            append: u64::from(self.at_least_one("append", usual.append as u32)?),
            runs: self.at_least_one("runs", usual.runs)?,
            loops: self.at_least_one("loops", usual.loops)?,
            rate: self.at_least_one("rate", usual.rate)?,
            cold: self.number("cold", usual.cold)?,
            pick: match self.take("pick") {
                None | Some("random") => Pick::Random,
                Some("rotation") => Pick::Rotation,
                Some(other) => return Err(format!("{}: pick `{other}` is not random or rotation", self.text)),
            },
        };
        match self.options.first() {
            None => Ok(Kind::Server(server)),
            Some((key, _)) => Err(format!("{}: `server` has no option `{key}`", self.text)),
        }
    }

    /// What is left is the workload's own.
    fn workload(&mut self, name: &str) -> Result<Kind, String> {
        let rate = self.at_least_one("rate", RATE)?;
        let part =
            |(key, value): &(&str, &str)| if key.is_empty() { (*value).to_owned() } else { format!("{key}={value}") };
        let options: Vec<String> = self.options.iter().map(part).collect();
        let specification = if options.is_empty() { name.to_owned() } else { format!("{name}:{}", options.join(",")) };
        by_name(&specification, &Settings::default()).map_err(|error| error.to_string())?;
        Ok(Kind::Workload(specification, rate))
    }
}

/// How long a load runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLengths {
    /// Of all choices.
    pub seed: u64,
    /// Of workloads, pages that programs write before measuring; four times their files unless given.
    pub warm_up: Option<u64>,
    /// Pages measured, likewise.
    pub measured: Option<u64>,
    /// The share of what is measured that is done, in percent, on the volume for all of it: 10 are the first of ten runs of `server`.
    pub until: u8,
}

impl FileLengths {
    /// All of a load, with this seed.
    #[must_use]
    pub fn usual(seed: u64) -> FileLengths {
        FileLengths { seed, warm_up: None, measured: None, until: WHOLE }
    }
}

/// All of a load, in percent.
const WHOLE: u8 = 100;

/// So many percent of a number, rounded down.
fn share(of: u64, percent: u8) -> u64 {
    // 100 % is the number itself, so what is less has room.
    (u128::from(of) * u128::from(percent.min(WHOLE)) / u128::from(WHOLE)) as u64
}

/// What stands around the volume.
#[derive(Debug)]
pub struct AroundFiles {
    /// Pages of the lists of the page cache.
    pub pages: usize,
    /// What touches a page.
    pub touches: Touches,
    /// The device below it.
    pub device: Option<Priced>,
}

impl AroundFiles {
    /// Lists of so many bytes of pages, without a bound if nobody says, touched by this; and this device, if any.
    #[must_use]
    pub fn new(page_cache_bytes: Option<u64>, touches: Touches, device: Option<Priced>) -> AroundFiles {
        let pages = |bytes: u64| usize::try_from(bytes / BLOCK_SIZE).unwrap_or(usize::MAX);
        AroundFiles { pages: page_cache_bytes.map_or(usize::MAX, pages), touches, device }
    }
}

/// Runs a load on a volume of which the blocks that live at a time take at most the utilization of the setup, whose size does not matter.
/// Of a server, all runs are measured, of a workload what comes behind its warm-up.
///
/// # Errors
/// In words, when the load, the placement or the volume cannot be.
pub fn run_files(
    setup: &Setup,
    load: &FileLoad,
    lengths: &FileLengths,
    around: AroundFiles,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Ran, MemoryStatistics), String> {
    setup.placement.check_files(setup.logs, around.touches)?;
    load.check(lengths)?;
    // Once without a volume, to the end: how many blocks live does not depend on it.
    let mut memory = load.memory(&around);
    load.run(lengths, WHOLE, &mut memory, &mut Nothing, |_| (), &mut |_, _| ())?;
    let blocks = memory.most_blocks();
    let size = match load.segments {
        Some(segments) => u64::from(segments) * u64::from(BLOCKS_PER_SEGMENT) * BLOCK_SIZE,
        None => size_of_blocks(blocks, setup.utilization, setup.segments_per_section, &setup.cleaning)?,
    };
    let options = Options { blocks, ..Setup { size, ..setup.clone() }.options()? };

    let text = |error: basalt_simulator::Error| error.to_string();
    let mut volume = match setup.placement.told(options.logs)? {
        Some(placement) => Volume::with_placement(options, placement).map_err(text)?,
        None => Volume::new(options).map_err(text)?,
    };
    let mut memory = load.memory(&around);
    if matches!(setup.placement, Placing::ByPageCache(_)) {
        volume.set_lists(memory.lists());
    }
    let device = around.device.map(|device| Shared(Arc::new(Mutex::new(device))));
    if let Some(device) = &device {
        volume.set_traffic(Box::new(device.clone()));
    }
    let volume = std::cell::RefCell::new(volume);
    let mut before = MemoryStatistics::default();
    let begin = |memory: &Memory| {
        before = memory.statistics();
        volume.borrow_mut().take_statistics();
        device.iter().for_each(|device| _ = device.0.lock().take());
    };
    load.run(lengths, lengths.until, &mut memory, &mut Borrowed(&volume), begin, progress)?;
    let mut volume = volume.into_inner();
    let written = memory.statistics().since(&before);
    let ran = Ran {
        statistics: volume.take_statistics(),
        absorbed: written.absorbed,
        device: device.map(|device| device.0.lock().take()),
        volume,
    };
    Ok((ran, written))
}

/// A volume that is also looked at where measuring begins.
struct Borrowed<'a>(&'a std::cell::RefCell<Volume>);

impl Below for Borrowed<'_> {
    fn write(&mut self, block: u32, run: u32) -> Result<(), String> {
        Below::write(&mut *self.0.borrow_mut(), block, run)
    }

    fn remove(&mut self, block: u32) -> Result<(), String> {
        Below::remove(&mut *self.0.borrow_mut(), block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn loads_are_read_with_their_options() {
        let parse = |text: &str| FileLoad::parse(text, GIB);
        let usual = parse("server").unwrap();
        assert_eq!((&usual.kind, usual.hold, usual.segments), (&Kind::Server(Server::default()), 30.0, None));
        let load = parse("server:cold=0,runs=2,pick=rotation,hold=5.5,dirty=100,kib=64,segments=40").unwrap();
        let server = Server { cold: 0, runs: 2, pick: Pick::Rotation, bytes: 64 << 10, ..Server::default() };
        let kind = Kind::Server(server);
        assert_eq!(load, FileLoad { kind, made_for: GIB, hold: 5.5, most_dirty: 100, segments: Some(40) });
        let load = parse("mobile:pictures=100M,rate=7").unwrap();
        assert_eq!(load.kind, Kind::Workload("mobile:pictures=100M".into(), 7));
        for (text, expected) in [
            ("server:colour=3", "`server` has no option `colour`"),
            ("server:runs=0", "runs is not from 1"),
            ("server:cold=many", "cold `many` is no such number"),
            ("server:pick=last", "pick `last` is not random or rotation"),
            ("server:hold=-1", "hold is not from 0"),
            ("server:segments=many", "segments `many` is no number"),
            ("server:segments=0%", "segments `0%` is no number"),
            ("mobile:segments=nan%", "segments `nan%` is no number"),
            ("nothing", "there is no workload `nothing`"),
            ("mobile:colour=3", "colour"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }

    /// As many loops for each file and as much time for each loop of a file, at every size; what is said stays.
    #[test]
    fn a_server_grows_with_the_volume_that_it_is_made_for() {
        let of = |text: &str, made_for| match FileLoad::parse(text, made_for).unwrap().kind {
            Kind::Server(server) => (server.files, server.cold, server.loops, server.rate, server.runs),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("server", GIB), (2000, 60_000, 4000, 60, 10));
        assert_eq!(of("server", GIB / 4), (500, 15_000, 1000, 15, 10));
        assert_eq!(of("server:cold=0,runs=3", 5 * GIB), (10_000, 0, 20_000, 300, 3));
        assert_eq!(of("server:rate=7", 1), (1, 0, 1, 7, 10));
        assert_eq!(of("server", u64::MAX).0, server::MOST);
    }

    #[test]
    fn a_share_of_the_segments_is_one_of_the_volume_that_the_load_is_made_for() {
        let of = |text: &str, made_for| FileLoad::parse(text, made_for).unwrap().segments;
        let share = "server:segments=44.34%";
        assert_eq!([GIB, GIB / 4, 5 * GIB, 1].map(|made_for| of(share, made_for)), [227, 57, 1135, 1].map(Some));
        assert_eq!(
            (of("mobile:segments=227", GIB / 4), of("server:segments=0", GIB), of("mobile", GIB)),
            (Some(227), None, None)
        );
    }

    #[test]
    fn shares_are_rounded_down() {
        assert_eq!(
            [(39, 10), (40_000, 10), (7, 100), (7, 255)].map(|(of, percent)| share(of, percent)),
            [3, 4000, 7, 7]
        );
        assert_eq!(share(u64::MAX, 100), u64::MAX);
    }
}
