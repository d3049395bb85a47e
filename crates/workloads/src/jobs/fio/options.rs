//! What the options of a job mean, and which of them are ignored or refused.

use super::super::{Line, Source};
use super::ini::{Given, Section};
use super::values::{bytes, number, percent, share};
use crate::error::Result;
use crate::settings::Settings;

/// Which block is next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// From the beginning to the end.
    Sequential,
    /// Each once in a pass.
    Map,
    /// Any.
    Uniform,
    /// By Zipf's law with this exponent.
    Zipf(f64),
    /// By Pareto's, with fio's parameter: the share of the blocks that gets the rest of the accesses (0.2: 80 % on 20 %).
    Pareto(f64),
}

/// Which file is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// One after the other, an I/O each.
    RoundRobin,
    /// One until it is done.
    Sequential,
    /// Any.
    Random,
}

/// A job: `numjobs` threads that do the same.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) line: Line,
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) order: Order,
    /// Bytes of an I/O: reads, writes.
    pub(super) request: [u64; 2],
    /// Bytes of all files, and of a pass over them.
    pub(super) size: u64,
    /// Bytes to do in all; `size` for every loop without it.
    pub(super) io_size: Option<u64>,
    pub(super) threads: u64,
    pub(super) files: u64,
    /// The paths of the files, shared by all threads; without it each thread has its own.
    pub(super) names: Option<Vec<String>>,
    pub(super) directory: String,
    pub(super) service: Service,
    /// fsync, and fdatasync, after that many writes; 0 never.
    pub(super) sync_every: [u64; 2],
    /// fsync of every file behind each pass.
    pub(super) end_sync: bool,
    pub(super) read_percent: u64,
    pub(super) loops: u64,
    /// I/Os a loop at most.
    pub(super) ios: Option<u64>,
    /// Goes on until the phase ends.
    pub(super) endless: bool,
    pub(super) stonewall: bool,
    /// Files that are only written are laid out first, too.
    pub(super) overwrite: bool,
    pub(super) seed: u64,
    /// Options that slow the job down, as they are written.
    pub(super) pace: String,
}

/// Say when, how, or what is reported, and nothing of which operations there are.
const IGNORED: &str = " allrandrepeat buffer_compress_chunk buffer_compress_percentage buffer_pattern buffered bwavgtime \
    clat_percentiles clocksource continue_on_error cpumask cpus_allowed cpus_allowed_policy create_fsync create_on_open \
    create_serialize dedupe_percentage description direct disable_bw disable_bw_measurement disable_clat disable_lat disable_slat \
    error_dump fadvise_hint fallocate fixedbufs gid group_reporting gtod_cpu gtod_reduce hipri hugepage-size invalidate io_submit_mode \
    iodepth iodepth_batch iodepth_batch_complete iodepth_batch_complete_max iodepth_batch_complete_min iodepth_batch_submit iodepth_low \
    iomem iomem_align iopsavgtime lat_percentiles lockmem log_avg_msec log_compression log_hist_msec log_max_value log_offset \
    max_latency mem mem_align new_group nice nonvectored numa_cpu_nodes numa_mem_policy openfiles per_job_logs percentile_list prio \
    prioclass ramp_time random_generator randrepeat refill_buffers registerfiles scramble_buffers significant_figures slat_percentiles \
    softrandommap sqthread_poll stats thread uid unified_rw_reporting unit_base use_os_rand userspace_reap write_bw_log write_hint write_iolog \
    write_iops_log write_lat_log zero_buffers ";

/// Fine as long as they are off, or say what is so anyway.
const OFF: &[(&str, &[&str])] = &[
    ("atomic", &["0"]),
    ("do_verify", &["0", "1", ""]),
    ("exitall", &["0"]),
    ("file_append", &["0"]),
    ("fill_device", &["0"]),
    ("kb_base", &["1024"]),
    ("offset", &["0"]),
    ("percentage_random", &["100"]),
    ("pre_read", &["0"]),
    ("startdelay", &["0"]),
    ("sync", &["0", "none"]),
    ("unlink", &["0"]),
    ("verify", &["0", "none"]),
    ("zonemode", &["none"]),
];

/// Slow a job down.
const PACE: &str = " rate rate_iops rate_min rate_process thinktime thinktime_blocks thinktime_iotime thinktime_spin ";

/// Engines that do to files what the options say.
const ENGINES: &str =
    " sync psync vsync pvsync pvsync2 libaio posixaio io_uring solarisaio windowsaio mmap splice pmemblk libpmem ";

/// Options that are not taken yet.
struct Taker<'s> {
    source: &'s Source,
    line: Line,
    options: Vec<Given>,
}

