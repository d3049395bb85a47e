//! Volumes in memory, and clocks for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Clock, F2fs, OpenOptions};
use basalt_vfs::{FileSystem, Time};
use basalt_workloads::{Event, Files, Observer, Phase, VfsFiles};

/// The size of the volumes.
pub const SIZE: u64 = 256 << 20;

/// Nanoseconds that operations have taken; the engine's clock.
#[derive(Default)]
struct Virtual(AtomicU64);

impl Clock for Virtual {
    fn now(&self) -> Time {
        let now = self.0.load(Ordering::Relaxed);
        Time { seconds: 1_700_000_000 + (now / 1_000_000_000) as i64, nanoseconds: (now % 1_000_000_000) as u32 }
    }
}

/// A volume in memory.
pub struct Volume {
    device: Arc<MemoryDevice>,
    pub engine: Arc<F2fs>,
}

impl Volume {
    pub fn new() -> Volume {
        Volume::of_size(SIZE)
    }

    pub fn of_size(size: u64) -> Volume {
        Volume::with(size, FormatOptions::default().journal_bytes, OpenOptions::default())
    }

    pub fn with(size: u64, journal_bytes: u64, options: OpenOptions) -> Volume {
        let device = Arc::new(MemoryDevice::new(size, 512));
        let plain =
            FormatOptions { discard_reads_zeros: true, uuid: Some([7; 16]), journal_bytes, ..FormatOptions::default() };
        format(&*device, &plain, &mut |_, _| {}).unwrap();
        let engine = F2fs::open(device.clone(), options, Arc::new(Virtual::default())).unwrap();
        Volume { device, engine: Arc::new(engine) }
    }

    /// Closes the volume; the check must find nothing.
    pub fn close_and_check(&self, name: &str) {
        self.engine.close().unwrap();
        let report = check(&*self.device, &CheckOptions::default(), &mut |_| {}).unwrap();
        assert!(report.complete && report.faults.is_empty(), "{name}: {:?}", report.faults);
    }

    /// A hash of every byte of the device, the volume being closed.
    pub fn content_hash(&self) -> u64 {
        self.engine.close().unwrap();
        let mut hash = 0_u64;
        let (mut buffer, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        for offset in (0..self.device.size()).step_by(buffer.len()) {
            self.device.read_at(offset, &mut buffer).unwrap();
            if buffer == zeros {
                continue;
            }
            hash ^= offset;
            for word in buffer.chunks_exact(8) {
                let word = u64::from_le_bytes(word.try_into().unwrap());
                hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
            }
        }
        hash
    }
}

/// Every look at it takes 500 ns; the engine works in the background after each operation.
pub struct Ticking {
    engine: Arc<F2fs>,
    now: u64,
}

pub fn clock(engine: &Arc<F2fs>) -> Ticking {
    Ticking { engine: engine.clone(), now: 0 }
}

impl Observer for Ticking {
    fn now(&mut self) -> u64 {
        self.now += 500;
        self.now
    }

    fn operation(&mut self, event: &Event) -> basalt_workloads::Result<()> {
        assert!(event.end_ns > event.start_ns);
        if event.end_ns.is_multiple_of(1_000_000) {
            self.engine.tick(Time { seconds: 1_700_000_000 + (event.end_ns / 1_000_000) as i64, nanoseconds: 0 });
        }
        Ok(())
    }
}

/// Takes all the space as soon as the measured phase begins.
pub struct Filler {
    pub engine: Arc<F2fs>,
    pub filled: bool,
}

impl Observer for Filler {
    fn now(&mut self) -> u64 {
        0
    }

    fn phase_started(&mut self, phase: Phase) {
        if phase == Phase::Measure {
            let mut files = VfsFiles::new(self.engine.clone());
            let file = files.create("intruder").unwrap();
            let block = vec![1; 1 << 20];
            let mut offset = 0;
            while files.write(file, offset, &block).is_ok() {
                offset += block.len() as u64;
            }
            self.filled = true;
        }
    }
}
