//! Direct writes beside readers through the kernel's page cache: in the end everybody sees the same bytes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use basalt_testkit::rng::Rng;
use basalt_testkit::{limit, skip};
use rustix::fs::OFlags;

use crate::fixture::{Volume, sh};

const LEN: u64 = 2 << 20;
const PAGE: u64 = 4096;
const ROUNDS: u64 = 5;

fn read_directly(path: &Path) -> Vec<u8> {
    let file = File::options().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).unwrap();
    let mut bytes = vec![0; LEN as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Reads pages through the cache until it is stopped; the kernel reads some of them anew, as direct writes drop them.
fn read_pages(path: &Path, seed: u64, stop: &AtomicBool) {
    let (file, mut rng) = (File::open(path).unwrap(), Rng::new(seed));
    let mut page = [0; PAGE as usize];
    while !stop.load(SeqCst) {
        file.read_exact_at(&mut page, rng.below(LEN / PAGE) * PAGE).unwrap();
    }
}

fn agree_after(volume: &Volume, engine: &str) {
    let path = volume.path("file");
    for round in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers = [0, 1].map(|reader| {
                let (path, stop) = (&path, &stop);
                scope.spawn(move || read_pages(path, 100 * round + reader, stop))
            });
            let mut fio = Command::new("fio");
            fio.args(["--name=w", "--rw=randwrite", "--bs=4k", "--direct=1", "--iodepth=16", "--loops=8"]);
            fio.args([format!("--ioengine={engine}"), format!("--randseed={round}"), format!("--size={LEN}")]);
            fio.arg(format!("--filename={}", path.display())).arg("--overwrite=1");
            let output = limit::output(&mut fio, limit::LONG);
            stop.store(true, SeqCst);
            let output = output.expect("fio");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        let (cached, direct) = (fs::read(&path).unwrap(), read_directly(&path));
        let pages = cached.chunks(PAGE as usize).zip(direct.chunks(PAGE as usize));
        let stale = pages.filter(|(cached, direct)| cached != direct).count();
        assert_eq!(stale, 0, "{engine}, round {round}: pages that readers through the cache see as they were");
    }
}

#[test]
fn readers_through_the_cache_see_direct_writes() {
    let Some(volume) = Volume::new("64M") else { return };
    if !skip::tools_or_skip(&["fio"]) {
        return;
    }
    fs::write(volume.path("file"), vec![1; LEN as usize]).unwrap();
    sh(&volume.root(), "sync .");
    agree_after(&volume, "libaio");
    agree_after(&volume, "psync");
}
