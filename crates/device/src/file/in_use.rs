//! Who has a file or device, in words. Everything here is best effort: what cannot be found out is left out.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::behind::{
    self, Ask, Backing, Identity, Layer, Via, device_number, directory_names, parse_device_number, sysfs,
};
use super::reach::{self, Reach};

/// Who holds the lock that `file` did not get.
pub(super) fn lock_holder(file: &File) -> String {
    let unknown = || "locked by another program".to_owned();
    let Ok(wanted) = file.metadata() else {
        return unknown();
    };
    // The table of locks names the process that took a lock; after a fork only the child may be left of it. So first
    // look for a process that has the lock now.
    let me = std::process::id();
    let holders = processes_with(&wanted, |fdinfo| has_lock(&fdinfo));
    // This process has another lock on it, perhaps.
    let pid = holders.iter().find(|&&pid| pid != me).or(holders.first()).copied().or_else(|| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        lock_takers(&locks, wanted.dev(), wanted.ino()).next()
    });
    pid.map_or_else(unknown, |pid| format!("locked by {}", process_name(pid)))
}

/// Who has the exclusive claim that `device` did not get.
pub(super) fn block_device_user(device: &File) -> String {
    let unknown = || "claimed by another program".to_owned();
    let Ok(wanted) = device.metadata() else {
        return unknown();
    };
    let id = wanted.rdev();
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    if let Some(mount_point) = mount_point_of(&mounts, id, is_node_of) {
        return format!("mounted on {}", mount_point.display());
    }
    for (name, part) in relatives(id) {
        if let Some(mount_point) = mount_point_of(&mounts, part, is_node_of) {
            return format!("{name} is mounted on {}", mount_point.display());
        }
    }
    if let Some(holder) = directory_names(&sysfs(id).join("holders")).into_iter().next() {
        return format!("part of /dev/{holder}");
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(|path| is_node_of(path, id)) {
        return "used as swap".to_owned();
    }
    let me = std::process::id();
    match processes_with(&wanted, |_| true).into_iter().find(|&pid| pid != me) {
        // The claim itself does not show, so this is a hint only.
        Some(pid) => format!("{}; it is open in {}", unknown(), process_name(pid)),
        None => unknown(),
    }
}

/// The loop device, other than `allowed`, that has `image` as its backing file.
pub(super) fn loop_device_over(image: &File, allowed: Option<&Path>) -> Option<PathBuf> {
    let wanted = Identity::of(&image.metadata().ok()?);
    let reach = reach_around(&[wanted]);
    let allowed = allowed.and_then(|path| fs::metadata(path).ok()).map(|node| node.rdev());
    let mut others = behind::loop_devices().into_iter().filter(|&(_, id)| Some(id) != allowed);
    let is_wanted = |backing: Backing| backing.identity == Some(wanted);
    let found = others.find(|(sysfs, _)| Backing::of(sysfs, Ask::Nameless(&reach)).is_some_and(is_wanted));
    found.map(|(_, id)| behind::node(id))
}

/// Who uses some of the bytes of a layer by another way than the device through which it was reached: that is not the kernel's
/// business, so it refuses nothing.
pub(super) fn other_user(layer: &Layer) -> Option<String> {
    let Via::Loop(own) = layer.via else { return None };
    if let Identity::Device(id) = layer.identity
        && let Some(user) = user_of(id, &layer.range)
    {
        return Some(user);
    }
    let reach = reach_around(&[layer.identity]);
    behind::loop_devices().into_iter().filter(|&(_, id)| id != own).find_map(|(sysfs, id)| {
        let backing = Backing::of(&sysfs, Ask::Nameless(&reach))?;
        if backing.identity != Some(layer.identity) || !behind::overlap(&backing.range, &layer.range) {
            return None;
        }
        let start = layer.range.start.saturating_sub(backing.range.start);
        let end = layer.range.end.saturating_sub(backing.range.start);
        let user = user_of(id, &(start..end))?;
        Some(format!("{} is also {}, {user}", layer.path.display(), behind::node(id).display()))
    })
}

/// Who has the exclusive claim on a device, or on a partition of it with some bytes of this range.
fn user_of(id: u64, range: &Range<u64>) -> Option<String> {
    let device = claimed(id)?;
    // A claim on any partition keeps others from the whole disk.
    let partitions = behind::partitions(id);
    let taken = partitions.iter().filter_map(|(part, bytes)| Some((claimed(*part)?, bytes)));
    let taken: Vec<(File, &Range<u64>)> = taken.collect();
    let part = taken.iter().find(|(_, bytes)| behind::overlap(bytes, range));
    match part {
        Some((part, _)) => Some(block_device_user(part)),
        None if taken.is_empty() => Some(block_device_user(&device)),
        None => None,
    }
}

/// A device that somebody claims, open.
fn claimed(id: u64) -> Option<File> {
    let path = behind::node(id);
    let open = |flags: OFlags| rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty());
    let device = File::from(open(OFlags::empty()).ok()?);
    if Identity::of(&device.metadata().ok()?) != Identity::Device(id) {
        return None;
    }
    (open(OFlags::EXCL).err()? == Errno::BUSY).then_some(device)
}

