//! A device that is recorded does all that it does otherwise.

#[path = "../../device/tests/probe/mod.rs"]
mod probe;

use basalt_device::{BlockDevice, FileDevice, OpenOptions};
use basalt_traces::{RecordOptions, Recorder, ZeroingDevice};

#[test]
fn a_recorder_hands_everything_on() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = |probe| Recorder::create(probe, directory.path().join("r"), RecordOptions::default()).unwrap();
    probe::expect_forwards(recorder, &[]);
}

#[test]
fn a_file_whose_discards_read_zeros_still_tells_where_its_data_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = FileDevice::create(directory.path().join("image"), 4 << 20).unwrap();
    file.write_at(2 << 20, &[7; 4096]).unwrap();
    drop(file);
    let open = || FileDevice::open(directory.path().join("image"), &OpenOptions::default());
    let expected = open().unwrap().next_data(0);
    let device = ZeroingDevice::new(open().unwrap());
    assert_eq!((device.next_data(0), device.size()), (expected, 4 << 20));
    assert_eq!(device.next_data(4 << 20), None);
}
