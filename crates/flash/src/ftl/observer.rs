//! What a translation layer does to the flash, step by step.

/// Why a page is programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programmed {
    /// The host wrote it.
    ByHost,
    /// Moved here from the physical page named.
    CopyOf(u64),
}

/// Sees every program and erase in order, for checks and for timing. `()` sees nothing and costs nothing.
pub trait FlashObserver: Send {
    /// Physical page `physical` is programmed with logical page `logical`.
    fn program(&mut self, physical: u64, logical: u64, why: Programmed) {
        let _ = (physical, logical, why);
    }

    /// Physical block `block` is erased.
    fn erase(&mut self, block: u64) {
        let _ = block;
    }
}

impl FlashObserver for () {}