/// Whether somebody has a lock, other than a shared one where those are allowed, on a file that cannot be opened here.
pub(super) fn is_locked_unseen(identity: Identity, shared_allowed: bool) -> bool {
    let Identity::File(device, inode) = identity else { return false };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut taken = locks.lines().filter(|line| lock_place(line) == Some((device, inode)));
    taken.any(|line| !shared_allowed || line.split_whitespace().nth(3) != Some("READ"))
}

/// The mount point of something that has some of the same bytes as `path`: the same device or image, a partition of it, or any
/// of that through loop devices.
pub fn mounted_over(path: &Path) -> Option<PathBuf> {
    let wanted = Identity::of(&fs::metadata(path).ok()?);
    let wanted = behind::layers(wanted, path, Ask::Nameless(&Reach::default()));
    let reach = reach_around(&wanted.iter().map(|layer| layer.identity).collect::<Vec<_>>());
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    // Later mounts hide earlier ones.
    mounts.rsplit(|&byte| byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let separator = fields.iter().position(|field| *field == b"-")?;
        let source = PathBuf::from(OsString::from_vec(unescape(fields.get(separator + 2)?)));
        // Only what can be an image or a device is looked at.
        let identity = reach.identity(&source).filter(|_| source.is_absolute())?;
        let layers = behind::layers(identity, &source, Ask::Nameless(&reach));
        let point = PathBuf::from(OsString::from_vec(unescape(fields.get(4)?)));
        behind::share(&wanted, &layers).then_some(point)
    })
}

/// The paths that can be looked at to find others who have these.
fn reach_around(wanted: &[Identity]) -> Reach {
    let near = wanted.iter().filter_map(|identity| match *identity {
        Identity::File(device, _) => Some(device),
        Identity::Device(_) => None,
    });
    Reach::new(&near.collect::<Vec<_>>())
}

/// The process that locked a file or device and has ended, while its lock stays: one of its threads hangs in the kernel, and has
/// everything open that the process had. `None` where another one that lives has a lock too, as of two mounts that only read.
pub fn left_behind_by(path: &Path) -> Option<u32> {
    if !Reach::new(&[]).has(path) {
        return None;
    }
    let node = fs::metadata(path).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let takers: Vec<u32> = lock_takers(&locks, node.dev(), node.ino()).collect();
    takers.first().copied().filter(|_| takers.iter().all(|&taker| has_ended(taker)))
}

/// Whether nothing is left of a process but threads that cannot end.
fn has_ended(pid: u32) -> bool {
    matches!(process_state(pid), Some('Z' | 'X'))
}

/// The state of a process as `/proc/PID/stat` has it: `R` runs, `T` is stopped, `Z` has ended; `None` if there is none.
pub fn process_state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which is in brackets.
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// The partitions of a disk, or the disk of a partition, each with its path and number.
fn relatives(id: u64) -> Vec<(String, u64)> {
    let Ok(own) = fs::canonicalize(sysfs(id)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut add = |directory: &Path| {
        if let (Some(name), Some(number)) = (directory.file_name(), device_number(directory)) {
            found.push((format!("/dev/{}", name.to_string_lossy()), number));
        }
    };
    if own.join("partition").exists() {
        own.parent().into_iter().for_each(&mut add);
    }
    let children = directory_names(&own).into_iter().map(|name| own.join(name));
    children.filter(|child| child.join("partition").exists()).for_each(|child| add(&child));
    found
}

/// The first mount point of the device `id`, from the text of mountinfo. `is_node_of` decides whether the path of a
/// mount's source is that device: btrfs and others give their mounts device numbers of their own.
fn mount_point_of(mountinfo: &[u8], id: u64, is_node_of: impl Fn(&str, u64) -> bool) -> Option<PathBuf> {
    mountinfo.split(|&byte| byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let number = parse_device_number(std::str::from_utf8(fields.get(2)?).ok()?, 10)?;
        let mount_point = fields.get(4)?;
        let separator = fields.iter().position(|field| *field == b"-")?;
        let source = String::from_utf8(unescape(fields.get(separator + 2)?)).unwrap_or_default();
        (number == id || source.starts_with("/dev/") && is_node_of(&source, id))
            .then(|| PathBuf::from(OsString::from_vec(unescape(mount_point))))
    })
}

