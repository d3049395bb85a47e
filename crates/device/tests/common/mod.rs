//! Helpers of the device tests; not every test file uses all of them.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use basalt_device::{BlockDevice, DeviceError};

/// A loop device; detached when dropped.
pub struct LoopDevice {
    pub path: PathBuf,
}

impl LoopDevice {
    /// Attaches `image`. Says so and returns None where there are no loop devices to be had (no root, a container).
    pub fn attach(image: &Path, sector_size: u32) -> Option<LoopDevice> {
        Self::attach_with(image, &["--sector-size", &sector_size.to_string()])
    }

    /// Attaches `image` with options of losetup(8).
    pub fn attach_with(image: &Path, options: &[&str]) -> Option<LoopDevice> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).args(options).arg(image);
        match losetup.output() {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).expect("losetup prints a path in /dev");
                Some(LoopDevice { path: path.trim().into() })
            }
            Ok(output) => skipped(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => skipped(&format!("losetup: {error}")),
        }
    }
}

fn skipped(why: &str) -> Option<LoopDevice> {
    println!("skipped: no loop device: {}", why.trim());
    None
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("--detach").arg(&self.path).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot detach {}", self.path.display());
    }
}

/// The message of a result that must be an error of opening or locking.
pub fn refusal<T>(result: Result<T, DeviceError>) -> String {
    match result {
        Ok(_) => panic!("was not refused"),
        Err(error @ (DeviceError::Open { .. } | DeviceError::InUse { .. })) => error.to_string(),
        Err(error) => panic!("neither an open error nor one of use: {error}"),
    }
}

/// Random requests of all alignments against a plain vector: reads, writes, vectored writes.
pub fn exercise(device: &dyn BlockDevice, rounds: u64) {
    let size = device.size();
    let mut model = vec![0_u8; usize::try_from(size).expect("a small test device")];
    device.read_at(0, &mut model).expect("reading the initial content");
    let mut random = Random(size);
    let mut buffer = vec![0_u8; model.len() + 64];
    for round in 0..rounds {
        let alignment = [1, 1, 512, 4096][random.below(4)];
        let offset = random.below(model.len()) / alignment * alignment;
        let longest = (model.len() - offset).min([100, 5_000, 70_000, 3 << 20][random.below(4)]);
        let length = random.below(longest + 1) / alignment * alignment;
        // Sometimes aligned memory, sometimes not.
        let shift = buffer.as_ptr().align_offset(4096).min(64) * random.below(2) + random.below(2);
        let start = shift.min(64);
        let bytes = &mut buffer[start..start + length];
        if round % 2 == 0 {
            device.read_at(offset as u64, bytes).expect("reading within the device");
            assert!(*bytes == model[offset..offset + length], "round {round}: {length} bytes at {offset}");
        } else {
            bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
            let cut = random.below(length + 1) / alignment * alignment;
            let (front, back) = bytes.split_at(cut);
            device.write_vectored_at(offset as u64, &[front, &[], back]).expect("writing within the device");
            model[offset..offset + length].copy_from_slice(bytes);
        }
    }
    let mut content = vec![0; model.len()];
    device.flush().expect("flushing");
    device.read_at(0, &mut content).expect("reading everything");
    assert!(content == model);
}

/// A small linear congruential generator.
pub struct Random(pub u64);

impl Random {
    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}
