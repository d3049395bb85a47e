//! A record in three bytes: what predicting needs of it, and no more.

use super::{Mean, Record};
use crate::hints::packed::Triple;

/// Past intervals by their code, from [`FIRST`] on. Averages and cells hardly tell apart what is between them.
const COUNTS: [u16; 6] = [1, 2, 3, 4, 6, 15];
const FIRST: u32 = 2;

/// The highest bits of a time.
fn code(time: Mean) -> u32 {
    u32::from(time.0) >> 8
}

/// The middle of all times with these bits.
fn time(code: u32) -> Mean {
    // A byte.
    Mean((code as u16 & 0xFF) << 8 | 0x80)
}

impl Record {
    /// As it is kept at this time; all zeros for one that is not known.
    ///
    /// From the lowest bit: whether it is known (1), the number of intervals (3), how much longer or shorter than the mean the last one was
    /// (4, in octaves, 4 for none), the mean (8), the age (8). Times are logarithms in eighths of an octave, nearly: they are kept to 6 %.
    pub fn packed(self, now: u32) -> Triple {
        if !self.is_known() {
            return [0; 3];
        }
        let count = match self.count() {
            0 => u32::from(self.is_overwritten()),
            // One of them is as large.
            count => FIRST + COUNTS.iter().position(|most| count <= *most).unwrap_or(COUNTS.len() - 1) as u32,
        };
        let octaves = ((self.last_bucket() as i32 - self.mean.bucket() as i32) / 2).clamp(-4, 4) + 4;
        let age = Mean::of(f64::from(self.age(now)));
        let all = 1 | count << 1 | (octaves as u32) << 4 | code(self.mean) << 8 | code(age) << 16;
        let [a, b, c, _] = all.to_le_bytes();
        [a, b, c]
    }

    /// What was kept, at this time.
    pub fn unpacked([a, b, c]: Triple, now: u32) -> Record {
        let all = u32::from_le_bytes([a, b, c, 0]);
        if all & 1 == 0 {
            return Record::default();
        }
        let count = all >> 1 & 7;
        let age = time(all >> 16).get();
        // Ages of 2^32 and more do not occur.
        let written = now.wrapping_sub(if all >> 16 == 0 { 0 } else { age as u32 });
        let of = |written, packed| Record { written, mean: Mean::default(), packed: Self::KNOWN | packed };
        let mut record = match count {
            0 => of(written, 0),
            1 => of(written, Self::OVERWRITTEN),
            _ => {
                let mean = time(all >> 8 & 0xFF);
                let octaves = (all >> 4 & 15).min(8) as i32 - 4;
                let last = (mean.bucket() as i32 + 2 * octaves).clamp(0, 63) as u16;
                let counted = COUNTS[(count - FIRST) as usize] << Self::COUNT;
                Record { mean, ..of(written, Self::OVERWRITTEN | counted | last) }
            }
        };
        record.limit_age(now);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_predicting_needs_is_kept() {
        let mut random = 1_u32;
        let mut draw = |most: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % most
        };
        let later = 77_u32;
        for round in 0..20_000 {
            let start = draw(1 << 24).wrapping_neg();
            let mut record = Record::first(start);
            let mut at = start;
            for _ in 0..round % 9 {
                let octave = draw(20);
                at = at.wrapping_add(1 + draw(1 << octave));
                record = record.overwritten(at);
            }
            let read = Record::unpacked(record.packed(later.wrapping_add(at)), later.wrapping_add(at));
            let (age, read_age) = (record.age(later.wrapping_add(at)), read.age(later.wrapping_add(at)));
            assert!(age.abs_diff(read_age) <= age / 12 + 1, "{record:?}: {read:?}");
            assert_eq!((read.is_known(), read.is_overwritten()), (true, record.is_overwritten()));
            let (mean, read_mean) = (record.mean.bucket() as i32, read.mean.bucket() as i32);
            if record.count() > 0 {
                assert_eq!((mean, record.cell()), (read_mean, read.cell()), "{record:?}: {read:?}");
            }
        }
        assert_eq!(Record::unpacked(Record::second(3).packed(9), 9).count(), 0);
        assert!(Record::unpacked(Record::second(3).packed(9), 9).is_overwritten());
        assert!(!Record::unpacked([0; 3], 5).is_known() && Record::default().packed(5) == [0; 3]);
    }

    /// It comes from a volume.
    #[test]
    fn any_three_bytes_are_a_record() {
        for all in 0..1_u32 << 24 {
            let [a, b, c, _] = all.to_le_bytes();
            let record = Record::unpacked([a, b, c], 1 << 31);
            assert_eq!(record.is_known(), all & 1 == 1);
            assert!(record.cell() < super::super::CELLS && record.age(1 << 31) <= 1 << 31);
        }
    }
}
