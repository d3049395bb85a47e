//! Runs a test for many seeds, on all processors, and says which seed failed.
//!
//! `BASALT_SEED=17` runs one seed; `BASALT_SEEDS=10` runs ten times as many as usual.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a run failed, in words for whoever repairs it.
pub type Failure = String;

/// The number in an environment variable, if it is set.
fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}

/// Runs `run` for the seeds 0 to `count`. Panics with the first failure, after `explain` has had its say on the seed.
pub fn campaign(
    name: &str,
    count: u64,
    run: impl Fn(u64) -> Result<(), Failure> + Sync,
    explain: impl Fn(u64) -> String + Sync,
) {
    let (first, end) = match number("BASALT_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (0, count * number("BASALT_SEEDS").unwrap_or(1)),
    };
    let next = AtomicU64::new(first);
    let failed: Mutex<Option<(u64, Failure)>> = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()).min((end - first) as usize);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    if let Err(failure) = caught(|| run(seed)) {
                        failed.lock().unwrap().get_or_insert((seed, failure));
                    }
                }
            });
        }
    });
    if let Some((seed, failure)) = failed.into_inner().unwrap() {
        panic!(
            "{name}: seed {seed}: {failure}\n{}\nAgain: BASALT_SEED={seed} cargo test -p basalt-f2fs --test model {name}",
            explain(seed)
        );
    }
}

/// Turns a panic into a failure: a panic of the engine is one.
pub fn caught(run: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// The shortest sequence found by leaving out pieces that still fails.
pub fn shrink<T: Clone>(sequence: &[T], fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    /// Runs that shrinking may take.
    const RUNS: u32 = 3000;
    let mut shortest = sequence.to_vec();
    let mut piece = shortest.len().div_ceil(2);
    let mut runs = 0;
    while piece > 0 && runs < RUNS {
        let mut at = 0;
        let mut shorter = false;
        while at < shortest.len() && runs < RUNS {
            let mut candidate = shortest.clone();
            candidate.drain(at..(at + piece).min(shortest.len()));
            runs += 1;
            if fails(&candidate) {
                shortest = candidate;
                shorter = true;
            } else {
                at += piece;
            }
        }
        if !shorter || piece > 1 {
            piece /= 2;
        }
    }
    shortest
}
