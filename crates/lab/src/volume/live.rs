//! How full sections are at the end of a run, as figures of the SFS paper have it.

use basalt_segments::{Section, Segment, SegmentState};
use basalt_simulator::Volume;

/// Metrics of [`live_tenths`], and what they are.
pub const LIVE_TENTHS: [(&str, &str); 10] = [
    ("live_to_10", "sections of the set that are live to 10 %"),
    ("live_to_20", "sections of the set that are live to 10 to 20 %"),
    ("live_to_30", "sections of the set that are live to 20 to 30 %"),
    ("live_to_40", "sections of the set that are live to 30 to 40 %"),
    ("live_to_50", "sections of the set that are live to 40 to 50 %"),
    ("live_to_60", "sections of the set that are live to 50 to 60 %"),
    ("live_to_70", "sections of the set that are live to 60 to 70 %"),
    ("live_to_80", "sections of the set that are live to 70 to 80 %"),
    ("live_to_90", "sections of the set that are live to 80 to 90 %"),
    ("live_to_100", "sections of the set that are live to 90 to 100 %"),
];

/// How many sections are not all of blocks from `set` on, and the share of them by how many of their blocks are live: up to a tenth, up to
/// two tenths, …. Not those that are written to, and not those without live blocks, which the next checkpoint frees.
#[must_use]
pub fn live_tenths(volume: &Volume, set: u32) -> (u64, [f64; 10]) {
    let table = volume.table();
    let (blocks, segments) = (table.section_blocks(), table.segments_per_section());
    let mut counts = [0u64; 10];
    for section in Section::all(table.sections()) {
        let segments = (0..segments).map(|next| Segment::new(section.get() * table.segments_per_section() + next));
        if segments.clone().any(|segment| table.state(segment) == SegmentState::Active) {
            continue;
        }
        let (mut live, mut others) = (0u32, 0u32);
        for block in segments.flat_map(|segment| volume.blocks_in(segment)) {
            live += 1;
            others += u32::from(block >= set);
        }
        if live > 0 && others < blocks {
            // From 1 to 10: no section has more live blocks than blocks.
            let tenth = (u64::from(live) * 10).div_ceil(u64::from(blocks));
            counts[tenth as usize - 1] += 1;
        }
    }
    let all = counts.iter().sum::<u64>();
    (all, counts.map(|count| count as f64 / all.max(1) as f64))
}
