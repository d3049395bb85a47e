//! Repair where the node address table, the root or a directory is gone: everything that rescue finds is there afterwards, under its path.

#[allow(dead_code)] // Part of it is for tests/check_faults.rs.
mod editor;
#[allow(dead_code)] // Likewise.
mod repaired;

use std::sync::{Arc, OnceLock};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::FaultKind;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::inode::{Advise, InlineFlags, RawInode};
use basalt_f2fs::layout::node::RawNode;
use basalt_f2fs::layout::{Address, bit_msb};
use basalt_f2fs::repair::RepairReport;
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::images::{TOOLS, fsck_f2fs};
use basalt_testkit::rng::Rng;
use basalt_testkit::scratch;
use basalt_testkit::skip::tools_or_skip;
use basalt_vfs::{Caller, Error, FileKind, FileSystem, NewNode, XattrFlags};
use editor::Editor;
use zerocopy::FromBytes;

const ROOT: u32 = 3;
const BLOCK: usize = 4096;

fn base() -> &'static MemoryDevice {
    static BASE: OnceLock<MemoryDevice> = OnceLock::new();
    BASE.get_or_init(editor::filled_volume)
}

fn base_tree() -> &'static repaired::Tree {
    static TREE: OnceLock<repaired::Tree> = OnceLock::new();
    TREE.get_or_init(|| repaired::tree(Arc::new(base().snapshot())))
}

/// Repairs what `damage` leaves: both checkers find nothing then, and but for `harms` every path is as it was.
fn repair(what: &str, damage: impl FnOnce(&Editor), harms: &[&str]) -> RepairReport {
    let editor = Editor::new(base());
    damage(&editor);
    let device = Arc::new(editor.device);
    let shared: Arc<dyn BlockDevice> = device.clone();
    let report = repaired::repair_fully(&shared, what);
    assert!(report.losses.is_empty(), "{what}: {:?}", report.losses);
    let done: String = report.repairs.iter().take(20).map(|repair| format!("\n  {repair}")).collect();
    assert_eq!(repaired::differences(base_tree(), &repaired::tree(shared)), harms, "{what}{done}");
    if tools_or_skip(TOOLS) {
        let directory = scratch::directory().unwrap();
        let image = directory.path().join("volume.img");
        repaired::save(&device, &image);
        fsck_f2fs(&image).unwrap().expect_clean();
    }
    report
}

#[test]
fn an_entry_that_leads_to_anothers_node_costs_nobody_a_file() {
    for (first, second) in [("small", "big"), ("big", "small"), ("pipe", "crowd"), ("crowd", "pipe")] {
        let what = format!("the entry of {first} leads to {second}");
        let damage = |e: &Editor| {
            let entry = e.nat(e.path(&[second]));
            e.edit_nat(e.path(&[first]), |nat| *nat = entry);
        };
        let report = repair(&what, damage, &[]);
        assert!(report.restored_nodes, "{what}");
    }
}

/// Its hash and its being there twice are two faults, and one repair mends both.
#[test]
fn a_name_damaged_into_another_is_what_it_was() {
    repair("pipe is called link", |e| e.edit_name(ROOT, "pipe", |name| *name = *b"link"), &[]);
}

/// One has come to the name that another one had, or each to the other's.
#[test]
fn names_damaged_into_each_others_are_what_they_were() {
    for (first, second) in [("pipe", "link"), ("link", "pipe")] {
        let take = |e: &Editor, other: &str| {
            // Entries are found by their names: the first gets a name that nobody has, so that the second can be found.
            e.edit_name(ROOT, first, |name| *name = *b"none");
            e.edit_name(ROOT, second, |name| name.copy_from_slice(first.as_bytes()));
            e.edit_name(ROOT, "none", |name| name.copy_from_slice(other.as_bytes()));
        };
        repair(&format!("{second} is called {first}, which is gone"), |e| take(e, "none"), &[]);
        repair(&format!("{second} and {first} have changed places"), |e| take(e, second), &[]);
    }
}

