//! The edges as bytes, with what was seen and died since they were set.

use super::super::buckets::{BUCKETS, edge};
use super::Edges;
use crate::hints::bytes::{Reader, half};

/// No plan was made.
const NO_PLAN: u8 = u8::MAX;
/// Counts fade: they never become more than this.
const MOST: f32 = 1e10;

impl Edges {
    /// Appends them.
    pub fn keep(&self, bytes: &mut Vec<u8>) {
        // Groups are few.
        bytes.extend([self.edges.len() as u8, self.planned.map_or(NO_PLAN, |planned| planned as u8)]);
        self.edges.iter().for_each(|at| bytes.extend(at.min(edge(BUCKETS)).to_le_bytes()));
        bytes.extend(self.samples.to_le_bytes());
        let counts = self.seen.iter().chain(&self.died);
        counts.for_each(|count| bytes.extend(half(*count as f32)));
    }

    /// From bytes, for as many groups; `None` if they are of none, or of others.
    pub fn kept(groups: usize, reader: &mut Reader<'_>) -> Option<Edges> {
        let mut edges = Edges::new(groups);
        reader.u8().filter(|count| usize::from(*count) == edges.edges.len())?;
        let planned = reader.u8()?;
        edges.planned = (planned != NO_PLAN).then(|| usize::from(planned).clamp(1, groups));
        for at in &mut edges.edges {
            let read = reader.f64().filter(|read| *read > 0.0)?;
            // Before the first plan: nothing is known, and the first edges are set at once.
            *at = if read >= edge(BUCKETS) && edges.planned.is_none() { f64::INFINITY } else { read };
        }
        edges.samples = reader.f64()?.min(f64::from(MOST));
        for count in edges.seen.iter_mut().chain(&mut edges.died) {
            *count = f64::from(reader.half()?.min(MOST));
        }
        Some(edges)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Volume;
    use super::*;

    #[test]
    fn edges_come_back() {
        let mut edges = Edges::new(5);
        (0..600).for_each(|at| edges.count_seen(if at % 3 == 0 { 500.0 } else { 90_000.0 }));
        (0..300).for_each(|_| edges.count_died(500.0));
        edges.learn(Volume { blocks: 1000, lap: 1000, space: 1500 });
        let mut bytes = Vec::new();
        edges.keep(&mut bytes);
        let kept = Edges::kept(5, &mut Reader(&bytes)).unwrap();
        assert_eq!((&kept.edges, kept.planned, kept.samples), (&edges.edges, edges.planned, edges.samples));
        for (was, is) in edges.seen.iter().chain(&edges.died).zip(kept.seen.iter().chain(&kept.died)) {
            assert!((was - is).abs() <= was * 0.004, "{was}, {is}");
        }
        assert!(Edges::kept(6, &mut Reader(&bytes)).is_none(), "of other groups");
        assert!((0..bytes.len()).all(|end| Edges::kept(5, &mut Reader(&bytes[..end])).is_none()));
    }

    #[test]
    fn edges_before_anything_is_known_come_back() {
        let mut bytes = Vec::new();
        Edges::new(3).keep(&mut bytes);
        let kept = Edges::kept(3, &mut Reader(&bytes)).unwrap();
        assert_eq!((kept.group(1e9), kept.planned, kept.coldest()), (0, None, 2));
        assert!(kept.edges.iter().all(|edge| edge.is_infinite()));
    }
}
