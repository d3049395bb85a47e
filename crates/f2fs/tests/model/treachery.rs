//! A device that fails as badly as devices do.

use std::sync::Arc;

use basalt_device::block::Result;
use basalt_device::{BlockDevice, DeviceLayer, FaultyDevice, MemoryDevice};
use parking_lot::Mutex;

/// Bytes compared at once when the cache is lost.
const PIECE: usize = 1 << 20;

/// Requests fail as told. If it is cruel, half of a failed write is there all the same; and a failed flush loses everything written
/// since the last one that succeeded, while the flushes after it succeed again, as Linux's page cache had it for long.
pub struct Treacherous {
    faulty: FaultyDevice<Arc<MemoryDevice>>,
    cruel: bool,
    /// As the last flush that succeeded left it.
    durable: Mutex<MemoryDevice>,
}

impl Treacherous {
    /// A wrapper of `memory`, all of it durable; no faults yet.
    pub fn new(memory: Arc<MemoryDevice>, cruel: bool) -> Treacherous {
        let durable = Mutex::new(memory.snapshot());
        Treacherous { faulty: FaultyDevice::new(memory), cruel, durable }
    }

    /// To arrange faults.
    pub fn faults(&self) -> &FaultyDevice<Arc<MemoryDevice>> {
        &self.faulty
    }

    fn write_slice(&self, offset: u64, slice: &[u8]) -> Result<()> {
        let result = self.faulty.write_at(offset, slice);
        if result.is_err() && self.cruel {
            let half = (slice.len() / 2) & !511;
            self.faulty.inner().write_at(offset, &slice[..half])?;
        }
        result
    }

    fn lose_cache(&self) -> Result<()> {
        let (memory, durable) = (self.faulty.inner(), self.durable.lock());
        let (mut now, mut then) = (vec![0; PIECE], vec![0; PIECE]);
        for offset in (0..memory.size()).step_by(PIECE) {
            memory.read_at(offset, &mut now)?;
            durable.read_at(offset, &mut then)?;
            if now != then {
                memory.write_at(offset, &then)?;
            }
        }
        Ok(())
    }
}

impl DeviceLayer for Treacherous {
    type Below = FaultyDevice<Arc<MemoryDevice>>;

    fn below(&self) -> &FaultyDevice<Arc<MemoryDevice>> {
        &self.faulty
    }

    fn on_flush(&self) -> Result<()> {
        let result = self.faulty.flush();
        match &result {
            Ok(()) => *self.durable.lock() = self.faulty.inner().snapshot(),
            Err(_) if self.cruel => self.lose_cache()?,
            Err(_) => {}
        }
        result
    }

    /// Slice by slice: each is a request that may fail.
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let mut at = offset;
        for slice in slices {
            self.write_slice(at, slice)?;
            at += slice.len() as u64;
        }
        Ok(())
    }
}