/// The name of `.` takes in those behind it, and a directory is in itself.
#[test]
fn a_dot_that_is_too_long_costs_no_name() {
    let damage = |e: &Editor| {
        let outer = e.path(&["outer"]);
        e.edit_entry(outer, ".", |entry| entry.name_len.set(33));
    };
    repair("a dot of 33 bytes", damage, &[]);
}

/// One repair gives the inode a right checksum; what only that had told is looked at first.
#[test]
fn a_directory_of_blocks_said_to_be_inline_keeps_its_names() {
    let wrong = InlineFlags::DATA | InlineFlags::DENTRY;
    let damage = |e: &Editor| e.edit_inode(e.path(&["crowd"]), |inode| inode.i_inline |= wrong.bits());
    repair("a large directory is inline", damage, &[]);
}

/// As before, and it has lost its extra attributes, with which the checksum goes.
#[test]
fn a_directory_of_blocks_said_to_be_inline_without_extra_attributes_keeps_its_names() {
    let damage = |e: &Editor| {
        let damage = |inode: &mut RawInode| {
            inode.i_inline &= !InlineFlags::EXTRA_ATTR.bits();
            inode.i_inline |= InlineFlags::DENTRY.bits();
        };
        let ino = e.path(&["crowd"]);
        e.edit((e.node_address(ino), 0), damage);
    };
    repair("a large directory is inline, and has no extra attributes", damage, &[]);
}

/// An inode is gone, and the node of its attributes belongs to nobody.
#[test]
fn nodes_that_belong_to_no_file_are_freed_for_good() {
    let damage = |e: &Editor| {
        let ino = e.path(&["more attributes"]);
        e.put(e.node_address(ino), &[0xFF; BLOCK]);
    };
    repair("an inode of ones", damage, &["/more attributes"]);
}

/// What is behind the end of a file in its inode is not the file's.
#[test]
fn bytes_behind_the_end_make_no_file_longer() {
    let damage = |e: &Editor| {
        let (small, slot) = (e.path(&["small"]), e.slot(e.path(&["small"]), 700));
        e.edit_inode(small, |inode| {
            inode.i_inline &= !InlineFlags::DATA_EXIST.bits();
            inode.slots[slot].set(7);
        });
    };
    repair("bytes behind the end", damage, &[]);
}

#[test]
fn swapped_entries_are_swapped_back() {
    let damage = |e: &Editor| {
        let (one, other) = (e.path(&["small"]), e.path(&["big"]));
        let (first, second) = (e.nat(one), e.nat(other));
        e.edit_nat(one, |nat| *nat = second);
        e.edit_nat(other, |nat| *nat = first);
    };
    repair("entries of two files swapped", damage, &[]);
    let damage = |e: &Editor| {
        let (one, other) = (e.path(&["small"]), e.path(&["big"]));
        let (first, second) = (e.nat(one).block_addr, e.nat(other).block_addr);
        e.edit_nat(one, |nat| nat.block_addr = second);
        e.edit_nat(other, |nat| nat.block_addr = first);
    };
    repair("addresses of two files swapped", damage, &[]);
}

/// Blocks of the NAT: all, or only one, in the copy that counts.
fn nat_blocks(e: &Editor, one: Option<u32>) -> Vec<Address> {
    let g = &e.geometry;
    match one {
        Some(index) => vec![g.nat_block(index, bit_msb(&e.loaded.nat_bitmap, index as usize))],
        None => Address::all(g.nat..g.ssa).collect(),
    }
}

#[test]
fn a_node_address_table_that_is_gone_is_found_again() {
    for one in [Some(0), Some(1), None] {
        for garbage in [false, true] {
            let what = format!("NAT block {one:?}, garbage {garbage}");
            let damage = |e: &Editor| {
                let mut rng = Rng::new(5);
                let mut block = vec![0; BLOCK];
                for address in nat_blocks(e, one) {
                    if garbage {
                        rng.fill(&mut block);
                    }
                    e.put(address, &block);
                }
            };
            let report = repair(&what, damage, &[]);
            assert!(report.restored_nodes, "{what}");
        }
    }
}

