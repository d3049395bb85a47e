//! What copying out of a volume leaves alone: whatever is outside the destination, also when somebody who may write there puts
//! symbolic links in the way at the worst moment; and what was in the destination before.

mod support;

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use basalt::transfer::{Get, GetOptions, Silent};
use basalt_device::{FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::{limit, skip};
use basalt_vfs::{
    Attributes, Background, Caller, DirectoryEntry, Error, FallocateMode, FileSystem, InodeFlags, InodeNumber, NewNode,
    RenameFlags, Result, Seek, SetAttributes, StatFs, Time, XattrFlags,
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags as HostXattrFlags, makedev, mknodat};
use support::{Scratch, basalt, program};

const PRIVATE: u32 = 0o600;

/// A volume that calls back each time before it tells what attributes something has: when that was made outside, and before it is
/// given its owner, its permissions and its times.
struct Ambush<F> {
    fs: F2fs,
    strike: F,
}

impl<F: Fn() + Send + Sync> FileSystem for Ambush<F> {
    fn list_xattrs(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        (self.strike)();
        self.fs.list_xattrs(ino)
    }
    fn root(&self) -> InodeNumber {
        self.fs.root()
    }
    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        self.fs.lookup(parent, name)
    }
    fn forget(&self, ino: InodeNumber, count: u64) {
        self.fs.forget(ino, count);
    }
    fn attributes(&self, ino: InodeNumber) -> Result<Attributes> {
        self.fs.attributes(ino)
    }
    fn read_link(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        self.fs.read_link(ino)
    }
    fn read(&self, ino: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(ino, offset, buf)
    }
    fn seek(&self, ino: InodeNumber, offset: u64, whence: Seek) -> Result<u64> {
        self.fs.seek(ino, offset, whence)
    }
    fn read_directory(
        &self,
        ino: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.fs.read_directory(ino, from, emit)
    }
    fn get_xattr(&self, ino: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.get_xattr(ino, name)
    }
    fn stat_fs(&self) -> Result<StatFs> {
        self.fs.stat_fs()
    }
    fn tick(&self, now: Time) -> Background {
        self.fs.tick(now)
    }
    fn close(&self) -> Result<()> {
        self.fs.close()
    }
    // Nothing below is called by a copy to the host.
    fn set_attributes(&self, _: InodeNumber, _: &SetAttributes) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }
    fn create(&self, _: InodeNumber, _: &[u8], _: &NewNode<'_>, _: &Caller) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }
    fn create_unnamed(&self, _: InodeNumber, _: u32, _: &Caller) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }
    fn link(&self, _: InodeNumber, _: InodeNumber, _: &[u8]) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }
    fn unlink(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn remove_directory(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn rename(&self, _: InodeNumber, _: &[u8], _: InodeNumber, _: &[u8], _: RenameFlags, _: &Caller) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn write(&self, _: InodeNumber, _: u64, _: &[u8], _: bool) -> Result<usize> {
        Err(Error::ReadOnly)
    }
    fn fallocate(&self, _: InodeNumber, _: FallocateMode, _: u64, _: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn sync_file(&self, _: InodeNumber, _: bool) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn sync(&self) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn set_xattr(&self, _: InodeNumber, _: &[u8], _: &[u8], _: XattrFlags) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn remove_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn set_flags(&self, _: InodeNumber, _: InodeFlags) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn set_project_id(&self, _: InodeNumber, _: u32) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn trim(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        Err(Error::ReadOnly)
    }
}

fn make_node(path: &Path, kind: FileType, mode: u32) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(mode), makedev(1, 3)).unwrap();
    // The umask does not count.
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Copies `source` out of the volume to `destination`; `strike` is called before each inode's attributes are asked for.
fn get_ambushed(scratch: &Scratch, source: &str, destination: &Path, strike: impl Fn() + Send + Sync) -> u64 {
    let options = DeviceOptions { read_only: true, ..DeviceOptions::default() };
    let device = FileDevice::open(scratch.path("image"), &options).unwrap();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let fs = Ambush { fs: F2fs::open(Arc::new(device), options, Arc::new(SystemClock)).unwrap(), strike };
    let mut silent = Silent;
    let mut get = Get::new(&fs, GetOptions { recursive: true, ..GetOptions::default() }, &mut silent);
    let copied = get.copy(source.as_bytes(), destination);
    get.report().left_out + u64::from(copied.is_err())
}

/// A file that a copy has no business with.
fn victim(scratch: &Scratch) -> PathBuf {
    let path = PathBuf::from(scratch.file("victim", "secret"));
    fs::set_permissions(&path, Permissions::from_mode(PRIVATE)).unwrap();
    path
}

#[track_caller]
fn expect_untouched(victim: &Path) {
    let found = fs::metadata(victim).unwrap();
    assert_eq!((found.mode() & 0o7777, found.nlink()), (PRIVATE, 1));
    assert_eq!(fs::read(victim).unwrap(), b"secret");
    let mut names = [0; 1000];
    let length = rustix::fs::listxattr(victim, &mut names).unwrap();
    assert!(!String::from_utf8_lossy(&names[..length]).contains("basalt"), "{names:?}");
}

/// Puts a link to `target` where `path` is.
fn swap(path: &Path, target: &Path) {
    let aside = path.with_extension("aside");
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_symlink()) {
        symlink(target, &aside).unwrap();
        if path.is_dir() {
            fs::rename(path, path.with_extension("moved")).unwrap();
        }
        fs::rename(&aside, path).unwrap();
    }
}

