//! Nodes whose damaged footer has another node's id, while that one cannot be recognised: both stay, whatever else is damaged.
//!
//! The volume has four files of many nodes. In each case a node of one *poses* as a node of another, which has one impossible address.

// Other tests use the rest of these three.
#[allow(dead_code)]
mod editor;
#[allow(dead_code)]
#[path = "damage/reading.rs"]
mod reading;
#[allow(dead_code)]
#[path = "damage/verdict.rs"]
mod verdict;

use std::sync::{Arc, OnceLock};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, XattrFlags};
use editor::Editor;
use reading::Reading;

/// Addresses in an inode, and in a direct node.
const IN_INODE: u64 = 923;
const IN_NODE: u64 = 1018;
/// An address that no volume of this size has.
const IMPOSSIBLE: u32 = 0x7FFF_FF00;
/// A slot of a direct node that no file here uses.
const UNUSED: usize = 900;
/// Files that fill the table of nodes: with as many, all entries are in its blocks; with none, all are in the checkpoint's journal.
const CROWDS: [usize; 2] = [200, 0];

struct Volume {
    device: MemoryDevice,
    reading: Reading,
}

/// `/a` to `/d`: eight blocks in each of five direct nodes, at offsets 1, 2, 4, 5 and 6; and a node of attributes.
fn volumes() -> &'static [Volume; 2] {
    static VOLUMES: OnceLock<[Volume; 2]> = OnceLock::new();
    VOLUMES.get_or_init(|| CROWDS.map(volume))
}

fn create(fs: &F2fs, name: &str) -> u64 {
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), name.as_bytes(), &node, &Caller::default()).unwrap().ino;
    fs.forget(ino, 1);
    ino
}

/// Writes the blocks of a file.
fn fill(fs: &F2fs, ino: u64, rng: &mut Rng) {
    for node in 0..5 {
        let mut bytes = vec![0; 8 * 4096];
        rng.fill(&mut bytes);
        fs.write(ino, (IN_INODE + node * IN_NODE) * 4096, &bytes, false).unwrap();
    }
}