#[test]
fn the_check_names_nodes_that_the_table_has_lost() {
    let editor = Editor::new(base());
    let ino = editor.path(&["small"]);
    editor.edit_nat(ino, |nat| nat.block_addr.set(0));
    let report = repaired::checked(&editor.device);
    let lost: Vec<String> =
        report.faults.iter().filter(|fault| fault.kind == FaultKind::NatMissing).map(ToString::to_string).collect();
    assert_eq!(lost.len(), 1, "{:?}", report.faults);
    assert!(lost[0].contains(&format!("node {ino}")) && lost[0].contains("free"), "{lost:?}");
}

#[test]
fn a_root_that_is_gone_gets_its_names_back() {
    for fill in [0, 0xFF] {
        let damage = |e: &Editor| e.put(e.node_address(ROOT), &[fill; BLOCK]);
        // Nothing remembers the second name of a file, nor what the root's own attributes were.
        repair("the root's inode", damage, &[]);
    }
}

#[test]
fn a_directory_that_is_gone_keeps_its_path() {
    let damage = |e: &Editor| e.put(e.node_address(e.path(&["outer", "inner"])), &[0; BLOCK]);
    repair("a directory's inode", damage, &["/outer/inner/"]);
    // Its names with it: what was in it is below a directory with its number.
    let editor = Editor::new(base());
    let outer = editor.path(&["outer"]);
    editor.put(editor.node_address(outer), &[0; BLOCK]);
    editor.edit_entry(ROOT, "outer", |entry| entry.ino.set(40_000));
    let shared: Arc<dyn BlockDevice> = Arc::new(editor.device);
    repaired::repair_fully(&shared, "a directory and its name");
    let paths: Vec<String> = repaired::tree(shared).into_keys().filter(|path| path.contains("innermost")).collect();
    assert_eq!(paths, [format!("/lost+found/#{outer}/inner/innermost/")]);
}

#[test]
fn blocks_of_names_that_are_gone_are_written_again() {
    let damage = |e: &Editor| {
        let blocks: std::collections::BTreeSet<Address> =
            e.entries(e.path(&["crowd"])).iter().map(|entry| entry.2.0).collect();
        blocks.into_iter().step_by(2).for_each(|block| e.put(block, &[0; BLOCK]));
    };
    repair("every other block of a directory", damage, &[]);
}

#[test]
fn nodes_of_a_large_file_find_their_places_without_those_above_them() {
    for at in [2, 4] {
        let damage = |e: &Editor| {
            let big = e.path(&["big"]);
            let nid = e.inode(big).i_nid[at].get();
            e.put(e.node_address(nid), &[0xFF; BLOCK]);
            e.edit_nat(nid, |nat| nat.block_addr.set(0));
            e.edit_inode(big, |inode| inode.i_nid[at].set(50_000));
        };
        repair("an indirect node, its entry and its pointer", damage, &[]);
    }
}

/// Three have changed places: each comes back.
#[test]
fn three_names_damaged_into_each_others_are_what_they_were() {
    let base = editor::filled_volume();
    let before = repaired::tree(Arc::new(base.snapshot()));
    let names = ["small", "crowd", "outer"];
    for order in [[0, 1, 2], [0, 2, 1]] {
        let editor = Editor::new(&base);
        let spots = names.map(|name| editor.entry(3, name).3);
        for (at, to) in [(0, 1), (1, 2), (2, 0)] {
            let name: [u8; 5] = names[order[to]].as_bytes().try_into().unwrap();
            editor.edit(spots[order[at]], |bytes: &mut [u8; 5]| *bytes = name);
        }
        editor.renew_checksum(3);
        let device: Arc<dyn BlockDevice> = Arc::new(editor.device);
        let report = repaired::repair_fully(&device, "three names");
        let done: String = report.repairs.iter().map(|repair| format!("\n  {repair}")).collect();
        assert_eq!(repaired::differences(&before, &repaired::tree(device)), [""; 0], "{order:?}{done}");
    }
}