#[test]
fn what_takes_the_place_of_a_file_is_not_given_its_attributes() {
    if !skip::root_or_skip() {
        return;
    }
    for kind in [FileType::Fifo, FileType::CharacterDevice, FileType::Socket, FileType::RegularFile] {
        let scratch = Scratch::with_volume("64M");
        let (victim, tree) = (victim(&scratch), scratch.directory("tree"));
        make_node(&tree.join("name"), kind, 0o666);
        chown(tree.join("name"), Some(12), Some(34)).unwrap();
        let trusted = HostXattrFlags::empty();
        rustix::fs::setxattr(tree.join("name"), "trusted.basalt", b"value", trusted).unwrap();
        basalt(["put", "-r", &scratch.text("image"), tree.to_str().unwrap()]).ok();
        let out = scratch.directory("out");
        let struck = AtomicBool::new(false);
        get_ambushed(&scratch, "/", &out, || {
            let name = out.join("name");
            struck.fetch_or(fs::symlink_metadata(&name).is_ok(), SeqCst);
            swap(&name, &victim);
        });
        assert!(struck.load(SeqCst) && fs::symlink_metadata(out.join("name")).unwrap().is_symlink());
        expect_untouched(&victim);
        let owner = fs::symlink_metadata(&victim).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (0, 0), "{kind:?}");
    }
}

#[test]
fn a_directory_that_becomes_a_link_does_not_lead_the_copy_away() {
    if !skip::root_or_skip() {
        return;
    }
    // Once for the directory of a single file, by its path; once for one on the way down.
    for source in ["/dir/name", "/"] {
        let scratch = Scratch::with_volume("64M");
        scratch.directory("tree/dir");
        make_node(&scratch.path("tree/dir/name"), FileType::Fifo, 0o666);
        basalt(["put", "-r", &scratch.text("image"), &scratch.text("tree")]).ok();
        let (victim, elsewhere, out) = (victim(&scratch), scratch.directory("elsewhere"), scratch.directory("out/dir"));
        fs::hard_link(&victim, elsewhere.join("name")).unwrap();
        let destination = if source == "/" { scratch.path("out") } else { out.join("name") };
        get_ambushed(&scratch, source, &destination, || swap(&out, &elsewhere));
        assert!(fs::symlink_metadata(&out).unwrap().is_symlink());
        fs::remove_file(elsewhere.join("name")).unwrap();
        expect_untouched(&victim);
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "nothing was made there");
    }
}

