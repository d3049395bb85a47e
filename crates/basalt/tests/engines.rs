//! A second engine, in memory, under the mount, the counters and `basalt stats` that the first one has.

#[path = "../../fuse/tests/support/memory.rs"]
#[allow(dead_code, missing_docs, reason = "the file system in memory is the tests' of basalt-fuse")]
mod memory;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use basalt::failure::Failure;
use basalt::mount::MountChoices;
use basalt::mount::serve::{Job, Opened, serve_with};
use basalt_testkit::{limit, namespace};
use basalt_vfs::{Counters, Engine, Identity, Live, SegmentStates, Usage, WrittenBlocks};
use memory::MemoryFs;
use rustix::mount::UnmountFlags;
use serde_json::Value;
use support::{Finished, basalt, can_mount};

/// The pages of its flash.
const PAGE: u32 = 2048;
const PAGES: u64 = 1 << 20;

/// Tells what the file system in memory has done, as an engine on raw flash would.
impl Engine for MemoryFs {
    fn identity(&self) -> Identity {
        Identity { label: "second".to_owned(), uuid: String::new() }
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn warnings(&self) -> Vec<String> {
        vec!["everything is in memory".to_owned()]
    }

    fn counters(&self) -> Counters {
        let data_blocks = self.calls.written.load(SeqCst).div_ceil(PAGE.into());
        let syncs = self.calls.syncs.load(SeqCst);
        Counters {
            written: WrittenBlocks { data_blocks, metadata_blocks: syncs, ..WrittenBlocks::default() },
            named: [("erases/wear_leveling", 3), ("syncs", syncs)].into(),
            ..Counters::default()
        }
    }

    fn live(&self) -> Live {
        let counters = self.counters();
        Live {
            block_size: PAGE,
            usage: Usage {
                user_blocks: PAGES,
                used_blocks: counters.written.data_blocks,
                inodes: self.inode_count() as u64,
            },
            segments: SegmentStates { free: 7, ..SegmentStates::default() },
            live_data_blocks: counters.written.data_blocks,
            named: [("bad_blocks", 5)].into(),
            counters,
            ..Live::default()
        }
    }
}

/// A mount of it in this process.
struct Mounted {
    directory: PathBuf,
    server: JoinHandle<Result<(), Failure>>,
}

impl Mounted {
    /// Mounts on `directory`, with an image file as the device.
    fn new(engine: &Arc<MemoryFs>, image: &Path, directory: &Path) -> Mounted {
        let job = Job {
            target: image.to_owned(),
            directory: directory.to_owned(),
            choices: MountChoices::default(),
            wait: Duration::ZERO,
            background: false,
        };
        let (tell, ready) = mpsc::channel();
        let engine: Arc<dyn Engine> = engine.clone();
        let server = std::thread::spawn(move || {
            serve_with(&job, |_device, _profile| Ok(Opened::Volume(engine)), || tell.send(()).unwrap())
        });
        if ready.recv_timeout(limit::SHORT).is_err() {
            panic!("it does not serve: {:?}", limit::join(server, limit::SHORT).map_err(|failure| failure.line()));
        }
        Mounted { directory: directory.to_owned(), server }
    }

    fn stats(&self, option: Option<&str>) -> Finished {
        basalt(["stats".as_ref(), self.directory.as_os_str()].into_iter().chain(option.map(AsRef::as_ref)))
    }

    fn unmount(self) {
        let _alone = namespace::unmounting();
        rustix::mount::unmount(&self.directory, UnmountFlags::NOFOLLOW).unwrap();
        limit::join(self.server, limit::SHORT).map_err(|failure| failure.line()).unwrap();
    }
}

fn number(document: &Value, place: &str) -> u64 {
    document.pointer(place).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number at {place}: {document}"))
}

#[test]
fn a_second_engine_is_mounted_and_counted_like_the_first() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    // Two, since a process that serves a mount keeps the lock of its device until it ends.
    let images = ["first.img", "second.img"].map(|name| scratch.path().join(name));
    images.iter().for_each(|image| fs::File::create(image).unwrap().set_len(1 << 20).unwrap());
    let directory = scratch.path().join("mnt");
    fs::create_dir(&directory).unwrap();
    let engine = Arc::new(MemoryFs::new());

    let mount = Mounted::new(&engine, &images[0], &directory);
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    fs::create_dir(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/file"), &content).unwrap();
    basalt(["sync".as_ref(), directory.as_os_str()]).ok();

    let document = mount.stats(Some("--json")).json();
    assert_eq!((&document["format"], &document["volume"]["label"]), (&"basalt-statistics".into(), &"second".into()));
    assert_eq!(number(&document, "/live/block_size"), u64::from(PAGE));
    assert!(number(&document, "/live/statistics/written/data_blocks") >= 100_000 / u64::from(PAGE));
    assert!(number(&document, "/live/statistics/syncs") >= 1);
    assert_eq!(number(&document, "/live/statistics/erases/wear_leveling"), 3);
    assert_eq!((number(&document, "/live/bad_blocks"), number(&document, "/live/segments/free")), (5, 7));
    assert_eq!(document.pointer("/live/usage/nodes"), None, "what only F2FS has");

    let table = mount.stats(None).ok();
    for part in ["label           second", "of 2 GiB", "7 free", "erases/wear_leveling", "bad_blocks"] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    let metrics = mount.stats(Some("--prometheus")).ok();
    assert!(
        metrics.contains("name=\"bad_blocks\"} 5") && metrics.contains("name=\"erases/wear_leveling\"} 3"),
        "{metrics}"
    );
    mount.unmount();
    assert_eq!(engine.calls.closes.load(SeqCst), 1);

    // It keeps its files.
    let mount = Mounted::new(&engine, &images[1], &directory);
    assert!(fs::read(directory.join("sub/file")).unwrap() == content);
    mount.unmount();
    assert_eq!(engine.calls.closes.load(SeqCst), 2);
}
