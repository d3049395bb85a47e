//! Every request to a device in front of another reaches the one below.

mod probe;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use basalt_device::{BlockDevice, DeviceLayer, FaultyDevice, MemoryDevice, RecordingDevice, Result};
use probe::expect_forwards;

/// Changes nothing.
struct Bare<D>(D);

impl<D: BlockDevice> DeviceLayer for Bare<D> {
    type Below = D;
    fn below(&self) -> &D {
        &self.0
    }
}

#[test]
fn a_layer_hands_on_what_it_does_not_change() {
    expect_forwards(Bare, &[]);
    expect_forwards(|probe| Bare(Bare(probe)), &[]);
    expect_forwards(|probe| -> Arc<dyn BlockDevice> { probe }, &[]);
}

#[test]
fn faulty_and_recording_devices_hand_everything_on() {
    expect_forwards(FaultyDevice::new, &[]);
    expect_forwards(|probe| RecordingDevice::new(probe, true), &[]);
}

/// The front of a device, that counts writes.
struct Front {
    device: MemoryDevice,
    writes: AtomicU64,
}

impl DeviceLayer for Front {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.device
    }
    fn layer_size(&self) -> u64 {
        8192
    }
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.writes.fetch_add(1, Relaxed);
        self.device.write_vectored_at(offset, slices)
    }
}

#[test]
fn a_layer_sees_every_write_in_one_method_and_has_no_data_behind_its_end() {
    let front = Front { device: MemoryDevice::new(16384, 512), writes: AtomicU64::new(0) };
    let device: &dyn BlockDevice = &front;
    device.write_at(0, &[1; 512]).unwrap();
    device.write_vectored_at(512, &[&[2; 512], &[3; 512]]).unwrap();
    assert_eq!(front.writes.load(Relaxed), 2);
    assert_eq!((front.device.counters().writes, device.size()), (2, 8192));
    assert_eq!(front.device.next_data(8192), Some(8192));
    assert_eq!((device.next_data(8191), device.next_data(8192)), (Some(8191), None));
}