#[test]
fn a_further_name_is_one_of_the_file_that_was_copied() {
    if !skip::root_or_skip() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    for directory in ["a", "b", "c"] {
        scratch.directory(&format!("tree/{directory}"));
    }
    let first = scratch.file("tree/a/name", "content");
    for other in ["tree/b/name", "tree/c/name"] {
        fs::hard_link(&first, scratch.path(other)).unwrap();
    }
    basalt(["put", "-r", &scratch.text("image"), &scratch.text("tree")]).ok();
    let (victim, elsewhere) = (victim(&scratch), scratch.directory("elsewhere"));
    fs::hard_link(&victim, elsewhere.join("name")).unwrap();
    let out = scratch.directory("out");
    // Whichever of the three is copied first: once it has its attributes, its directory is moved away.
    get_ambushed(&scratch, "/", &out, || {
        let done: Vec<_> = ["a", "b", "c"].map(|name| out.join(name)).into_iter().filter(|dir| dir.exists()).collect();
        if let [only] = done.as_slice()
            && only.join("name").exists()
        {
            swap(only, &elsewhere);
        }
    });
    fs::remove_file(elsewhere.join("name")).unwrap();
    expect_untouched(&victim);
    for name in ["a", "b", "c"] {
        let path = out.join(name);
        if !fs::symlink_metadata(&path).unwrap().is_symlink() {
            assert_eq!(fs::read(path.join("name")).unwrap(), b"content");
        }
    }
}

#[test]
fn links_in_the_way_are_neither_followed_nor_written_through() {
    let scratch = Scratch::with_volume("64M");
    scratch.directory("tree/dir");
    scratch.file("tree/dir/below", "below");
    scratch.file("tree/file", "file");
    symlink("file", scratch.path("tree/link")).unwrap();
    make_node(&scratch.path("tree/fifo"), FileType::Fifo, 0o644);
    basalt(["put", "-r", &scratch.text("image"), &scratch.text("tree")]).ok();
    let (victim, elsewhere, out) = (victim(&scratch), scratch.directory("elsewhere"), scratch.directory("out"));
    for name in ["file", "link", "fifo"] {
        symlink(&victim, out.join(name)).unwrap();
    }
    symlink(&elsewhere, out.join("dir")).unwrap();
    let got = basalt(["get", "-r", &scratch.text("image"), "/", out.to_str().unwrap()]);
    let told: Vec<String> = got.err().lines().filter(|line| line.contains("left out")).map(str::to_owned).collect();
    assert!(
        matches!(&told[..], [one] if one.contains("out/dir: ") && one.contains("a symbolic link or a file is in the place")),
        "{}",
        got.err()
    );
    assert_eq!(got.code(), 1);
    expect_untouched(&victim);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert_eq!(fs::read(out.join("file")).unwrap(), b"file");
    assert!(fs::symlink_metadata(out.join("file")).unwrap().is_file());
    assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("file"));
    assert!(fs::symlink_metadata(out.join("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn a_race_for_the_names_of_a_copy_is_never_won() {
    if !skip::root_or_skip() {
        return;
    }
    const NAMES: usize = 400;
    // Enough that some come between making a FIFO and giving it its permissions.
    const SWAPS: usize = 200;
    let scratch = Scratch::with_volume("64M");
    let (victim, tree) = (victim(&scratch), scratch.directory("tree"));
    for number in 0..NAMES {
        make_node(&tree.join(format!("f{number}")), FileType::Fifo, 0o666);
    }
    basalt(["put", "-r", &scratch.text("image"), tree.to_str().unwrap()]).ok();
    for command in [&["get", "-r"][..], &["rescue", "-q"]] {
        let swapped = AtomicUsize::new(0);
        for round in 0..20 {
            let out = scratch.directory(&format!("{}{round}", command[0]));
            let links: Vec<PathBuf> = (0..NAMES).map(|number| scratch.path(&format!("l{number}"))).collect();
            for link in &links {
                let _ = fs::remove_file(link);
                symlink(&victim, link).unwrap();
            }
            let mut copy = Command::new(program());
            copy.args(command).arg(scratch.path("image"));
            if command[0] == "get" {
                copy.arg("/");
            }
            let mut child =
                copy.arg(&out).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut left: Vec<usize> = (0..NAMES).collect();
                    while !over.load(SeqCst) && !left.is_empty() {
                        left.retain(|&number| {
                            let name = out.join(format!("f{number}"));
                            let is_there = fs::symlink_metadata(&name).is_ok_and(|found| found.file_type().is_fifo());
                            let swaps = is_there && fs::rename(&links[number], &name).is_ok();
                            swapped.fetch_add(usize::from(swaps), SeqCst);
                            !swaps
                        });
                    }
                });
                let ended = limit::wait(&mut child, limit::SHORT);
                over.store(true, SeqCst);
                ended.unwrap();
            });
            expect_untouched(&victim);
            if swapped.load(SeqCst) >= SWAPS {
                break;
            }
        }
        assert!(swapped.load(SeqCst) > 0, "{}: nothing was ever swapped", command[0]);
    }
}

