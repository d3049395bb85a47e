//! `basalt defrag`, and the ioctl of F2FS in Linux that does the same.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use rustix::ioctl::{Updater, opcode};
use rustix::process::Uid;
use serde_json::Value;

use crate::fixture::Volume;
use crate::support::{Finished, basalt, program};

/// Bytes of a write that goes to its log at once.
const RUN: usize = 64 << 10;
const NOBODY: u32 = 65534;

/// Writes files in turns, so that none lies in one piece; their contents.
fn scatter(volume: &Volume, names: &[&str], runs: usize) -> Vec<Vec<u8>> {
    let mut files: Vec<File> = names.iter().map(|name| File::create(volume.path(name)).unwrap()).collect();
    let content = |file: usize, run: usize| vec![(file * 100 + run % 100) as u8; RUN];
    for run in 0..runs {
        for (number, file) in files.iter_mut().enumerate() {
            file.write_all(&content(number, run)).unwrap();
            file.sync_data().unwrap();
        }
    }
    (0..names.len()).map(|file| (0..runs).flat_map(|run| content(file, run)).collect()).collect()
}

fn defrag(arguments: &[&str], paths: &[&Path]) -> Finished {
    let arguments = arguments.iter().map(OsStr::new);
    basalt([OsStr::new("defrag")].into_iter().chain(arguments).chain(paths.iter().map(|path| path.as_os_str())))
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no {name}: {report}"))
}

/// The kernel tells the server nothing of `remount,ro`, nor of read-only bind mounts.
#[test]
fn nothing_is_written_where_the_kernel_says_that_it_is_read_only() {
    let Some(volume) = Volume::new("128M") else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    scatter(&volume, &["one", "two"], 40);
    let remount = |how: &str| {
        let mut command = Command::new("mount");
        command.args(["-o", how]).arg(volume.root());
        assert!(command.status().unwrap().success());
    };
    remount("remount,ro");
    let refused = defrag(&[], &[&volume.path("one")]);
    assert_eq!(refused.code(), 1, "{}", refused.err());
    assert!(refused.err().contains("read-only"), "{}", refused.err());
    let root = volume.root();
    let refused = basalt([OsStr::new("clean"), root.as_os_str()]);
    assert_eq!(refused.code(), 1, "{}", refused.err());
    remount("remount,rw");
    assert_eq!(defrag(&[], &[&volume.path("one")]).code(), 0);
}

#[test]
fn scripts_get_paths_that_they_can_use() {
    let Some(volume) = Volume::new("128M") else { return };
    let names = ["a\nb", "a\\nb"];
    scatter(&volume, &names, 40);
    let bad = OsStr::from_bytes(b"bad\xff");
    fs::copy(volume.path(names[0]), volume.path(bad)).unwrap();
    let report = defrag(&["-r", "--json"], &[&volume.root()]).json();
    let changed = report["changed"].as_array().unwrap();
    let found: Vec<&str> = changed.iter().filter_map(|file| file["path"].as_str()).collect();
    for name in names {
        assert!(found.iter().any(|path| Path::new(path) == volume.path(name)), "{report}");
    }
    assert!(changed.iter().all(|file| file["path_hex"].is_null()), "what was copied lies in sequence: {report}");
}

#[test]
fn a_scattered_file_is_put_in_sequence() {
    let Some(volume) = Volume::new("128M") else { return };
    let contents = scatter(&volume, &["one", "two"], 40);
    let (one, two) = (volume.path("one"), volume.path("two"));
    let check = |path: &Path| number(&defrag(&["--check", "--json"], &[path]).json(), "extents");
    let (before, other) = (check(&one), check(&two));
    assert!(before >= 20, "{before}");
    let status = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        (times, found.size(), found.blocks())
    };
    let times = status(&one);
    let report = defrag(&["--json"], &[&one]).json();
    assert_eq!((number(&report, "files"), number(&report, "extents_before")), (1, before), "{report}");
    assert!(number(&report, "extents") <= 2 && number(&report, "bytes_moved") == (40 * RUN) as u64, "{report}");
    let changed = &report["changed"][0];
    assert_eq!((changed["path"].as_str(), number(changed, "extents_before")), (one.to_str(), before), "{report}");
    assert_eq!((status(&one), check(&one), check(&two)), (times, number(&report, "extents"), other));
    assert!(defrag(&[], &[&one]).ok().contains("0 of 1 files changed: "));
    volume.unmount();
    volume.mount();
    assert!(fs::read(&one).unwrap() == contents[0] && fs::read(&two).unwrap() == contents[1]);
}