impl Taker<'_> {
    fn take(&mut self, name: &str) -> Option<Given> {
        let index = self.options.iter().position(|given| given.name == name)?;
        Some(self.options.remove(index))
    }

    /// The value of an option as `read` has it; it must be `wanted`.
    fn value<T>(&mut self, name: &str, wanted: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(given) = self.take(name) else { return Ok(None) };
        let value = read(&given.value);
        value.map(Some).ok_or_else(|| {
            let what = format!("{}: `{}` is not {wanted}", given.name, given.value);
            self.source.error(given.line, what)
        })
    }

    fn count(&mut self, name: &str, default: u64, low: u64, high: u64) -> Result<u64> {
        let within = |text: &str| number(text).filter(|count| (low..=high).contains(count));
        Ok(self.value(name, &format!("a number from {low} to {high}"), within)?.unwrap_or(default))
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        let flag = |text: &str| match text {
            "" | "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        Ok(self.value(name, "0 or 1", flag)?.unwrap_or(false))
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.take(name).map(|given| given.value)
    }

    fn error(&self, line: Line, what: &str) -> crate::Error {
        self.source.error(line, what)
    }

    /// Looks at what nobody took.
    fn finish(&mut self) -> Result<String> {
        let mut pace = Vec::new();
        for given in std::mem::take(&mut self.options) {
            let Given { name, value, line } = given;
            let listed = |list: &str| list.contains(&format!(" {name} "));
            if listed(PACE) {
                pace.push(format!("{name}={value}"));
            } else if let Some((_, off)) = OFF.iter().find(|(known, _)| *known == name) {
                if !off.contains(&value.as_str()) {
                    return Err(
                        self.error(line, &format!("`{name}={value}` is not supported: it changes the operations"))
                    );
                }
            } else if !listed(IGNORED) {
                return Err(self.error(line, &format!("option `{name}` is not known or not supported")));
            }
        }
        pace.sort();
        Ok(pace.join(","))
    }
}

/// The job of a section.
pub(super) fn job(source: &Source, section: Section, settings: &Settings) -> Result<Job> {
    let mut taker = Taker { source, line: section.line, options: section.options };
    let (reads, writes, random) = direction(&mut taker)?;
    let order = order(&mut taker, random)?;
    let request = request(&mut taker, reads && writes && random)?;
    let (size, io_size) = sizes(&mut taker, request, settings)?;
    let read_percent = read_percent(&mut taker)?;
    let threads = taker.count("numjobs", 1, 1, super::super::THREADS)?;
    let directory = match taker.take("directory") {
        Some(given) => source.below_target(given.line, &given.value)?,
        None => String::new(),
    };
    let names = names(&mut taker, &directory)?;
    let files = files(&mut taker, names.as_ref().map(Vec::len))?;
    let ios = taker.count("number_ios", 0, 0, u64::MAX)?;
    let sync_every = [taker.count("fsync", 0, 0, u64::MAX)?, taker.count("fdatasync", 0, 0, u64::MAX)?];
    let end_sync = taker.flag("end_fsync")? | taker.flag("fsync_on_close")?;
    engine(&mut taker)?;
    Ok(Job {
        line: section.line,
        reads,
        writes,
        order,
        request,
        size,
        io_size,
        threads,
        files,
        names,
        directory,
        service: service(&mut taker)?,
        sync_every,
        end_sync,
        read_percent,
        loops: taker.count("loops", 1, 1, 1_000_000_000)?,
        ios: (ios > 0).then_some(ios),
        endless: endless(&mut taker)?,
        stonewall: taker.flag("stonewall")?,
        overwrite: taker.flag("overwrite")?,
        seed: taker.count("randseed", 0, 0, u64::MAX)?,
        name: taker.text("name").filter(|name| !name.is_empty()).unwrap_or(section.name),
        // The last: what is left is not known.
        pace: taker.finish()?,
    })
}

/// Whether it reads, writes, and at random; fio's default is to read.
fn direction(taker: &mut Taker<'_>) -> Result<(bool, bool, bool)> {
    let wanted = "read, write, rw, randread, randwrite or randrw";
    let kind = taker.value("rw", wanted, |text| match text {
        "read" => Some((true, false, false)),
        "write" => Some((false, true, false)),
        "rw" | "readwrite" => Some((true, true, false)),
        "randread" => Some((true, false, true)),
        "randwrite" => Some((false, true, true)),
        "randrw" => Some((true, true, true)),
        _ => None,
    })?;
    Ok(kind.unwrap_or((true, false, false)))
}

fn order(taker: &mut Taker<'_>, random: bool) -> Result<Order> {
    let any = taker.flag("norandommap")?;
    let wanted = "random, zipf:THETA (to 5) or pareto:H (between 0 and 1)";
    let distribution = taker.value("random_distribution", wanted, |text| {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let value = || value.parse::<f64>().ok();
        match name {
            "random" => Some(if any { Order::Uniform } else { Order::Map }),
            "zipf" => value().filter(|theta| *theta > 0.0 && *theta <= 5.0).map(Order::Zipf),
            "pareto" => value().filter(|share| *share > 0.0 && *share < 1.0).map(Order::Pareto),
            _ => None,
        }
    })?;
    Ok(match (random, distribution) {
        (false, _) => Order::Sequential,
        (true, Some(order)) => order,
        (true, None) if any => Order::Uniform,
        (true, None) => Order::Map,
    })
}

