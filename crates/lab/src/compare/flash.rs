//! The requests of one run on the simulated device, which was written before.
//!
//! A device whose pages were never written has as much room as garbage collection can wish for: nothing is copied and hardly anything
//! erased until all of it has been used once. So the translation layers are filled before the first request, as `lab trace --fill` does it.
//! A discard undoes the fill of its pages. After mkfs has discarded the whole device, only the erases of its blocks are left of the fill.

use std::sync::Arc;

use basalt_flash::{DeviceModel, TranslationKind};

use super::recorded::Marked;
use crate::replay::{Outcome, Replay};

/// Sends all requests to a device of `size_bytes` whose first `fill_percent` were written once before, and counts from the measured
/// phase on.
///
/// # Errors
/// When the flash cannot be of that size, the recording cannot be read, or a request is behind the end of the device; in one line.
pub(super) fn replay(
    device: &Arc<DeviceModel>,
    size_bytes: u64,
    fill_percent: u8,
    requests: impl Iterator<Item = basalt_uml::Result<Marked>>,
) -> Result<Outcome, String> {
    let replay = Replay::new(Arc::clone(device), size_bytes, &TranslationKind::ALL);
    let mut replay = replay.map_err(|error| error.to_string())?;
    replay.fill(f64::from(fill_percent) / 100.0);
    let mut measuring = false;
    for marked in requests {
        let Marked { request, measured } = marked.map_err(|error| error.to_string())?;
        if measured && !measuring {
            replay.begin_measuring();
            measuring = true;
        }
        replay.request(&request).map_err(|error| error.to_string())?;
    }
    if !measuring {
        replay.begin_measuring();
    }
    Ok(replay.outcome())
}

#[cfg(test)]
mod tests {
    use basalt_device::RequestKind;
    use basalt_random::Rng;
    use basalt_traces::TraceRequest;

    use super::*;
    use crate::replay::LayerOutcome;

    const SIZE: u64 = 64 << 20;
    const PAGE: u64 = 4096;
    const PAGES: u64 = SIZE / PAGE;
    /// Erase blocks that hold all logical pages.
    const BLOCKS: u64 = SIZE / (512 << 10);

    fn device() -> Arc<DeviceModel> {
        Arc::new(basalt_flash::preset("ssd-m").unwrap())
    }

    fn marked(kind: RequestKind, offset: u64, length: u64, measured: bool) -> Marked {
        Marked { request: TraceRequest { time_ns: 0, kind, offset, length }, measured }
    }

    /// The device from its beginning to its end, `times`.
    fn in_order(times: u64, measured: bool) -> impl Iterator<Item = Marked> {
        (0..times * BLOCKS).map(move |at| marked(RequestKind::Write, at % BLOCKS * (512 << 10), 512 << 10, measured))
    }

    /// Pages of the first `share`-th of the device at random, `times` as many as it has.
    fn at_random(times: u64, share: u64, seed: u64, measured: bool) -> impl Iterator<Item = Marked> {
        let mut rng = Rng::new(seed);
        let pages = PAGES / share;
        (0..times * pages).map(move |_| marked(RequestKind::Write, rng.below(pages) * PAGE, PAGE, measured))
    }

    fn run(fill_percent: u8, requests: impl Iterator<Item = Marked>) -> Outcome {
        replay(&device(), SIZE, fill_percent, requests.map(Ok)).unwrap()
    }

    fn layers(outcome: &Outcome) -> [&LayerOutcome; 2] {
        let [page_level, fast] = outcome.layers.as_slice() else { panic!("{outcome:?}") };
        [page_level, fast]
    }

    /// WA of uniform writes under greedy collection with this share of the physical space spare, in the mean field: alpha / (alpha + w)
    /// with w exp(w) = -alpha exp(-alpha), alpha = 1 / (1 - spare), as `crates/flash/tests/write_amplification.rs` has it.
    fn mean_field(spare: f64) -> f64 {
        let alpha = 1.0 / (1.0 - spare);
        let product = -alpha * (-alpha).exp();
        let w = (0..1000).fold(0.0_f64, |w, _| product * (-w).exp());
        alpha / (alpha + w)
    }

