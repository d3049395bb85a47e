//! Numbers and relations in the papers' text that no row covers, with the reason.
//!
//! From a reading of the whole text of the papers. Not in it: sizes and settings of the papers' machines and loads, which experiments
//! take over (SCJ table 1; SFS sections 3.6, 3.7 and 4.1), and what other papers are quoted for.

use serde::Serialize;

/// A number of a paper, or a few of one kind, that is not measured again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Uncovered {
    /// The paper's short name: `scj`, `sfs` or `page-cache`.
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

const DRAWN: &str = "only drawn, in plots that are not read off";
const INPUT: &str = "an input: the device models ssd-h, ssd-m and ssd-l are made from these numbers";
const NEEDS_GROUPS: &str = "not run yet: placement sfs of the volume simulator has SFS's write path";
const NEEDS_SFS: &str = "of SFS itself, which is not run yet";

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
    sfs("figure 7(a)", "write cost with 4 groups: 4.21 (Zipf) and 2.64 (TPC-C); 2, 3, 5 and 6 groups", NEEDS_GROUPS),
    sfs("figure 7(b)", "write cost of equal widths (143 %, 192 %) and equal heights (115 %, 135 %)", NEEDS_GROUPS),
    sfs("figure 7(c)", "cost-hotness lowers the write cost by 7 %", NEEDS_GROUPS),
    sfs("figure 8", "the interval of checkpoints changes the write cost by -3.3 % to +6.1 %", NEEDS_SFS),
    sfs("figure 9", "write cost at 90 % lower than LFS-CB's by 77.4 % (TPC-C) and 27.9 % (uniform)", NEEDS_SFS),
    sfs("figure 10", "throughput at 90 % higher than LFS-CB's by 151.9 % (TPC-C) and 18.5 % (uniform)", NEEDS_SFS),
    sfs("figure 11", "SFS's victims are live to 10 %, and its segments nearly full or nearly empty", NEEDS_SFS),
    sfs(
        "figure 12",
        "write cost in segments of 2 MB: 7.7 and 4.0 times (Zipf), 5.9 and 3.5 times (TPC-C) that of 32 MB",
        "the first of each is SFS's; neither is run yet",
    ),
    sfs("figure 13", "throughput on SSD-H and SSD-L", DRAWN),
    sfs("figure 14", "SFS's throughput: 1.6 times LFS-CB's, 2.4 times btrfs's, 1.5 times ext4's", NEEDS_SFS),
    sfs("figure 15", "SFS's own write amplification: 1.1 with FAST, 1.0 page-level", NEEDS_SFS),
    sfs("figure 16", "LFS-CB erases 20 % more than SFS; btrfs, at worst, 23.3 times as much", NEEDS_SFS),
    sfs("figure 17", "btrfs writes 2.2 times the pages of SFS", NEEDS_SFS),
    sfs(
        "figure 18",
        "on a hard disk at 90 %: 70.9 % (Zipf) and 37.5 % (uniform) more throughput than LFS-CB",
        NEEDS_SFS,
    ),
    sfs("figure 20", "on a hard disk: 1.7 times LFS-CB's throughput, 21.4 times btrfs's, 21.6 times ext4's", NEEDS_SFS),
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
        let counts = ["scj", "sfs", "page-cache"].map(|paper| uncovered(Some(paper)).count());
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
