//! What schemes really take of memory, where it has a limit.

use basalt_segments::placement::PlacementOptions;
use basalt_segments::{BlockTraits, MainBlock};

/// Bytes of this process in memory.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Four million blocks of small files are written once: a process grows by no more than the limit, and a little.
#[test]
fn a_limit_of_memory_is_one() {
    const LIMIT: usize = 32 << 20;
    for scheme in basalt_schemes::PLACEMENTS {
        let placement = scheme.make(&PlacementOptions::default()).unwrap();
        let before = resident();
        placement.limit_memory(LIMIT);
        for at in 0..4 << 20 {
            let block = BlockTraits { file: at / 64, index: at % 64, ..BlockTraits::default() };
            placement.log(&block);
            placement.note_written(&block, MainBlock::new(at));
        }
        let grown = resident().saturating_sub(before);
        println!("{}: {:.1} MiB", scheme.name, grown as f64 / f64::from(1 << 20));
        assert!(grown < LIMIT * 5 / 4 + (4 << 20), "{}: {grown} bytes", scheme.name);
        assert!(grown > LIMIT / 2, "{}: {grown} bytes", scheme.name);
        // What one has had is not given to the next.
        std::mem::forget(placement);
    }
}
