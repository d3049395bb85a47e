//! What is there after the serving process was killed the instant a call returned.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use basalt_testkit::rng::Rng;
use basalt_testkit::tree::{MutateOptions, TreeOptions, build_random_tree, mutate_tree};
use basalt_testkit::{Manifest, skip};

use crate::fixture::{Volume, sh, unmount_by_call, wait_for};
use crate::support::basalt;

/// Since when the kernel passes sync(2) and syncfs(2) on to the server of a block device.
const SYNCFS_SINCE: (u32, u32) = (6, 18);

fn kernel_passes_sync_on() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let release = release.trim();
    let mut numbers = release.split('.').map_while(|number| number.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < SYNCFS_SINCE {
        skip::skip(format_args!("Linux {release} passes no sync on"));
    }
    version >= SYNCFS_SINCE
}

/// Writes a tree, partly over an older one that is durable already, and calls `done`. Kills the server when that returns.
/// Everything must be there.
#[track_caller]
fn all_is_there_after(options: &str, what: &str, done: impl Fn(&Volume)) {
    let Some(volume) = Volume::with_options("512M", options) else { return };
    let tree = volume.path("tree");
    fs::create_dir(&tree).unwrap();
    build_random_tree(&tree, 21, &TreeOptions::default()).unwrap();
    basalt(["sync".as_ref(), volume.root().as_os_str()]).ok();
    for round in 0..3 {
        mutate_tree(&tree, round, &MutateOptions { operations: 300, ..MutateOptions::default() }).unwrap();
        let large = vec![round as u8 + 1; 20 << 20];
        fs::write(tree.join("large"), &large).unwrap();
        let before = Manifest::of(&tree).unwrap();
        // Dirty in the kernel's memory until the call hands it over.
        fs::write(volume.path("late"), &large[round as usize..]).unwrap();
        let open = File::create(volume.path("open")).unwrap();
        (&open).write_all(b"still open").unwrap();
        // What is in use cannot be unmounted.
        let open = if what == "umount" {
            drop(open);
            None
        } else {
            Some(open)
        };
        done(&volume);
        volume.kill_server();
        drop(open);
        volume.clean_up();
        volume.expect_clean();
        volume.mount();
        before.expect_same(&Manifest::of(&tree).unwrap(), what);
        assert!(fs::read(volume.path("late")).unwrap() == large[round as usize..], "{what}: written last");
        assert_eq!(fs::read(volume.path("open")).unwrap(), b"still open", "{what}");
    }
}

#[test]
fn sync_means_sync() {
    if kernel_passes_sync_on() {
        all_is_there_after("", "sync", |_| rustix::fs::sync());
    }
}

#[test]
fn syncfs_means_sync() {
    if kernel_passes_sync_on() {
        all_is_there_after("", "syncfs", |volume| {
            rustix::fs::syncfs(File::open(volume.root()).unwrap()).unwrap();
        });
    }
}

#[test]
fn umount_means_sync() {
    all_is_there_after("", "umount", |volume| {
        unmount_by_call(&volume.root());
    });
}

#[test]
fn basalt_sync_means_sync_everywhere() {
    for options in ["", "noloop"] {
        all_is_there_after(options, "basalt sync", |volume| {
            basalt(["sync".as_ref(), volume.root().as_os_str()]).ok();
        });
    }
}

#[test]
fn basalt_umount_waits_everywhere() {
    all_is_there_after("noloop", "umount", Volume::unmount);
}

#[test]
fn what_was_closed_is_durable_within_the_commit_time() {
    for options in ["commit=0.5", "noloop,commit=0.5"] {
        let Some(volume) = Volume::with_options("128M", options) else { return };
        for number in 0..100 {
            fs::write(volume.path(format!("file{number}")), vec![number; 10_000]).unwrap();
        }
        fs::create_dir(volume.path("directory")).unwrap();
        fs::rename(volume.path("file0"), volume.path("directory/moved")).unwrap();
        // The time itself, and as much again for the work.
        std::thread::sleep(Duration::from_millis(1_500));
        volume.kill();
        volume.expect_clean();
        volume.mount();
        assert_eq!(fs::read(volume.path("directory/moved")).unwrap(), [0; 10_000]);
        for number in 1..100 {
            assert_eq!(fs::read(volume.path(format!("file{number}"))).unwrap(), vec![number; 10_000], "{options}");
        }
    }
}

