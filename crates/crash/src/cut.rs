//! Where the power goes, and what becomes of what was in the cache.

use std::fmt;
use std::str::FromStr;

use basalt_device::power::{Change, Fate};
use basalt_testkit::rng::Rng;

use crate::script::Words;

/// How the cache's content is decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Everything reached the medium.
    Kept,
    /// Nothing did.
    Lost,
    /// What came first did, up to some request, which is torn.
    Prefix,
    /// What came last did, from some request on, which is torn.
    Suffix,
    /// All but one request, which is lost or torn.
    OneLost,
    /// One request only, whole or torn.
    OneKept,
    /// Every request is kept, lost or torn by itself.
    Scattered,
    /// Every sector is kept or lost by itself.
    Sectors,
    /// Everything, but for some sectors of one block.
    OneTorn,
    /// Some requests were being programmed, and lose what their flash pages held before; most others are kept.
    Page,
    /// Blocks of some requests cannot be read any more; the other requests are kept or lost.
    Unreadable,
    /// As scattered, but what was discarded holds bytes that nobody wrote.
    Garbage,
}

impl Style {
    /// Those of a device that has no faults.
    pub const ALL: [Style; 9] = [
        Style::Kept,
        Style::Lost,
        Style::Prefix,
        Style::Suffix,
        Style::OneLost,
        Style::OneKept,
        Style::Scattered,
        Style::Sectors,
        Style::OneTorn,
    ];

    /// Those of one that has.
    pub const FAULTY: [Style; 2] = [Style::Unreadable, Style::Garbage];

    const fn word(self) -> &'static str {
        match self {
            Style::Kept => "kept",
            Style::Lost => "lost",
            Style::Prefix => "prefix",
            Style::Suffix => "suffix",
            Style::OneLost => "one-lost",
            Style::OneKept => "one-kept",
            Style::Scattered => "scattered",
            Style::Sectors => "sectors",
            Style::OneTorn => "one-torn",
            Style::Page => "page",
            Style::Unreadable => "unreadable",
            Style::Garbage => "garbage",
        }
    }

    /// Whether the seed makes no difference.
    pub const fn is_fixed(self) -> bool {
        matches!(self, Style::Kept | Style::Lost)
    }

    /// The fates of what was in the cache.
    pub fn fates(self, seed: u64, cached: &[Change]) -> Vec<Fate> {
        let mut rng = Rng::new(seed ^ 0xFA7E);
        let count = cached.len();
        if count == 0 {
            return Vec::new();
        }
        let mut pick = rng.index(count);
        // What makes the rest count is written last.
        if self == Style::OneTorn && rng.chance(50) {
            pick = count - 1;
        }
        let odds = [10, 50, 90][rng.index(3)];
        let fate = |index: usize, change: &Change, rng: &mut Rng| match self {
            Style::Kept => Fate::Kept,
            Style::Lost => Fate::Lost,
            Style::Prefix if index < pick => Fate::Kept,
            Style::Suffix if index > pick => Fate::Kept,
            Style::Prefix | Style::Suffix if index == pick => torn(change, rng),
            Style::Prefix | Style::Suffix => Fate::Lost,
            Style::OneLost | Style::OneTorn if index != pick => Fate::Kept,
            Style::OneKept if index != pick => Fate::Lost,
            Style::OneLost => {
                if rng.chance(50) {
                    Fate::Lost
                } else {
                    torn(change, rng)
                }
            }
            Style::OneKept => {
                if rng.chance(50) {
                    Fate::Kept
                } else {
                    torn(change, rng)
                }
            }
            Style::OneTorn => block_torn(change, rng),
            Style::Scattered if rng.chance(20) => torn(change, rng),
            Style::Scattered => {
                if rng.chance(odds) {
                    Fate::Kept
                } else {
                    Fate::Lost
                }
            }
            Style::Page if matches!(change, Change::Write { .. }) && rng.chance(40) => Fate::Programmed(rng.next_u64()),
            Style::Page => {
                if rng.chance(80) {
                    Fate::Kept
                } else {
                    Fate::Lost
                }
            }
            Style::Garbage if matches!(change, Change::Discard { .. }) => Fate::Garbage(rng.next_u64()),
            Style::Unreadable if matches!(change, Change::Write { .. }) && rng.chance(50) => unreadable(change, rng),
            Style::Garbage | Style::Unreadable => {
                if rng.chance(odds) {
                    Fate::Kept
                } else {
                    Fate::Lost
                }
            }
            Style::Sectors => Fate::Torn((0..change.sectors()).map(|_| rng.chance(odds)).collect()),
        };
        cached.iter().enumerate().map(|(index, change)| fate(index, change, &mut rng)).collect()
    }
}

/// A write some of whose blocks cannot be read any more.
fn unreadable(change: &Change, rng: &mut Rng) -> Fate {
    /// Sectors in a block.
    const BLOCK: usize = 8;
    let sectors = change.sectors();
    let all = rng.chance(30);
    let blocks: Vec<bool> = (0..sectors.div_ceil(BLOCK)).map(|_| all || rng.chance(30)).collect();
    Fate::Unreadable((0..sectors).map(|sector| blocks[sector / BLOCK]).collect())
}

