//! The streams of block numbers, through the door that the volume simulator uses.

use basalt_workloads::Stream;

/// Blocks in order of how often they were written, with their counts.
fn counts(text: &str, blocks: u32, draws: usize) -> Vec<u32> {
    let stream = Stream::parse(text, blocks, 9).unwrap();
    let mut counts = vec![0_u32; blocks as usize];
    for block in stream.take(draws) {
        counts[block as usize] += 1;
    }
    counts
}

fn share_of_hottest(counts: &[u32], percent: f64) -> f64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|one, other| other.cmp(one));
    let hottest = (counts.len() as f64 * percent / 100.0).round() as usize;
    let sum: u32 = sorted.iter().sum();
    f64::from(sorted[..hottest].iter().sum::<u32>()) * 100.0 / f64::from(sum)
}

#[test]
fn shares_of_writes_are_as_named() {
    let blocks = 10_000;
    let draws = 2_000_000;
    // Σ k^-0.99 over 100 and over 10,000 ranks.
    let zipf = |ranks: u32| (1..=ranks).map(|rank| f64::from(rank).powf(-0.99)).sum::<f64>();
    let expected = zipf(100) * 100.0 / zipf(10_000);
    let share = share_of_hottest(&counts("zipf:0.99", blocks, draws), 1.0);
    assert!((share - expected).abs() < 0.5, "{share:.2} % on the hottest percent, expected {expected:.2}");
    let share = share_of_hottest(&counts("hotcold:90/10", blocks, draws), 10.0);
    assert!((share - 90.0).abs() < 0.2, "{share:.2}");
    let share = share_of_hottest(&counts("tpcc", blocks, draws), 1.6);
    assert!((share - 29.0).abs() < 0.8, "{share:.2}");
    // Counts of a uniform stream differ by what chance allows: 200 on average, deviation 14.
    let uniform = counts("uniform", blocks, draws);
    assert!(uniform.iter().all(|count| (120..=280).contains(count)));
    // χ² over 10,000 blocks has a deviation of √20,000.
    let chi: f64 = uniform.iter().map(|count| (f64::from(*count) - 200.0).powi(2) / 200.0).sum();
    assert!((chi - 9999.0).abs() < 5.0 * 20_000_f64.sqrt(), "{chi}");
}

#[test]
fn sequential_streams_go_round_and_logs_lie_at_the_beginning() {
    let stream = Stream::parse("sequential", 3, 1).unwrap();
    assert_eq!(stream.take(7).collect::<Vec<u32>>(), [0, 1, 2, 0, 1, 2, 0]);
    let stream = Stream::parse("tpcc:log=40", 800, 1).unwrap();
    assert_eq!(stream.name(), "tpcc:log=40");
    let written: Vec<u32> = stream.take(100_000).collect();
    let log: Vec<u32> = written.iter().copied().filter(|block| *block < 100).collect();
    assert!((39_000..41_000).contains(&log.len()), "{}", log.len());
    assert!(log.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 100));
    assert!(written.iter().all(|block| *block < 800));
}

#[test]
fn streams_repeat_by_their_seed_and_stay_within_bounds() {
    for text in ["sequential", "uniform", "zipf:0", "zipf:1", "zipf:2.5", "hotcold:80/20", "tpcc", "tpcc:log=100"] {
        for blocks in [1, 2, 3, 17, 1000] {
            let stream = |seed| Stream::parse(text, blocks, seed).unwrap().take(2000).collect::<Vec<u32>>();
            assert_eq!(stream(1), stream(1), "{text}");
            assert!(stream(1).iter().all(|block| *block < blocks), "{text} over {blocks}");
            if blocks == 1000 && text != "sequential" && text != "tpcc:log=100" {
                assert_ne!(stream(1), stream(2), "{text}");
            }
        }
    }
    // Names lead back to the same stream.
    for text in ["zipf:0.7", "hotcold:80/20", "tpcc:log=0", "uniform"] {
        assert_eq!(Stream::parse(text, 10, 1).unwrap().name(), text);
    }
    for text in
        ["", "zip", "zipf:-1", "zipf:nan", "hotcold:0/10", "hotcold:90", "tpcc:log=101", "uniform:1", "zipf:set=3"]
    {
        assert!(Stream::parse(text, 10, 1).is_err(), "{text}");
    }
    assert!(Stream::parse("uniform", 0, 1).is_err());
}
