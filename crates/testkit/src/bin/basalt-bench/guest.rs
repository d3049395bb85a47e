//! The race inside User-Mode Linux: Linux's own F2FS and Basalt's mount under the same kernel, on the same kind of disk.
//!
//! This program runs inside as well: the host's files are visible there. It prints its section as one line of JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use basalt_testkit::error::Context;
use basalt_testkit::{Error, Result, Uml};

use crate::contender::{Contender, Kind, check_installed};
use crate::options::{Options, Scale};
use crate::race;
use crate::report::Section;
use crate::sources::Sources;
use crate::workload::Workload;

/// What comes before the JSON.
const MARK: &str = "SECTION ";
/// Disks of the machine, in order, and who races on them.
const DISKS: [(&str, Kind); 3] = [("/dev/ubda", Kind::F2fs), ("/dev/ubdb", Kind::F2fsLfs), ("/dev/ubdc", Kind::Basalt)];
/// The machine's memory: enough for every page that a workload touches.
const MEMORY_MIB: u32 = 1536;
/// How long one run may take before the machine is killed.
const RUN_LIMIT: Duration = Duration::from_secs(900);

/// Boots the machine, races there, brings the section back.
pub fn measure(options: &Options, workloads: &[Workload]) -> Result<Section> {
    check_installed(Kind::F2fs)?;
    let scale = Scale::guest(options.quick);
    // A small tree always: every system call is slow in there.
    Sources::make(&sources_place(&options.directory), workloads, true)?;
    let mut machine =
        Uml::new().memory_mib(MEMORY_MIB).timeout(RUN_LIMIT * options.runs() + RUN_LIMIT).module("fs/fuse/fuse");
    let mut images = Vec::new();
    for (_, kind) in DISKS {
        let image = options.directory.join(format!("guest-{kind:?}.img"));
        let file = fs::File::create(&image).doing("create", &image)?;
        file.set_len(scale.volume_bytes).doing("size", &image)?;
        machine = machine.image(&image);
        images.push(image);
    }
    eprintln!("User-Mode Linux is running; it is silent until it ends");
    let result = machine.run_script(&script(options, workloads)?);
    for image in images {
        fs::remove_file(&image).doing("remove", &image)?;
    }
    let result = result?;
    let line = result.output.lines().find_map(|line| line.strip_prefix(MARK));
    let mut section: Section =
        line.and_then(|json| serde_json::from_str(json).ok()).ok_or_else(|| Error::Invalid(result.to_string()))?;
    result.complaints().into_iter().for_each(|complaint| section.fail(format!("kernel: {complaint}")));
    Ok(section)
}

/// Runs this very program inside, with a private directory for mount points.
fn script(options: &Options, workloads: &[Workload]) -> Result<String> {
    let program =
        std::env::current_exe().map_err(|source| Error::Io { doing: "find the running program".to_owned(), source })?;
    let only: String = workloads.iter().map(|workload| format!(" --only {}", workload.name())).collect();
    let quick = if options.quick { " --quick" } else { "" };
    Ok(format!(
        "mkdir -p /run/bench && ln -s {sources:?} /run/bench/sources && \
         exec {program:?} --inside-guest{quick}{only} --runs {runs} --directory /run/bench --basalt {basalt:?}\n",
        sources = sources_place(&options.directory),
        runs = options.runs(),
        basalt = options.basalt,
    ))
}

/// The part inside.
pub fn inside(options: &Options) -> Result<bool> {
    let scale = Scale::guest(options.quick);
    let sources = Sources::find(&options.directory.join("sources"))?;
    let mut contenders = Vec::new();
    for (device, kind) in DISKS {
        contenders.push(Contender::device(kind, Path::new(device), options)?);
    }
    let mut section = Section::new("In User-Mode Linux", "Basalt", "F2FS");
    race::run(&mut section, &mut contenders, &options.workloads("")?, &scale, &sources, options.runs());
    section.forget_aims();
    let json = serde_json::to_string(&section)
        .map_err(|error| Error::Invalid(format!("cannot write the section as JSON: {error}")))?;
    println!("{MARK}{json}");
    Ok(true)
}

fn sources_place(directory: &Path) -> PathBuf {
    directory.join("guest-sources")
}