/// A volume with everything that is dangerous in the wrong hands, and a root directory of somebody else's.
fn dangerous() -> Scratch {
    let scratch = Scratch::with_volume("64M");
    let tree = scratch.directory("tree");
    scratch.directory("tree/old");
    scratch.directory("tree/new");
    for (name, mode) in [("suid", 0o6777), ("open", 0o666), ("old/file", 0o640)] {
        scratch.file(&format!("tree/{name}"), name);
        fs::set_permissions(tree.join(name), Permissions::from_mode(mode)).unwrap();
        chown(tree.join(name), Some(12), Some(34)).unwrap();
        fs::set_permissions(tree.join(name), Permissions::from_mode(mode)).unwrap();
    }
    make_node(&tree.join("device"), FileType::CharacterDevice, 0o666);
    make_node(&tree.join("fifo"), FileType::Fifo, 0o666);
    let none = HostXattrFlags::empty();
    // cap_net_raw+ep, revision 2.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    rustix::fs::setxattr(tree.join("open"), "security.capability", &capability, none).unwrap();
    rustix::fs::setxattr(tree.join("open"), "trusted.basalt", b"t", none).unwrap();
    rustix::fs::setxattr(tree.join("open"), "user.basalt", b"u", none).unwrap();
    for (name, mode) in [("", 0o1777), ("old", 0o2777), ("new", 0o2777)] {
        chown(tree.join(name), Some(56), Some(78)).unwrap();
        fs::set_permissions(tree.join(name), Permissions::from_mode(mode)).unwrap();
    }
    basalt(["put", "-r", &scratch.text("image"), tree.to_str().unwrap()]).ok();
    scratch
}

#[track_caller]
fn expect(path: &Path, owner: (u32, u32), mode: u32) {
    let found = fs::symlink_metadata(path).unwrap();
    let shown = format!("{}: {:o}", path.display(), found.mode());
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (owner.0, owner.1, mode), "{shown}");
}

fn xattrs(path: &Path) -> String {
    let mut names = [0; 1000];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    String::from_utf8_lossy(&names[..length]).replace('\0', " ")
}