/// Whether `path` is a node of the block device `id`.
fn is_node_of(path: &str, id: u64) -> bool {
    fs::metadata(path).is_ok_and(|node| node.file_type().is_block_device() && node.rdev() == id)
}

/// Undoes the octal escapes (`\040` for a space) of the files in /proc.
pub(super) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let escaped = behind.get(..3).filter(|_| *first == b'\\');
        let value = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(value.unwrap_or(*first));
        rest = if value.is_some() { &behind[3..] } else { behind };
    }
    plain
}

/// The processes that took a lock on an inode, from the text of /proc/locks.
fn lock_takers(locks: &str, device: u64, inode: u64) -> impl Iterator<Item = u32> {
    locks.lines().filter(move |line| lock_place(line) == Some((device, inode))).filter_map(|line| {
        // 0 and -1 stand for processes that this one cannot see.
        line.split_whitespace().nth(4)?.parse().ok().filter(|&pid| pid > 0)
    })
}

/// The device and inode number of a lock that somebody has, from a line of /proc/locks.
fn lock_place(line: &str) -> Option<(u64, u64)> {
    // 1: FLOCK  ADVISORY  WRITE 1234 08:01:131090 0 EOF; those who wait have "->" before FLOCK.
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK" | "OFDLCK" | "POSIX", _, _, _, place, ..] = fields[..] else {
        return None;
    };
    let (device, inode) = place.rsplit_once(':')?;
    Some((parse_device_number(device, 16)?, inode.parse().ok()?))
}

/// Whether a descriptor's fdinfo shows a lock, of the whole file or of a range.
fn has_lock(fdinfo: &str) -> bool {
    let is_lock = |word: &str| matches!(word, "FLOCK" | "OFDLCK" | "POSIX");
    fdinfo.lines().any(|line| line.starts_with("lock:") && line.split_whitespace().any(is_lock))
}

/// The processes with a descriptor of this file or device that `accept` takes, judging by its fdinfo.
fn processes_with(wanted: &Metadata, accept: impl Fn(String) -> bool) -> Vec<u32> {
    let pids = directory_names(Path::new("/proc")).into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.filter(|pid| {
        let process = PathBuf::from(format!("/proc/{pid}"));
        directory_names(&process.join("fd")).into_iter().any(|descriptor| {
            reach::known(&process.join("fd").join(&descriptor)) == Some(Identity::of(wanted))
                && fs::read_to_string(process.join("fdinfo").join(&descriptor)).is_ok_and(&accept)
        })
    })
    .collect()
}

fn process_name(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(command) => format!("process {pid} ({})", command.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn mount_points_by_number_and_by_source() {
        let mountinfo = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
31 22 8:17 / /media/my\\040card rw,nosuid shared:5 - f2fs /dev/sdb1 rw\n\
32 22 0:45 /sub /data rw - btrfs /dev/sdc rw\n\
damaged line\n";
        let no = |_: &str, _| false;
        assert_eq!(mount_point_of(mountinfo, makedev(8, 17), no), Some("/media/my card".into()));
        assert_eq!(mount_point_of(mountinfo, makedev(8, 32), no), None);
        let sdc = |path: &str, id| path == "/dev/sdc" && id == makedev(8, 32);
        assert_eq!(mount_point_of(mountinfo, makedev(8, 32), sdc), Some("/data".into()));
    }

    #[test]
    fn escapes() {
        for (escaped, plain) in [("a\\040b", "a b"), ("\\134040", "\\040"), ("\\9", "\\9"), ("\\", "\\"), ("", "")] {
            assert_eq!(unescape(escaped.as_bytes()), plain.as_bytes());
        }
    }

    #[test]
    fn takers_of_locks() {
        let of = |locks: &str, device, inode| lock_takers(locks, device, inode).collect::<Vec<_>>();
        let locks = "\
1: POSIX  ADVISORY  WRITE 11 08:01:131090 0 EOF\n\
2: -> FLOCK  ADVISORY  WRITE 12 08:01:131090 0 EOF\n\
3: FLOCK  ADVISORY  WRITE 0 08:01:77 0 EOF\n\
4: FLOCK  ADVISORY  READ 14 fe:1a:131090 0 EOF\n\
5: FLOCK  ADVISORY  READ 15 fe:1a:131090 0 EOF\n";
        assert_eq!(of(locks, makedev(0xfe, 0x1a), 131_090), [14, 15]);
        assert_eq!(of(locks, makedev(8, 1), 131_090), [11]);
        assert_eq!(of(locks, makedev(8, 1), 77), []);
        assert!(has_lock("pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n"));
        assert!(has_lock("lock:\t1: OFDLCK ADVISORY  WRITE -1 00:13:11691 100 200\n"));
        assert!(!has_lock("pos:\t0\nflags:\t02\n"));
    }
}