/// An entry in `crowd` leads to `small`, whose own entry in the root is gone. The one that has a place keeps it, but where it surely does
/// not belong there: tests/damage has a volume with such a one (seed 90326).
#[test]
fn a_place_is_kept_where_it_may_be_right() {
    const PLACE: &str = "a file with a longer name 5";
    let take = |e: &Editor, change: fn(&mut RawInode, u32)| {
        let (crowd, small) = (e.path(&["crowd"]), e.path(&["small"]));
        e.edit_inode(small, |inode| change(inode, crowd));
        e.edit_entry(crowd, PLACE, |entry| entry.ino.set(small));
        e.edit_entry(ROOT, "small", |entry| entry.ino.set(e.geometry.node_ids().get() - 1));
    };
    type Change = fn(&mut RawInode, u32);
    let stays: [(&str, Change); 5] = [
        ("its first name may have been removed: the root has lost no others", |_, _| ()),
        ("Linux renamed it", |inode, _| inode.i_advise |= Advise::LOST_PINO.bits()),
        ("it has another link", |inode, _| inode.i_links.set(2)),
        ("it was in this directory", |inode, crowd| inode.i_pino.set(crowd)),
        ("another has its place", |inode, _| {
            inode.i_namelen.set(4);
            inode.i_name[..5].copy_from_slice(b"link\0");
        }),
    ];
    for (what, change) in stays {
        let editor = Editor::new(base());
        let place = format!("/crowd/{PLACE}");
        let numbered = format!("{place}~{}", editor.path(&["crowd", PLACE]));
        take(&editor, change);
        let shared: Arc<dyn BlockDevice> = Arc::new(editor.device.snapshot());
        repaired::repair_fully(&shared, what);
        let differences = repaired::differences(base_tree(), &repaired::tree(shared));
        assert_eq!(differences, [place, "/small".into(), numbered], "{what}");
    }
}

/// Two directories without a name remember one that is below the second: that cannot be, and it stays where it is.
#[test]
fn directories_that_remember_one_below_them_stay_above_it() {
    let editor = Editor::new(base());
    let (root, crowd, outer, inner) =
        (ROOT, editor.path(&["crowd"]), editor.path(&["outer"]), editor.path(&["outer", "inner"]));
    let nobody = editor.geometry.node_ids().get() - 1;
    for ino in [crowd, outer] {
        editor.edit_inode(ino, |inode| inode.i_pino.set(inner));
    }
    editor.edit_entry(root, "crowd", |entry| entry.ino.set(nobody));
    editor.edit_entry(root, "outer", |entry| entry.ino.set(nobody - 1));
    let shared: Arc<dyn BlockDevice> = Arc::new(editor.device);
    repaired::repair_fully(&shared, "a circle");
    let after = repaired::tree(shared);
    assert!(after.keys().any(|k| k.ends_with("inner/innermost/")), "{:?}", after.keys().take(20).collect::<Vec<_>>());
}

