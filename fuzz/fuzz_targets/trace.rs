#![no_main]

#[path = "../src/trace.rs"]
mod trace;

libfuzzer_sys::fuzz_target!(|data: &[u8]| trace::trace(data));
