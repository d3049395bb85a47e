//! Numbers and relations in the papers' text that no row covers, with the reason.
//!
//! From a reading of the whole text of the papers. Not in it: sizes and settings of the papers' machines and loads, which experiments
//! take over (SCJ table 1; SFS sections 3.6, 3.7 and 4.1), and what other papers are quoted for.

use serde::Serialize;

/// A number of a paper, or a few of one kind, that is not measured again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Uncovered {
    /// The paper's short name: `scj`, `sfs`, `page-cache` or `partial-gc`.
    pub paper: &'static str,
    /// Where it is: a figure, a table or a section.
    pub place: &'static str,
    /// What the paper says.
    pub uncovered: &'static str,
    /// Why no row has it.
    pub why: &'static str,
}

const fn scj(place: &'static str, uncovered: &'static str, why: &'static str) -> Uncovered {
    Uncovered { paper: "scj", place, uncovered, why }
}

const fn sfs(place: &'static str, uncovered: &'static str, why: &'static str) -> Uncovered {
    Uncovered { paper: "sfs", place, uncovered, why }
}

const fn page_cache(place: &'static str, uncovered: &'static str, why: &'static str) -> Uncovered {
    Uncovered { paper: "page-cache", place, uncovered, why }
}

const fn partial_gc(place: &'static str, uncovered: &'static str, why: &'static str) -> Uncovered {
    Uncovered { paper: "partial-gc", place, uncovered, why }
}

const DRAWN: &str = "only drawn, in plots that are not read off";
const INPUT: &str = "an input: the device models ssd-h, ssd-m and ssd-l are made from these numbers";
const NO_LAYER: &str =
    "no translation layer is below the volume simulator, where SFS is; figures 15 and 16 have Basalt as the log";

/// Everything that no row covers, in the order of the papers.
pub const UNCOVERED: &[Uncovered] = &[
    scj(
        "figure 1(a), 4(b)",
        "choosing a victim takes little of a cleaning's time",
        "choosing takes no time of the simulated device",
    ),
    scj(
        "figure 1(b)",
        "dirty metadata falls to 0 with each cleaning, and grows until the next",
        "could not come out otherwise: a checkpoint writes all of it",
    ),
    scj("figures 4 to 11", "values at the points of the plots that the text does not name", DRAWN),
    scj(
        "section IV",
        "a journal block has room for 511 entries of 8 bytes",
        "a format, no result, and Basalt's is another (docs/f2fs-format.md); figure 8 has the journal blocks a victim",
    ),
    scj(
        "section VI.B",
        "waiting for writes to complete is most of the time of a checkpoint",
        "the simulated device serves one request after the other, so waiting is not apart from writing",
    ),
    sfs("section 1, table 1", "bandwidths, and random writes 10, 4.5 and 2,500 times slower than others", INPUT),
    sfs(
        "figure 1",
        "random writes are as fast as sequential ones from 16, 32 and 16 MB on; at 2 MB 11 times slower",
        INPUT,
    ),
    sfs(
        "figure 2",
        "29 % of TPC-C's writes go to 1.6 % of its pages",
        "an input: the load tpcc is made from it; the paper's other traces are not public",
    ),
    sfs("figures 7 to 20", "values at the points of the plots that the text does not name", DRAWN),
    sfs(
        "figures 9, 14 and 16",
        "the trace of TPC-C, and RES",
        "not public: tpcc stands for the first, and nothing for the second",
    ),
    sfs(
        "figure 14",
        "SFS's throughput: 2.4 times btrfs's, 1.5 times ext4's",
        "SFS is measured without a file system, ext4 and btrfs with their own: their times are not of the same writes",
    ),
    sfs("figure 15", "SFS's own write amplification: 1.1 with FAST, 1.0 page-level", NO_LAYER),
    sfs("figure 16", "btrfs erases, at worst, 23.3 times as much as SFS", NO_LAYER),
    sfs(
        "figure 17",
        "btrfs writes 2.2 times the pages of SFS",
        "SFS is measured without metadata, btrfs with it; figure 15 has what btrfs writes for each byte of an application",
    ),
    sfs(
        "figure 20",
        "on a hard disk: 21.4 times btrfs's throughput, 21.6 times ext4's",
        "SFS is measured without a file system, ext4 and btrfs with their own: their times are not of the same writes",
    ),
    sfs(
        "section 4.1",
        "NILFS2 writes 3.5 GB of metadata for 3.2 GB in blocks of 4 KB; SFS 5 to 10 %",
        "not run: compare measures NILFS2, but does not count its metadata apart",
    ),
    page_cache(
        "section III.A",
        "most blocks of a hot segment become invalid soon, those of a cold one slowly",
        "not measured: when blocks die is not counted by log",
    ),
    page_cache(
        "section III.B",
        "kernel 4.4.10 on a machine with 8 GB of memory",
        "an input: writes touch pages, as in Linux before 4.7; the lists hold all pages",
    ),
    page_cache("figures 2 and 3", "values of each run, for each number of logs", DRAWN),
    page_cache(
        "section IV",
        "a load collected from Gmail on a Nexus 6",
        "not public: mobile, a telephone of our own, stands for it, and does not give its factor",
    ),
    partial_gc(
        "figure 3",
        "speeds of SSR and of full cleaning on SD A, B and C",
        "bars without numbers, of cards whose names are not legible: three models of cards stand for them",
    ),
    partial_gc(
        "figure 5",
        "bandwidths at each size of request",
        "not legible, and an input: the device models are made from such tables of other cards",
    ),
    partial_gc(
        "section 5",
        "figures of what partial GC improves",
        "not legible: figure improvement has it over utilization, gap and size of requests",
    ),
];

/// Those of a paper; all without a name.
pub fn uncovered(paper: Option<&str>) -> impl Iterator<Item = &'static Uncovered> {
    UNCOVERED.iter().filter(move |one| paper.is_none_or(|paper| paper.eq_ignore_ascii_case(one.paper)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_has_some_and_all_have_a_reason() {
        let counts = ["scj", "sfs", "page-cache", "partial-gc"].map(|paper| uncovered(Some(paper)).count());
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), uncovered(None).count());
        assert_eq!((uncovered(Some("SFS")).count(), uncovered(Some("other")).count()), (counts[1], 0));
        for one in UNCOVERED {
            assert!(![one.place, one.uncovered, one.why].contains(&""), "{one:?}");
        }
    }

    /// Measured figures are named only for those of their numbers that they do not have.
    #[test]
    fn every_figure_of_the_list_is_one_of_the_paper() {
        for one in UNCOVERED {
            let words = one.place.split([' ', ',']).collect::<Vec<_>>();
            assert!(["figure", "figures", "section", "table"].contains(&words[0]), "{}", one.place);
        }
    }
}
