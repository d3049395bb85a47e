//! A volume full of files whose every block is known.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Blocks of each file.
const FILE_BLOCKS: u64 = 1024;

/// An open volume, its files, and how often each of their blocks was written.
pub struct Volume {
    /// The volume.
    pub fs: F2fs,
    device: Arc<dyn BlockDevice>,
    files: Vec<InodeNumber>,
    versions: Vec<u32>,
}

/// What block `at` holds when it was written for the `version`th time.
fn content(at: usize, version: u32) -> [u8; BLOCK as usize] {
    let mut block = [version as u8; BLOCK as usize];
    block[..8].copy_from_slice(&(at as u64).to_le_bytes());
    block[8..12].copy_from_slice(&version.to_le_bytes());
    block
}

impl Volume {
    /// Formats `mib` MiB of memory and writes files until `percent` of what users get is taken.
    pub fn filled(mib: u64, percent: u64, rng: &mut Rng) -> Volume {
        Volume::filled_on(Arc::new(MemoryDevice::new(mib << 20, 512)), OpenOptions::default(), percent, rng)
    }

    /// Formats a device and writes files until `percent` of what users get is taken.
    pub fn filled_on(device: Arc<dyn BlockDevice>, open: OpenOptions, percent: u64, rng: &mut Rng) -> Volume {
        let options = FormatOptions { discard_reads_zeros: true, uuid: Some([7; 16]), ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| {}).unwrap();
        let fs = F2fs::open(device.clone(), open, Arc::new(SystemClock)).unwrap();
        let mut volume = Volume { fs, device, files: Vec::new(), versions: Vec::new() };
        let users = volume.fs.stat_fs().unwrap().free;
        let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
        'full: loop {
            let name = format!("file {}", volume.files.len());
            let made = volume.fs.create(volume.fs.root(), name.as_bytes(), &node, &Caller::default()).unwrap();
            volume.files.push(made.ino);
            for block in 0..FILE_BLOCKS {
                if volume.fs.stat_fs().unwrap().free * 100 <= users * (100 - percent) {
                    break 'full;
                }
                let at = volume.versions.len();
                volume.fs.write(made.ino, block * BLOCK, &content(at, 0), false).unwrap();
                volume.versions.push(0);
            }
        }
        volume.fs.sync().unwrap();
        // Some of it a second time: the first round of overwriting would meet nothing but full segments.
        for _ in 0..volume.versions.len() / 4 {
            volume.overwrite(rng);
        }
        volume
    }

    /// Overwrites a random block.
    pub fn overwrite(&mut self, rng: &mut Rng) {
        let at = rng.index(self.versions.len());
        self.versions[at] += 1;
        let (ino, offset) = self.place(at);
        self.fs.write(ino, offset, &content(at, self.versions[at]), false).unwrap();
    }

    /// Reads a few random blocks and compares them.
    pub fn verify_some(&self, rng: &mut Rng) {
        (0..256).for_each(|_| self.verify_block(rng.index(self.versions.len())));
    }

    /// Reads and compares everything.
    pub fn verify(&self) {
        (0..self.versions.len()).for_each(|at| self.verify_block(at));
    }

    fn verify_block(&self, at: usize) {
        let (ino, offset) = self.place(at);
        let mut block = [0; BLOCK as usize];
        assert_eq!(self.fs.read(ino, offset, &mut block).unwrap(), block.len());
        assert!(block == content(at, self.versions[at]), "block {at} is not that of version {}", self.versions[at]);
    }

    fn place(&self, at: usize) -> (InodeNumber, u64) {
        (self.files[at / FILE_BLOCKS as usize], at as u64 % FILE_BLOCKS * BLOCK)
    }

    /// Closes the volume and returns its device.
    pub fn close(self) -> Arc<dyn BlockDevice> {
        self.fs.close().unwrap();
        self.device
    }
}

/// Has `fsck.f2fs` check a closed volume.
pub fn fsck(device: &dyn BlockDevice) {
    let scratch = basalt_testkit::scratch::directory().unwrap();
    let path = scratch.path().join("volume.img");
    let image = std::fs::File::create(&path).unwrap();
    image.set_len(device.size()).unwrap();
    let mut piece = vec![0; 1 << 20];
    for offset in (0..device.size()).step_by(piece.len()) {
        device.read_at(offset, &mut piece).unwrap();
        if piece.iter().any(|&byte| byte != 0) {
            image.write_all_at(&piece, offset).unwrap();
        }
    }
    basalt_testkit::images::fsck_f2fs(&path).unwrap().expect_clean();
}
