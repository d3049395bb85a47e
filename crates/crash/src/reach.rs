//! Which branches of the engine the opening of a volume goes through: cuts that reach new ones are followed by more like them.
//!
//! The compiler tells, where the engine was built with `scripts/rustc-with-reach` (LLVM's SanitizerCoverage, a call on every edge). Built
//! otherwise, nothing is told, and no choice depends on it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::steered::Kept;

/// Most edges that are told from each other; the rest share places.
const EDGES: usize = 1 << 18;

/// Edges that were numbered so far.
static NUMBERED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread is recording.
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
    /// How often this thread has met each edge since it began to record.
    static MET: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The way that an opening took: edges, rising, each with the class of how often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Way(Vec<(usize, u8)>);

/// The bit for so many times: once, twice, three times, then powers of two. A loop that turns once more is mostly nothing new.
fn class(times: u8) -> u8 {
    match times {
        0..=3 => (1 << times) >> 1,
        4..=7 => 1 << 3,
        8..=15 => 1 << 4,
        16..=31 => 1 << 5,
        32..=127 => 1 << 6,
        _ => 1 << 7,
    }
}

/// Does something, and says which way it took in this thread. Not within itself.
pub fn record<T>(work: impl FnOnce() -> T) -> (T, Way) {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            IS_RECORDING.set(false);
        }
    }
    MET.with_borrow_mut(|met| met.fill(0));
    IS_RECORDING.set(true);
    let stop = Stop;
    let done = work();
    drop(stop);
    let met = |(edge, &times): (usize, &u8)| (times > 0).then(|| (edge, class(times)));
    (done, Way(MET.with_borrow(|all| all.iter().enumerate().filter_map(met).collect())))
}

/// An edge is met.
pub(crate) fn meet(edge: u32) {
    if IS_RECORDING.get() {
        MET.with_borrow_mut(|met| {
            let edge = edge as usize % EDGES;
            if met.len() <= edge {
                met.resize(edge + 1, 0);
            }
            met[edge] = met[edge].saturating_add(1);
        });
    }
}

/// What a way has that no other had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    /// Nothing.
    Nothing,
    /// It meets a branch more often, or less often.
    Times,
    /// A branch that none has met.
    Branch,
}

/// What the openings of some runs have reached together.
#[derive(Debug)]
pub struct Reach {
    reached: Box<[AtomicU8]>,
    news: AtomicU64,
    /// Workloads that have reached something new.
    pub kept: Kept,
}

impl Reach {
    /// Nothing yet.
    pub fn new() -> Reach {
        let reached = (0..EDGES).map(|_| AtomicU8::new(0)).collect();
        Reach { reached, news: AtomicU64::new(0), kept: Kept::default() }
    }

    /// Adds a way; what of it was new.
    pub fn add(&self, way: &Way) -> News {
        let mut news = News::Nothing;
        for (edge, class) in &way.0 {
            let before = self.reached[*edge].fetch_or(*class, Ordering::Relaxed);
            news = news.max(match before {
                0 => News::Branch,
                before if before & class == 0 => News::Times,
                _ => News::Nothing,
            });
        }
        self.news.fetch_add(u64::from(news > News::Nothing), Ordering::Relaxed);
        news
    }

    /// Ways that had something new.
    pub fn news(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    /// Edges reached, however often.
    pub fn edges(&self) -> usize {
        self.reached.iter().filter(|seen| seen.load(Ordering::Relaxed) != 0).count()
    }

    /// Edges and classes of how often.
    pub fn classes(&self) -> u32 {
        self.reached.iter().map(|seen| seen.load(Ordering::Relaxed).count_ones()).sum()
    }
}

impl Default for Reach {
    fn default() -> Reach {
        Reach::new()
    }
}

/// Edges that the engine has: 0 where it was built without telling.
pub fn edges_in_all() -> u32 {
    NUMBERED.load(Ordering::Relaxed)
}

/// What the compiler's instrumentation calls. Source: Clang's documentation of SanitizerCoverage, "Tracing PCs with guards".
mod callbacks {
    #![allow(unsafe_code)]

    use std::sync::atomic::Ordering;

    /// Numbers the edges of a module from 1 on. It may be called more than once for one module.
    ///
    /// # Safety
    ///
    /// `start` to `stop` is an array of numbers that nobody else uses now.
    // SAFETY: the name is the one that the instrumentation asks for; nothing else in the program has it.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __sanitizer_cov_trace_pc_guard_init(start: *mut u32, stop: *mut u32) {
        let mut guard = start;
        while guard < stop {
            // SAFETY: within the array, by the contract; constructors of a program run one after the other.
            let guarded = unsafe { &mut *guard };
            if *guarded == 0 {
                *guarded = super::NUMBERED.fetch_add(1, Ordering::Relaxed) + 1;
            }
            guard = guard.wrapping_add(1);
        }
    }

    /// An edge is met.
    ///
    /// # Safety
    ///
    /// `guard` is one of the numbers of `__sanitizer_cov_trace_pc_guard_init`.
    // SAFETY: as above.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __sanitizer_cov_trace_pc_guard(guard: *const u32) {
        // SAFETY: a number that is never written again, by the contract.
        super::meet(unsafe { *guard });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_eight_classes() {
        let classes: Vec<u8> = (0..=255).map(class).collect();
        assert_eq!(classes[..5], [0, 1, 2, 4, 8]);
        assert!(classes.is_sorted(), "more often is never a lower class");
        let mut different = classes.clone();
        different.dedup();
        assert_eq!(different, [0, 1, 2, 4, 8, 16, 32, 64, 128]);
    }

    #[test]
    fn a_way_is_what_was_met_while_recording() {
        meet(3);
        let ((), way) = record(|| {
            meet(5);
            (0..3).for_each(|_| meet(7));
        });
        meet(9);
        assert_eq!(way, Way(vec![(5, 1), (7, 4)]));
        assert_eq!(record(|| meet(7)).1, Way(vec![(7, 1)]), "nothing is left of the way before");
    }

    #[test]
    fn a_way_ends_where_a_panic_does() {
        let panicked = std::panic::catch_unwind(|| record(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert!(!IS_RECORDING.get());
    }

    #[test]
    fn news_are_new_branches_before_other_times() {
        let reach = Reach::new();
        let add = |way: &[(usize, u8)]| reach.add(&Way(way.to_vec()));
        assert_eq!(add(&[(5, 1)]), News::Branch);
        assert_eq!(add(&[(5, 1)]), News::Nothing);
        assert_eq!(add(&[(5, 2)]), News::Times);
        assert_eq!(add(&[(5, 4), (6, 1)]), News::Branch);
        assert_eq!(add(&[]), News::Nothing);
        assert_eq!((reach.news(), reach.edges(), reach.classes()), (3, 2, 4));
    }
}
