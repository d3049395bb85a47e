//! Repair of directories: the names that rescue finds come back, whatever a wrong first block or a wrong entry says.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;
#[allow(dead_code)] // Part of it is for other tests.
mod repaired;

use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_f2fs::dir::entries;
use basalt_f2fs::dir::hash::hash;
use basalt_f2fs::layout::BLOCK_SIZE;
use basalt_f2fs::layout::dentry::DentryShape;
use basalt_vfs::FileKind;
use editor::{Editor, filled_volume};
use repaired::{repair_fully, tree};

const NAME: &[u8] = b"of another directory";

/// Points the first block of `/crowd` to one of another directory, which has a name of `/small`; the address it had.
fn lead_astray(editor: &Editor) -> u32 {
    let (crowd, small) = (editor.path(&["crowd"]), editor.path(&["small"]));
    let astray = editor.geometry.main + (editor.free_segment() << 9) + 7;
    let mut block = vec![0; BLOCK_SIZE];
    let kind = entries::file_type(FileKind::Regular);
    entries::insert(&mut block, &DentryShape::BLOCK, 3, hash(NAME), NAME, small, kind);
    editor.put(astray, &block);
    let slot = editor.slot(crowd, 0);
    let before = editor.inode(crowd).slots[slot].get();
    editor.edit_inode(crowd, |inode| inode.slots[slot].set(astray));
    before
}

fn expect_all_back(harm: impl FnOnce(&Editor), what: &str) {
    let sound = filled_volume();
    let editor = Editor::new(&sound);
    harm(&editor);
    let device: Arc<dyn BlockDevice> = Arc::new(editor.device);
    let report = repair_fully(&device, what);
    let found = report.repairs.iter().any(|repair| repair.action.starts_with(what));
    assert!(found, "{what}: {:?}", report.repairs);
    assert_eq!(tree(device), tree(Arc::new(sound)), "{what}");
}

#[test]
fn the_right_block_is_found() {
    expect_all_back(|editor| _ = lead_astray(editor), "first block is of another file: found at block");
}

/// Every file remembers its name.
#[test]
fn names_come_back_without_the_block() {
    let harm = |editor: &Editor| editor.put(lead_astray(editor), &[0; BLOCK_SIZE]);
    expect_all_back(harm, "first block is of another file: now a hole");
}

/// Where only `.` and `..` are damaged, the block is the directory's all the same.
#[test]
fn damaged_dots_are_mended_where_they_are() {
    let harm = |editor: &Editor| {
        let crowd = editor.path(&["crowd"]);
        let address = editor.inode(crowd).slots[editor.slot(crowd, 0)].get();
        let mut block = editor.block(address);
        (0..2).for_each(|slot| entries::remove(&mut block, &DentryShape::BLOCK, slot));
        editor.put(address, &block);
    };
    expect_all_back(harm, "`.` leads to");
}

/// Entry and hash are damaged together: who remembers the name has it, and the other file, which has lost its entry, gets it back.
#[test]
fn an_entry_of_another_file_goes_to_who_remembers_its_name() {
    let name = |number: u32| format!("a file with a longer name {number}");
    let harm = |editor: &Editor| {
        let crowd = editor.path(&["crowd"]);
        let other = editor.find(crowd, &name(217));
        editor.edit_entry(crowd, &name(187), |raw| (raw.ino, raw.hash_code) = (other.into(), 0xFF12_3456.into()));
        editor.edit_entry(crowd, &name(217), |raw| raw.ino = 0.into());
    };
    expect_all_back(harm, "hash computed anew, and now inode");
}
