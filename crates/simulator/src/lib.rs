//! Volume simulator: placement and cleaning decisions alone, driven by a stream of block writes.
