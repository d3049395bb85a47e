//! Who has a file or device, in words. Everything here is best effort: what cannot be found out is left out.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, makedev, minor};

/// Who holds the flock that `file` did not get.
pub(super) fn lock_holder(file: &File) -> String {
    let unknown = || "locked by another program".to_owned();
    let Ok(wanted) = file.metadata() else {
        return unknown();
    };
    // The table of locks names the process that took a lock; after a fork only the child may be left of it. So first
    // look for a process that has the lock now.
    let pid = processes_with(&wanted, |fdinfo| has_flock(&fdinfo)).into_iter().next().or_else(|| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        lock_taker(&locks, wanted.dev(), wanted.ino())
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
    let wanted = image.metadata().ok()?;
    let allowed = allowed.and_then(|path| fs::metadata(path).ok()).map(|node| node.rdev());
    directory_names(Path::new("/sys/block")).into_iter().filter(|name| name.starts_with("loop")).find_map(|name| {
        let sysfs = Path::new("/sys/block").join(&name);
        let mut backing = fs::read(sysfs.join("loop/backing_file")).ok()?;
        backing.pop_if(|last| *last == b'\n');
        let backing = fs::metadata(OsString::from_vec(backing)).ok()?;
        let is_ours = allowed.is_some() && device_number(&sysfs) == allowed;
        (is_same(&backing, &wanted) && !is_ours).then(|| Path::new("/dev").join(name))
    })
}

fn sysfs(id: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(id), minor(id)))
}

/// The device number that a directory of a block device in sysfs gives.
fn device_number(sysfs: &Path) -> Option<u64> {
    parse_device_number(fs::read_to_string(sysfs.join("dev")).ok()?.trim(), 10)
}

fn parse_device_number(text: &str, radix: u32) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(u32::from_str_radix(major, radix).ok()?, u32::from_str_radix(minor, radix).ok()?))
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
fn unescape(field: &[u8]) -> Vec<u8> {
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

/// The process that took the flock on an inode, from the text of /proc/locks.
fn lock_taker(locks: &str, device: u64, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 1234 08:01:131090 0 EOF; those who wait have "->" before FLOCK.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else {
            return None;
        };
        let (number, place_inode) = place.rsplit_once(':')?;
        let matches = parse_device_number(number, 16)? == device && place_inode.parse() == Ok(inode);
        // 0 and -1 stand for processes that this one cannot see.
        pid.parse().ok().filter(|&pid| matches && pid > 0)
    })
}

/// Whether a descriptor's fdinfo shows a flock.
fn has_flock(fdinfo: &str) -> bool {
    fdinfo.lines().any(|line| line.starts_with("lock:") && line.split_whitespace().any(|word| word == "FLOCK"))
}

/// The processes with a descriptor of this file or device that `accept` takes, judging by its fdinfo.
fn processes_with(wanted: &Metadata, accept: impl Fn(String) -> bool) -> Vec<u32> {
    let pids = directory_names(Path::new("/proc")).into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.filter(|pid| {
        let process = PathBuf::from(format!("/proc/{pid}"));
        directory_names(&process.join("fd")).into_iter().any(|descriptor| {
            fs::metadata(process.join("fd").join(&descriptor)).is_ok_and(|open| is_same(&open, wanted))
                && fs::read_to_string(process.join("fdinfo").join(&descriptor)).is_ok_and(&accept)
        })
    })
    .collect()
}

/// Whether both are the same file, or nodes of the same device.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    if one.file_type().is_block_device() && other.file_type().is_block_device() {
        return one.rdev() == other.rdev();
    }
    one.dev() == other.dev() && one.ino() == other.ino()
}

fn process_name(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(command) => format!("process {pid} ({})", command.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

fn directory_names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
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
    fn lock_takers() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 11 08:01:131090 0 EOF\n\
2: -> FLOCK  ADVISORY  WRITE 12 08:01:131090 0 EOF\n\
3: FLOCK  ADVISORY  WRITE 0 08:01:77 0 EOF\n\
4: FLOCK  ADVISORY  WRITE 14 fe:1a:131090 0 EOF\n";
        assert_eq!(lock_taker(locks, makedev(0xfe, 0x1a), 131_090), Some(14));
        assert_eq!(lock_taker(locks, makedev(8, 1), 131_090), None);
        assert_eq!(lock_taker(locks, makedev(8, 1), 77), None);
        assert!(has_flock("pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n"));
        assert!(!has_flock("pos:\t0\nflags:\t02\n"));
    }
}
