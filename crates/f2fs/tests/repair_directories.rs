//! Repair of large directories: what it reads grows as their entries do, whatever is wrong with them, and the names are as they should be.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice, Result as DeviceResult};
use basalt_f2fs::dir::hash::hash;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::dentry::RawDentry;
use basalt_f2fs::layout::inode::Advise;
use basalt_f2fs::repair::{RepairOptions, RepairReport, plan};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
use editor::Editor;
use zerocopy::IntoBytes;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
/// Entries of the smaller directory; the larger one has twice as many.
const FEW: u32 = 1500;

/// A device that counts how often it is read.
struct Counting {
    inner: MemoryDevice,
    reads: AtomicU64,
}

impl DeviceLayer for Counting {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.reads.fetch_add(1, Relaxed);
        self.inner.read_at(offset, buf)
    }
}

fn new_node(kind: FileKind) -> NewNode<'static> {
    NewNode { kind, permissions: 0o755, rdev: 0, target: b"" }
}

/// A new volume with what `fill` puts there.
fn filled(fill: impl FnOnce(&F2fs)) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(100 << 20, 512));
    let options = FormatOptions { uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    let fs = F2fs::open(shared, options, Arc::new(SystemClock)).unwrap();
    fill(&fs);
    fs.close().unwrap();
    device.snapshot()
}

/// A volume whose directory `dir` has a file `file` and so many further names of it.
fn volume(names: u32) -> MemoryDevice {
    filled(|fs| {
        let directory = fs.create(fs.root(), b"dir", &new_node(FileKind::Directory), &CALLER).unwrap().ino;
        let file = fs.create(directory, b"file", &new_node(FileKind::Regular), &CALLER).unwrap().ino;
        for index in 0..names {
            fs.link(file, directory, format!("n{index:06}").as_bytes()).unwrap();
        }
    })
}

/// Changes all the further names and their entries.
fn edit_all(editor: &Editor, change: impl Fn(&mut [u8], &mut RawDentry)) {
    let directory = editor.path(&["dir"]);
    for (name, _, entry, text) in editor.entries(directory).into_iter().filter(|(name, ..)| name.len() == 7) {
        let mut bytes = name;
        editor.edit(entry, |raw: &mut RawDentry| change(&mut bytes, raw));
        editor.edit(text, |name: &mut [u8; 7]| name.copy_from_slice(&bytes));
    }
}

/// How often a repair of such a directory reads, and what names it has then.
fn repaired(names: u32, damage: &dyn Fn(&Editor)) -> (u64, BTreeSet<String>, RepairReport) {
    let editor = Editor::new(&volume(names));
    damage(&editor);
    let device = Arc::new(Counting { inner: editor.device, reads: AtomicU64::new(0) });
    let shared: Arc<dyn BlockDevice> = device.clone();
    let planned = plan(Arc::clone(&shared), &RepairOptions::default(), &mut |_| ()).unwrap();
    let reads = device.reads.load(Relaxed);
    let report = planned.commit().unwrap();
    assert!(report.clean && report.left.is_empty(), "{:?}", report.left);
    let fs =
        F2fs::open(shared, OpenOptions { read_only: true, ..OpenOptions::default() }, Arc::new(SystemClock)).unwrap();
    let directory = fs.lookup(fs.root(), b"dir").unwrap().ino;
    let mut found = BTreeSet::new();
    fs.read_directory(directory, 0, &mut |entry| found.insert(String::from_utf8_lossy(entry.name).into_owned()))
        .unwrap();
    (reads, found, report)
}