/// A file with attributes that go on in a node.
fn with_xattrs() -> (MemoryDevice, Vec<u8>) {
    let device = Arc::new(MemoryDevice::new(64 << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"file", &file, &Caller::default()).unwrap().ino;
    let value: Vec<u8> = (0..177).map(|at| at as u8 | 1).collect();
    fs.set_xattr(ino, b"user.first", &value, XattrFlags::empty()).unwrap();
    fs.set_xattr(ino, b"user.large", &[9; 1500], XattrFlags::empty()).unwrap();
    fs.close().unwrap();
    drop(fs);
    (device.snapshot(), value)
}

/// Garbage in such a node does not become a part of a value; where only its footer is wrong, all attributes stay.
#[test]
fn garbage_does_not_become_an_attribute() {
    let (image, value) = with_xattrs();
    for seed in 0..16 {
        let is_footer = seed % 2 == 0;
        let editor = Editor::new(&image);
        let node = editor.node_address(editor.inode(editor.path(&["file"])).i_xattr_nid.get());
        let mut bytes = editor.block(node).to_vec();
        Rng::new(seed).fill(if is_footer { &mut bytes[4072..] } else { &mut bytes[..] });
        editor.put(node, &bytes);
        let device: Arc<dyn BlockDevice> = Arc::new(editor.device);
        repaired::repair_fully(&device, "garbage in a node of attributes");
        let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
        for (name, expected) in [(&b"user.first"[..], &value[..]), (b"user.large", &[9; 1500])] {
            match fs.get_xattr(ino, name) {
                Ok(found) => assert_eq!(found, expected, "seed {seed}"),
                Err(error) => assert!(!is_footer && matches!(error, Error::NoAttribute), "seed {seed}: {error:?}"),
            }
        }
    }
}

/// A block of the table is lost, and a damaged footer makes a node of `/big` claim the id of `/crowd`: both blocks are live, so only one is right,
/// whichever was written later. What the node led to may be lost; the directory is not.
#[test]
fn a_footer_with_the_id_of_a_directory_costs_no_name() {
    for is_later in [false, true] {
        let device = Arc::new(base().snapshot());
        if is_later {
            let shared: Arc<dyn BlockDevice> = device.clone();
            let fs = F2fs::open(shared, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
            let big = fs.lookup(fs.root(), b"big").unwrap().ino;
            fs.write(big, 1000 * 4096, b"later", false).unwrap();
            // The journal of the table is full then, and all entries go to the table.
            let crowd = fs.lookup(fs.root(), b"crowd").unwrap().ino;
            for index in 0..200 {
                let ino = fs.lookup(crowd, format!("a file with a longer name {index}").as_bytes()).unwrap().ino;
                fs.write(ino, 0, b"changed", false).unwrap();
            }
            fs.close().unwrap();
        }
        let editor = Editor::new(&device);
        let (crowd, big) = (editor.path(&["crowd"]), editor.path(&["big"]));
        let direct = editor.inode(big).i_nid[0].get();
        editor.edit_node(direct, |node| node.footer.nid.set(crowd));
        for block in nat_blocks(&editor, Some(crowd / 455)) {
            editor.put(block, &[0; BLOCK]);
        }
        let before = repaired::tree(device);
        let damaged: Arc<dyn BlockDevice> = Arc::new(editor.device);
        let what = format!("later {is_later}");
        let report = repaired::repair_fully(&damaged, &what);
        assert!(report.losses.is_empty(), "{what}: {:?}", report.losses);
        let differences = repaired::differences(&before, &repaired::tree(damaged));
        assert!(differences.iter().all(|path| path == "/big"), "{what}: {differences:?}");
    }
}

/// A node below `/big` that its entry, or its footer, takes for an inode, each against two others of entry, inode in the footer and offset
/// there: it stays what it is.
#[test]
fn a_node_that_one_of_three_takes_for_an_inode_is_none() {
    type Find = fn(&Editor) -> u32;
    let nodes: [(&str, Find); 3] = [
        ("a direct node", |e| e.inode(e.path(&["big"])).i_nid[1].get()),
        ("an indirect node", |e| e.inode(e.path(&["big"])).i_nid[2].get()),
        ("a node of attributes", |e| e.inode(e.path(&["more attributes"])).i_xattr_nid.get()),
    ];
    for (what, find) in nodes {
        let entry = |e: &Editor| e.edit_nat(find(e), |nat| nat.ino.set(find(e)));
        repair(&format!("{what}, by its entry"), entry, &[]);
        let footer = |e: &Editor| e.edit_node(find(e), |node| node.footer.ino.set(find(e)));
        repair(&format!("{what}, by its footer"), footer, &[]);
    }
}

/// An inode with a wrong offset in its footer, to which a node of `/big` leads: a pointer makes no inode a part of a file.
#[test]
fn an_inode_that_a_node_of_another_leads_to_stays_one() {
    let damage = |e: &Editor| {
        let (big, linked) = (e.path(&["big"]), e.path(&["linked"]));
        e.edit_node(e.inode(big).i_nid[2].get(), |node| node.slots[700].set(linked));
        e.edit_inode(linked, |inode| inode.footer.flag.set(inode.footer.flag.get() | 5 << 3));
    };
    repair("an inode below an indirect node", damage, &[]);
}

/// A node that its entry, or its footer, takes for an inode, and to which nothing leads any more: it comes back to its file.
#[test]
fn a_node_without_a_pointer_that_is_taken_for_an_inode_comes_back() {
    for by_footer in [false, true] {
        let damage = |e: &Editor| {
            let big = e.path(&["big"]);
            let direct = e.inode(big).i_nid[1].get();
            match by_footer {
                true => e.edit_node(direct, |node| node.footer.ino.set(direct)),
                false => e.edit_nat(direct, |nat| nat.ino.set(direct)),
            }
            e.edit_inode(big, |inode| inode.i_nid[1].set(0));
        };
        repair(&format!("a direct node without a pointer, by its footer: {by_footer}"), damage, &[]);
    }
}

/// A block of another counts as given up for the file whose node led there, also while nothing leads to that node.
#[test]
fn a_block_of_another_is_no_loss_for_a_file_whose_indirect_node_is_gone() {
    let damage = |e: &Editor| {
        let (big, crowd) = (e.path(&["big"]), e.path(&["crowd"]));
        let indirect = e.inode(big).i_nid[2].get();
        let node = RawNode::read_from_bytes(&e.block(e.node_address(indirect))).unwrap();
        let direct = node.slots.iter().map(|slot| slot.get()).find(|nid| *nid != 0).unwrap();
        let names = e.inode(crowd).slots[e.slot(crowd, 0)];
        e.edit_node(direct, |node| node.slots[900] = names);
        e.put(e.node_address(indirect), &[0xFF; BLOCK]);
    };
    let report = repair("a block of names in a file, and no way to it", damage, &[]);
    assert!(report.repairs.iter().any(|one| one.kind == FaultKind::BlockDuplicate), "{:?}", report.repairs);
}

/// Eight bytes in a row of an inode's footer are damaged, its inode and its offset. Its entry, its id, all it holds and the names that lead to
/// it are right. Up to 9821fec a repair gave it its footer back.
#[test]
fn an_inode_with_eight_damaged_bytes_in_its_footer_stays_one() {
    for path in ["linked", "pipe", "big", "crowd"] {
        for (what, ino, flag) in [("zeros and ones", 0, u32::MAX), ("garbage", 0x1234_5678, 0x9ABC_DEF0)] {
            let damage = |e: &Editor| {
                e.edit_inode(e.path(&[path]), |inode| {
                    inode.footer.ino.set(ino);
                    inode.footer.flag.set(flag);
                });
            };
            repair(&format!("{path}: {what}"), damage, &[]);
        }
    }
}

/// The same of the root.
#[test]
fn a_root_with_eight_damaged_bytes_in_its_footer_stays_one() {
    let damage = |e: &Editor| {
        e.edit_inode(ROOT, |inode| {
            inode.footer.ino.set(0x1234_5678);
            inode.footer.flag.set(0x9ABC_DEF0);
        });
    };
    repair("the root", damage, &[]);
}

/// Its entry and its offset are damaged; both ids in the footer, all it holds and the names that lead to it are right.
#[test]
fn an_inode_with_a_damaged_entry_and_offset_stays_one() {
    for path in ["linked", "pipe", "big", "crowd"] {
        let damage = |e: &Editor| {
            let ino = e.path(&[path]);
            e.edit_inode(ino, |inode| inode.footer.flag.set(0x9ABC_DEF0));
            e.edit_nat(ino, |nat| nat.ino.set(0x1234));
        };
        repair(path, damage, &[]);
    }
}