#[test]
fn a_tree_is_walked_without_links() {
    let Some(volume) = Volume::new("128M") else { return };
    fs::create_dir_all(volume.path("tree/deep/er")).unwrap();
    let names = ["tree/a", "tree/deep/b", "tree/deep/er/c", "beside"];
    let contents = scatter(&volume, &names, 12);
    fs::write(volume.path("tree/small"), "in the inode").unwrap();
    symlink("../beside", volume.path("tree/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        volume.path("tree/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let tree = volume.path("tree");
    defrag(&[], &[&tree]).fails(1, &["/tree: is a directory; with -r, all files in it are taken"]);
    let listed = defrag(&["-r", "--check"], &[&tree]).ok();
    for line in ["/tree/a: 1", "/tree/deep/b: 1", "/tree/deep/er/c: 1", "4 files in ", ", 3 of them in more than one"] {
        assert!(listed.contains(line), "no {line}: {listed}");
    }
    let text = defrag(&["--recursive"], &[&tree]).ok();
    assert!(text.contains("3 of 4 files changed: ") && text.contains("c: 12 extents before, 1 now; 768"), "{text}");
    let beside = volume.path("beside");
    let left = defrag(&["--check", "--json"], &[&beside]).json();
    assert!(number(&left, "extents") > 6, "{left}");
    assert_eq!(defrag(&["-rq"], &[&volume.root()]).ok(), "");
    let all = defrag(&["-r", "--check", "--json"], &[&volume.root()]).json();
    assert!(number(&all, "files") == 5 && number(&all, "extents") <= 6, "{all}");
    for (name, content) in names.iter().zip(&contents) {
        assert!(fs::read(volume.path(name)).unwrap() == *content, "{name}");
    }
}

#[test]
fn what_cannot_be_put_in_sequence_is_named() {
    let Some(volume) = Volume::new("64M") else { return };
    scatter(&volume, &["file"], 1);
    symlink("file", volume.path("link")).unwrap();
    let (file, link) = (volume.path("file"), volume.path("link"));
    defrag(&[], &[&link]).fails(1, &["/link: is a symbolic link"]);
    defrag(&["-r"], &[Path::new("/proc/self")]).fails(1, &["/proc/self: is a symbolic link"]);
    defrag(&["-r"], &[Path::new("/proc/sys")]).fails(1, &["/proc/sys is not on a mounted Basalt volume; name files"]);
    defrag(&[], &[Path::new("/absent")]).fails(1, &["opening /absent"]);
    defrag(&[], &[Path::new("/dev/null")]).fails(1, &["/dev/null: is neither a regular file nor a directory"]);
    defrag(&[], &[]).fails(2, &["PATH"]);
    // What comes behind a path that fails is done all the same.
    let both = defrag(&["--check"], &[&link, &file]);
    assert!(
        both.code() == 1 && both.out().contains("1 files in 1 extents, 0 of them in more than one"),
        "{}",
        both.out()
    );
}

#[test]
fn a_full_or_read_only_volume_is_left_as_it_is() {
    let Some(volume) = Volume::new("64M") else { return };
    let contents = scatter(&volume, &["one", "two"], 20);
    let mut rest = File::create(volume.path("rest")).unwrap();
    while rest.write_all(&[7; 4096]).and_then(|()| rest.sync_data()).is_ok() {}
    let (one, two) = (volume.path("one"), volume.path("two"));
    let full = defrag(&[], &[&one, &two]);
    full.fails(1, &["one: No space left on device", "; others need"]);
    drop(rest);
    volume.unmount();
    volume.mount_with("ro");
    defrag(&[], &[&one]).fails(1, &["one: Read-only file system", "; the volume is mounted read-only"]);
    assert!(defrag(&["-c"], &[&one]).ok().contains("1 files in "));
    assert!(fs::read(&one).unwrap() == contents[0] && fs::read(&two).unwrap() == contents[1]);
}

/// Who may write a file may put it in sequence, and nobody else but root.
#[test]
fn others_need_the_right_to_write() {
    let Some(volume) = Volume::new("128M") else { return };
    scatter(&volume, &["mine", "roots"], 12);
    let (mine, roots) = (volume.path("mine"), volume.path("roots"));
    std::os::unix::fs::chown(&mine, Some(NOBODY), Some(NOBODY)).unwrap();
    let as_nobody = |path: &Path| {
        let mut command = Command::new(program());
        let ended = command.args(["defrag", "--json"]).arg(path).uid(NOBODY).gid(NOBODY).current_dir("/").output();
        Finished(ended.unwrap())
    };
    assert!(number(&as_nobody(&mine).json(), "bytes_moved") > 0);
    assert_eq!(as_nobody(&roots).code(), 1);
    assert!(as_nobody(&roots).err().contains("roots: Permission denied"), "{}", as_nobody(&roots).err());
    // Open to be read only; and what takes all of a file's time is root's.
    for (path, refusals) in [(&roots, [Errno::BADF, Errno::PERM]), (&mine, [Errno::BADF, Errno::PERM])] {
        let file = File::open(path).unwrap();
        let refused = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
            [ask_for_a_part(&file, 0, 4096), ask(&file, 0, 4096)]
        });
        assert_eq!(refused.join().unwrap(), refusals.map(Err));
    }
}

