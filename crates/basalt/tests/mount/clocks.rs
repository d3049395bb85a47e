//! One clock: what the kernel stamps and what the volume stamps come in the order in which they happened, and stay as they were shown.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

use basalt_testkit::rng::Rng;
use rustix::fs::FallocateFlags;

use crate::fixture::Volume;

const FILES: usize = 300;
/// How many may be out of order: the kernel's clock is ahead of its tick for a moment when another file system has handed out a finer time.
const OUTLIERS: usize = FILES / 20;

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn files_have_their_times_in_the_order_in_which_they_came() {
    let Some(volume) = Volume::new("128M") else { return };
    let (mut older, mut before_birth) = (0, 0);
    for number in 0..FILES {
        // The volume stamps what is only made, the kernel what is written to.
        let (made, written) = (volume.path(format!("made{number}")), volume.path(format!("written{number}")));
        File::create(&made).unwrap();
        fs::write(&written, "content").unwrap();
        older += usize::from(modified(&written) < modified(&made));
        let metadata = fs::metadata(&written).unwrap();
        before_birth += usize::from(metadata.modified().unwrap() < metadata.created().unwrap());
    }
    assert!(older <= OUTLIERS, "{older} of {FILES} files are older than one that was made before");
    assert!(before_birth <= OUTLIERS, "{before_birth} of {FILES} files were written to before they were made");
}

/// mtime and ctime of all files, by name.
fn times(volume: &Volume) -> Vec<(String, [i64; 4])> {
    let mut times: Vec<_> = fs::read_dir(volume.root())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let data = entry.metadata().unwrap();
            let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
            (entry.file_name().into_string().unwrap(), times)
        })
        .collect();
    times.sort();
    times
}

#[test]
fn times_stay_over_a_remount_whatever_changed_the_content() {
    let Some(volume) = Volume::new("256M") else { return };
    let seed = 22;
    let mut rng = Rng::new(seed);
    fs::write(volume.path("source"), vec![7; 100_000]).unwrap();
    let source = File::open(volume.path("source")).unwrap();
    for number in 0..FILES {
        let path = volume.path(format!("{number}"));
        let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        file.write_all(&[1; 5_000]).unwrap();
        if rng.chance(50) {
            drop(file);
            file = File::options().write(true).open(&path).unwrap();
        }
        for _ in 0..=rng.below(3) {
            let from = rng.below(50_000);
            match rng.below(7) {
                0 => rustix::fs::fallocate(&file, FallocateFlags::empty(), from, 4096).unwrap(),
                1 => rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, from, 4096).unwrap(),
                2 => {
                    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    rustix::fs::fallocate(&file, punch, from, 4096).unwrap();
                }
                3 => rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, from, 4096).unwrap(),
                4 => {
                    let (mut read, mut written) = (from, rng.below(10_000));
                    let copied =
                        rustix::fs::copy_file_range(&source, Some(&mut read), &file, Some(&mut written), 20_000);
                    assert_eq!(copied, Ok(20_000));
                }
                5 => file.set_len(from).unwrap(),
                _ => file.write_all_at(&[2; 100], from).unwrap(),
            }
        }
    }
    drop(source);
    let before = times(&volume);
    volume.remount();
    let changed: Vec<_> = times(&volume).into_iter().zip(before).filter(|(after, before)| after != before).collect();
    assert!(changed.is_empty(), "seed {seed}: {} of {FILES} files, after and before: {changed:#?}", changed.len());
}
