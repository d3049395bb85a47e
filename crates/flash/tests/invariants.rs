//! Whatever the host does, no layer loses a page or uses NAND as NAND cannot be used.

mod support;

use basalt_flash::ftl::{Fast, FastOptions, FtlError, Geometry, PageLevel, PageLevelOptions, TranslationLayer};
use basalt_random::Rng;
use proptest::prelude::*;
use support::{Nand, geometry};

/// A layer that can be asked what the flash under it holds.
trait Checked: TranslationLayer {
    fn nand(&self) -> &Nand;
}

impl Checked for PageLevel<Nand> {
    fn nand(&self) -> &Nand {
        self.observer()
    }
}

impl Checked for Fast<Nand> {
    fn nand(&self) -> &Nand {
        self.observer()
    }
}

/// Every layer and option there is, on this geometry.
fn layers(geometry: Geometry) -> Vec<Box<dyn Checked>> {
    let page_level = |separate_copies| {
        PageLevel::observed(geometry, PageLevelOptions { separate_copies }, Nand::new(&geometry)).unwrap()
    };
    let fast =
        |random_log_blocks| Fast::observed(geometry, FastOptions { random_log_blocks }, Nand::new(&geometry)).unwrap();
    vec![Box::new(page_level(true)), Box::new(page_level(false)), Box::new(fast(None)), Box::new(fast(Some(1)))]
}

/// What the host remembers: how often it wrote each page, and whether it still wants it.
struct Host {
    versions: Vec<u64>,
    wanted: Vec<bool>,
    written: u64,
    trimmed: u64,
}

impl Host {
    fn write(&mut self, layer: &mut dyn Checked, first: u64, count: u64) {
        layer.write(first, count).unwrap();
        self.written += count;
        for page in first..first + count {
            self.versions[page as usize] += 1;
            self.wanted[page as usize] = true;
        }
    }

    fn trim(&mut self, layer: &mut dyn Checked, first: u64, count: u64) {
        layer.trim(first, count).unwrap();
        for page in first..first + count {
            self.trimmed += u64::from(self.wanted[page as usize]);
            self.wanted[page as usize] = false;
        }
    }

    /// Every wanted page is where the layer says, in its newest version; no other page is anywhere.
    fn check(&self, layer: &dyn Checked) {
        for (page, (&version, &wanted)) in (0..).zip(self.versions.iter().zip(&self.wanted)) {
            let found = layer.location(page).map(|physical| layer.nand().at(physical));
            let expected = wanted.then_some(Some((page, version)));
            assert_eq!(found, expected, "page {page} on {}", layer.kind());
        }
        assert_eq!(layer.location(self.versions.len() as u64), None);
        let statistics = layer.statistics();
        assert_eq!(layer.erase_counts(), layer.nand().erases);
        assert_eq!(statistics.erases, layer.erase_counts().iter().map(|&count| u64::from(count)).sum::<u64>());
        assert_eq!(statistics.pages_written, self.written);
        assert_eq!(statistics.pages_trimmed, self.trimmed);
        assert_eq!(statistics.pages_programmed, self.written + statistics.pages_copied);
    }
}

/// A mixture of everything: small and large writes, whole blocks in order, hot pages, trims.
fn torture(layer: &mut dyn Checked, seed: u64, requests: u64) {
    let geometry = *layer.geometry();
    let (pages, block) = (geometry.logical_pages(), u64::from(geometry.pages_per_block()));
    let mut rng = Rng::new(seed);
    let mut host =
        Host { versions: vec![0; pages as usize], wanted: vec![false; pages as usize], written: 0, trimmed: 0 };
    for request in 0..requests {
        let first = rng.below(pages);
        let rest = pages - first;
        match rng.below(20) {
            0..8 => host.write(layer, first, 1),
            8..12 => host.write(layer, rng.size(pages - 1), 1),
            12..15 => {
                let start = first / block * block;
                host.write(layer, start, block.min(pages - start));
            }
            15..17 => host.write(layer, first, rng.between(1, rest)),
            17 => host.trim(layer, first, rng.size(rest)),
            18 => host.trim(layer, first / block * block, block.min(pages - first / block * block)),
            _ => layer.read(first, rest).unwrap(),
        }
        if request % 50 == 0 {
            host.check(layer);
        }
    }
    host.check(layer);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn no_page_is_lost(seed: u64, logical in 60_u64..700, pages_per_block in 2_u32..33, spare in 4_u64..12) {
        // The smallest over-provisioning that leaves this many spare blocks; logical ends within a block mostly.
        let blocks = logical.div_ceil(u64::from(pages_per_block));
        let wanted = ((blocks + spare) * u64::from(pages_per_block)) as f64;
        let geometry = geometry(logical, pages_per_block, (wanted / logical as f64 - 1.0) * 100.0 - 1e-9);
        for mut layer in layers(geometry) {
            torture(layer.as_mut(), seed, 1500);
        }
    }
}

#[test]
fn the_same_requests_give_the_same_flash() {
    let geometry = geometry(1000, 16, 20.0);
    for (mut one, mut other) in layers(geometry).into_iter().zip(layers(geometry)) {
        torture(one.as_mut(), 7, 3000);
        torture(other.as_mut(), 7, 3000);
        assert_eq!(one.statistics(), other.statistics());
        assert_eq!(one.erase_counts(), other.erase_counts());
        assert!((0..1000).all(|page| one.location(page) == other.location(page)));
    }
}

#[test]
fn requests_past_the_end_change_nothing() {
    for mut layer in layers(geometry(500, 8, 25.0)) {
        layer.write(0, 500).unwrap();
        let before = layer.statistics();
        for (first, count) in [(500, 1), (499, 2), (u64::MAX, 1), (1, u64::MAX)] {
            let error = FtlError::OutOfRange { operation: "write", first, count, pages: 500 };
            assert_eq!(layer.write(first, count), Err(error));
            assert!(layer.read(first, count).is_err() && layer.trim(first, count).is_err());
        }
        assert_eq!(layer.statistics(), before);
        layer.write(500, 0).unwrap();
    }
}

/// Going round the free blocks wears them evenly under a uniform load.
#[test]
fn wear_is_even_under_uniform_writes() {
    let mut rng = Rng::new(3);
    for mut layer in layers(geometry(4096, 32, 15.0)) {
        for _ in 0..20 * 4096 {
            layer.write(rng.below(4096), 1).unwrap();
        }
        let wear = layer.wear();
        assert!(wear.mean > 15.0, "{wear:?}");
        assert!(wear.standard_deviation < 0.35 * wear.mean, "{}: {wear:?}", layer.kind());
    }
}
