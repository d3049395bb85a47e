//! How a cleaning is committed: by a journal block, which frees the victims alone, or by a checkpoint, which frees everything that is
//! dead and forgets what was pre-invalid, at the price of writing all metadata that changed.
//!
//! A journal block is always the cheaper commit of the two. What it costs comes later: pre-invalid blocks pile up, they have to be
//! copied out of victims, and sections that died by themselves stay taken, so that others are cleaned in their place.
//!
//! | rule | a checkpoint is taken when |
//! |---|---|
//! | [`Rule::Threshold`] | more blocks than this are pre-invalid (E. Gwak and D. Shin, "Segment Cleaning Journaling", IEEE Access 2021, section IV: 128 MiB) |
//! | [`Rule::Adaptive`] | the copies that a checkpoint would have spared since the last one have cost as much as a checkpoint does now, or are about to |
//!
//! The second is the rule of whoever may rent or buy and does not know for how long: pay rent until it adds up to the price, then
//! buy. Whatever the workload does next, that costs at most twice what the best choice in hindsight does. Here the next rent is expected
//! to be like the last, so half the price may have been paid: then it is three times at most, and less where the guess is right.

/// When a checkpoint is taken although a journal block would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// More than this many blocks are pre-invalid.
    Threshold(u64),
    /// Copies that a checkpoint would have spared have cost as much as one; or more than this many blocks are pre-invalid, which
    /// bounds the space they take.
    Adaptive(u64),
}

/// A way to commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// Journal blocks.
    Journal,
    /// A checkpoint.
    Checkpoint,
}

/// What the next commit would bring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prospect {
    /// Blocks that a journal block would gain: sections that it frees, and slack that it makes ready for logs.
    pub gained_by_journal: u64,
    /// Blocks of further sections that a checkpoint would free: they died by themselves, but the last checkpoint needs some of their blocks.
    pub gained_by_checkpoint_alone: u64,
    /// Pre-invalid blocks.
    pub pre_invalid: u64,
    /// Blocks that a checkpoint would write now, and what waiting for it is worth in blocks.
    pub checkpoint_price: u64,
}

/// What was copied since the last checkpoint that it would have spared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Up to the last commit.
    avoidable: u64,
    /// Copied since then.
    live: u64,
    pre_invalid: u64,
    /// Blocks of sections that waited for a checkpoint at the last commit: what they would have spared is counted.
    waiting: u64,
}

impl Ledger {
    /// Blocks were copied out of victims: `live` ones and `pre_invalid` ones.
    pub fn note_copied(&mut self, live: u64, pre_invalid: u64) {
        self.live += live;
        self.pre_invalid += pre_invalid;
    }

    /// The journal committed what was copied, with this prospect.
    pub fn note_journal(&mut self, prospect: &Prospect) {
        self.avoidable = self.avoidable_with(prospect);
        (self.live, self.pre_invalid) = (0, 0);
        self.waiting = self.waiting.max(prospect.gained_by_checkpoint_alone);
    }

    /// A checkpoint holds.
    pub fn note_checkpoint(&mut self) {
        *self = Ledger::default();
    }

    /// Of the blocks copied since the last checkpoint, with those for this commit, how many it would have spared: pre-invalid ones, and
    /// for each block that it would have gained without a copy, what one costs that is gained by copying.
    fn avoidable_with(&self, prospect: &Prospect) -> u64 {
        let spared = prospect.gained_by_checkpoint_alone.saturating_sub(self.waiting).min(prospect.gained_by_journal);
        self.avoidable + self.pre_invalid + self.live * spared / prospect.gained_by_journal.max(1)
    }

    /// How to commit.
    #[must_use]
    pub fn choose(&self, rule: Rule, prospect: &Prospect) -> Commit {
        let avoidable = self.avoidable_with(prospect);
        let is_due = match rule {
            Rule::Threshold(most) => prospect.pre_invalid > most,
            // Who would buy next time, were the rent the same, buys now.
            Rule::Adaptive(most) => {
                let expected = avoidable - self.avoidable;
                prospect.pre_invalid > most || avoidable + expected >= prospect.checkpoint_price
            }
        };
        if is_due || prospect.gained_by_journal == 0 { Commit::Checkpoint } else { Commit::Journal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROSPECT: Prospect =
        Prospect { gained_by_journal: 4, gained_by_checkpoint_alone: 0, pre_invalid: 500, checkpoint_price: 300 };

    #[test]
    fn rent_is_paid_until_it_adds_up_to_the_price() {
        let rule = Rule::Adaptive(1000);
        let mut ledger = Ledger::default();
        ledger.note_copied(400, 20);
        assert_eq!(ledger.choose(rule, &PROSPECT), Commit::Journal, "live blocks would be copied in any case");
        let waiting = |blocks| Prospect { gained_by_checkpoint_alone: blocks, ..PROSPECT };
        assert_eq!(ledger.choose(rule, &waiting(2)), Commit::Checkpoint, "half of it could have been spared");
        assert_eq!(ledger.choose(rule, &waiting(1)), Commit::Journal);
        let mut renting = ledger;
        renting.note_journal(&waiting(1));
        renting.note_copied(4000, 0);
        assert_eq!(renting.choose(rule, &waiting(1)), Commit::Journal, "the same block is not counted twice");
        assert_eq!(renting.choose(rule, &waiting(2)), Commit::Checkpoint);
        ledger.note_journal(&PROSPECT);
        ledger.note_copied(1000, 139);
        assert_eq!(ledger.choose(rule, &PROSPECT), Commit::Journal);
        ledger.note_copied(0, 1);
        assert_eq!(ledger.choose(rule, &PROSPECT), Commit::Checkpoint, "160 paid, and 140 to come");
        ledger.note_checkpoint();
        assert_eq!(ledger.choose(rule, &PROSPECT), Commit::Journal);
        assert_eq!(ledger.choose(rule, &Prospect { pre_invalid: 1001, ..PROSPECT }), Commit::Checkpoint);
    }

    #[test]
    fn a_threshold_looks_at_pre_invalid_blocks_alone() {
        let mut ledger = Ledger::default();
        ledger.note_copied(10_000, 10_000);
        let prospect = Prospect { pre_invalid: 64, checkpoint_price: 1, ..PROSPECT };
        assert_eq!(ledger.choose(Rule::Threshold(64), &prospect), Commit::Journal);
        assert_eq!(ledger.choose(Rule::Threshold(63), &prospect), Commit::Checkpoint);
        let vain = Prospect { gained_by_journal: 0, ..prospect };
        assert_eq!(ledger.choose(Rule::Threshold(64), &vain), Commit::Checkpoint, "a journal would free nothing");
    }
}
