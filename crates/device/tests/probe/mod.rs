//! A device that tells which requests reach it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use basalt_device::{BlockDevice, MemoryDevice, Result};

const BLOCK: usize = 4096;
const SIZE: u64 = 64 * BLOCK as u64;

/// Remembers the names of the methods that were called, and gives answers that nothing else gives.
pub struct Probe {
    memory: MemoryDevice,
    called: Mutex<BTreeSet<&'static str>>,
}

impl Probe {
    fn new() -> Arc<Probe> {
        Arc::new(Probe { memory: MemoryDevice::new(SIZE, 4096), called: Mutex::default() })
    }

    fn note(&self, method: &'static str) {
        self.called.lock().unwrap().insert(method);
    }

    fn take(&self) -> BTreeSet<&'static str> {
        std::mem::take(&mut self.called.lock().unwrap())
    }
}

// Complete, so that a new method is called and expected here too.
#[warn(clippy::missing_trait_methods)]
impl BlockDevice for Probe {
    fn name(&self) -> &str {
        self.note("name");
        "probe"
    }
    fn size(&self) -> u64 {
        self.note("size");
        SIZE
    }
    fn sector_size(&self) -> u32 {
        self.note("sector_size");
        4096
    }
    fn is_read_only(&self) -> bool {
        self.note("is_read_only");
        true
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.note("read_at");
        self.memory.read_at(offset, buf)
    }
    fn prefetch(&self, _: u64, _: u64) {
        self.note("prefetch");
    }
    fn next_data(&self, offset: u64) -> Option<u64> {
        self.note("next_data");
        Some(offset + 7)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.note("write_at");
        self.memory.write_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        // Of one slice, it is the same request.
        self.note(if slices.len() == 1 { "write_at" } else { "write_vectored_at" });
        self.memory.write_vectored_at(offset, slices)
    }
    fn flush(&self) -> Result<()> {
        self.note("flush");
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        self.note("discard");
        Ok(())
    }
}

/// Names of the methods of [`BlockDevice`], as its source has them.
fn methods() -> BTreeSet<&'static str> {
    let source = include_str!("../../src/block.rs");
    let (_, body) = source.split_once("pub trait BlockDevice").unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    body.lines().filter_map(|line| line.strip_prefix("    fn ")?.split('(').next()).collect()
}

/// Fails unless all methods of a layer but those in `kept` reach the device below, and its answers come back.
pub fn expect_forwards<L: BlockDevice>(layer: impl FnOnce(Arc<Probe>) -> L, kept: &[&str]) {
    let probe = Probe::new();
    let layer = layer(probe.clone());
    let block = [1; BLOCK];
    let mut buf = [0; BLOCK];
    let mut reached = BTreeSet::new();
    let mut call = |method, request: &mut dyn FnMut()| {
        probe.take();
        request();
        if probe.take().contains(method) {
            reached.insert(method);
        }
    };
    call("name", &mut || assert_eq!(layer.name(), "probe"));
    call("size", &mut || assert_eq!(layer.size(), SIZE));
    call("sector_size", &mut || assert_eq!(layer.sector_size(), 4096));
    call("is_read_only", &mut || assert!(layer.is_read_only()));
    call("prefetch", &mut || layer.prefetch(0, 4096));
    call("next_data", &mut || assert_eq!(layer.next_data(8), Some(15)));
    call("write_at", &mut || layer.write_at(4096, &block).unwrap());
    call("read_at", &mut || layer.read_at(4096, &mut buf).unwrap());
    assert_eq!(buf, block);
    call("write_vectored_at", &mut || layer.write_vectored_at(8192, &[&block, &block]).unwrap());
    probe.memory.read_at(12288, &mut buf).unwrap();
    assert_eq!(buf, block);
    call("flush", &mut || layer.flush().unwrap());
    call("discard", &mut || layer.discard(0, 4096).unwrap());
    let lost: Vec<_> = methods().into_iter().filter(|method| !reached.contains(method)).collect();
    assert_eq!(lost, kept, "do not reach the device below");
}
