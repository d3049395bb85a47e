//! Opens a volume read-only and lists every file in it: an image or a device of yours, or else an image that it makes.
//!
//! `cargo run -p basalt-f2fs --example walk -- card.img`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use basalt_device::{FileDevice, Lock, OpenOptions as DeviceOptions};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::path::Files;
use basalt_vfs::{FileKind, FileSystem};

/// Shows the files of a volume; returns how many bytes they have.
fn walk(image: &Path) -> Result<u64, Box<dyn Error>> {
    // Shared: others may look at the volume at the same time, and nobody may change it.
    let device_options = DeviceOptions { read_only: true, lock: Lock::Shared, ..DeviceOptions::default() };
    let device = FileDevice::open(image, &device_options)?;
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let fs = F2fs::open(Arc::new(device), options, Arc::new(SystemClock))?;
    // What is unusual about the volume, for people.
    fs.warnings().iter().for_each(|warning| eprintln!("{}: {warning}", image.display()));

    let files = Files::new(&fs);
    let mut bytes = 0;
    let mut pending = vec![PathBuf::from("/")];
    while let Some(directory) = pending.pop() {
        for entry in files.read_dir(&directory)? {
            let entry = entry?;
            // Symbolic links are not followed.
            let attributes = entry.metadata()?;
            println!("{:>10} {}", attributes.size, entry.path().display());
            match attributes.kind {
                FileKind::Directory => pending.push(entry.path()),
                FileKind::Regular => bytes += attributes.size,
                _ => {}
            }
        }
    }
    fs.close()?;
    Ok(bytes)
}

/// Makes an image with a few files.
fn make(image: &Path) -> Result<(), Box<dyn Error>> {
    let device = FileDevice::create(image, 64 << 20)?;
    format(&device, &FormatOptions::default(), &mut |_done, _total| ())?;
    let fs = F2fs::open(Arc::new(device), OpenOptions::default(), Arc::new(SystemClock))?;
    let files = Files::new(&fs);
    files.create_dir_all("/etc/network")?;
    files.write("/etc/hostname", "basalt\n")?;
    files.symlink("../hostname", "/etc/network/name")?;
    Ok(fs.close()?)
}

fn walk_made() -> Result<u64, Box<dyn Error>> {
    let image = std::env::temp_dir().join(format!("basalt-example-walk-{}.img", std::process::id()));
    let bytes = make(&image).and_then(|()| walk(&image));
    std::fs::remove_file(&image)?;
    bytes
}

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = match std::env::args_os().nth(1) {
        Some(image) => walk(Path::new(&image))?,
        None => walk_made()?,
    };
    println!("{bytes} bytes in regular files");
    Ok(())
}

#[test]
fn runs() {
    assert_eq!(walk_made().unwrap(), "basalt\n".len() as u64);
}
