//! The table as bytes: what was counted, of those histories that something was counted of.

use super::super::buckets::BUCKETS;
use super::super::records::CELLS;
use super::{EMPTY, Row, Table};
use crate::hints::bytes::{Reader, half};

/// Counts below these do not change what is predicted.
const LEAST_DEATHS: f32 = 0.01;
const LEAST_EXPOSURE: f64 = 1.0;
/// What is counted fades: it never becomes more than this.
const MOST: f32 = 1e15;

impl Table {
    /// What was counted, in at most so many bytes: histories with the most deaths come first.
    pub fn keep(&self, most: usize) -> Vec<u8> {
        let used = self.rows.iter().enumerate().filter(|(_, row)| row.is_used);
        let mut used: Vec<(f32, usize, &Row)> = used.map(|(cell, row)| (row.deaths.iter().sum(), cell, row)).collect();
        used.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
        let mut bytes = self.blocks.to_le_bytes().to_vec();
        for (_, cell, row) in used {
            let before = bytes.len();
            keep_row(&mut bytes, cell, row);
            if bytes.len() > most {
                bytes.truncate(before);
                break;
            }
        }
        bytes
    }

    /// The table that these bytes are of; `None` if they are of none.
    pub fn kept(bytes: &[u8]) -> Option<Table> {
        let mut reader = Reader(bytes);
        let mut table =
            Table { blocks: reader.f64().filter(|blocks| (1.0..1e10).contains(blocks))?, ..Table::default() };
        while !reader.0.is_empty() {
            let cell = usize::from(reader.u16()?);
            *table.rows.get_mut(cell)? = kept_row(&mut reader)?;
        }
        table.learn_priors();
        Some(table)
    }
}

/// The history, a bit for each age that something was counted at, and for each of these deaths and exposure.
fn keep_row(bytes: &mut Vec<u8>, cell: usize, row: &Row) {
    let counts = |age: &usize| row.deaths[*age] >= LEAST_DEATHS || row.exposure[*age] >= LEAST_EXPOSURE;
    let ages: Vec<usize> = (0..BUCKETS).filter(counts).collect();
    if ages.is_empty() {
        return;
    }
    const { assert!(CELLS <= u16::MAX as usize && BUCKETS == 64) };
    bytes.extend((cell as u16).to_le_bytes());
    bytes.extend(ages.iter().fold(0_u64, |bits, age| bits | 1 << age).to_le_bytes());
    for age in ages {
        bytes.extend(half(row.deaths[age]));
        bytes.extend(half(row.exposure[age] as f32));
    }
}

fn kept_row(reader: &mut Reader<'_>) -> Option<Row> {
    let bits = reader.u64()?;
    let mut row = Row { is_used: true, ..EMPTY };
    for age in (0..BUCKETS).filter(|age| bits >> age & 1 == 1) {
        row.deaths[age] = reader.half()?.min(MOST);
        row.exposure[age] = f64::from(reader.half()?.min(MOST));
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::super::super::records::NEVER_OVERWRITTEN;
    use super::*;

    /// Blocks of 40 histories that die at rates from 1/100 on.
    fn learned() -> Table {
        let mut table = Table::default();
        for step in 0..40_000_u32 {
            let cell = (step % 40) as usize * 30;
            let age = 100 * (1 + step % 40) * (1 + step % 7) / 4;
            table.count_life(cell, 0, age, 1.0);
            table.count_death(cell, age);
        }
        table.learn(5000);
        table
    }

    #[test]
    fn predictions_are_kept() {
        let mut before = learned();
        let bytes = before.keep(usize::MAX);
        assert!(bytes.len() < 10_000, "{}", bytes.len());
        let mut after = Table::kept(&bytes).unwrap();
        for cell in (0..CELLS).step_by(15) {
            for age in [0, 70, 1000, 100_000] {
                let (was, is) = (before.remaining_life(cell, age), after.remaining_life(cell, age));
                assert!((is / was - 1.0).abs() < 0.02, "cell {cell}, age {age}: {was}, {is}");
            }
        }
    }

    #[test]
    fn with_little_room_the_histories_with_the_most_deaths_are_kept() {
        let mut before = learned();
        (0..500).for_each(|_| before.count_death(NEVER_OVERWRITTEN + 60, 100));
        let bytes = before.keep(100);
        assert!(bytes.len() <= 100);
        let after = Table::kept(&bytes).unwrap();
        assert_eq!(after.rows.iter().position(|row| row.is_used), Some(NEVER_OVERWRITTEN + 60));
    }

    #[test]
    fn bytes_of_no_table_are_refused() {
        let bytes = learned().keep(usize::MAX);
        assert!((0..bytes.len().min(600)).filter(|&end| Table::kept(&bytes[..end]).is_some()).count() < 40);
        let far = [&1.0_f64.to_le_bytes()[..], &(CELLS as u16).to_le_bytes(), &[0; 8]].concat();
        assert!(Table::kept(&far).is_none() && Table::kept(&f64::NAN.to_le_bytes()).is_none());
        let infinite = [&1.0_f64.to_le_bytes()[..], &[0, 0], &1_u64.to_le_bytes(), &[0xFF; 4]].concat();
        assert!(Table::kept(&infinite).is_none());
    }
}