    #[test]
    fn uniform_writes_to_a_filled_device_cost_what_theory_says() {
        let outcome = run(100, at_random(4, 1, 1, false).chain(at_random(4, 1, 2, true)));
        let [page_level, fast] = layers(&outcome);
        // Three blocks at most are open or kept for collection, and are no room that garbage can lie in.
        let spare = |blocks: f64| (blocks - BLOCKS as f64) / blocks;
        let blocks = page_level.blocks as f64;
        let (low, high) = (mean_field(spare(blocks)), mean_field(spare(blocks - 3.0)));
        assert!((low * 0.96..high).contains(&page_level.wa), "{} is not within {low} and {high}", page_level.wa);
        // Each block that is programmed full was erased before.
        let expected = page_level.wa * 4.0 * BLOCKS as f64 / blocks;
        assert!((page_level.wear.mean / expected - 1.0).abs() < 0.02, "{} for {expected}", page_level.wear.mean);
        assert!(fast.wa > page_level.wa && fast.wear.mean > page_level.wear.mean, "{fast:?}");
    }

    #[test]
    fn every_block_of_a_filled_device_is_erased_for_what_is_written_in_order() {
        let [filled, fresh] = [100, 0].map(|fill| run(fill, in_order(2, true)));
        for layer in layers(&filled) {
            assert_eq!((layer.wa, layer.statistics.pages_copied), (1.0, 0), "{layer:?}");
            let spare = layer.blocks - BLOCKS;
            // The first blocks go to what is spare, but for those that are open.
            assert!((2 * BLOCKS - spare..=2 * BLOCKS).contains(&layer.statistics.erases), "{layer:?}");
        }
        for (filled, fresh) in layers(&filled).into_iter().zip(layers(&fresh)) {
            assert_eq!(filled.statistics.erases - fresh.statistics.erases, BLOCKS, "{filled:?} {fresh:?}");
        }
    }

    #[test]
    fn without_a_fill_the_device_is_the_fresh_one() {
        // A sixteenth of the device, overwritten: the spare blocks of a fresh one and those that nobody used hold all of it.
        let requests = || at_random(2, 16, 3, false).chain(at_random(8, 16, 4, true));
        let mut by_hand = Replay::new(device(), SIZE, &TranslationKind::ALL).unwrap();
        for (index, Marked { request, measured }) in requests().enumerate() {
            if measured && index as u64 == 2 * (PAGES / 16) {
                by_hand.begin_measuring();
            }
            by_hand.request(&request).unwrap();
        }
        let fresh = run(0, requests());
        assert_eq!(fresh, by_hand.outcome());
        let [page_level, _] = layers(&fresh);
        assert_eq!((page_level.wa, page_level.statistics.erases), (1.0, 0));
        let filled = run(100, requests());
        let [page_level, fast] = layers(&filled);
        assert!(page_level.wa > 1.0 && page_level.statistics.erases > 0, "{page_level:?}");
        assert!(fast.wa > 1.0 && fast.statistics.erases > 0, "{fast:?}");
        // What the file system asked for is the same, and so is the model's time.
        assert_eq!((fresh.requests, fresh.device_ns), (filled.requests, filled.device_ns));
    }

    #[test]
    fn a_discard_of_the_whole_device_undoes_the_fill_but_for_the_erases() {
        let requests = || at_random(1, 16, 5, true);
        let discarded = run(100, std::iter::once(marked(RequestKind::Discard, 0, SIZE, false)).chain(requests()));
        let [page_level, _] = layers(&discarded);
        assert_eq!((page_level.wa, page_level.statistics.pages_copied), (1.0, 0));
        assert_eq!(discarded.requests, run(0, requests()).requests);
    }
}
