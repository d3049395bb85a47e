//! Power cuts, and pages that read well now and fail later.

use std::collections::BTreeMap;

use basalt_random::Rng;

use crate::Geometry;
use crate::device::{NandError, Result};

/// Reads that an unstable page stands at most.
const MOST_READS: u64 = 24;
/// Reads that the pages of a failed block stand at least: so it can be copied; and at most.
const TO_COPY: u64 = 64;
const FADED: u64 = 256;

/// The power supply, and what its cuts have left.
#[derive(Clone, Debug, Default)]
pub(super) struct Unstable {
    /// Programs and erases until the power goes.
    left: Option<u64>,
    off: bool,
    /// Pages whose bits do not stay, and how many reads they stand.
    pages: BTreeMap<u32, u64>,
    /// Pages of blocks that have failed, and how many reads they stand. A power cut does nothing to them.
    fading: BTreeMap<u32, u64>,
}

/// What a read finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The page as it was programmed.
    Sound,
    /// A few bits have flipped: a warning.
    Fading,
    /// It is unreadable from now on.
    Lost,
}

impl Unstable {
    pub(super) fn cut_at(&mut self, request: u64) {
        self.left = Some(request);
    }

    pub(super) fn check_power(&self) -> Result<()> {
        if self.off { Err(NandError::PowerLost) } else { Ok(()) }
    }

    /// Counts a program or an erase; whether the power goes in it.
    pub(super) fn is_cut(&mut self) -> bool {
        match &mut self.left {
            None => false,
            Some(0) => {
                (self.left, self.off) = (None, true);
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// A page's bits do not stay.
    pub(super) fn add(&mut self, page: u32, rng: &mut Rng) {
        self.pages.insert(page, rng.below(MOST_READS));
    }

    /// A page of a block that has failed is lost in time, but not at once.
    pub(super) fn fade(&mut self, page: u32, rng: &mut Rng) {
        self.fading.entry(page).or_insert_with(|| rng.between(TO_COPY, FADED));
    }

    /// A page is read.
    pub(super) fn read(&mut self, page: u32) -> Found {
        let unstable = take_one(&mut self.pages, page);
        let fading = take_one(&mut self.fading, page);
        match (unstable, fading) {
            (Some(0), _) | (_, Some(0)) => Found::Lost,
            (_, Some(left)) if left < TO_COPY / 2 => Found::Fading,
            _ => Found::Sound,
        }
    }

    /// The block was erased.
    pub(super) fn forget(&mut self, geometry: Geometry, block: u32) {
        let first = geometry.first_page(block);
        let elsewhere = |page: &u32| !(first..first + geometry.pages_per_block).contains(page);
        self.pages.retain(|page, _| elsewhere(page));
        self.fading.retain(|page, _| elsewhere(page));
    }

    /// The power is back; the pages that are unreadable from now on: half of those that are unstable.
    pub(super) fn power_on(&mut self, rng: &mut Rng) -> Vec<u32> {
        self.off = false;
        let gone: Vec<u32> = self.pages.keys().copied().filter(|_| rng.chance(50)).collect();
        for page in &gone {
            self.pages.remove(page);
        }
        gone
    }
}

/// Takes one read off a page's, and says how many were left; a page without any is forgotten.
fn take_one(pages: &mut BTreeMap<u32, u64>, page: u32) -> Option<u64> {
    let left = pages.get_mut(&page)?;
    let before = *left;
    match before {
        0 => _ = pages.remove(&page),
        _ => *left -= 1,
    }
    Some(before)
}
