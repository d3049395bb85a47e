//! Volumes that Basalt reads and does not write.

use std::path::Path;

use basalt_f2fs::OpenOptions;
use basalt_testkit::hash::Hasher;
use basalt_testkit::images::{TOOLS, fsck_f2fs, mkfs_f2fs};
use basalt_testkit::manifest::{Manifest, Parts};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::tree::{TreeOptions, build_random_tree};
use basalt_testkit::variants::{Access, VARIANTS};
use basalt_testkit::{command, scratch};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, SetAttributes};

use crate::listing::manifest;
use crate::volumes::{close, open_with};

/// What sload.f2fs carries over: of owners only 16 bits.
const PARTS: &str = "no-xattrs,no-links,no-directory-links,no-top,no-times,no-owners";

#[test]
fn volumes_that_are_not_written() {
    if !tools_or_skip(TOOLS) || !tools_or_skip(&["sload.f2fs"]) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let tree = directory.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let options = "files=150,directories=15,crowded=200,max-size=300000,no-acls,no-xattrs,no-devices,no-long-names";
    build_random_tree(&tree, 12, &options.parse::<TreeOptions>().unwrap()).unwrap();
    let expected = Manifest::read(&tree, &PARTS.parse::<Parts>().unwrap()).unwrap();
    let variants: Vec<_> = VARIANTS.iter().filter(|variant| variant.basalt == Access::ReadsOnly).collect();
    assert_eq!(variants.len(), 3);
    for variant in variants {
        let image = directory.path().join(format!("{}.img", variant.name));
        mkfs_f2fs(&image, variant.size(), variant.arguments).unwrap();
        // Its status counts for nothing: it leaves i_blocks of long symbolic links to the fsck that it ends with.
        command::run("sload.f2fs", ["-P".as_ref(), "-f".as_ref(), tree.as_os_str(), image.as_os_str()]).unwrap();
        fsck_f2fs(&image).unwrap().expect_clean();
        check(&image, variant.name, &expected);
    }
}

fn check(image: &Path, name: &str, expected: &Manifest) {
    let before = fingerprint(image);
    let fs = open_with(image, OpenOptions::default());
    assert!(!fs.is_writable(), "{name}");
    assert!(fs.warnings().iter().any(|warning| warning.contains("read-only")), "{name}: {:?}", fs.warnings());
    let mut found = manifest(&fs);
    found.entries.remove(b".".as_slice());
    for entry in found.entries.values_mut() {
        (entry.xattrs, entry.links, entry.same_as, entry.mtime, entry.owner) = (None, None, None, None, None);
    }
    expected.expect_same(&found, name);
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let made = fs.create(fs.root(), b"new", &file, &Caller::default());
    assert!(matches!(made, Err(basalt_vfs::Error::ReadOnly)), "{name}: {made:?}");
    let changed = fs.set_attributes(fs.root(), &SetAttributes { permissions: Some(0), ..Default::default() });
    assert!(matches!(changed, Err(basalt_vfs::Error::ReadOnly)), "{name}: {changed:?}");
    fs.sync().unwrap();
    close(fs);
    assert_eq!(before, fingerprint(image), "{name} was written");
}

fn fingerprint(image: &Path) -> u64 {
    Hasher::of(&std::fs::read(image).unwrap())
}