#[test]
fn fsync_makes_a_file_and_its_name_durable() {
    let Some(volume) = Volume::new("128M") else { return };
    for round in 0..5_u8 {
        let directory = volume.path(format!("new{round}/below"));
        fs::create_dir_all(&directory).unwrap();
        let mut file = File::create(directory.join("file")).unwrap();
        file.write_all(&vec![round; 100_000]).unwrap();
        file.sync_all().unwrap();
        fs::rename(directory.join("file"), directory.join("renamed")).unwrap();
        File::open(&directory).unwrap().sync_all().unwrap();
        volume.kill_server();
        drop(file);
        volume.clean_up();
        volume.expect_clean();
        volume.mount();
        assert_eq!(fs::read(directory.join("renamed")).unwrap(), vec![round; 100_000]);
        assert!(!directory.join("file").exists());
    }
}

/// Writes numbered files, now and then makes them durable, and says up to which. Ends when the mount does.
fn write_numbered(volume: &Volume, first: u64, durable: &AtomicU64) {
    let root = volume.root();
    for number in first.. {
        let content = content_of(number);
        if fs::write(root.join(format!("n{number}")), &content).is_err() {
            return;
        }
        if number % 16 == 15 {
            let synced = File::open(&root).and_then(|root| Ok(rustix::fs::syncfs(root)?));
            if synced.is_err() || fs::metadata(&root).is_err() {
                return;
            }
            durable.store(number + 1, SeqCst);
        }
    }
}

fn content_of(number: u64) -> Vec<u8> {
    let mut content = vec![0; 1_000 + (number * 977 % 40_000) as usize];
    Rng::new(number).fill(&mut content);
    content
}

/// Changes a tree for as long as the mount lives.
fn change_without_end(tree: &Path, seed: u64, over: &AtomicBool) {
    for number in 0.. {
        let options = MutateOptions { operations: 50, stop_when_full: true, ..MutateOptions::default() };
        if over.load(SeqCst) || mutate_tree(tree, seed * 1_000 + number, &options).is_err() {
            return;
        }
    }
}

#[test]
fn a_kill_under_load_leaves_a_whole_volume_with_all_that_was_synced() {
    if !kernel_passes_sync_on() {
        return;
    }
    let Some(volume) = Volume::with_options("256M", "commit=0.2,checkpoint=0.3,cache=8M") else { return };
    let trees = [volume.path("tree0"), volume.path("tree1")];
    for (seed, tree) in trees.iter().enumerate() {
        fs::create_dir(tree).unwrap();
        build_random_tree(tree, seed as u64, &TreeOptions::default()).unwrap();
    }
    let durable = AtomicU64::new(0);
    let mut rng = Rng::new(5);
    for round in 0..6 {
        let over = AtomicBool::new(false);
        let first = durable.load(SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| write_numbered(&volume, first, &durable));
            for (seed, tree) in trees.iter().enumerate() {
                let over = &over;
                scope.spawn(move || change_without_end(tree, round * 2 + seed as u64, over));
            }
            std::thread::sleep(Duration::from_millis(100 + rng.below(700)));
            volume.kill_server();
            over.store(true, SeqCst);
        });
        volume.clean_up();
        volume.expect_clean();
        volume.mount();
        for number in 0..durable.load(SeqCst) {
            let read = fs::read(volume.path(format!("n{number}")));
            assert!(read.is_ok_and(|read| read == content_of(number)), "round {round}: file {number}");
        }
    }
    assert!(durable.load(SeqCst) > 0, "nothing was ever durable");
}

#[test]
fn signals_end_in_a_clean_volume() {
    let Some(volume) = Volume::new("128M") else { return };
    for signal in ["TERM", "INT", "HUP"] {
        fs::write(volume.path(signal), vec![7; 1 << 20]).unwrap();
        let server = volume.server().expect("serving").as_raw_nonzero();
        sh(&volume.outside(""), &format!("kill -{signal} {server}"));
        wait_for("the end of the server", || volume.server().is_none() && !volume.is_mounted());
        volume.wait_for_release();
        let info = basalt(["info".as_ref(), "--json".as_ref(), volume.image().as_os_str()]).json();
        assert_eq!(info["checkpoint"]["clean"], true, "{signal}: {info}");
        volume.expect_clean();
        volume.mount();
        assert_eq!(fs::read(volume.path(signal)).unwrap(), vec![7; 1 << 20]);
    }
}

#[test]
fn a_hasty_command_waits_for_the_volume_to_be_closed() {
    let Some(volume) = Volume::with_options("512M", "noloop") else { return };
    fs::write(volume.path("large"), vec![1; 60 << 20]).unwrap();
    // On a plain FUSE mount umount(8) does not wait: the check does.
    let umount = Command::new("umount").arg(volume.root()).stdin(Stdio::null()).status().unwrap();
    assert!(umount.success());
    let check = basalt(["fsck".as_ref(), volume.image().as_os_str()]);
    assert_eq!(check.code(), 0, "{}", check.err());
    volume.mount();
    assert_eq!(fs::metadata(volume.path("large")).unwrap().len(), 60 << 20);
}
