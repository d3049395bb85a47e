//! Devices that lie: bugs planted between engine and medium, by altering what a run's log says had reached the cache when.
//!
//! A checkpoint shows in a log as flush, one block, flush.

use basalt_device::power::Change;

use crate::session::Life;

/// A way to lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceMutant {
    /// No flush does anything.
    NoFlush,
    /// The flush in front of a checkpoint's last block does nothing.
    FirstFlushLost,
    /// The flush behind a checkpoint's last block does nothing.
    SecondFlushLost,
    /// A checkpoint's last block is written in front of the flush that should come first.
    TailEarly,
    /// What a checkpoint frees is discarded before it is durable.
    DiscardEarly,
    /// Every seventh write is dropped.
    WriteDropped,
}

impl DeviceMutant {
    /// All of them.
    pub const ALL: [DeviceMutant; 6] = [
        DeviceMutant::NoFlush,
        DeviceMutant::FirstFlushLost,
        DeviceMutant::SecondFlushLost,
        DeviceMutant::TailEarly,
        DeviceMutant::DiscardEarly,
        DeviceMutant::WriteDropped,
    ];

    /// Its name in scripts.
    pub const fn word(self) -> &'static str {
        match self {
            DeviceMutant::NoFlush => "no-flush",
            DeviceMutant::FirstFlushLost => "first-flush-lost",
            DeviceMutant::SecondFlushLost => "second-flush-lost",
            DeviceMutant::TailEarly => "tail-early",
            DeviceMutant::DiscardEarly => "discard-early",
            DeviceMutant::WriteDropped => "write-dropped",
        }
    }

    /// The one of this name.
    pub fn from_word(word: &str) -> Option<DeviceMutant> {
        DeviceMutant::ALL.into_iter().find(|mutant| mutant.word() == word)
    }

    /// Alters a life's log. The number of changes stays: what does nothing is a write of nothing.
    pub fn alter(self, life: &mut Life) {
        let changes = &mut life.history.changes;
        let nothing = || Change::Discard { offset: 0, length: 0 };
        let is_flush = |change: Option<&Change>| change == Some(&Change::Flush);
        for at in 0..changes.len() {
            let is_checkpoint = is_flush(changes.get(at))
                && matches!(changes.get(at + 1), Some(Change::Write { data, .. }) if data.len() == 4096)
                && is_flush(changes.get(at + 2));
            match self {
                DeviceMutant::NoFlush if is_flush(changes.get(at)) => changes[at] = nothing(),
                DeviceMutant::FirstFlushLost if is_checkpoint => changes[at] = nothing(),
                DeviceMutant::SecondFlushLost if is_checkpoint => changes[at + 2] = nothing(),
                DeviceMutant::TailEarly if is_checkpoint => {
                    changes.swap(at, at + 1);
                    // Two flushes in a row are one.
                    changes[at + 2] = nothing();
                }
                DeviceMutant::DiscardEarly if is_checkpoint => {
                    // They come some time later, in the background.
                    let is_discard = |change: &Change| matches!(change, Change::Discard { .. });
                    let Some(first) = changes[at + 3..].iter().position(is_discard) else { continue };
                    let first = at + 3 + first;
                    let count = changes[first..].iter().take_while(|change| is_discard(change)).count();
                    changes[at..first + count].rotate_right(count);
                }
                DeviceMutant::WriteDropped if at % 7 == 6 && matches!(changes[at], Change::Write { .. }) => {
                    changes[at] = nothing();
                }
                _ => {}
            }
        }
    }
}
