//! Makes a volume, writes to it, makes a file durable, and opens the volume again: in memory, and on an image file.
//!
//! `cargo run -p basalt-f2fs --example volume`

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::FileSystem;
use basalt_vfs::path::Files;

/// Bytes of the volumes: F2FS needs 52 MiB. Memory and image file are sparse, so they take less.
const SIZE: u64 = 64 << 20;

fn open(device: &Arc<dyn BlockDevice>) -> Result<F2fs, Box<dyn Error>> {
    Ok(F2fs::open(Arc::clone(device), OpenOptions::default(), Arc::new(SystemClock))?)
}

fn use_volume(device: Arc<dyn BlockDevice>) -> Result<(), Box<dyn Error>> {
    // mkfs. The closure is told how far it has come, for a progress bar.
    format(&*device, &FormatOptions::default(), &mut |_done, _total| ())?;

    let fs = open(&device)?;
    let files = Files::new(&fs);
    files.create_dir_all("/var/lib/app")?;
    let mut file = files.create("/var/lib/app/state")?;
    file.write_all(b"version 1\n")?;
    // fsync: from here on, power may fail. The volume is not closed, as if it had.
    file.sync_all()?;
    drop(file);
    drop(fs);

    // Opening recovers what was fsynced.
    let fs = open(&device)?;
    let files = Files::new(&fs);
    assert_eq!(files.read_to_string("/var/lib/app/state")?, "version 1\n");
    files.rename("/var/lib/app/state", "/var/lib/app/state.old")?;
    // Closing writes everything back; the volume is clean then, and Linux's F2FS can mount it.
    fs.close()?;

    let fs = open(&device)?;
    for entry in Files::new(&fs).read_dir("/var/lib/app")? {
        println!("{}: {}", device.name(), entry?.path().display());
    }
    Ok(fs.close()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    use_volume(Arc::new(MemoryDevice::new(SIZE, 512)))?;

    let path = std::env::temp_dir().join(format!("basalt-example-volume-{}.img", std::process::id()));
    let used = FileDevice::create(&path, SIZE).map_err(Into::into).and_then(|device| use_volume(Arc::new(device)));
    std::fs::remove_file(&path)?;
    used
}

#[test]
fn runs() {
    main().unwrap();
}
