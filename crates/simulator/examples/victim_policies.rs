//! A victim policy of your own beside those of Basalt, under the same writes: which one copies least?
//!
//! `cargo run -p basalt-simulator --example victim_policies`

use basalt_random::Rng;
use basalt_segments::{CostBenefit, Greedy, SectionView, VictimPolicy};
use basalt_simulator::{Error, Options, Volume};

/// Cleans the section that was modified longest ago, however many of its blocks live: a circular log.
struct Oldest;

impl VictimPolicy for Oldest {
    fn name(&self) -> &'static str {
        "oldest"
    }

    fn about(&self) -> &'static str {
        "the section that was modified longest ago"
    }

    fn cost(&self, section: &SectionView, _now: u64, _oldest: u64, _youngest: u64) -> f64 {
        section.modified as f64
    }

    fn ranks_ages(&self) -> bool {
        false
    }
}

/// Blocks written for each block that the user writes, where nine writes of ten go to a tenth of the blocks.
fn write_amplification(policy: &'static dyn VictimPolicy) -> Result<f64, Error> {
    // 128 MiB, 80 % in use.
    let options = Options { policy, ..Options::of(128 << 20, 80)? };
    let blocks = u64::from(options.blocks);
    let mut volume = Volume::new(options)?;
    (0..blocks).try_for_each(|block| volume.write(block as u32))?;

    let mut rng = Rng::new(1);
    let mut overwrite = |volume: &mut Volume, times: u64| {
        (0..times * blocks).try_for_each(|_| {
            let hot = blocks / 10;
            let block = if rng.chance(90) { rng.below(hot) } else { hot + rng.below(blocks - hot) };
            volume.write(block as u32)
        })
    };
    // First until it no longer matters how the volume began.
    overwrite(&mut volume, 3)?;
    volume.take_statistics();
    overwrite(&mut volume, 3)?;
    Ok(volume.statistics().write_amplification())
}

fn compare() -> Result<Vec<(&'static str, f64)>, Error> {
    let policies: [&'static dyn VictimPolicy; 3] = [&Greedy, &CostBenefit, &Oldest];
    policies.into_iter().map(|policy| Ok((policy.name(), write_amplification(policy)?))).collect()
}

fn main() -> Result<(), Error> {
    for (name, amplification) in compare()? {
        println!("{name:<12} {amplification:.2} blocks written for each block of the user");
    }
    Ok(())
}

#[test]
fn runs() {
    let compared = compare().unwrap();
    // A circular log copies cold blocks again and again.
    assert!(compared[2].1 > compared[1].1, "{compared:?}");
}
