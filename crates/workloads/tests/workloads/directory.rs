//! A directory of whatever file system there is ends up with the same tree as the engine.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use crate::support::{SIZE, Volume};
use basalt_workloads::{DirectoryFiles, Files, Limit, Settings, Unobserved, VfsFiles, WallClock, by_name, run};

/// Every file with its size and a hash of its bytes, every directory with none.
fn tree(files: &mut dyn Files) -> BTreeMap<String, Option<(u64, u64)>> {
    let mut tree = BTreeMap::new();
    let mut directories = vec![String::new()];
    let mut buffer = vec![0; 1 << 20];
    while let Some(directory) = directories.pop() {
        // What mkfs makes is no workload's.
        for entry in files.list(&directory).unwrap().into_iter().filter(|entry| entry.name != "lost+found") {
            let path = if directory.is_empty() { entry.name } else { format!("{directory}/{}", entry.name) };
            if entry.directory {
                tree.insert(path.clone(), None);
                directories.push(path);
                continue;
            }
            let file = files.open(&path).unwrap();
            let mut hasher = DefaultHasher::new();
            let mut offset = 0;
            loop {
                let count = files.read(file, offset, &mut buffer).unwrap();
                if count == 0 {
                    break;
                }
                hasher.write(&buffer[..count]);
                offset += count as u64;
            }
            assert_eq!((files.size(file).unwrap(), files.stat(&path).unwrap()), (offset, offset), "{path}");
            files.close(file);
            tree.insert(path, Some((offset, hasher.finish())));
        }
    }
    tree
}

#[test]
fn directory_and_engine_end_up_with_the_same_tree() {
    for shape in [
        "zipf:set=4M",
        "tpcc:set=4M",
        "res:set=8M",
        "ycsb-a:set=4M",
        "fileserver:set=4M,threads=3",
        "varmail:set=2M",
        "postmark:classic,files=100,transactions=300",
        "postmark:files=20,transactions=60",
        "sysbench:set=2M",
        "create-files:files=20",
        "copy-files:files=20",
        "create-delete:set=4M",
        "file-update:random,set=4M",
        "mobile:databases=2M,pictures=8M",
    ] {
        let settings = Settings {
            size_bytes: SIZE,
            seed: 11,
            age: Some(Limit::Operations(0)),
            measure: Some(Limit::Operations(1200)),
            dummy_bytes: Some(1 << 20),
            verify: true,
            ..Settings::default()
        };
        let volume = Volume::new();
        let mut engine = VfsFiles::new(volume.engine.clone());
        let mut workload = by_name(shape, &settings).unwrap();
        let in_engine = run(&mut *workload, &settings, &mut engine, &mut Unobserved).unwrap();

        let scratch = tempfile::tempdir().unwrap();
        let mut directory = DirectoryFiles::new(scratch.path()).unwrap();
        let mut workload = by_name(shape, &settings).unwrap();
        let in_directory = run(&mut *workload, &settings, &mut directory, &mut WallClock::default()).unwrap();

        assert_eq!(in_engine.measure.operation_hash, in_directory.measure.operation_hash, "{shape}");
        assert_eq!(in_engine.measure.written_bytes, in_directory.measure.written_bytes, "{shape}");
        assert!(in_directory.measure.elapsed_ns > 0, "{shape}");
        let expected = tree(&mut engine);
        // All of PostMark's files are gone in the end if its transactions end before the limit; the dummy data stays.
        assert!(expected.len() >= 2, "{shape}: {expected:?}");
        assert_eq!(expected, tree(&mut directory), "{shape}");
    }
}

#[test]
fn errors_name_the_operation_and_the_path() {
    let volume = Volume::new();
    let scratch = tempfile::tempdir().unwrap();
    let mut engine = VfsFiles::new(volume.engine.clone());
    let mut directory = DirectoryFiles::new(scratch.path()).unwrap();
    for files in [&mut engine as &mut dyn Files, &mut directory] {
        files.make_directory("a").unwrap();
        let file = files.create("a/file").unwrap();
        let lines = [
            (files.open("a/none").map(|_| ()), "open a/none: "),
            (files.open("none/file").map(|_| ()), "open none"),
            (files.create("a/file").map(|_| ()), "create a/file: "),
            (files.make_directory("a"), "mkdir a: "),
            (files.remove_directory("a"), "rmdir a: "),
            (files.unlink("a/none"), "unlink a/none: "),
            (files.rename("a/none", "b"), "rename a/none: "),
            (files.stat("none").map(|_| ()), "stat none: "),
            (files.list("none").map(|_| ()), "list none: "),
        ];
        for (result, wanted) in lines {
            let line = result.unwrap_err().to_string();
            assert!(line.starts_with(wanted) && !line.contains('\n'), "{line}");
        }
        // A file that is open outlives its name; a closed one is known no more.
        files.write(file, 0, b"abc").unwrap();
        files.unlink("a/file").unwrap();
        let mut buffer = [0; 8];
        assert_eq!((files.read(file, 0, &mut buffer).unwrap(), &buffer[..3]), (3, &b"abc"[..]));
        files.truncate(file, 1).unwrap();
        assert_eq!(files.size(file).unwrap(), 1);
        files.close(file);
        assert!(files.size(file).is_err());
        files.rename("a", "b").unwrap();
        let names: Vec<String> = files.list("").unwrap().into_iter().map(|entry| entry.name).collect();
        assert!(names.contains(&"b".to_owned()) && !names.contains(&"a".to_owned()), "{names:?}");
        files.create("b/again").unwrap();
        assert!(files.stat("a/again").is_err());
        let space = files.space().unwrap();
        assert!(space.free <= space.total && space.total > 0);
    }
    assert!(DirectoryFiles::new(&scratch.path().join("none")).is_err());
}
