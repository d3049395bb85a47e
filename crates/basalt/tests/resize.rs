//! `basalt resize`.

mod support;

use std::fs;

use basalt_testkit::loopdev::LoopDevice;
use basalt_testkit::skip;
use support::{Scratch, basalt};

/// A volume with a file of 20 MiB in it, which is returned.
fn with_content(size: &str) -> (Scratch, Vec<u8>) {
    let scratch = Scratch::with_volume(size);
    let content: Vec<u8> = (0..20 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 20) as u8).collect();
    fs::write(scratch.path("file"), &content).unwrap();
    basalt(["put", &scratch.text("image"), &scratch.text("file")]).ok();
    (scratch, content)
}

fn expect_content(scratch: &Scratch, content: &[u8]) {
    scratch.expect_clean();
    let found = basalt(["cat", &scratch.text("image"), "/file"]);
    assert!(found.0.status.success() && found.0.stdout == content);
}

#[test]
fn image_files_follow() {
    let (scratch, content) = with_content("256M");
    let image = scratch.text("image");
    let length = || fs::metadata(scratch.path("image")).unwrap().len();
    let planned = basalt(["resize", "--json", "-n", &image, "128M"]).json();
    assert_eq!((planned["after"]["bytes"].as_u64(), length()), (Some(128 << 20), 256 << 20), "a rehearsal changed it");
    let done = basalt(["resize", "--json", &image, "128M"]).json();
    assert_eq!(done["after"], planned["after"]);
    assert_eq!((done["device_bytes"].as_u64(), length()), (Some(128 << 20), 128 << 20));
    expect_content(&scratch, &content);
    let said = basalt(["resize", &image, "2G"]).ok();
    assert!(said.contains("resized from 128 MiB to 2 GiB"), "{said}");
    assert_eq!(length(), 2 << 30);
    expect_content(&scratch, &content);
    basalt(["resize", "-q", "--no-truncate", &image, "100M"]).ok();
    assert_eq!(length(), 2 << 30);
    expect_content(&scratch, &content);
    assert!(basalt(["resize", &image]).ok().contains("to 2 GiB"));
    assert!(basalt(["resize", &image]).ok().contains("nothing to do"));
    expect_content(&scratch, &content);
}

#[test]
fn as_small_as_it_goes() {
    let (scratch, content) = with_content("300M");
    let image = scratch.text("image");
    let least = basalt(["resize", "--json", "-M", "-n", &image]).json()["minimum_bytes"].as_u64().unwrap();
    assert!(basalt(["resize", "-M", "-n", &image]).ok().contains(&format!("minimum size {least} bytes")));
    let too_small = (least - (2 << 20)).to_string();
    basalt(["resize", &image, &too_small]).fails(1, &[&image, "does not fit", &least.to_string()]);
    basalt(["resize", "-q", "-M", &image]).ok();
    assert_eq!(fs::metadata(scratch.path("image")).unwrap().len(), least);
    expect_content(&scratch, &content);
}

#[test]
fn refuses_in_one_line() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    basalt(["resize", &image, "1X"]).fails(2, &["1X"]);
    basalt(["resize", &image, "-M", "64M"]).fails(2, &["--minimum"]);
    basalt(["resize", &scratch.text("nothing"), "64M"]).fails(1, &["no such file"]);
    basalt(["resize", &image, "10M"]).fails(1, &[&image, "does not fit"]);
    assert_eq!(fs::metadata(scratch.path("image")).unwrap().len(), 64 << 20);
    fs::write(scratch.path("text"), vec![b'x'; 1 << 20]).unwrap();
    basalt(["resize", &scratch.text("text"), "2M"]).fails(1, &["no F2FS volume"]);
    assert_eq!(fs::metadata(scratch.path("text")).unwrap().len(), 1 << 20);
}

#[test]
fn block_devices_keep_their_size() {
    if !skip::root_or_skip() || !skip::tools_or_skip(&["losetup"]) {
        return;
    }
    let (scratch, content) = with_content("200M");
    let image = scratch.path("image");
    {
        let device = LoopDevice::attach(&image).unwrap();
        let path = device.path().to_str().unwrap().to_owned();
        basalt(["resize", "-q", &path, "120M"]).ok();
        basalt(["resize", &path, "300M"]).fails(2, &[&path, "is a block device of 200 MiB"]);
        assert!(basalt(["resize", &path]).ok().contains("from 120 MiB to 200 MiB"));
    }
    assert_eq!(fs::metadata(&image).unwrap().len(), 200 << 20);
    expect_content(&scratch, &content);
}
