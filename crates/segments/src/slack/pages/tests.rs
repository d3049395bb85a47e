//! The tests compare each plan with every possible choice of pages.
#![allow(clippy::single_range_in_vec_init, reason = "lists of runs, some of one")]

use super::*;
use crate::slack::testing::{Numbers, random_times, segment, times};

const PAGE: FlashPage = FlashPage(4);

#[test]
fn sizes_of_pages_are_powers_of_two() {
    let blocks = |bytes| FlashPage::of_bytes(bytes).map(FlashPage::blocks);
    assert_eq!([512, 4096, 16384, 262_144].map(blocks), [Some(1), Some(1), Some(4), Some(64)]);
    assert_eq!([0, 12288, 524_288].map(blocks), [None; 3]);
}

#[test]
fn of_a_page_all_or_nothing_is_whole() {
    let dead = segment(&[0..3, 4..8, 10..17, 60..68, 124..129, 508..512]);
    let whole = |blocks| super::super::runs(&FlashPage(blocks).whole(&dead)).collect::<Vec<_>>();
    assert_eq!(whole(1), [0..3, 4..8, 10..17, 60..68, 124..129, 508..512]);
    assert_eq!(whole(2), [0..2, 4..8, 10..16, 60..68, 124..128, 508..512]);
    assert_eq!(whole(4), [4..8, 12..16, 60..68, 124..128, 508..512]);
    assert_eq!(whole(8), []);
    let all = FlashPage(64).whole(&segment(&[64..192, 200..256]));
    assert_eq!(super::super::runs(&all).collect::<Vec<_>>(), [64..192]);
}

/// Pages 0 and 2 are dead, page 1 has one live block. In place: 8 blocks in 208, 26 each. With page 1: 12 blocks in 112, a read in 14, a commit in 50:
/// 176 for 11 blocks, 16 each.
#[test]
fn a_page_that_is_partly_dead_is_an_island_whose_dead_blocks_are_gained() {
    let dead = segment(&[0..5, 6..12]);
    assert_eq!(best(&dead, PAGE, &times(), 1), SlackPlan { islands: vec![5..6], gained: 11, time: 176 });
    let dear = times().with_commit(200);
    assert_eq!(best(&dead, PAGE, &dear, 1), SlackPlan { islands: vec![], gained: 8, time: 208 });
}

#[test]
fn a_segment_of_which_no_page_is_dead_gains_what_is_copied_out_of_the_way() {
    let dead = segment(&[1..4, 5..8]);
    let plan = best(&dead, PAGE, &times(), 1);
    assert_eq!(plan, SlackPlan { islands: vec![0..1, 4..5], gained: 6, time: 108 + 18 + 50 });
    assert_eq!(best(&[0; 8], PAGE, &times(), 1).gained, 0);
    assert_eq!(best(&[!0; 8], PAGE, &times(), 1), SlackPlan { islands: vec![], gained: 512, time: 612 });
}

/// The least price of all sets of pages that contain the dead ones.
fn least_price(dead: &[u64; 8], page: FlashPage, times: &DeviceTimes, sharing: u32, touched: usize) -> f64 {
    let pages = Pages::of(dead, page, times);
    let must: u32 = (0..touched).filter(|&at| pages.live[at] == 0).map(|at| 1 << at).sum();
    let price = |set: u32| {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..touched).filter(|at| set & (1 << at) != 0) {
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end += 1,
                None => runs.push(at..at + 1),
            }
        }
        let chosen = pages.summed(runs, times);
        let commit = if chosen.copies { times.commit() / u64::from(sharing) } else { 0 };
        Price { time: chosen.time + commit, gained: chosen.gained }.each()
    };
    (0..1_u32 << touched).filter(|set| set & must == must).map(price).fold(f64::INFINITY, f64::min)
}

#[test]
fn no_choice_of_pages_is_better_on_two_thousand_segments() {
    let mut numbers = Numbers(23);
    let mut copying = 0;
    for index in 0..2_000 {
        let page = FlashPage([2, 4, 8][numbers.below(3) as usize]);
        // The first ten pages have dead blocks, and the rest has none.
        let odds = 20 + numbers.below(75);
        let blocks = (0..10 * page.blocks()).filter(|_| numbers.below(100) < odds);
        let dead = segment(&blocks.map(|at| at..at + 1).collect::<Vec<_>>());
        let (times, sharing) = (random_times(&mut numbers), 1 + numbers.below(4) as u32);
        let plan = best(&dead, page, &times, sharing);
        // To write what was never dead gives nothing.
        let least = least_price(&dead, page, &times, sharing, 10);
        assert!(plan.price() <= least * (1.0 + 1e-9), "segment {index}: {} and {least}: {dead:?}", plan.price());
        copying += usize::from(!plan.islands.is_empty());
        let mut free = dead;
        plan.islands.iter().cloned().flatten().for_each(|at| {
            assert_eq!(free[at as usize / 64] & (1 << (63 - at % 64)), 0, "an island is live");
            free[at as usize / 64] |= 1 << (63 - at % 64);
        });
        let written = page.whole(&free).iter().map(|word| word.count_ones()).sum::<u32>();
        assert_eq!(plan.gained, written - plan.copied(), "segment {index}: what is written is gained, or was copied");
    }
    assert!((400..1_990).contains(&copying), "{copying} plans copy: the test looks at one side alone");
}
