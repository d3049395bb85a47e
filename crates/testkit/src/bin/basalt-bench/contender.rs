//! A file system in the race: formatting, mounting, starting cold.

use std::fs;
use std::path::{Path, PathBuf};

use basalt_testkit::command::run;
use basalt_testkit::error::Context;
use basalt_testkit::{Error, Result};

use crate::options::Options;

/// Which file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ext4, its lazily written tables written while formatting, so that none of that disturbs the measurements.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// Basalt's mount of F2FS.
    Basalt,
    /// The same with cleaning committed by checkpoints, not by the journal.
    BasaltCheckpoints,
    /// Basalt's mount with a commit for each victim, by the journal.
    BasaltEach,
    /// The same by checkpoints, as F2FS in Linux does it.
    BasaltEachCheckpoints,
    /// Linux's F2FS with its defaults, which below 16 GiB overwrite in place where they can.
    F2fs,
    /// Linux's F2FS that always appends, as Basalt does.
    F2fsLfs,
}

impl Kind {
    /// The name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::Basalt => "Basalt",
            Kind::BasaltCheckpoints => "Basalt, nojournal",
            Kind::BasaltEach => "Basalt, each victim",
            Kind::BasaltEachCheckpoints => "Basalt, each victim, nojournal",
            Kind::F2fs => "F2FS",
            Kind::F2fsLfs => "F2FS, mode=lfs",
        }
    }

    /// Whether it is Basalt, however it is mounted.
    fn is_ours(self) -> bool {
        self.basalt_options().is_some()
    }

    /// What Basalt is mounted with; `None` for others.
    fn basalt_options(self) -> Option<&'static str> {
        match self {
            Kind::Basalt => Some("journal"),
            Kind::BasaltCheckpoints => Some("nojournal"),
            Kind::BasaltEach => Some("journal,sections_per_commit=1"),
            Kind::BasaltEachCheckpoints => Some("nojournal,sections_per_commit=1"),
            Kind::Ext4 | Kind::Xfs | Kind::Btrfs | Kind::F2fs | Kind::F2fsLfs => None,
        }
    }

    fn format_command(self) -> &'static [&'static str] {
        match self {
            Kind::Ext4 => &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            Kind::Xfs => &["mkfs.xfs", "-q", "-f"],
            Kind::Btrfs => &["mkfs.btrfs", "-q", "-f"],
            Kind::Basalt | Kind::BasaltCheckpoints | Kind::BasaltEach | Kind::BasaltEachCheckpoints => {
                &["basalt", "mkfs", "--quiet", "--force"]
            }
            Kind::F2fs | Kind::F2fsLfs => &["mkfs.f2fs", "-q", "-f"],
        }
    }
}

/// A file system and the place it works on. Unmounted when dropped.
#[derive(Debug)]
pub struct Contender {
    kind: Kind,
    target: PathBuf,
    /// The size of the image file to be made for every volume; `None` for a block device.
    image_bytes: Option<u64>,
    mount_point: PathBuf,
    mounted: bool,
    basalt: PathBuf,
}

impl Contender {
    /// On an image file in the benchmark's directory.
    pub fn image(kind: Kind, options: &Options, bytes: u64) -> Result<Contender> {
        let target = options.directory.join(format!("{}.img", kind.name()));
        Contender::new(kind, target, Some(bytes), options)
    }

    /// On a block device.
    pub fn device(kind: Kind, device: &Path, options: &Options) -> Result<Contender> {
        Contender::new(kind, device.to_owned(), None, options)
    }

    fn new(kind: Kind, target: PathBuf, image_bytes: Option<u64>, options: &Options) -> Result<Contender> {
        let mount_point = options.directory.join(format!("mnt-{kind:?}"));
        fs::create_dir_all(&mount_point).doing("create", &mount_point)?;
        Ok(Contender { kind, target, image_bytes, mount_point, mounted: false, basalt: options.basalt.clone() })
    }

    /// Which file system it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name in the tables.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Where the volume is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The size of volumes to come, where they are image files.
    pub fn set_image_size(&mut self, bytes: u64) {
        self.image_bytes = self.image_bytes.map(|_| bytes);
    }

    /// Makes a new empty volume.
    pub fn format(&mut self) -> Result<()> {
        if let Some(bytes) = self.image_bytes {
            remove_if_there(&self.target)?;
            let file = fs::File::create(&self.target).doing("create", &self.target)?;
            file.set_len(bytes).doing("size", &self.target)?;
        }
        let (program, arguments) = self.kind.format_command().split_first().unwrap_or((&"false", &[]));
        let program = if self.kind.is_ours() { self.basalt.display().to_string() } else { (*program).to_owned() };
        run(&program, arguments.iter().map(AsRef::as_ref).chain([self.target.as_os_str()]))?.success()?;
        Ok(())
    }

    /// Mounts, as a user would: with defaults.
    pub fn mount(&mut self) -> Result<()> {
        let (target, mount_point) = (self.target.as_os_str(), self.mount_point.as_os_str());
        let finished = match (self.kind, self.kind.basalt_options()) {
            (_, Some(options)) => {
                let arguments = ["mount".as_ref(), "-o".as_ref(), options.as_ref(), target, mount_point];
                run(&self.basalt.display().to_string(), arguments)
            }
            (kind, None) => {
                let mut arguments: Vec<&str> = Vec::new();
                if self.image_bytes.is_some() {
                    arguments.extend(["-o", "loop"]);
                }
                if kind == Kind::F2fsLfs {
                    arguments.extend(["-o", "mode=lfs"]);
                }
                run("mount", arguments.into_iter().map(AsRef::as_ref).chain([target, mount_point]))
            }
        }?;
        finished.success()?;
        self.mounted = true;
        Ok(())
    }

    /// Unmounts; everything is durable afterwards.
    pub fn unmount(&mut self) -> Result<()> {
        let finished = match self.kind {
            kind if kind.is_ours() => {
                run(&self.basalt.display().to_string(), ["umount".as_ref(), self.mount_point.as_os_str()])
            }
            _ => run("umount", [&self.mount_point]),
        }?;
        finished.success()?;
        self.mounted = false;
        Ok(())
    }

    /// Makes everything that was read or written so far come from the disk again: unmounts, empties the kernel's caches, mounts.
    pub fn start_cold(&mut self) -> Result<()> {
        self.unmount()?;
        drop_caches()?;
        self.mount()
    }

    /// Unmounts and gives the room back; whatever goes wrong, the script that called this program cleans up after it.
    pub fn leave(&mut self) -> Result<()> {
        if self.mounted {
            self.unmount()?;
        }
        if self.image_bytes.is_some() { remove_if_there(&self.target) } else { Ok(()) }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // The script that called this program cleans up after a failure here.
        let _ = self.leave();
    }
}

/// Writes everything back and empties the kernel's caches.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    let control = Path::new("/proc/sys/vm/drop_caches");
    fs::write(control, "3").doing("write", control)
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.doing("remove", path),
    }
}

/// Whether the file system can be measured here: that is, whether its formatting program is installed.
///
/// # Errors
/// Names the missing program.
pub fn check_installed(kind: Kind) -> Result<()> {
    let program = kind.format_command().first().copied().unwrap_or_default();
    if kind.is_ours() || basalt_testkit::skip::find_program(program).is_some() {
        return Ok(());
    }
    Err(Error::Invalid(format!("{program} is not installed (scripts/install-dependencies)")))
}
