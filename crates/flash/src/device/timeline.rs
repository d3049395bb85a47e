//! What is busy when: places in a queue, or one unit of a device.

/// How many of a number of places are taken at which time, from some moment on. Times are in nanoseconds.
///
/// Requests need not come in the order of time: a later call may find room at an earlier time.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    places: u32,
    /// Where the number of places in use changes, and what it is from there on. The last is 0.
    steps: Vec<(u64, u32)>,
}

impl Timeline {
    /// `places` places, none of which is in use.
    pub(super) fn new(places: u32) -> Timeline {
        Timeline { places: places.max(1), steps: Vec::new() }
    }

    /// The end of the first stretch without a free place that begins before `end` and ends behind `begin`. A range without length
    /// stands for the moment `begin`.
    pub(super) fn full_within(&self, begin: u64, end: u64) -> Option<u64> {
        let end = end.max(begin.saturating_add(1));
        let mut at = self.steps.partition_point(|step| step.0 <= begin).saturating_sub(1);
        while at < self.steps.len() && self.steps[at].0 < end {
            let until = self.steps.get(at + 1).map_or(begin, |next| next.0);
            if self.steps[at].1 >= self.places && until > begin {
                let free = self.steps[at..].iter().find(|step| step.1 < self.places);
                return free.map(|step| step.0);
            }
            at += 1;
        }
        None
    }

    /// The first moment from `from` on at which a place is free for `length`.
    pub(super) fn free(&self, from: u64, length: u64) -> u64 {
        let mut begin = from;
        while let Some(later) = self.full_within(begin, begin.saturating_add(length)) {
            begin = later;
        }
        begin
    }

    /// Takes a place from `begin` to `end`.
    pub(super) fn take(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let (first, last) = (self.cut(begin), self.cut(end));
        for step in &mut self.steps[first..last] {
            step.1 += 1;
        }
        self.merge(last);
        self.merge(first);
    }

    /// Makes `time` a step, and returns which.
    fn cut(&mut self, time: u64) -> usize {
        let place = self.steps.partition_point(|step| step.0 < time);
        if self.steps.get(place).is_none_or(|step| step.0 != time) {
            let taken = place.checked_sub(1).map_or(0, |before| self.steps[before].1);
            self.steps.insert(place, (time, taken));
        }
        place
    }

    /// Takes a step out that changes nothing.
    fn merge(&mut self, place: usize) {
        let before = place.checked_sub(1).map_or(0, |before| self.steps[before].1);
        if self.steps.get(place).is_some_and(|step| step.1 == before) {
            self.steps.remove(place);
        }
    }

    /// Forgets what was before `floor`: nothing is asked for there any more.
    pub(super) fn forget_before(&mut self, floor: u64) {
        // The step that holds at the floor stays.
        let past = self.steps.partition_point(|step| step.0 <= floor);
        let past = if past == self.steps.len() { past } else { past.saturating_sub(1) };
        self.steps.drain(..past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_random::Rng;

    #[test]
    fn room_is_found_before_between_and_behind() {
        let mut unit = Timeline::new(1);
        unit.take(10, 20);
        unit.take(30, 40);
        assert_eq!([unit.free(0, 10), unit.free(0, 11), unit.free(5, 5), unit.free(6, 5)], [0, 40, 5, 20]);
        assert_eq!([unit.free(15, 10), unit.free(15, 11), unit.free(20, 0), unit.free(12, 0)], [20, 40, 20, 20]);
        unit.take(20, 30);
        assert_eq!((unit.free(0, 11), unit.steps.len()), (40, 2));
        unit.forget_before(35);
        assert_eq!((unit.free(35, 1), unit.steps.len()), (40, 2));
        unit.forget_before(40);
        assert_eq!((unit.free(41, 5), unit.steps.len()), (41, 0));
    }

    #[test]
    fn it_agrees_with_counting_moment_by_moment() {
        let mut rng = Rng::new(11);
        for places in 1..4 {
            let mut line = Timeline::new(places);
            let mut naive = [0_u32; 10_000];
            for _ in 0..300 {
                let (from, length) = (rng.below(1000), rng.between(1, 20));
                let has_room = |at: u64| (at..at + length).all(|moment| naive[moment as usize] < places);
                let expected = (from..).find(|&at| has_room(at)).unwrap();
                assert_eq!(line.free(from, length), expected);
                line.take(expected, expected + length);
                naive[expected as usize..(expected + length) as usize].iter_mut().for_each(|taken| *taken += 1);
            }
        }
    }
}