/// Repairs a directory and one with twice as many entries: that reads about twice as often, and not more often than it has to.
#[track_caller]
fn grows_as_its_entries(what: &str, few: u32, damage: &dyn Fn(&Editor), name: &dyn Fn(u32) -> String) {
    let [one, two] = [few, 2 * few].map(|count| {
        let (reads, found, report) = repaired(count, damage);
        let fixed = [".", "..", "file"].map(str::to_owned);
        let expected: BTreeSet<String> = fixed.into_iter().chain((0..count).map(name)).collect();
        assert_eq!(found, expected, "{what}, {count} names");
        assert!(report.repaired >= count.into(), "{what}: {}", report.repaired);
        reads
    });
    assert!(two <= one * 5 / 2, "{what}: {one} reads for {few} entries, {two} for twice as many");
    // Twice what it takes, and what the checks read of the volume whatever is in it.
    assert!(one <= 10_000 + u64::from(few) * 100, "{what}: {one} reads for {few} entries");
}

fn put_slashes(editor: &Editor) {
    edit_all(editor, |name, _| name[1] = b'/');
}

fn without_slash(index: u32) -> String {
    format!("n_{index:05}")
}

#[test]
fn names_with_slashes() {
    grows_as_its_entries("slashes", FEW, &put_slashes, &without_slash);
}

/// Few of the blocks that its size tells of are there.
#[test]
fn a_size_far_too_large() {
    let damage = |editor: &Editor| {
        put_slashes(editor);
        editor.edit_inode(editor.path(&["dir"]), |inode| inode.i_size.set(1 << 40));
    };
    grows_as_its_entries("size", 200, &damage, &without_slash);
}

/// All want the same name, and get numbers.
#[test]
fn hashes_of_the_remembered_name() {
    let damage = |editor: &Editor| edit_all(editor, |_, raw| raw.hash_code.set(hash(b"file")));
    grows_as_its_entries("hashes", FEW, &damage, &|index| format!("file~{}", index + 1));
}

/// Likewise, with a name that nobody remembers.
#[test]
fn a_name_that_all_have() {
    let damage = |editor: &Editor| {
        edit_all(editor, |name, raw| {
            name.copy_from_slice(b"another");
            raw.hash_code.set(hash(b"another"));
        });
    };
    grows_as_its_entries("one name", FEW, &damage, &|index| match index {
        0 => "another".into(),
        _ => format!("another~{index}"),
    });
}

/// Files have the names of the directories that are made for what has no name.
#[test]
fn what_has_no_name_gets_one_whatever_is_in_the_way() {
    let base = filled(|fs| {
        fs.remove_directory(fs.root(), b"lost+found").unwrap();
        for name in ["lost+found", "lost+found.4294967295", "kept", "lost"] {
            fs.create(fs.root(), name.as_bytes(), &new_node(FileKind::Regular), &CALLER).unwrap();
        }
    });
    let editor = Editor::new(&base);
    let (root, kept, lost) = (editor.geometry.root_ino.get(), editor.path(&["kept"]), editor.path(&["lost"]));
    // It has no name then, and remembers none.
    editor.edit_inode(lost, |inode| inode.i_advise |= Advise::LOST_PINO.bits());
    editor.edit_entry(root, "lost", |entry| entry.ino.set(kept));
    let shared: Arc<dyn BlockDevice> = Arc::new(editor.device);
    let report = plan(Arc::clone(&shared), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean, "{:?}", report.left);
    let fs =
        F2fs::open(shared, OpenOptions { read_only: true, ..OpenOptions::default() }, Arc::new(SystemClock)).unwrap();
    let directory = fs.lookup(fs.root(), b"lost+found.1").unwrap().ino;
    assert_eq!(fs.lookup(directory, format!("#{lost}").as_bytes()).unwrap().ino, u64::from(lost));
}

