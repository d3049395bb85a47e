//! Many at once.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use basalt_testkit::rng::Rng;
use basalt_testkit::tree::{MutateOptions, TreeOptions, build_random_tree, mutate_tree};
use basalt_testkit::{Manifest, limit};

use crate::fixture::Volume;
use crate::kills::{Writer, rounds};

const THREADS: u64 = 8;
/// Growing a tree on the host's file system as well takes long.
const COMPARED: u64 = 3;

/// The same tree and the same changes, wherever.
fn grow_tree(directory: &Path, seed: u64) {
    fs::create_dir(directory).unwrap();
    let options = TreeOptions { files: 100, directories: 10, crowded: 60, ..TreeOptions::default() };
    build_random_tree(directory, seed, &options).unwrap();
    for round in 0..3 {
        mutate_tree(directory, seed + round, &MutateOptions { operations: 400, ..MutateOptions::default() }).unwrap();
    }
}

#[test]
fn trees_that_grow_at_once_are_as_they_are_elsewhere() {
    let Some(volume) = Volume::with_options("1G", "commit=0.2,cache=8M") else { return };
    let place = |seed: u64| volume.path(format!("tree{seed}"));
    let over = AtomicBool::new(false);
    let _end = volume.end_after(limit::LONG);
    std::thread::scope(|scope| {
        // Somebody who keeps making everything durable, and somebody who keeps the kernel's caches small.
        let nuisance = scope.spawn(|| {
            while !over.load(SeqCst) {
                rustix::fs::syncfs(File::open(volume.root()).unwrap()).unwrap();
                fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let growing: Vec<_> = (0..THREADS)
            .map(|seed| {
                let directory = place(seed);
                scope.spawn(move || grow_tree(&directory, seed))
            })
            .collect();
        let grown: Vec<_> = growing.into_iter().map(|thread| thread.join().is_ok()).collect();
        over.store(true, SeqCst);
        nuisance.join().unwrap();
        assert!(grown.iter().all(|grown| *grown), "see above");
    });
    let here: Vec<Manifest> = (0..THREADS).map(|seed| Manifest::of(place(seed)).unwrap()).collect();
    volume.remount();
    for (seed, here) in (0..THREADS).zip(&here) {
        here.expect_same(&Manifest::of(place(seed)).unwrap(), "after mounting again");
        if seed >= COMPARED {
            continue;
        }
        let elsewhere = volume.outside(format!("tree{seed}"));
        grow_tree(&elsewhere, seed);
        Manifest::of(&elsewhere).unwrap().expect_same(here, "against the host's file system");
    }
}

/// What may go wrong when others take names away meanwhile.
fn tolerate(result: io::Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            let harmless = [
                ErrorKind::NotFound,
                ErrorKind::AlreadyExists,
                ErrorKind::IsADirectory,
                ErrorKind::NotADirectory,
                ErrorKind::DirectoryNotEmpty,
                // A directory under itself.
                ErrorKind::InvalidInput,
            ];
            assert!(harmless.contains(&error.kind()), "{error}");
            false
        }
    }
}

/// A few names in a few directories, for all threads.
fn contend(root: &Path, seed: u64, operations: u32) {
    let mut rng = Rng::new(seed);
    let place = |rng: &mut Rng| -> PathBuf { root.join(format!("d{}/n{}", rng.below(3), rng.below(6))) };
    for _ in 0..operations {
        let (a, b) = (place(&mut rng), place(&mut rng));
        match rng.below(8) {
            0..2 => tolerate(fs::write(&a, vec![seed as u8; rng.size(20_000) as usize])),
            2 => tolerate(fs::rename(&a, &b)),
            3 => tolerate(fs::hard_link(&a, &b).or_else(|error| {
                // No links to directories.
                if error.kind() == ErrorKind::PermissionDenied { Ok(()) } else { Err(error) }
            })),
            4 => tolerate(fs::remove_file(&a)),
            5 => tolerate(fs::create_dir(&a)),
            6 => tolerate(fs::remove_dir(&a)),
            _ => tolerate(fs::read(&a).map(drop)),
        };
    }
}

#[test]
fn threads_contend_for_names() {
    let Some(volume) = Volume::new("256M") else { return };
    for number in 0..3 {
        fs::create_dir(volume.path(format!("d{number}"))).unwrap();
    }
    let root = volume.root();
    let _end = volume.end_after(limit::LONG);
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let root = &root;
            scope.spawn(move || contend(root, seed, 1_500));
        }
    });
    let before = Manifest::of(&root).unwrap();
    volume.remount();
    before.expect_same(&Manifest::of(&root).unwrap(), "after mounting again");
}

#[test]
fn writers_that_use_fsync_find_what_they_wrote() {
    // `BASALT_STRESS_SECONDS=300` goes on for so long.
    let seconds = rounds("BASALT_STRESS_SECONDS", 2);
    let Some(volume) = Volume::with_options("512M", "commit=0.2,cache=8M") else { return };
    let writers: Vec<Writer> = (0..12).map(|number| Writer::new(&volume.root(), number, 77)).collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let over = AtomicBool::new(false);
    let _end = volume.end_after(limit::LONG + Duration::from_secs(seconds));
    let mut writers: Vec<Writer> = std::thread::scope(|scope| {
        let nuisance = scope.spawn(|| {
            while !over.load(SeqCst) {
                rustix::fs::syncfs(File::open(volume.root()).unwrap()).unwrap();
                fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let working: Vec<_> = writers
            .into_iter()
            .map(|mut writer| {
                scope.spawn(move || {
                    while Instant::now() < end {
                        (0..20).for_each(|_| writer.step().unwrap());
                        writer.verify("meanwhile");
                    }
                    writer
                })
            })
            .collect();
        let writers: Vec<_> = working.into_iter().map(|thread| thread.join()).collect();
        over.store(true, SeqCst);
        nuisance.join().unwrap();
        writers.into_iter().map(|writer| writer.expect("see above")).collect()
    });
    volume.remount();
    writers.iter_mut().for_each(|writer| writer.verify("after mounting again"));
}

#[test]
fn threads_append_to_one_file_and_nothing_is_lost() {
    use std::io::Write;
    let Some(volume) = Volume::new("64M") else { return };
    let path = volume.path("log");
    let append = |thread: u64| {
        let mut log = File::options().append(true).create(true).open(&path).unwrap();
        for line in 0..500 {
            log.write_all(format!("{thread} {line}\n").as_bytes()).unwrap();
        }
    };
    let _end = volume.end_after(limit::LONG);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || append(thread));
        }
    });
    volume.remount();
    let text = fs::read_to_string(&path).unwrap();
    let lines: BTreeSet<&str> = text.lines().collect();
    assert_eq!((text.lines().count(), lines.len()), (THREADS as usize * 500, THREADS as usize * 500));
    assert!((0..THREADS).all(|thread| (0..500).all(|line| lines.contains(format!("{thread} {line}").as_str()))));
}
