//! How large workloads are and how long they run in a comparison, if nobody says otherwise.
//!
//! The workloads' own lengths suit a file system that is measured by itself. Flash needs more: before every block of it was erased about
//! once, its write amplification is that of the blocks that happened to be free. So a comparison measures for as many bytes as the
//! volume has, and ages before that for 5/8 of it. The set is a quarter. That is how the SFS paper's 8 GB of updated data
//! (`experiments/sfs-figure-9.toml`) and 20 GiB of ageing relate to the 32 GB of flash that it replays its traces on (section 4.4).

use basalt_workloads::{Limit, Settings, by_name, is_file};

/// Workloads that overwrite a set of 12.5 % of the volume by themselves.
const OVERWRITING: [&str; 5] = ["zipf", "uniform", "hotcold", "sequential", "tpcc"];
/// Their set here, in percent of the volume.
const SET_PERCENT: u32 = 25;
/// The largest part of the utilization that the set takes, in percent; as in small volumes of other workloads.
const SET_OF_UTILIZATION: u32 = 45;

/// Volumes below this size keep the workload's own set, because so much of them is reserved that a quarter would often not fit.
const SMALLEST: u64 = 256 << 20;

/// The workload with a set that is large enough, unless it names one. A job file has its whole path: machines have directories of their own.
pub(crate) fn workload(text: &str, settings: &Settings) -> String {
    if is_file(text) {
        let end = text.find(':').unwrap_or(text.len());
        let path = std::path::absolute(&text[..end]).ok().and_then(|path| path.into_os_string().into_string().ok());
        // What cannot be named is said when it is read.
        return path.map_or_else(|| text.to_owned(), |path| path + &text[end..]);
    }
    let (name, options) = text.split_once(':').map_or((text, ""), |(name, options)| (name, options));
    let names_one = options.split(',').any(|option| option.trim_start().starts_with("set="));
    if !OVERWRITING.contains(&name) || names_one || settings.size_bytes < SMALLEST {
        return text.to_owned();
    }
    let percent = SET_PERCENT.min(settings.utilization_percent * SET_OF_UTILIZATION / 100);
    let separator = if options.is_empty() { "" } else { "," };
    format!("{name}:{options}{separator}set={percent}%")
}

/// The settings with lengths for ageing and measuring, where the workload goes on for ever and nobody chose them.
pub(crate) fn settings(workload: &str, settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    // What a workload does not accept is said when it is run.
    let Ok(Limit::Bytes(_)) = by_name(workload, &settings).map(|workload| workload.plan().measure) else {
        return settings;
    };
    settings.age.get_or_insert(Limit::Bytes(settings.size_bytes / 8 * 5));
    settings.measure.get_or_insert(Limit::Bytes(settings.size_bytes));
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_a_quarter_unless_they_are_named_or_do_not_fit() {
        let full = |utilization_percent| Settings { utilization_percent, ..Settings::default() };
        let named = |text: &str, utilization| workload(text, &full(utilization));
        assert_eq!(named("zipf", 85), "zipf:set=25%");
        assert_eq!(named("zipf:0.9,sync=4", 85), "zipf:0.9,sync=4,set=25%");
        assert_eq!(named("uniform", 20), "uniform:set=9%");
        assert_eq!(named("tpcc:set=1G", 85), "tpcc:set=1G");
        assert_eq!(named("fileserver", 85), "fileserver");
        assert_eq!(workload("zipf", &Settings { size_bytes: SMALLEST - 1, ..full(85) }), "zipf");
        for name in OVERWRITING {
            let plan = |text: &str| by_name(text, &full(85)).unwrap().plan().initial_bytes;
            assert_eq!(plan(&named(name, 85)), 2 * plan(name), "{name}");
        }
    }

    #[test]
    fn job_files_have_their_whole_path() {
        let here = std::env::current_dir().unwrap();
        let named = |text: &str| workload(text, &Settings::default());
        assert_eq!(named("x.fio"), here.join("x.fio").to_str().unwrap());
        assert_eq!(named("a/zipf:size=1m"), format!("{}:size=1m", here.join("a/zipf").display()));
        assert_eq!(named("/a/b.fio:size=1m"), "/a/b.fio:size=1m");
    }

    #[test]
    fn lengths_that_were_chosen_and_workloads_that_end_are_left_alone() {
        let given = Settings::default();
        let scaled = settings("zipf:set=25%", &given);
        assert_eq!((scaled.age, scaled.measure), (Some(Limit::Bytes(640 << 20)), Some(Limit::Bytes(1 << 30))));
        assert_eq!(settings("copy-files", &given), given);
        assert_eq!(settings("nonsense", &given), given);
        let chosen = Settings { age: Some(Limit::Bytes(7)), measure: Some(Limit::Operations(3)), ..given };
        assert_eq!(settings("zipf:set=25%", &chosen), chosen);
    }
}
