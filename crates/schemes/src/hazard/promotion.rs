//! Whether cleaning may put a block into a hotter group than the one that it comes from.

use crate::hints::bytes::Reader;

/// Outcomes are halved when there are so many: newer ones weigh more.
const REMEMBERED: u32 = 4096;
/// Promotions are allowed while one in so many is overwritten before it is collected again.
const PAYS: u32 = 4;
/// One in so many is promoted anyway, to go on measuring.
const TRIED: u32 = 16;

/// What became of blocks that cleaning promoted: a promotion pays if the block is overwritten before it has to be copied once more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promotions {
    overwritten: u32,
    collected: u32,
    /// Promotions that were asked for while they did not pay.
    asked: u32,
}

impl Promotions {
    /// Whether the next one is allowed. Does not count it.
    pub fn allows(&self) -> bool {
        self.pays() || (self.asked + 1).is_multiple_of(TRIED)
    }

    fn pays(&self) -> bool {
        self.overwritten * PAYS >= self.overwritten + self.collected
    }

    /// One was asked for, and allowed or not.
    pub fn count_asked(&mut self) {
        if !self.pays() {
            self.asked = (self.asked + 1) % TRIED;
        }
    }

    /// A block that was promoted was overwritten.
    pub fn count_overwritten(&mut self) {
        self.overwritten += 1;
        self.forget();
    }

    /// A block that was promoted was collected again.
    pub fn count_collected(&mut self) {
        self.collected += 1;
        self.forget();
    }

    /// As bytes.
    pub fn keep(&self) -> [u8; 4] {
        // Below `REMEMBERED`.
        let [a, b] = (self.overwritten as u16).to_le_bytes();
        let [c, d] = (self.collected as u16).to_le_bytes();
        [a, b, c, d]
    }

    /// From bytes; `None` where there are too few.
    pub fn kept(reader: &mut Reader<'_>) -> Option<Promotions> {
        let mut count = || reader.u16().map(|count| u32::from(count).min(REMEMBERED / 2));
        Some(Promotions { overwritten: count()?, collected: count()?, asked: 0 })
    }

    fn forget(&mut self) {
        if self.overwritten + self.collected >= REMEMBERED {
            self.overwritten /= 2;
            self.collected /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_allowed_while_one_in_four_is_overwritten() {
        let mut promotions = Promotions::default();
        assert!(promotions.allows(), "nothing is known yet");
        promotions.count_overwritten();
        (0..3).for_each(|_| promotions.count_collected());
        assert!(promotions.allows(), "1 of 4");
        promotions.count_collected();
        let allowed: Vec<bool> = (0..32)
            .map(|_| {
                let allowed = promotions.allows();
                promotions.count_asked();
                allowed
            })
            .collect();
        assert_eq!(allowed.iter().filter(|allowed| **allowed).count(), 2, "1 of 5: one in 16 is tried");
        assert!(allowed[15] && allowed[31]);
        promotions.count_overwritten();
        assert!(promotions.allows(), "2 of 6");
    }

    #[test]
    fn old_outcomes_are_forgotten() {
        let mut promotions = Promotions::default();
        (0..4095).for_each(|_| promotions.count_collected());
        promotions.count_overwritten();
        assert_eq!((promotions.overwritten, promotions.collected), (0, 2047));
        (0..683).for_each(|_| promotions.count_overwritten());
        assert!(promotions.allows(), "683 of 2730");
    }

    #[test]
    fn outcomes_come_back() {
        let promotions = Promotions { overwritten: 300, collected: 1027, asked: 5 };
        let kept = Promotions::kept(&mut Reader(&promotions.keep())).unwrap();
        assert_eq!((kept.overwritten, kept.collected), (300, 1027));
        assert!(Promotions::kept(&mut Reader(&promotions.keep()[..3])).is_none());
        let kept = Promotions::kept(&mut Reader(&[0xFF; 4])).unwrap();
        assert!(kept.overwritten + kept.collected <= REMEMBERED, "more than can have been counted");
    }
}