/// The ioctl of F2FS in Linux: start and length, in bytes, and on return what was written again.
fn ask(file: &File, start: u64, length: u64) -> rustix::io::Result<[u64; 2]> {
    ioctl::<{ opcode::read_write::<[u64; 2]>(0xF5, 8) }>(file, [start, length])
}

/// Basalt's own: on return the byte to go on from, and what was written again.
fn ask_for_a_part(file: &File, start: u64, length: u64) -> rustix::io::Result<[u64; 2]> {
    ioctl::<{ opcode::read_write::<[u64; 2]>(b'B', 3) }>(file, [start, length])
}

fn ioctl<const NUMBER: u32>(file: &File, mut range: [u64; 2]) -> rustix::io::Result<[u64; 2]> {
    // SAFETY: the number says that the argument is two integers, which the kernel copies.
    #[allow(unsafe_code, reason = "an ioctl")]
    unsafe { rustix::ioctl::ioctl(file, Updater::<NUMBER, [u64; 2]>::new(&mut range)) }?;
    Ok(range)
}

#[test]
fn tools_for_linux_put_files_in_sequence_too() {
    let Some(volume) = Volume::new("128M") else { return };
    let contents = scatter(&volume, &["one", "two"], 40);
    let one = volume.path("one");
    let file = File::open(&one).unwrap();
    for (start, length) in [(1, 4096), (0, 1), (u64::MAX - 4095, 8192)] {
        assert_eq!(ask(&file, start, length), Err(Errno::INVAL), "{start} {length}");
    }
    assert_eq!(ask(&File::open(volume.root()).unwrap(), 0, 4096), Err(Errno::INVAL));
    // More than the file has.
    assert_eq!(ask(&file, 0, 1 << 30), Ok([0, (40 * RUN) as u64]));
    assert_eq!(ask(&file, 0, 1 << 30), Ok([0, 0]));
    let left = defrag(&["--check", "--json"], &[&one]).json();
    assert!(number(&left, "extents") <= 2, "{left}");
    let mut found = vec![0; contents[0].len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == contents[0]);
}