/// Directories whose inodes are gone, each with a file and a block of names: all are made anew, and what is left of each is found with
/// one search of the summaries for all.
#[test]
fn directories_that_are_gone_are_found_together() {
    let directory = |index: u32| format!("gone{index:04}");
    let repaired = |count: u32| {
        let base = filled(|fs| {
            for index in 0..count {
                let name = directory(index);
                let made = fs.create(fs.root(), name.as_bytes(), &new_node(FileKind::Directory), &CALLER).unwrap().ino;
                let file = fs.create(made, b"file", &new_node(FileKind::Regular), &CALLER).unwrap().ino;
                // More than fits the inode.
                for link in 0..200 {
                    fs.link(file, made, format!("link {link}").as_bytes()).unwrap();
                }
            }
        });
        let editor = Editor::new(&base);
        for index in 0..count {
            let ino = editor.path(&[&directory(index)]);
            editor.put(editor.node_address(ino), &[0; 4096]);
            editor.edit_nat(ino, |nat| nat.block_addr.set(0));
        }
        let device = Arc::new(Counting { inner: editor.device, reads: AtomicU64::new(0) });
        let shared: Arc<dyn BlockDevice> = device.clone();
        let planned = plan(Arc::clone(&shared), &RepairOptions::default(), &mut |_| ()).unwrap();
        let reads = device.reads.load(Relaxed);
        assert!(planned.commit().unwrap().clean);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let fs = F2fs::open(shared, options, Arc::new(SystemClock)).unwrap();
        for index in 0..count {
            let made = fs.lookup(fs.root(), directory(index).as_bytes()).unwrap().ino;
            assert!(fs.lookup(made, b"file").is_ok() && fs.lookup(made, b"link 199").is_ok(), "{index} of {count}");
        }
        reads
    };
    let (few, many) = (repaired(20), repaired(80));
    assert!(many - few <= 60 * 35, "{few} reads for 20 directories, {many} for 80");
}

/// The number of buckets that a directory begins with is wrong: every name seems to be in the wrong place, and none is moved.
#[test]
fn a_wrong_number_of_buckets_moves_no_name() {
    for level in [1, 3, 31, 200] {
        let damage = |editor: &Editor| editor.edit_inode(editor.path(&["dir"]), |inode| inode.i_dir_level = level);
        let (_, found, report) = repaired(FEW, &damage);
        let fixed = [".", "..", "file"].map(str::to_owned);
        let expected: BTreeSet<String> =
            fixed.into_iter().chain((0..FEW).map(|index| format!("n{index:06}"))).collect();
        assert_eq!(found, expected, "level {level}");
        assert!(report.repairs.iter().all(|repair| !repair.action.contains("moved")), "{level}: {:?}", report.repairs);
        assert!(report.losses.is_empty(), "{level}: {:?}", report.losses);
    }
}

/// The first sector of a directory's inode is garbage: its names come back, and it is root's alone, whatever owner, permissions and set-uid
/// bits the garbage says.
#[test]
fn a_directory_with_a_garbage_head_is_nobody_elses() {
    let mut rng = Rng::new(3);
    let mut found = 0;
    for round in 0..12 {
        let editor = Editor::new(&volume(60));
        let ino = editor.path(&["dir"]);
        // Its type stays, so that it is still told from a file.
        editor.edit_inode(ino, |inode| {
            let name = inode.i_namelen;
            rng.fill(&mut inode.as_mut_bytes()[2..360]);
            (inode.i_mode, inode.i_namelen) = ((0o040_000 | rng.below(0o10000) as u16).into(), name);
            (inode.i_inline, inode.i_atime_nsec, inode.i_mtime_nsec) = (0, u32::MAX.into(), u32::MAX.into());
        });
        let device: Arc<dyn BlockDevice> = Arc::new(editor.device);
        let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert!(report.clean, "round {round}: {report:?}");
        let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        let Ok(directory) = fs.lookup(fs.root(), b"dir") else { continue };
        found += 1;
        let facts = (directory.permissions, directory.uid, directory.gid);
        assert!(matches!(facts, (0o700 | 0o755, 0, 0)), "round {round}: {directory:?}, {report:?}");
        let file = fs.lookup(directory.ino, b"file").unwrap();
        assert_eq!(file.permissions, 0o755, "round {round}");
    }
    assert!(found > 6, "{found} of 12 have their names");
}
