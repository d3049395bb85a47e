//! Volumes that are opened again and again: what a placement has learned is kept with them.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, Statistics, SystemClock};
use basalt_random::Rng;
use basalt_segments::cleaning::KeepFree;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

const BLOCK: u64 = 4096;
/// Blocks in front of segment 0 where Basalt keeps what is its own, of a volume without a journal.
const OWN: std::ops::Range<u64> = 17..512;

struct Machine {
    device: Arc<MemoryDevice>,
    placement: &'static str,
    rng: Rng,
    blocks: u64,
}

impl Machine {
    fn new(placement: &'static str) -> Machine {
        let device = Arc::new(MemoryDevice::new(256 << 20, 512));
        format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {})
            .unwrap();
        Machine { device, placement, rng: Rng::new(11), blocks: 0 }
    }

    fn open(&self) -> F2fs {
        let placement = basalt_schemes::placement_by_name(self.placement).unwrap();
        let options = OpenOptions {
            placement,
            victim: placement.victim.unwrap(),
            keep_free: KeepFree::Adaptive,
            cache_bytes: 8 << 20,
            ..OpenOptions::default()
        };
        F2fs::open(self.device.clone(), options, Arc::new(SystemClock)).unwrap()
    }

    fn file(fs: &F2fs) -> InodeNumber {
        fs.lookup(fs.root(), b"file").unwrap().ino
    }

    fn fill(&mut self) {
        let fs = self.open();
        let new = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(fs.root(), b"file", &new, &Caller::default()).unwrap().ino;
        self.blocks = fs.stat_fs().unwrap().available * 92 / 100;
        (0..self.blocks).for_each(|block| _ = fs.write(ino, block * BLOCK, &[1; 4096], false).unwrap());
        fs.close().unwrap();
    }

    /// Nine of ten writes go to a tenth of the blocks, which lie all over the file.
    fn session(&mut self, writes: u64) -> Statistics {
        let fs = self.open();
        let ino = Machine::file(&fs);
        for step in 0..writes {
            let at = self.rng.below(self.blocks / 10) * 10;
            let block = if self.rng.below(10) > 0 { at } else { (at + 1 + self.rng.below(9)).min(self.blocks - 1) };
            fs.write(ino, block * BLOCK, &[2; 4096], false).unwrap();
            if step % 256 == 0 {
                fs.sync_file(ino, true).unwrap();
            }
        }
        fs.close().unwrap();
        fs.statistics()
    }

    fn forget(&self) {
        self.device.write_at(OWN.start * BLOCK, &vec![0; ((OWN.end - OWN.start) * BLOCK) as usize]).unwrap();
    }
}

/// Sessions of 40 MB, as on a card that is put in, written to and taken out. Twelve of them, of which the last six count: by then
/// what lies on the volume was placed by what was known in such sessions.
#[test]
fn a_volume_that_is_opened_anew_goes_on_with_what_was_learned() {
    for placement in ["auto", "hazard", "sfs", "sfs-log"] {
        let copied = [false, true].map(|forgets| {
            let mut machine = Machine::new(placement);
            machine.fill();
            machine.session(600_000);
            let mut sessions = (0..12).map(|_| {
                if forgets {
                    machine.forget();
                }
                let statistics = machine.session(10_000);
                let recalled = statistics.hotness.segments_recalled;
                assert_eq!(recalled == 0, forgets, "{recalled} segments recalled");
                assert!(statistics.hotness.blocks * 100 < statistics.written.blocks(), "{statistics:?}");
                statistics.written.blocks_moved
            });
            sessions.by_ref().take(6).for_each(drop);
            sessions.sum::<u64>()
        });
        println!("{placement}: {} blocks copied, without records {}", copied[0], copied[1]);
        assert!(copied[0] * 4 < copied[1] * 3, "{placement}: {copied:?}");
    }
}
