//! How long a device takes for neighbouring blocks: the tables that plans are made by.

use crate::BLOCKS_PER_SEGMENT;

/// Lengths that a table has: from one block to a whole segment.
const LENGTHS: usize = BLOCKS_PER_SEGMENT as usize;

/// A point that was measured: so many neighbouring blocks in one request, and the nanoseconds that it takes.
pub type Point = (u32, u64);

/// How long a device takes, in nanoseconds, for runs of neighbouring blocks at places that have nothing to do with one another.
///
/// What was measured is set right first: longer never takes less, and no run takes longer than in two parts. A card whose requests of 16 KiB
/// are slower than four of 4 KiB would make a plan prefer small holes.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceTimes {
    write: Box<[u64; LENGTHS]>,
    read: Box<[u64; LENGTHS]>,
    commit: u64,
}

impl DeviceTimes {
    /// From points that were measured, of rising lengths, and the time of a commit.
    ///
    /// Between two points time is linear in the length. Below the first point a run takes as long as there; above the last one, the
    /// bandwidth stays.
    ///
    /// # Panics
    /// If there is no point, or lengths do not rise from 1 on.
    #[must_use]
    pub fn new(write: &[Point], read: &[Point], commit: u64) -> DeviceTimes {
        DeviceTimes { write: table(write), read: table(read), commit }
    }

    /// From bandwidths in MB/s (10⁶ bytes a second) at lengths in blocks; `commit` in nanoseconds.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn from_bandwidths(write: &[(u32, f64)], read: &[(u32, f64)], commit: u64) -> DeviceTimes {
        let times =
            |points: &[(u32, f64)]| -> Vec<Point> { points.iter().map(|&(n, mbps)| (n, time_of(n, mbps))).collect() };
        DeviceTimes::new(&times(write), &times(read), commit)
    }

    /// Nanoseconds to write so many neighbouring blocks, 1 to [`BLOCKS_PER_SEGMENT`].
    #[must_use]
    pub fn write(&self, blocks: u32) -> u64 {
        self.write[blocks as usize - 1]
    }

    /// Nanoseconds to read so many neighbouring blocks, 1 to [`BLOCKS_PER_SEGMENT`].
    #[must_use]
    pub fn read(&self, blocks: u32) -> u64 {
        self.read[blocks as usize - 1]
    }

    /// Nanoseconds of a commit, which frees the places of what was copied.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// Blocks between two that are to be read, at most, where reading all in one request takes no longer than a request for each.
    #[must_use]
    pub fn read_gap(&self) -> u32 {
        let (single, whole) = (self.read(1), self.read(BLOCKS_PER_SEGMENT));
        let each = ((whole - single) / u64::from(BLOCKS_PER_SEGMENT - 1)).max(1);
        (single.saturating_sub(each) / each).min(u64::from(BLOCKS_PER_SEGMENT)) as u32
    }

    /// The same device, whose commit takes so many nanoseconds.
    #[must_use]
    pub fn with_commit(self, commit: u64) -> DeviceTimes {
        DeviceTimes { commit, ..self }
    }

    /// The table of writes; a run of `n` blocks is at `n - 1`.
    pub(super) fn writes(&self) -> &[u64; LENGTHS] {
        &self.write
    }
}

impl std::fmt::Debug for DeviceTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ends = |table: &[u64; LENGTHS]| (table[0], table[LENGTHS - 1]);
        f.debug_struct("DeviceTimes")
            .field("write of 1 and 512 blocks, ns", &ends(&self.write))
            .field("read of 1 and 512 blocks, ns", &ends(&self.read))
            .field("commit, ns", &self.commit)
            .finish()
    }
}

/// Nanoseconds for so many blocks at a bandwidth in MB/s.
fn time_of(blocks: u32, mbps: f64) -> u64 {
    (f64::from(blocks) * 4096.0 * 1000.0 / mbps).round() as u64
}

