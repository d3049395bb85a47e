//! Listing a directory with damaged entries: all others are delivered, however few at a time, and then the error.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;

use std::sync::Arc;

use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Error, FileSystem};
use editor::{Editor, filled_volume};

/// The names of a directory, so many at a time, and how the list ends.
fn list(fs: &F2fs, directory: u64, step: usize) -> (Vec<Vec<u8>>, Result<(), Error>) {
    let (mut names, mut from) = (Vec::new(), 0);
    loop {
        let before = names.len();
        let result = fs.read_directory(directory, from, &mut |entry| {
            if names.len() == before + step {
                return false;
            }
            names.push(entry.name.to_vec());
            from = entry.next;
            true
        });
        // As the kernel does: an error counts where nothing came with it.
        if names.len() == before {
            return (names, result);
        }
    }
}

#[test]
fn all_other_names_are_listed_before_the_error() {
    let sound = filled_volume();
    let fs = F2fs::open(Arc::new(sound.snapshot()), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let crowd = fs.lookup(fs.root(), b"crowd").unwrap().ino;
    let all = list(&fs, crowd, 1000).0;
    assert_eq!(all.len(), 702);
    // The first, one in the middle, the last, and neighbours.
    for damaged in [vec![2], vec![350], vec![701], vec![2, 3, 100, 700, 701]] {
        for text in [[0; 4], *b"a/b/"] {
            let editor = Editor::new(&sound);
            for &at in &damaged {
                let name = std::str::from_utf8(&all[at]).unwrap();
                editor.edit_name(crowd as u32, name, |bytes| *bytes = text);
            }
            let options = OpenOptions { read_only: true, ..OpenOptions::default() };
            let fs = F2fs::open(Arc::new(editor.device), options, Arc::new(SystemClock)).unwrap();
            let others: Vec<&Vec<u8>> =
                all.iter().enumerate().filter(|(at, _)| !damaged.contains(at)).map(|one| one.1).collect();
            for step in [1, 7, 1000] {
                let (names, end) = list(&fs, crowd, step);
                assert_eq!(names.iter().collect::<Vec<_>>(), others, "{damaged:?}, {step} at a time");
                assert!(
                    end.is_err_and(|error| error.to_string().contains("left out")),
                    "{damaged:?}, {step} at a time"
                );
            }
        }
    }
    assert!(list(&fs, crowd, 1).1.is_ok());
}