/// Bytes of an I/O, 4 KiB without the option.
fn request(taker: &mut Taker<'_>, mixed_random: bool) -> Result<[u64; 2]> {
    let within = |text: &str| bytes(text).filter(|size| (1..=1 << 30).contains(size));
    let line = taker.options.iter().find(|given| given.name == "bs").map_or(taker.line, |given| given.line);
    let request = taker.value("bs", "a size to 1g, or one for reads and one for writes", |text| {
        let mut sizes = text.split(',').map(str::trim);
        let read = within(sizes.next()?)?;
        let write = sizes.next().map_or(Some(read), within)?;
        // The third is for trims, and there are none.
        Some([read, write])
    })?;
    let request = request.unwrap_or([4096; 2]);
    if mixed_random && request[0] != request[1] {
        return Err(taker.error(line, "bs: randrw needs one size for reads and writes"));
    }
    Ok(request)
}

fn sizes(taker: &mut Taker<'_>, request: [u64; 2], settings: &Settings) -> Result<(u64, Option<u64>)> {
    let line = taker.options.iter().find(|given| given.name == "size").map_or(taker.line, |given| given.line);
    let wanted = "a size such as 64m or 12% (of the volume)";
    let size = taker.value("size", wanted, |text| share(text, settings))?;
    let size = size.ok_or_else(|| taker.error(line, "the job has no `size`; say how large its files are"))?;
    if size < request[0].max(request[1]) {
        return Err(taker
            .error(line, &format!("size: {size} bytes are less than one request of {}", request[0].max(request[1]))));
    }
    let io_size = taker.value("io_size", "a size such as 64m, or a share of `size` such as 50%", |text| {
        let part = percent(text).map(|percent| (size as f64 * percent / 100.0) as u64);
        part.or_else(|| bytes(text))
    })?;
    Ok((size, io_size.filter(|bytes| *bytes > 0)))
}

fn read_percent(taker: &mut Taker<'_>) -> Result<u64> {
    let writes = taker.count("rwmixwrite", 50, 0, 100)?;
    taker.count("rwmixread", 100 - writes, 0, 100)
}

/// The files that are named: separated by `:`, which `\:` is not.
fn names(taker: &mut Taker<'_>, directory: &str) -> Result<Option<Vec<String>>> {
    let Some(given) = taker.take("filename") else { return Ok(None) };
    let mut names = vec![String::new()];
    let mut letters = given.value.chars();
    while let Some(letter) = letters.next() {
        let last = names.len() - 1;
        match letter {
            ':' => names.push(String::new()),
            '\\' => names[last].extend(letters.next()),
            letter => names[last].push(letter),
        }
    }
    for name in &mut names {
        let path = taker.source.below_target(given.line, name)?;
        if path.is_empty() {
            return Err(taker.error(given.line, "filename: a name is empty"));
        }
        *name = if directory.is_empty() { path } else { format!("{directory}/{path}") };
    }
    Ok(Some(names))
}

/// How many files a thread has.
fn files(taker: &mut Taker<'_>, named: Option<usize>) -> Result<u64> {
    let line = taker.options.iter().find(|given| given.name == "nrfiles").map_or(taker.line, |given| given.line);
    let named = named.map(|count| count as u64);
    let files = taker.count("nrfiles", named.unwrap_or(1), 1, super::super::OPEN_FILES)?;
    match named {
        Some(count) if count != files => {
            Err(taker.error(line, &format!("nrfiles: filename has {count}; name as many, or none")))
        }
        _ => Ok(files),
    }
}

fn service(taker: &mut Taker<'_>) -> Result<Service> {
    let wanted = "roundrobin, sequential or random";
    let service = taker.value("file_service_type", wanted, |text| match text {
        "roundrobin" | "roundrobin:1" => Some(Service::RoundRobin),
        "sequential" => Some(Service::Sequential),
        "random" => Some(Service::Random),
        _ => None,
    })?;
    Ok(service.unwrap_or(Service::RoundRobin))
}

/// Whether the job goes on for a time. How long is the matter of the phase: a workload has no clock.
fn endless(taker: &mut Taker<'_>) -> Result<bool> {
    let line = taker.options.iter().find(|given| given.name == "runtime").map_or(0, |given| given.line);
    let runtime = taker.text("runtime").is_some_and(|time| time != "0");
    let endless = taker.flag("time_based")?;
    if runtime && !endless {
        let what =
            "runtime: it would cut the job off by the clock, which workloads do not have; add time_based or remove it";
        return Err(taker.error(line, what));
    }
    // As fio, which says that it ignores time_based without a time.
    Ok(endless && runtime)
}

fn engine(taker: &mut Taker<'_>) -> Result<()> {
    let known = |text: &str| ENGINES.contains(&format!(" {text} ")).then_some(());
    taker.value("ioengine", "an engine that reads and writes files, as psync or libaio", known).map(drop)
}