fn table(points: &[Point]) -> Box<[u64; LENGTHS]> {
    assert!(!points.is_empty(), "no point was measured");
    let rises = points[0].0 >= 1 && points.windows(2).all(|pair| pair[0].0 < pair[1].0);
    assert!(rises, "lengths do not rise from 1 on: {points:?}");
    let mut times: Box<[u64; LENGTHS]> = Box::new(std::array::from_fn(|at| interpolated(points, at as u32 + 1)));
    repair(&mut times);
    times
}

/// The time of a run by the points around it.
fn interpolated(points: &[Point], blocks: u32) -> u64 {
    let above = points.partition_point(|&(length, _)| length < blocks);
    // In 128 bits: nothing that was measured makes the product overflow.
    let scaled = |time: u64, part: u32, whole: u32| (u128::from(time) * u128::from(part) / u128::from(whole)) as u64;
    match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
        (None, Some(&(_, first))) => first,
        (Some((length, time)), None) => scaled(time, blocks, length),
        (Some((shorter, from)), Some(&(longer, to))) => {
            let (part, whole) = (blocks - shorter, longer - shorter);
            if to >= from { from + scaled(to - from, part, whole) } else { from - scaled(from - to, part, whole) }
        }
        // There is a point.
        (None, None) => 0,
    }
}

/// Makes times rise with the length, and no run slower than its parts.
fn repair(times: &mut [u64; LENGTHS]) {
    for at in (0..LENGTHS - 1).rev() {
        times[at] = times[at].min(times[at + 1]);
    }
    for at in 1..LENGTHS {
        // Runs of `part + 1` and `at - part` blocks.
        let in_two = (0..at.div_ceil(2)).map(|part| times[part].saturating_add(times[at - 1 - part])).min();
        times[at] = times[at].min(in_two.unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_points_time_is_linear_and_beyond_them_bandwidth_stays() {
        let times = DeviceTimes::new(&[(2, 1000), (4, 1500), (256, 64_500)], &[(1, 10)], 7);
        let writes = [1, 2, 3, 4, 5, 256, 512].map(|blocks| times.write(blocks));
        assert_eq!(writes, [1000, 1000, 1250, 1500, 1750, 64_500, 129_000]);
        assert_eq!((times.read(1), times.read(300), times.commit()), (10, 3000, 7));
    }

    #[test]
    fn bandwidths_are_of_a_million_bytes() {
        // 4096 bytes at 4.096 MB/s take a millisecond; 512 blocks at 8.192 MB/s take 256.
        let times = DeviceTimes::from_bandwidths(&[(1, 4.096), (512, 8.192)], &[(1, 4.096)], 0);
        assert_eq!((times.write(1), times.write(512), times.read(3)), (1_000_000, 256_000_000, 3_000_000));
    }

    /// A request of 10 ns and 2 for each further block: four blocks between two take as long as another request.
    #[test]
    fn what_lies_between_is_read_too_where_another_request_would_take_longer() {
        let gap = |points: &[Point]| DeviceTimes::new(&[(1, 1)], points, 0).read_gap();
        assert_eq!(gap(&[(1, 10), (512, 10 + 511 * 2)]), 4);
        assert_eq!(gap(&[(1, 10), (512, 5120)]), 0);
        assert_eq!(gap(&[(1, 1_000_000), (512, 1_000_000)]), 512);
    }

    /// The no-name card: 16 KiB at 0.037 MB/s takes 443 ms, 4 KiB at 0.14 takes 29.
    #[test]
    fn what_was_measured_is_set_right() {
        let card = DeviceTimes::from_bandwidths(&[(1, 0.14), (4, 0.037), (128, 1.2), (256, 2.3)], &[(1, 6.4)], 0);
        assert_eq!(card.write(4), 4 * card.write(1));
        for n in 1..BLOCKS_PER_SEGMENT {
            assert!(card.write(n) <= card.write(n + 1), "{n}");
            assert!((1..n).all(|k| card.write(n) <= card.write(k) + card.write(n - k)), "{n}");
        }
        // A longer run that is faster than a shorter one stands for it.
        let falling = DeviceTimes::new(&[(1, 500), (2, 300)], &[(1, 1)], 0);
        assert_eq!((falling.write(1), falling.write(2)), (300, 300));
    }
}
