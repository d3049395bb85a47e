//! Which cuts of one life are made: more at and behind a moment where one has reached something new.

use std::collections::VecDeque;

/// Cuts more at a moment where one has reached a new branch.
const MORE: usize = 4;
/// Most of those at one moment.
const MORE_MAX: usize = 16;
/// Moments behind it that are cut, too.
const BEHIND: usize = 2;

/// The cuts of one life, by moment and number within it; moments rise.
#[derive(Debug)]
pub(crate) struct Chosen {
    moments: VecDeque<usize>,
    /// Cuts at each moment.
    each: usize,
    /// The moment under way, the cuts made there, and how many it will be.
    now: (usize, usize, usize),
}

impl Chosen {
    /// So many cuts, one at least, at each moment of a list that rises.
    pub(crate) fn new(moments: Vec<usize>, each: usize) -> Chosen {
        Chosen { moments: moments.into(), each, now: (0, 0, 0) }
    }

    /// The cut that was taken last reached something new: there are more at its moment, and at those behind it up to `end`. Those in
    /// front of it cannot be had any more.
    pub(crate) fn more(&mut self, end: usize) {
        let (at, _, count) = &mut self.now;
        *count = (*count + MORE).min(self.each + MORE_MAX);
        for behind in *at + 1..=(*at + BEHIND).min(end) {
            let place = self.moments.partition_point(|moment| *moment < behind);
            if self.moments.get(place) != Some(&behind) {
                self.moments.insert(place, behind);
            }
        }
    }
}

impl Iterator for Chosen {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        if self.now.1 >= self.now.2 {
            self.now = (self.moments.pop_front()?, 0, self.each);
        }
        let (at, number, _) = &mut self.now;
        *number += 1;
        Some((*at, *number - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_news_each_moment_has_its_cuts() {
        let chosen: Vec<(usize, usize)> = Chosen::new(vec![2, 2, 7], 2).collect();
        assert_eq!(chosen, [(2, 0), (2, 1), (2, 0), (2, 1), (7, 0), (7, 1)]);
    }

    #[test]
    fn news_bring_more_there_and_behind() {
        let mut chosen = Chosen::new(vec![2, 4], 2);
        assert_eq!(chosen.next(), Some((2, 0)));
        chosen.more(9);
        let rest: Vec<(usize, usize)> = chosen.collect();
        let of = |moment: usize, from: usize, count: usize| (from..count).map(move |number| (moment, number));
        let wanted: Vec<(usize, usize)> = of(2, 1, 2 + MORE).chain(of(3, 0, 2)).chain(of(4, 0, 2)).collect();
        assert_eq!(rest, wanted);
    }

    #[test]
    fn news_without_end_come_to_an_end() {
        let mut chosen = Chosen::new(vec![0], 2);
        let mut made = 0;
        while chosen.next().is_some() {
            made += 1;
            chosen.more(10);
        }
        assert_eq!(made, 11 * (2 + MORE_MAX));
    }
}