/// A request that reached the medium but for some sectors of one block.
fn block_torn(change: &Change, rng: &mut Rng) -> Fate {
    /// Sectors in a block.
    const BLOCK: usize = 8;
    let sectors = change.sectors();
    if sectors == 0 {
        return Fate::Kept;
    }
    let block = rng.index(sectors.div_ceil(BLOCK));
    Fate::Torn((0..sectors).map(|sector| sector / BLOCK != block || rng.chance(50)).collect())
}

/// A request of which a beginning, an end, some blocks or some sectors reached the medium.
fn torn(change: &Change, rng: &mut Rng) -> Fate {
    /// Sectors in a block.
    const BLOCK: usize = 8;
    let sectors = change.sectors();
    if sectors == 0 {
        return Fate::Kept;
    }
    let at = rng.index(sectors + 1);
    Fate::Torn(match rng.below(4) {
        0 => (0..sectors).map(|sector| sector < at).collect(),
        1 => (0..sectors).map(|sector| sector >= at).collect(),
        2 => {
            let blocks: Vec<bool> = (0..sectors.div_ceil(BLOCK)).map(|_| rng.chance(50)).collect();
            (0..sectors).map(|sector| blocks[sector / BLOCK]).collect()
        }
        _ => (0..sectors).map(|_| rng.chance(50)).collect(),
    })
}

/// One power cut, relative to the step that it meets: scripts keep their meaning when steps before it are taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Changes of the device that the last step (without steps: opening) had completed. As many as there are: the step has returned.
    pub after: usize,
    /// What becomes of the cache.
    pub style: Style,
    /// And which of its possibilities.
    pub seed: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut {} {} {}", self.after, self.style.word(), self.seed)
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(line: &str) -> Result<Cut, String> {
        let mut words = Words::new(line);
        words.word("`cut`")?;
        let after = words.number("the number of requests")?;
        let word = words.word("the style")?;
        let mut styles = Style::ALL.into_iter().chain(Style::FAULTY).chain([Style::Page]);
        let style = styles.find(|style| style.word() == word);
        let style = style.ok_or_else(|| format!("`{line}`: there is no style `{word}`"))?;
        let seed = words.number("the seed")?;
        words.end()?;
        Ok(Cut { after, style, seed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> Vec<Change> {
        (0..6).map(|block| Change::Write { offset: block * 8192, data: vec![1; 8192].into() }).collect()
    }

    /// Of each block that has lost any sectors, how many.
    fn lost_in_blocks(mask: &[bool]) -> Vec<usize> {
        let lost = |block: &[bool]| block.iter().filter(|is_kept| !**is_kept).count();
        mask.chunks(8).map(lost).filter(|lost| *lost > 0).collect()
    }

    #[test]
    fn cuts_are_read_back() {
        for style in Style::ALL.into_iter().chain(Style::FAULTY).chain([Style::Page]) {
            let cut = Cut { after: 7, style, seed: 99 };
            assert_eq!(cut.to_string().parse::<Cut>().unwrap(), cut);
        }
        assert!("cut 1 burnt 2".parse::<Cut>().unwrap_err().contains("`burnt`"));
    }

    #[test]
    fn styles_do_what_they_say() {
        let cache = cache();
        for seed in 0..200 {
            let of = |style: Style| style.fates(seed, &cache);
            assert_eq!(of(Style::Kept), vec![Fate::Kept; 6]);
            assert_eq!(of(Style::Lost), vec![Fate::Lost; 6]);
            assert!(of(Style::OneLost).iter().filter(|fate| **fate == Fate::Kept).count() >= 5);
            assert!(of(Style::OneKept).iter().filter(|fate| **fate == Fate::Lost).count() >= 5);
            let prefix = of(Style::Prefix);
            let first = prefix.iter().position(|fate| *fate != Fate::Kept).unwrap_or(6);
            assert!(prefix[first..].iter().skip(1).all(|fate| *fate == Fate::Lost));
            let torn = of(Style::OneTorn).into_iter().filter_map(|fate| match fate {
                Fate::Torn(mask) => Some(mask),
                _ => None,
            });
            let blocks: Vec<usize> = torn.flat_map(|mask| lost_in_blocks(&mask)).collect();
            assert!(blocks.len() <= 1, "{blocks:?}");
            assert!(of(Style::Sectors).iter().all(|fate| matches!(fate, Fate::Torn(mask) if mask.len() == 16)));
            assert_eq!(of(Style::Scattered), of(Style::Scattered));
        }
        let scattered: Vec<Fate> = (0..50).flat_map(|seed| Style::Scattered.fates(seed, &cache)).collect();
        assert!(scattered.contains(&Fate::Kept) && scattered.contains(&Fate::Lost));
        assert!(scattered.iter().any(|fate| matches!(fate, Fate::Torn(_))));
    }
}
