//! Some plans are worked out by hand. Others are compared with every choice of islands that there is.
#![allow(clippy::single_range_in_vec_init, reason = "lists of runs, some of one")]

use super::*;
use crate::slack::testing::{Numbers, random_times, segment, times};

#[test]
fn runs_are_found_across_words_and_at_both_ends() {
    for expected in [vec![], vec![0..512], vec![0..1, 63..65, 127..128, 511..512], vec![1..64, 65..511]] {
        assert_eq!(runs(&segment(&expected)).collect::<Vec<_>>(), expected);
    }
}

/// Holes of 10, 20 and 30 blocks, islands of 5 and 100. In place: 110 + 120 + 130 = 360. The first two joined: 35 blocks take 135, the
/// island is read in 15, the third takes 130, the commit 50: 330. All three: 165 blocks take 265, reads 15 + 110, commit 50: 440.
#[test]
fn an_island_is_copied_where_that_saves_more_than_it_takes() {
    let dead = segment(&[0..10, 15..35, 135..165]);
    let plan = SlackPlan::best(&dead, &times(), 1);
    assert_eq!(plan, SlackPlan { islands: vec![10..15], gained: 60, time: 330 });
    assert_eq!((plan.copied(), plan.price()), (5, 5.5));
    assert_eq!(SlackPlan::in_place(&dead, &times()), SlackPlan { islands: vec![], gained: 60, time: 360 });
    // Live are 10..15, 35..135 and 165..512: 15 + 110 + 357 to read, 612 to write, 50 to commit.
    let full = SlackPlan::full(&dead, &times(), 1);
    assert_eq!(full, SlackPlan { islands: vec![10..15, 35..135, 165..512], gained: 60, time: 1144 });
}

#[test]
fn a_commit_has_to_pay_and_is_cheaper_where_victims_share_it() {
    let dead = segment(&[0..10, 15..35, 135..165]);
    let dear = times().with_commit(81);
    assert_eq!(SlackPlan::best(&dead, &dear, 1).islands, [], "280 + 81 are more than 360");
    assert_eq!(SlackPlan::best(&dead, &dear, 3), SlackPlan { islands: vec![10..15], gained: 60, time: 307 });
    assert_eq!(SlackPlan::full(&dead, &dear, 3).time, 1121);
}

#[test]
fn a_segment_without_holes_gains_nothing_and_an_empty_one_is_one_hole() {
    let none = SlackPlan::best(&[0; 8], &times(), 1);
    assert_eq!((none.gained, none.time, none.price()), (0, 0, f64::INFINITY));
    assert_eq!(SlackPlan::best(&[!0; 8], &times(), 1), SlackPlan { islands: vec![], gained: 512, time: 612 });
}

/// Every choice of islands, each priced from the definition.
fn least_time(dead: &[u64; 8], times: &DeviceTimes, sharing: u32) -> u64 {
    let holes: Vec<Range<u32>> = runs(dead).collect();
    let gaps = holes.len().saturating_sub(1);
    let time = |copied: u32| -> u64 {
        let commit = if copied == 0 { 0 } else { times.commit() / u64::from(sharing) };
        let (mut total, mut start) = (commit, holes[0].start);
        for at in 0..gaps {
            if copied & (1 << at) != 0 {
                total += times.read(holes[at + 1].start - holes[at].end);
            } else {
                total += times.write(holes[at].end - start);
                start = holes[at + 1].start;
            }
        }
        total + times.write(holes[gaps].end - start)
    };
    if holes.is_empty() { 0 } else { (0..1 << gaps).map(time).min().unwrap_or(0) }
}

/// Up to nine holes, anywhere in the segment, near each other or not.
fn random_segment(numbers: &mut Numbers) -> [u64; 8] {
    let spread = 1 + numbers.below(40);
    let (mut holes, mut at) = (Vec::new(), numbers.below(8) as u32);
    for _ in 0..numbers.below(10) {
        let end = at + 1 + numbers.below(spread) as u32;
        if end > BLOCKS_PER_SEGMENT {
            break;
        }
        holes.push(at..end);
        at = end + 1 + numbers.below(spread) as u32;
    }
    segment(&holes)
}

#[test]
fn no_choice_of_islands_is_better_on_ten_thousand_segments() {
    let mut numbers = Numbers(17);
    let mut copying = 0;
    for index in 0..10_000 {
        let (dead, times) = (random_segment(&mut numbers), random_times(&mut numbers));
        let sharing = 1 + numbers.below(4) as u32;
        let plan = SlackPlan::best(&dead, &times, sharing);
        assert_eq!(plan.time, least_time(&dead, &times, sharing), "segment {index}: {dead:?}");
        assert_eq!(
            plan.time,
            time_of(&plan, &dead, &times, sharing),
            "segment {index}: its islands do not take its time"
        );
        copying += usize::from(!plan.islands.is_empty());
    }
    assert!((2_000..8_000).contains(&copying), "{copying} plans copy: the test looks at one side alone");
}

/// What a plan takes, by its islands.
fn time_of(plan: &SlackPlan, dead: &[u64; 8], times: &DeviceTimes, sharing: u32) -> u64 {
    let mut free = *dead;
    for at in plan.islands.iter().cloned().flatten() {
        assert_eq!(free[at as usize / 64] & (1 << (63 - at % 64)), 0, "an island is live");
        free[at as usize / 64] |= 1 << (63 - at % 64);
    }
    let reads: u64 = plan.islands.iter().map(|island| times.read(length(island))).sum();
    let commit = if plan.islands.is_empty() { 0 } else { times.commit() / u64::from(sharing) };
    runs(&free).map(|hole| times.write(length(&hole))).sum::<u64>() + reads + commit
}

/// Holes of 16 blocks, islands of 16. Where every write is a seek, all islands are copied but the last, and emptying takes 2 % longer. Where a write has no
/// fixed part nothing is copied, and emptying writes twice as much.
#[test]
fn segments_are_emptied_where_nearly_all_would_be_copied() {
    let dead = segment(&(0..16).map(|at| at * 32..at * 32 + 16).collect::<Vec<_>>());
    let seeks = DeviceTimes::new(&[(1, 100_100), (512, 151_200)], &[(1, 100), (512, 51_200)], 0);
    assert_eq!(SlackPlan::best(&dead, &seeks, 1).copied(), 15 * 16);
    assert!(are_better_emptied(&[dead; 3], FlashPage::BLOCK, &seeks));
    let flat = DeviceTimes::new(&[(1, 100), (512, 51_200)], &[(1, 100), (512, 51_200)], 0);
    assert!(!are_better_emptied(&[dead; 3], FlashPage::BLOCK, &flat));
    // Where one of two is better filled, that counts with what it takes.
    let single = segment(&[100..102]);
    assert_eq!(SlackPlan::best(&single, &seeks, 1).time, 100_200);
    assert!(!are_better_emptied(&[single; 2], FlashPage::BLOCK, &seeks));
}
