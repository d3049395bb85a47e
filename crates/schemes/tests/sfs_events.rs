//! SFS and events of all sorts, in the order of the engine and in any other.

use basalt_schemes::{CostHotness, Scale, Sfs};
use basalt_segments::{
    BlockTraits, LogId, MainBlock, Placement, Reason, Section, SectionView, SegmentKind, VictimPolicy,
};

/// A section that was there when the volume was opened, 10 % live, untouched for a day; and one that was written an hour ago, 90 % live.
#[test]
fn old_sections_that_were_there_before_are_cleaned_before_fuller_ones() {
    let sfs = Sfs::new(4, Scale::Paper);
    // An hour of 10 MB/s.
    for at in 0..3600 * 2500_u32 {
        let place = if at < 460 { at } else { 512 * (10 + (at / 512) % 1000) + at % 512 };
        if at >= 512 * 1000 {
            sfs.note_dead(MainBlock::new(place));
        }
        sfs.note_written(
            &BlockTraits { file: at / 100, index: at % 100, ..BlockTraits::default() },
            MainBlock::new(place),
        );
    }
    let day = 86_400;
    let view = |section, live, modified| SectionView {
        section: Section::new(section),
        live,
        capacity: 512,
        modified,
        rate: None,
    };
    let cost = |view: SectionView| CostHotness.cost(&SectionView { rate: sfs.rate(&view), ..view }, day, 0, day);
    let (known, unknown) = (view(0, 460, day - 3600), view(5000, 51, 0));
    assert!(cost(unknown) < cost(known), "the colder one with a tenth of the work waits behind one that is 90 % full");
}

/// Steps as the engine makes them, and such as it does not: nothing panics.
#[test]
fn random_events_do_not_panic() {
    let mut seed = 1_u64;
    let mut below = |most: u32| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) as u32) % most
    };
    for scale in [Scale::Paper, Scale::Logarithmic, Scale::Linear] {
        for groups in 1..=8 {
            for limit in [0, 1, 5000, 40_000, usize::MAX] {
                let sfs = Sfs::new(groups, scale);
                sfs.limit_memory(limit);
                for _ in 0..40_000 {
                    let place = MainBlock::new(below(30) * 512 + below(512) % 40);
                    let block = BlockTraits {
                        file: below(50),
                        index: below(10),
                        node: below(10) == 0,
                        of_directory: below(10) == 0,
                        reason: [Reason::Writeback, Reason::Cleaning, Reason::Fsync][below(3) as usize],
                        from: (below(3) > 0).then(|| MainBlock::new(below(35) * 512 + below(512) % 40)),
                        ..BlockTraits::default()
                    };
                    match below(20) {
                        0 => sfs.note_free(place.segment()),
                        1 => sfs.note_sealed(LogId::of(SegmentKind::ALL[below(6) as usize]), place.segment()),
                        2..8 => sfs.note_dead(place),
                        8 => {
                            let size = 1 + below(3);
                            let view = SectionView {
                                section: Section::new(below(40)),
                                live: 1,
                                capacity: 512 * size,
                                modified: 0,
                                rate: None,
                            };
                            assert!(sfs.rate(&view).is_none_or(|rate| rate.is_finite() && rate > 0.0));
                        }
                        9..13 => _ = sfs.log(&block),
                        _ => sfs.note_written(&block, place),
                    }
                }
            }
        }
    }
}