#[test]
fn directories_that_were_there_keep_their_owner_and_permissions() {
    if !skip::root_or_skip() {
        return;
    }
    let scratch = dangerous();
    let image = scratch.text("image");
    for named in [true, false] {
        let out = scratch.directory(&format!("out{named}"));
        fs::create_dir(out.join("old")).unwrap();
        fs::set_permissions(&out, Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(out.join("old"), Permissions::from_mode(0o750)).unwrap();
        chown(out.join("old"), Some(9), Some(9)).unwrap();
        let mut get = Command::new(program());
        get.args(["get", "-r", &image, "/"]).current_dir(&out);
        if named {
            get.arg(".");
        }
        let got = limit::output(&mut get, limit::LONG).unwrap();
        assert_eq!(got.status.code(), Some(0), "{got:?}");
        expect(&out, (0, 0), 0o700);
        expect(&out.join("old"), (9, 9), 0o750);
        // What is new is as on the volume.
        expect(&out.join("new"), (56, 78), 0o2777);
        expect(&out.join("old/file"), (12, 34), 0o640);
        expect(&out.join("suid"), (12, 34), 0o6777);
        assert!(fs::symlink_metadata(out.join("device")).unwrap().file_type().is_char_device());
        assert!(xattrs(&out.join("open")).contains("trusted.basalt"));
        assert!(xattrs(&out.join("open")).contains("security.capability"));
    }
    let saved = scratch.directory("saved");
    fs::set_permissions(&saved, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(basalt(["rescue", "-q", &image, saved.to_str().unwrap()]).code(), 0);
    expect(&saved, (0, 0), 0o700);
    expect(&saved.join("new"), (56, 78), 0o2777);
    // A destination that the copy makes is the root directory of the volume.
    for (command, name) in [(&["get", "-r", &image, "/"][..], "copy"), (&["rescue", "-q", &image], "rescued")] {
        let new = scratch.path(name);
        let arguments = command.iter().map(OsStr::new).chain([new.as_os_str()]);
        assert_eq!(basalt(arguments).code(), 0);
        expect(&new, (56, 78), 0o1777);
    }
}

/// What a safe copy makes of the dangerous volume, by a user with a umask of 027.
#[track_caller]
fn expect_safe(out: &Path, owner: (u32, u32)) {
    expect(&out.join("suid"), owner, 0o750);
    expect(&out.join("open"), owner, 0o640);
    expect(&out.join("old/file"), owner, 0o640);
    expect(&out.join("new"), owner, 0o750);
    expect(&out.join("fifo"), owner, 0o640);
    assert_eq!(fs::symlink_metadata(out.join("device")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert!(fs::symlink_metadata(out.join("fifo")).unwrap().file_type().is_fifo());
    let names = xattrs(&out.join("open"));
    assert!(names.contains("user.basalt") && !names.contains("trusted") && !names.contains("capability"), "{names}");
    assert_eq!(fs::read(out.join("suid")).unwrap(), b"suid");
}

fn run_with_umask(words: &[&str]) -> std::process::Output {
    let mut shell = Command::new("sh");
    limit::output(shell.args(["-c", "umask 027; exec \"$@\"", "sh"]).args(words), limit::LONG).unwrap()
}

#[test]
fn a_safe_copy_hands_out_no_rights() {
    if !skip::root_or_skip() {
        return;
    }
    let scratch = dangerous();
    let image = scratch.text("image");
    for (name, command) in
        [("got", &["get", "-r", "--safe", &image, "/"][..]), ("saved", &["rescue", "--safe", &image])]
    {
        let out = scratch.text(name);
        let words = [&[program()], command, &[&out]].concat();
        let done = run_with_umask(&words);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(said.contains("device: is a device node"), "{said}");
        expect_safe(Path::new(&out), (0, 0));
        expect(Path::new(&out), (0, 0), 0o750);
    }
}

#[test]
fn copies_of_ordinary_users_are_safe_ones() {
    if !skip::root_or_skip() || !skip::tools_or_skip(&["setpriv"]) {
        return;
    }
    let scratch = dangerous();
    let image = scratch.text("image");
    for path in [scratch.dir.path(), &scratch.directory("out")] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    fs::set_permissions(scratch.path("image"), Permissions::from_mode(0o644)).unwrap();
    let as_user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", program()];
    for (name, command) in [("out/got", &["get", "-r", &image, "/"][..]), ("out/saved", &["rescue", &image])] {
        let out = scratch.text(name);
        let done = run_with_umask(&[&as_user, command, &[&out]].concat());
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        expect_safe(Path::new(&out), (65534, 65534));
    }
}
