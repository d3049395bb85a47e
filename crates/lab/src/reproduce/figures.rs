//! Every figure that can be measured, in the order of the papers.

use std::sync::atomic::AtomicBool;

use super::{Outcome, Scale, Tell, sfs_figure_15};

/// An experiment as files, which are part of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files {
    /// Its name: that of the files, without their endings.
    pub name: &'static str,
    /// The experiment.
    pub experiment: &'static str,
    /// Its verdicts.
    pub verdicts: &'static str,
    /// Size of the volume for a first look.
    pub small: &'static str,
    /// The paper's size, or one that stands for it where the paper gives none.
    pub full: &'static str,
}

/// A figure's experiment with one seed; it ends early with [`STOPPED`](super::STOPPED) when it has to stop.
pub(super) type Program = fn(&Scale, &AtomicBool, Tell<'_>) -> Outcome;

/// How a figure is measured.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// By an experiment and its verdict file.
    Files(Files),
    /// By a program.
    Program(Program),
}

/// A figure or table of a paper that is measured again.
#[derive(Debug)]
pub struct Figure {
    /// The paper's short name.
    pub paper: &'static str,
    /// The figure's name in the paper: `1`, `9`, …; a word where its number is not legible.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// About how long the experiment takes with one seed, when none of its runs is made yet and full size is not asked for.
    pub takes: &'static str,
    /// How it is measured.
    pub(super) way: Way,
}

/// A figure that is files, named by paper and figure, with its sizes for a first look and in the paper.
macro_rules! files {
    ($paper:literal, $figure:literal, $title:literal, $takes:literal, $small:literal, $full:literal) => {
        Figure {
            paper: $paper,
            figure: $figure,
            title: $title,
            takes: $takes,
            way: Way::Files(Files {
                name: concat!($paper, "-figure-", $figure),
                experiment: include_str!(concat!("../../../../experiments/", $paper, "-figure-", $figure, ".toml")),
                verdicts: include_str!(concat!(
                    "../../../../experiments/",
                    $paper,
                    "-figure-",
                    $figure,
                    ".verdict.toml"
                )),
                small: $small,
                full: $full,
            }),
        }
    };
}

/// A figure of SCJ, on its 16 GiB.
macro_rules! scj {
    ($figure:literal, $title:literal, $takes:literal, $small:literal) => {
        files!("scj", $figure, $title, $takes, $small, "16G")
    };
}

/// A figure of SFS, on 1,907 sections of SSD-M's 64 GB, or of a sixteenth of it.
macro_rules! sfs {
    ($figure:literal, $title:literal, $takes:literal) => {
        files!("sfs", $figure, $title, $takes, "3999268864", "63988301824")
    };
}

/// A figure of the page-cache paper. It does not say how large its volume is: with 5 GiB there are as many files as Filebench's file server
/// has.
macro_rules! page_cache {
    ($figure:literal, $title:literal, $takes:literal) => {
        files!("page-cache", $figure, $title, $takes, "256M", "5G")
    };
}

/// A figure of the article on partial GC, of which nothing says how large its volumes are.
macro_rules! partial_gc {
    ($figure:literal, $title:literal, $takes:literal) => {
        files!("partial-gc", $figure, $title, $takes, "512M", "10G")
    };
}

/// Every figure that can be measured, in the order of the papers.
pub const FIGURES: &[Figure] = &[
    scj!("1", "the share of each phase in the time of segment cleaning (section III)", "1 min", "512M"),
    scj!("4", "speed, cleaning and checkpoints over the interval of checkpoints (section VI.B)", "5 min", "512M"),
    scj!("5", "metadata written over the interval of checkpoints (section VI.B)", "1 min", "512M"),
    scj!("6", "speed and checkpoints over the size of the journal area (section VI.C)", "2 min", "1024M"),
    scj!("7", "latency of each cleaning, one after the other (section VI.D)", "20 s", "512M"),
    scj!("8", "speed, latency of cleaning, checkpoints and metadata for all workloads (section VI.E)", "1 min", "512M"),
    scj!("9", "latency of reads and updates of YCSB (section VI.E)", "20 s", "512M"),
    scj!("10", "speed and write amplification over the utilization (section VI.F)", "1 min", "512M"),
    scj!("11", "speed and writes over the locality of random writes (section VI.G)", "1 min", "1G"),
    sfs!("7", "write cost with groups, quantization schemes and cost-hotness (section 4.2)", "15 s"),
    sfs!("8", "write cost over the interval of checkpoints (section 4.2)", "10 s"),
    sfs!("9", "write cost (figure 9) and throughput (figure 10) over utilization (section 4.3.1)", "15 s"),
    sfs!("11", "utilization of segments of 32 MiB (section 4.3.2)", "1 s"),
    // No section is smaller than 2 MiB, so the usual size is the paper's.
    files!(
        "sfs",
        "12",
        "utilization and write cost of segments of 2 MiB (section 4.3.2)",
        "1 min",
        "15997075456",
        "63988301824"
    ),
    sfs!("13", "throughput on three SSDs (section 4.3.3)", "15 s"),
    sfs!("14", "throughput (figure 14) and erases (figure 16) of SFS and LFS-CB (section 4.4)", "5 s"),
    Figure {
        paper: "sfs",
        figure: "15",
        title: "write amplification and erases in the device: ext4, btrfs and a log (with figure 16)",
        takes: "10 min",
        way: Way::Program(sfs_figure_15::run),
    },
    sfs!("18", "throughput on a hard disk (figure 18), relative to sequential writes (figure 19; section 4.5)", "15 s"),
    sfs!("20", "throughput of SFS and LFS-CB on a hard disk (section 4.5)", "2 s"),
    page_cache!("2", "blocks that cleaning copies in ten runs, with 2, 4 and 6 logs (section IV)", "30 s"),
    page_cache!("3", "cleanings over ten runs, with 2, 4 and 6 logs (section IV)", "1 min"),
    partial_gc!("3", "slack space recycling and full cleaning on three SD cards (section 4.1)", "2 min"),
    partial_gc!("5", "write bandwidth by the size of requests", "1 s"),
    partial_gc!("improvement", "what partial GC gains over slack space recycling and full cleaning", "3 min"),
];

/// The figures of a paper, or one of them; all without names. Empty where there is none of that name.
pub fn select(paper: Option<&str>, figure: Option<&str>) -> Vec<&'static Figure> {
    let wanted = |one: &&Figure| {
        paper.is_none_or(|paper| paper.eq_ignore_ascii_case(one.paper))
            && figure.is_none_or(|figure| figure == one.figure)
    };
    FIGURES.iter().filter(wanted).collect()
}