/// An open volume with the files.
fn filled(device: &Arc<MemoryDevice>, crowd: usize, rng: &mut Rng) -> (F2fs, [u64; 4]) {
    let options = FormatOptions { uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
    format(&**device, &options, &mut |_, _| ()).unwrap();
    let shared: Arc<dyn BlockDevice> = Arc::clone(device) as Arc<dyn BlockDevice>;
    let fs = F2fs::open(shared, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    for index in 0..crowd {
        create(&fs, &format!("file {index}"));
    }
    let files = ["a", "b", "c", "d"].map(|name| {
        let ino = create(&fs, name);
        fill(&fs, ino, rng);
        fs.set_xattr(ino, b"user.long", &[7; 2000], XattrFlags::empty()).unwrap();
        ino
    });
    (fs, files)
}

fn volume(crowd: usize) -> Volume {
    let device = Arc::new(MemoryDevice::new(64 << 20, 512));
    let (fs, _) = filled(&device, crowd, &mut Rng::new(3));
    fs.close().unwrap();
    drop(fs);
    let reading = Reading::of_mount(Arc::new(device.snapshot()), None);
    Volume { device: device.snapshot(), reading }
}

/// As a power cut leaves it: `/a` was written anew and fsynced behind the checkpoint.
fn fsynced() -> Volume {
    let device = Arc::new(MemoryDevice::new(64 << 20, 512));
    let mut rng = Rng::new(3);
    let (fs, files) = filled(&device, CROWDS[0], &mut rng);
    fs.sync().unwrap();
    fill(&fs, files[0], &mut rng);
    fs.sync_file(files[0], false).unwrap();
    let device = device.snapshot();
    drop(fs);
    let reading = Reading::of_rescue(Arc::new(device.snapshot()), None);
    Volume { device, reading }
}

/// A volume that is being damaged.
struct Damaged(Editor);

impl Damaged {
    fn ino(&self, file: &str) -> u32 {
        self.0.path(&[file])
    }

    /// The node that a pointer of an inode leads to: 0 and 1 are direct nodes, 2 is an indirect one.
    fn nid(&self, file: &str, pointer: usize) -> u32 {
        self.0.inode(self.ino(file)).i_nid[pointer].get()
    }

    /// A direct node below the indirect one.
    fn below(&self, file: &str, slot: usize) -> u32 {
        let block = self.0.block(self.0.node_address(self.nid(file, 2)));
        u32::from_le_bytes(block[4 * slot..4 * slot + 4].try_into().unwrap())
    }

    fn xattr(&self, file: &str) -> u32 {
        self.0.inode(self.ino(file)).i_xattr_nid.get()
    }

    fn set_id(&self, nid: u32, to: u32) {
        self.0.edit_node(nid, |node| node.footer.nid.set(to));
    }

    fn set_slot(&self, nid: u32, slot: usize, value: u32) {
        self.0.edit_node(nid, |node| node.slots[slot].set(value));
    }

    fn set_next(&self, nid: u32) {
        self.0.edit_node(nid, |node| node.footer.next_blkaddr.set(IMPOSSIBLE));
    }

    /// Gives a node the id of another, which is not recognised any more.
    fn pose(&self, poser: u32, victim: u32) {
        self.set_slot(victim, UNUSED, IMPOSSIBLE);
        self.set_id(poser, victim);
    }
}

/// Damages each volume, repairs it, and expects that no file has less than rescue and a read-only mount could read before.
fn nothing_is_lost(what: &str, damage: impl Fn(&Damaged)) {
    volumes().iter().for_each(|volume| nothing_is_lost_of(volume, what, &damage));
}

fn nothing_is_lost_of(volume: &Volume, what: &str, damage: impl Fn(&Damaged)) {
    let damaged = Damaged(Editor::new(&volume.device));
    damage(&damaged);
    let device = damaged.0.device;
    let known = Some(&volume.reading);
    let before = [
        &Reading::of_mount(Arc::new(device.snapshot()), known),
        &Reading::of_rescue(Arc::new(device.snapshot()), known),
    ];
    let shared: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
    let repair = || plan(Arc::clone(&shared), &RepairOptions::default(), &mut |_| ()).unwrap();
    let report = repair().commit().unwrap();
    assert!(report.clean, "{what}: {:?}", report.left);
    assert!(check(&*shared, &CheckOptions::default(), &mut |_| ()).unwrap().is_clean(), "{what}");
    assert_eq!(repair().report().repairs, [], "{what}: the second repair");
    let after = Reading::of_mount(shared.clone(), known);
    let lost = verdict::losses(&volume.reading, &before, &after);
    assert!(lost.is_empty(), "{what}: {lost:?}; told: {:?}; done: {:?}", report.losses, report.repairs);
}

#[test]
fn a_node_of_any_kind_poses_as_one_of_another_file() {
    nothing_is_lost("direct node", |on| on.pose(on.nid("a", 0), on.nid("b", 0)));
    nothing_is_lost("xattr node", |on| on.pose(on.xattr("a"), on.nid("b", 0)));
    nothing_is_lost("indirect node", |on| on.pose(on.nid("a", 2), on.nid("b", 0)));
    nothing_is_lost("direct node below an indirect one", |on| on.pose(on.below("a", 1), on.below("b", 1)));
    nothing_is_lost("as an inode", |on| {
        on.set_id(on.nid("a", 0), on.ino("b"));
        on.set_next(on.ino("b"));
    });
    nothing_is_lost("the victim's link is impossible", |on| {
        on.set_id(on.nid("a", 2), on.nid("b", 2));
        on.set_next(on.nid("b", 2));
    });
    nothing_is_lost("the victim's footer is garbage", |on| {
        on.set_id(on.nid("a", 0), on.nid("b", 0));
        on.set_id(on.nid("b", 0), 0x7FFF_0000);
    });
}

#[test]
fn a_node_poses_as_another_of_its_own_file() {
    nothing_is_lost("first as second", |on| on.pose(on.nid("a", 0), on.nid("a", 1)));
    nothing_is_lost("second as first", |on| on.pose(on.nid("a", 1), on.nid("a", 0)));
    nothing_is_lost("attributes as data", |on| on.pose(on.xattr("a"), on.nid("a", 0)));
    nothing_is_lost("indirect as direct", |on| on.pose(on.nid("a", 2), on.nid("a", 0)));
}

#[test]
fn nodes_pose_in_chains_pairs_and_circles() {
    for (first, second, third) in [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c"), ("c", "a", "b")] {
        nothing_is_lost(&format!("{first} as {second}, {second} as {third}"), |on| {
            on.pose(on.nid(second, 0), on.nid(third, 0));
            on.set_id(on.nid(first, 0), on.nid(second, 0));
        });
    }
    nothing_is_lost("a chain in one file", |on| {
        on.pose(on.nid("a", 1), on.below("a", 1));
        on.set_id(on.nid("a", 0), on.nid("a", 1));
    });
    nothing_is_lost("two pairs", |on| {
        on.pose(on.nid("a", 0), on.nid("b", 0));
        on.pose(on.nid("c", 0), on.nid("d", 0));
    });
    nothing_is_lost("two as one", |on| {
        on.pose(on.nid("a", 0), on.nid("c", 0));
        on.set_id(on.nid("b", 0), on.nid("c", 0));
    });
    nothing_is_lost("exchanged", |on| {
        let (one, other) = (on.nid("a", 0), on.nid("b", 0));
        on.pose(one, other);
        on.set_id(other, one);
    });
}

#[test]
fn the_pointer_to_it_is_damaged_too() {
    type Value = fn(&Damaged) -> u32;
    let values: [(&str, Value); 4] = [
        ("garbage", |_| 0x7FFF_0000),
        ("the victim", |on| on.nid("b", 0)),
        ("a third node", |on| on.nid("c", 1)),
        ("a free id", |on| on.0.geometry.node_ids().get() - 1),
    ];
    for (value, pointer) in values {
        nothing_is_lost(&format!("pointer: {value}"), |on| {
            on.pose(on.nid("a", 0), on.nid("b", 0));
            let pointer = pointer(on);
            on.0.edit_inode(on.ino("a"), |inode| inode.i_nid[0].set(pointer));
        });
    }
}

#[test]
fn pointers_in_a_node_that_poses_are_not_written_to_the_victim() {
    nothing_is_lost("an unused slot has another file's node", |on| {
        // The victim has blocks at this slot.
        on.set_slot(on.nid("a", 2), 60, on.nid("c", 0));
        on.pose(on.nid("a", 2), on.nid("b", 0));
    });
    // Slots 4 and 5 of a node are where an inode has its size.
    for slot in [4, 5] {
        nothing_is_lost(&format!("slot {slot} of one that poses as an inode"), |on| {
            on.set_slot(on.nid("a", 2), slot, on.nid("c", 0));
            on.set_id(on.nid("a", 2), on.ino("b"));
            on.set_next(on.ino("b"));
        });
    }
    nothing_is_lost("a slot in use is garbage", |on| {
        on.set_slot(on.nid("a", 2), 1, 0x7FFF_0000);
        on.pose(on.nid("a", 2), on.nid("b", 0));
    });
    nothing_is_lost("another file's pointer leads to the poser", |on| {
        let poser = on.nid("b", 0);
        on.0.edit_inode(on.ino("a"), |inode| inode.i_nid[3].set(poser));
        on.pose(poser, on.nid("c", 0));
    });
}

#[test]
fn the_nat_is_damaged_too() {
    nothing_is_lost("the poser's entry has a wrong inode", |on| {
        on.0.edit_nat(on.nid("a", 0), |entry| entry.ino.set(entry.ino.get() ^ 0x40));
        on.pose(on.nid("a", 0), on.nid("b", 0));
    });
    for (whose, other) in [("the same file's", "a"), ("another file's", "c")] {
        nothing_is_lost(&format!("{whose} entry leads to the poser"), |on| {
            let address = on.0.node_address(on.nid("a", 0));
            on.pose(on.nid("a", 0), on.nid("b", 0));
            on.0.edit_nat(on.nid(other, 1), |entry| entry.block_addr.set(address.get()));
        });
    }
    nothing_is_lost("the poser's entry leads nowhere", |on| {
        on.pose(on.nid("a", 0), on.nid("b", 0));
        on.0.edit_nat(on.nid("a", 0), |entry| entry.block_addr.set(0));
    });
    // Then the NAT may be out of date.
    for (how, bits) in [("leads nowhere", u32::MAX), ("is wrong", 0x100), ("is far out", 0x4000_0000)] {
        nothing_is_lost(&format!("an entry of nobody concerned {how}"), |on| {
            on.pose(on.nid("a", 0), on.nid("b", 0));
            on.0.edit_nat(on.nid("d", 0), |entry| {
                let address = entry.block_addr.get();
                entry.block_addr.set(if bits == u32::MAX { 0 } else { address ^ bits });
            });
        });
    }
}

#[test]
fn an_inode_that_is_right_gets_no_other_id() {
    nothing_is_lost("the NAT is wrong twice", |on| {
        let (inode, poser, node) = (on.ino("c"), on.nid("b", 0), on.nid("c", 0));
        let (at_inode, at_poser) = (on.0.node_address(inode), on.0.node_address(poser));
        let owner = on.ino("b");
        on.set_slot(poser, UNUSED, IMPOSSIBLE);
        on.set_id(poser, inode);
        on.0.edit_nat(node, |entry| entry.block_addr.set(at_inode.get()));
        on.0.edit_nat(inode, |entry| (entry.ino, entry.block_addr) = (owner.into(), at_poser.into()));
    });
}

#[test]
fn the_victims_footer_is_damaged_too() {
    nothing_is_lost("it has the poser's inode", |on| {
        let (poser, victim, ino) = (on.below("a", 0), on.nid("c", 1), on.ino("a"));
        on.pose(poser, victim);
        on.0.edit_node(victim, |node| node.footer.ino.set(ino));
    });
    nothing_is_lost("the poser is below a node that is not recognised", |on| {
        let (poser, victim) = (on.below("a", 1), on.nid("b", 0));
        on.set_slot(on.nid("a", 2), UNUSED, 0x7FFF_0000);
        on.pose(poser, victim);
    });
    nothing_is_lost("it is the node above, and the poser's entry leads to its neighbour", |on| {
        let (poser, above) = (on.below("d", 2), on.nid("d", 2));
        let address = on.0.node_address(poser);
        on.set_next(above);
        on.set_id(poser, above);
        on.0.edit_nat(poser, |entry| entry.block_addr.set((address + 1).get()));
    });
}

#[test]
fn pointer_and_nat_are_damaged() {
    for (whose, other) in [("an entry of nobody concerned", "d"), ("its own entry", "a")] {
        nothing_is_lost(&format!("pointer garbage, {whose} leads nowhere"), |on| {
            let entry = on.nid(other, 0);
            on.pose(on.nid("a", 0), on.nid("b", 0));
            on.0.edit_inode(on.ino("a"), |inode| inode.i_nid[0].set(0x7FFF_0000));
            on.0.edit_nat(entry, |entry| entry.block_addr.set(0));
        });
    }
}

#[test]
fn no_pointers_are_written_into_an_inode() {
    type Other = fn(&Damaged) -> u32;
    let others: [(&str, Other); 3] = [
        ("the root", |on| on.0.geometry.root_ino.get()),
        ("an earlier file", |on| on.ino("a")),
        ("a later file", |on| on.ino("d")),
    ];
    for (name, other) in others {
        nothing_is_lost(&format!("the pointer to an indirect node leads to {name}"), |on| {
            let (indirect, other) = (on.nid("b", 2), other(on));
            on.pose(indirect, on.nid("c", 1));
            on.0.edit_nat(indirect, |entry| entry.ino.set(entry.ino.get() ^ 0x40));
            on.0.edit_inode(on.ino("b"), |inode| inode.i_nid[2].set(other));
        });
        nothing_is_lost(&format!("the pointer leads to {name}, and the indirect node is gone"), |on| {
            let (indirect, other) = (on.nid("b", 2), other(on));
            on.0.put(on.0.node_address(indirect), &[0; 4096]);
            on.0.edit_inode(on.ino("b"), |inode| inode.i_nid[2].set(other));
        });
    }
}

#[test]
fn what_was_fsynced_below_an_indirect_node_that_is_not_recognised_stays() {
    let volume = fsynced();
    nothing_is_lost_of(&volume, "nothing is damaged", |_| ());
    nothing_is_lost_of(&volume, "its footer has a garbage id", |on| on.set_id(on.nid("a", 2), 0x7FFF_0000));
    nothing_is_lost_of(&volume, "an unused slot is garbage", |on| on.set_slot(on.nid("a", 2), UNUSED, 0x7FFF_0000));
}
