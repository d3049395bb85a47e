//! The hand that visits all blocks in turn, one for each block that users write.

/// Goes through the records in the order of their numbers, over and over. When it visited one last follows from its place: nothing has to
/// be kept for each block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hand {
    /// The record that is visited next.
    next: u32,
    /// The clock when the lap began.
    began: u32,
    /// When the one before began, and how many records that visited.
    before: (u32, u32),
}

impl Hand {
    /// The record that is visited next, of so many.
    pub fn next(&self, records: u32) -> usize {
        if self.next < records { self.next as usize } else { 0 }
    }

    /// Visits it at this time.
    pub fn visit(&mut self, now: u32, records: u32) {
        if self.next >= records {
            self.before = (self.began, self.next);
            self.next = 0;
        }
        if self.next == 0 {
            self.began = now;
        }
        self.next += 1;
    }

    /// All of so many records count as visited by now, as after a lap that has just ended.
    pub fn visited_all(&mut self, now: u32, records: u32) {
        *self = Hand { next: 0, began: now, before: (now.wrapping_sub(records), records) };
    }

    /// Up to which age of a block what it lived through was counted already: its age when the hand visited it last. Zero if that was
    /// before it was written.
    pub fn counted(&self, number: usize, now: u32, age: u32) -> u32 {
        let number = number as u32;
        let visited = if number < self.next {
            self.began.wrapping_add(number)
        } else if number < self.before.1 {
            self.before.0.wrapping_add(number)
        } else {
            return 0;
        };
        age.saturating_sub(now.wrapping_sub(visited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_is_known_by_its_place() {
        let mut hand = Hand::default();
        let mut visits = [None; 7];
        // The clock wraps, and records are added on the way.
        let start = u32::MAX - 9;
        for step in 0..60u32 {
            let now = start.wrapping_add(step);
            let records = if step < 20 { 5 } else { 7 };
            for (number, visited) in visits.iter().enumerate() {
                let expected = visited.map_or(0, |visited: u32| 1000u32.saturating_sub(now.wrapping_sub(visited)));
                assert_eq!(hand.counted(number, now, 1000), expected, "step {step}, record {number}");
            }
            visits[hand.next(records)] = Some(now);
            hand.visit(now, records);
        }
        assert!(visits.iter().all(Option::is_some));
        assert_eq!(hand.counted(0, start.wrapping_add(60), 1), 0, "younger than the visit");
    }

    #[test]
    fn all_records_can_count_as_visited() {
        let mut hand = Hand::default();
        hand.visited_all(3, 5);
        // The last one was visited one write before, the first one five.
        assert_eq!([0, 4, 5].map(|number| hand.counted(number, 3, 1000)), [995, 999, 0]);
        assert_eq!(hand.next(5), 0);
    }
}
