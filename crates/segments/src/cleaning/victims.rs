//! The sections emptied last, for tests, reports and the curious.

use std::collections::VecDeque;

use super::Purpose;
use crate::{Section, SegmentKind};

/// Victims that are remembered.
const REMEMBERED: usize = 1024;

/// A section that was emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    /// How many were emptied before it since the volume was opened.
    pub number: u64,
    /// The section.
    pub section: Section,
    /// What its first segment that was not free held.
    pub kind: SegmentKind,
    /// Live blocks that were moved out of it.
    pub moved: u32,
    /// Why it was emptied.
    pub purpose: Purpose,
}

/// The last 1024 victims, and how many there were in all.
#[derive(Debug, Default)]
pub struct RecentVictims {
    list: VecDeque<Victim>,
    total: u64,
}

impl RecentVictims {
    /// Victims since the volume was opened.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The last of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Victim> {
        self.list.iter()
    }

    /// The last of all.
    #[must_use]
    pub fn newest(&self) -> Option<&Victim> {
        self.list.back()
    }

    pub(super) fn push(&mut self, section: Section, kind: SegmentKind, moved: u32, purpose: Purpose) {
        if self.list.len() == REMEMBERED {
            self.list.pop_front();
        }
        self.list.push_back(Victim { number: self.total, section, kind, moved, purpose });
        self.total += 1;
    }
}
