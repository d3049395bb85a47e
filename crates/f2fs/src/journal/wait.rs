//! How long checkpoints wait for the device, as measured.

use std::time::Duration;

/// Blocks that could be copied while a checkpoint waits, before anything was measured.
const WAIT_BLOCKS: u64 = 16;
/// The same at most, whatever was measured: a device that stalled once is not to be without checkpoints for long.
const WAIT_BLOCKS_MAX: u64 = 8192;
/// A checkpoint changes the mean by one in this many parts.
const WEIGHT: u64 = 4;

/// How long checkpoints take beyond what copying as many blocks would, as a mean of the last ones, in blocks that could be copied meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointWait {
    mean: Option<u64>,
}

impl CheckpointWait {
    /// A checkpoint of so many blocks took so long, where copying takes `each` a block.
    pub fn note(&mut self, took: Duration, blocks: u64, each: Duration) {
        if took.is_zero() || each.is_zero() {
            return;
        }
        let in_all = u64::try_from(took.as_nanos() / each.as_nanos()).unwrap_or(u64::MAX);
        let waited = in_all.saturating_sub(blocks).min(WAIT_BLOCKS_MAX);
        let mean = self.mean.unwrap_or(waited);
        self.mean = Some((mean * (WEIGHT - 1) + waited) / WEIGHT);
    }

    /// Blocks that could be copied while a checkpoint waits.
    pub fn blocks(self) -> u64 {
        self.mean.unwrap_or(WAIT_BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Duration = Duration::from_micros(10);

    #[test]
    fn waiting_is_worth_what_could_be_copied_meanwhile() {
        let mut wait = CheckpointWait::default();
        wait.note(Duration::from_millis(1), 10, Duration::ZERO);
        wait.note(Duration::ZERO, 10, EACH);
        assert_eq!(wait.blocks(), WAIT_BLOCKS, "nothing was measured");
        wait.note(Duration::from_millis(1), 60, EACH);
        assert_eq!(wait.blocks(), 40);
        wait.note(Duration::from_micros(100), 1000, EACH);
        assert_eq!(wait.blocks(), 30, "not less than nothing");
        for _ in 0..40 {
            wait.note(Duration::from_millis(3), 100, EACH);
        }
        assert!((190..=200).contains(&wait.blocks()), "{wait:?}");
        for _ in 0..40 {
            wait.note(Duration::from_secs(3600), 100, EACH);
        }
        assert!((WAIT_BLOCKS_MAX - 3..=WAIT_BLOCKS_MAX).contains(&wait.blocks()), "{wait:?}");
    }
}
