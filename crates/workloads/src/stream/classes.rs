//! Classes of blocks with shares of the writes: hot and cold, TPC-C.

use basalt_random::Rng;

use super::unit;

/// Writes and pages of an OLTP database in percent: 29 % of the writes go to 1.6 % of the pages (the SFS paper, section 2.2, from Hsu,
/// Smith and Young); the other three classes are those with which its figures were found to come out: 31 % on 8.4 %, 25 % on 20 %,
/// 15 % on 70 %.
pub const TPCC: [(f64, f64); 4] = [(29.0, 1.6), (31.0, 8.4), (25.0, 20.0), (15.0, 70.0)];

/// One class: ranks from `first`, chosen by draws below `until`.
#[derive(Debug, Clone, Copy)]
struct Class {
    until: f64,
    first: u32,
    count: u32,
}

/// Ranks below a number of blocks: the first class has the lowest ranks.
#[derive(Debug, Clone)]
pub struct Classes {
    classes: Vec<Class>,
}

impl Classes {
    /// Classes of (percent of the writes, percent of the blocks) over at least one block. Shares are of their sums; a class has at least
    /// one block as long as there are any left.
    pub fn new(shares: &[(f64, f64)], blocks: u32) -> Classes {
        let writes: f64 = shares.iter().map(|share| share.0).sum();
        let space: f64 = shares.iter().map(|share| share.1).sum();
        let mut classes = Vec::with_capacity(shares.len());
        let (mut until, mut portion, mut first) = (0.0, 0.0, 0);
        for (index, share) in shares.iter().enumerate() {
            until += share.0 / writes;
            portion += share.1 / space;
            let last = index + 1 == shares.len();
            let end = if last { blocks } else { (portion * f64::from(blocks)).round() as u32 };
            let end = end.max(first + 1).min(blocks);
            if end > first {
                classes.push(Class { until, first, count: end - first });
            }
            first = end;
        }
        if let Some(last) = classes.last_mut() {
            last.until = 1.0;
        }
        Classes { classes }
    }

    /// The next rank.
    pub fn sample(&self, rng: &mut Rng) -> u32 {
        let draw = unit(rng);
        match self.classes.iter().find(|class| draw < class.until) {
            Some(class) => class.first + rng.below(u64::from(class.count)) as u32,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_met() {
        let blocks = 10_000;
        let classes = Classes::new(&TPCC, blocks);
        let mut rng = Rng::new(2);
        let draws = 400_000;
        let mut counts = [0_u32; 4];
        for _ in 0..draws {
            let rank = classes.sample(&mut rng);
            let class = [160, 1000, 3000, 10_000].iter().position(|end| rank < *end).expect("below the blocks");
            counts[class] += 1;
        }
        for (count, (writes, _)) in counts.iter().zip(TPCC) {
            let percent = f64::from(*count) * 100.0 / f64::from(draws);
            assert!((percent - writes).abs() < 0.4, "{percent:.2} % instead of {writes} %");
        }
        for tiny in 1..6 {
            let classes = Classes::new(&TPCC, tiny);
            assert!((0..1000).all(|_| classes.sample(&mut rng) < tiny));
        }
    }
}
