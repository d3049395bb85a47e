//! The machine that mounts what power cuts have left: it stays up, since booting takes longer than a mount.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_testkit::scratch;
use basalt_uml::{Uml, UmlResult};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use super::dump;
use super::look::look;
use crate::explore::save;
use crate::tree::Tree;

/// Disks of a machine.
pub const DISKS: usize = 16;
/// Bytes of a disk: as many as the largest volume has.
const DISK_BYTES: u64 = 168 << 20;
/// How long a round may take.
const ROUND: Duration = Duration::from_secs(120);
/// How long a machine may run.
const LIFE: Duration = Duration::from_secs(6 * 3600);

/// What Linux made of an image.
pub struct Visited {
    /// What it saw, or why it did not.
    pub tree: Result<Tree, String>,
    /// What the kernel said meanwhile.
    pub log: String,
    /// The image after Linux unmounted it.
    pub left: MemoryDevice,
}

/// A machine that is up.
pub struct Guest {
    machine: Option<JoinHandle<Result<UmlResult, basalt_uml::Error>>>,
    is_given_up: Arc<AtomicBool>,
    place: TempDir,
    program: PathBuf,
    round: u32,
}

impl Guest {
    /// Boots. `program` is `basalt-crash`, which looks at the volumes inside.
    ///
    /// # Errors
    /// When the files that it needs cannot be made.
    pub fn boot(program: &Path) -> Result<Guest, String> {
        let place = scratch::directory().map_err(|error| error.to_string())?;
        let mut uml = with_f2fs(Uml::new()).timeout(LIFE);
        for disk in 0..DISKS {
            let path = disk_path(place.path(), disk);
            File::create(&path).and_then(|file| file.set_len(DISK_BYTES)).map_err(|error| error.to_string())?;
            uml = uml.image(path);
        }
        let script = format!(
            "cd {}; n=1; mkdir -p /run/mnt
            while :; do
                while [ ! -e $n.go ]; do [ ! -e end ] || exit 0; sleep 0.02; done
                sh $n.go
                touch $n.done
                n=$((n + 1))
            done",
            place.path().display()
        );
        let is_given_up = Arc::new(AtomicBool::new(false));
        let given_up = is_given_up.clone();
        let machine = std::thread::spawn(move || {
            uml.run_watched(&script, &mut |_| {
                if given_up.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        Ok(Guest { machine: Some(machine), is_given_up, place, program: program.to_owned(), round: 0 })
    }

    /// Has Linux mount each image, look at everything, and unmount it. At most [`DISKS`] at once.
    ///
    /// # Errors
    /// When the machine does not come to the end of it: what it said.
    pub fn visit(&mut self, images: &[&MemoryDevice]) -> Result<Vec<Visited>, String> {
        assert!(images.len() <= DISKS, "more images than disks");
        self.round += 1;
        let failed = |error: io::Error| format!("what the machine shares: {error}");
        for (disk, image) in images.iter().enumerate() {
            let path = disk_path(self.place.path(), disk);
            save(image, &path).map_err(failed)?;
            File::options().write(true).open(&path).and_then(|file| file.set_len(DISK_BYTES)).map_err(failed)?;
        }
        let (program, round) = (self.program.display(), self.round);
        let script = format!("{program} visit /run/mnt {} {round}", images.len());
        let place = |name: &str| self.place.path().join(format!("{}.{name}", self.round));
        std::fs::write(place("next"), script).map_err(failed)?;
        std::fs::rename(place("next"), place("go")).map_err(failed)?;
        let (done, deadline) = (place("done"), Instant::now() + ROUND);
        while !done.exists() {
            if self.machine.as_ref().is_none_or(JoinHandle::is_finished) || Instant::now() > deadline {
                return Err(self.end().err().unwrap_or_else(|| "Linux did not answer".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        images.iter().enumerate().map(|(disk, image)| self.collect(disk, image).map_err(failed)).collect()
    }

    /// What one visit has left.
    fn collect(&self, disk: usize, image: &MemoryDevice) -> io::Result<Visited> {
        let take = |kind: &str| {
            let path = self.place.path().join(format!("{}-{disk}.{kind}", self.round));
            let bytes = std::fs::read(&path);
            let _ = std::fs::remove_file(path);
            bytes
        };
        let error = String::from_utf8_lossy(&take("error")?).trim().to_owned();
        let log = String::from_utf8_lossy(&take("log")?).into_owned();
        let tree = match take("tree") {
            Ok(bytes) if error.is_empty() => dump::load(&bytes)
                .and_then(|trees| trees.into_iter().next().ok_or_else(|| "a dump of nothing".to_owned())),
            _ => Err(error),
        };
        let left = read_disk(&disk_path(self.place.path(), disk), image)?;
        Ok(Visited { tree, log, left })
    }

    /// Where the image of a disk is, as Linux left it.
    pub fn disk(&self, disk: usize) -> PathBuf {
        disk_path(self.place.path(), disk)
    }

    /// Shuts the machine down; an error if it had ended badly.
    fn end(&mut self) -> Result<(), String> {
        let Some(machine) = self.machine.take() else { return Ok(()) };
        let asked = std::fs::write(self.place.path().join("end"), "");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !machine.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.is_given_up.store(true, Ordering::Relaxed);
        let ended = machine.join().map_err(|_| "running the machine panicked".to_owned())?;
        let result = ended.map_err(|error| error.to_string())?;
        asked.map_err(|error| error.to_string())?;
        if result.status == basalt_uml::Status::Exited(0) { Ok(()) } else { Err(result.to_string()) }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Whoever cares for how it ended has asked already.
        let _ = self.end();
    }
}

/// Inside the machine: mounts each of its disks in turn, writes down what is there, and unmounts it. The tree of a disk is in `ROUND-DISK.tree`,
/// what went wrong in `ROUND-DISK.error`, what the kernel said in `ROUND-DISK.log`.
///
/// # Errors
/// When that cannot be written down.
pub fn visit_all(directory: &Path, disks: usize, round: u32) -> io::Result<()> {
    let one = |disk: usize| {
        mount(format!("/dev/{}", disk_name(disk)), directory, "f2fs", MountFlags::NOATIME, None)?;
        let looked = look(directory).and_then(|tree| dump::save(&[tree], Path::new(&format!("{round}-{disk}.tree"))));
        unmount(directory, UnmountFlags::empty())?;
        looked
    };
    let kernel = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open("/dev/kmsg")?;
    // What was said before is somebody else's.
    let _ = (&kernel).seek(io::SeekFrom::End(0))?;
    (0..disks).try_for_each(|disk| {
        let error = one(disk).err().map(|error| error.to_string()).unwrap_or_default();
        std::fs::write(format!("{round}-{disk}.error"), error)?;
        std::fs::write(format!("{round}-{disk}.log"), kernel_log(&kernel)?)
    })
}

/// What the kernel has said since this was asked last, as `dmesg --raw` shows it: its memory has room for a few images only.
fn kernel_log(mut kernel: &File) -> io::Result<String> {
    let (mut log, mut record) = (String::new(), [0; 8192]);
    loop {
        let length = match kernel.read(&mut record) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(log),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(io::Error::other("a log cut short")),
            Err(error) => return Err(error),
        };
        // Level, number, time and more, then the text and lines of its own.
        let text = String::from_utf8_lossy(&record[..length]).into_owned();
        let (head, text) = text.split_once(';').unwrap_or(("", &text));
        let level = head.split(',').next().unwrap_or_default();
        log = format!("{log}<{level}>{}\n", text.lines().next().unwrap_or_default());
    }
}

/// What Linux calls a disk.
fn disk_name(disk: usize) -> String {
    format!("ubd{}", char::from(b'a' + disk as u8))
}

/// A machine that knows F2FS.
pub fn with_f2fs(machine: Uml) -> Uml {
    machine.place(scratch::place()).module("crypto/crc32_generic").module("fs/f2fs/f2fs")
}

fn disk_path(place: &Path, disk: usize) -> PathBuf {
    place.join(format!("disk{disk}.img"))
}

/// A disk's content, as long as the image that was put there.
fn read_disk(path: &Path, image: &MemoryDevice) -> io::Result<MemoryDevice> {
    const PIECE: u64 = 1 << 20;
    let file = File::options().read(true).write(true).open(path)?;
    // fsck.f2fs looks at the volume, not at what lies behind it.
    file.set_len(image.size())?;
    let device = MemoryDevice::new(image.size(), image.sector_size());
    let mut buffer = vec![0; PIECE as usize];
    for at in (0..image.size()).step_by(PIECE as usize) {
        let piece = &mut buffer[..PIECE.min(image.size() - at) as usize];
        file.read_exact_at(piece, at)?;
        for (index, block) in (0_u64..).zip(piece.chunks(4096)) {
            if block.iter().any(|byte| *byte != 0) {
                device.write_at(at + index * 4096, block).map_err(io::Error::other)?;
            }
        }
    }
    Ok(device)
}
