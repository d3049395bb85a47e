//! A chain that claims a block of somebody else's, on a volume whose summary names an owner that has no pointer to it.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::inode::{InlineFlags, RawInode};
use basalt_f2fs::layout::node::RawNode;
use basalt_f2fs::layout::summary::RawSummary;
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileSystem, XattrFlags};

use super::editor::Editor;
use super::power::{FILE, formatted};

const BLOCK: usize = 4096;
const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0 };
const INLINE: &[u8] = &[b'i'; 600];
const ATTRIBUTE: &[u8] = &[b'a'; 2000];

fn open(device: &Arc<MemoryDevice>) -> F2fs {
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

fn make(fs: &F2fs, name: &str) -> u64 {
    fs.create(fs.root(), name.as_bytes(), &FILE, &CALLER).unwrap().ino
}

/// A closed volume with the files `claims` and `owns` (data), `inline` (data within the inode) and `listed` (a node of xattrs).
fn volume() -> MemoryDevice {
    let device = Arc::new(formatted(64 << 20));
    let fs = open(&device);
    fs.write(make(&fs, "claims"), 0, &[1; 9000], false).unwrap();
    fs.write(make(&fs, "owns"), 0, &[2; 9000], false).unwrap();
    fs.write(make(&fs, "inline"), 0, INLINE, false).unwrap();
    fs.set_xattr(make(&fs, "listed"), b"user.long", ATTRIBUTE, XattrFlags::empty()).unwrap();
    fs.sync().unwrap();
    // The log of data goes on to other segments: the first one's summary lies in the SSA.
    fs.write(make(&fs, "filler"), 0, &vec![3; 8 << 20], false).unwrap();
    fs.close().unwrap();
    device.snapshot()
}

/// Has the summary of the first block of `owns` name pointer `index` of node `nid`; gives the block's address.
fn misname_owner(editor: &Editor, nid: u32, index: u16) -> u32 {
    let address = first_block(editor, "owns");
    editor.edit(editor.summary(Address::new(address)), |entry: &mut RawSummary| {
        entry.nid.set(nid);
        entry.ofs_in_node.set(index);
    });
    address
}

fn first_block(editor: &Editor, name: &str) -> u32 {
    let ino = editor.path(&[name]);
    let inode = editor.inode(ino);
    inode.slots[editor.slot(ino, 0)].get()
}

/// Makes this file the owner by summary, and puts the address where its pointer would be if those bytes were pointers.
fn pretend_ownership(name: &str, editor: &Editor) {
    let ino = editor.path(&[name]);
    if name == "listed" {
        let nid = editor.inode(ino).i_xattr_nid.get();
        let address = misname_owner(editor, nid, 100);
        editor.edit_node(nid, |node: &mut RawNode| node.slots[100].set(address));
    } else {
        assert!(editor.inode(ino).is_inline(InlineFlags::DATA));
        let address = misname_owner(editor, ino, 50);
        let slot = editor.slot(ino, 50);
        editor.edit_inode(ino, |inode: &mut RawInode| inode.slots[slot].set(address));
    }
}

/// What the two files hold that own no block of data.
fn contents(fs: &F2fs) -> (Vec<u8>, Vec<u8>) {
    let ino = |name: &[u8]| fs.lookup(fs.root(), name).unwrap().ino;
    let mut bytes = vec![0; INLINE.len()];
    fs.read(ino(b"inline"), 0, &mut bytes).unwrap();
    (bytes, fs.get_xattr(ino(b"listed"), b"user.long").unwrap())
}

/// What each block of a file of three holds in all its bytes.
fn blocks(fs: &F2fs, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 9000];
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    let uniform =
        |block: &[u8]| block.iter().all(|byte| *byte == block[0]).then_some(block[0]).expect("one byte in all places");
    bytes.chunks(BLOCK).map(uniform).collect()
}

/// The volume after a power cut behind an fsync of `claims` whose inode says that its first block is the first of `owns`.
fn claim(editor: &Editor) -> MemoryDevice {
    let device = Arc::new(editor.device.snapshot());
    let fs = open(&device);
    let ino = fs.lookup(fs.root(), b"claims").unwrap().ino;
    fs.write(ino, 0, &[4; 9000], false).unwrap();
    fs.sync_file(ino, false).unwrap();
    let chain = Editor::new(&device.snapshot());
    let blocks = (chain.device.size() / BLOCK as u64) as u32;
    let seal = (0..blocks).find(|block| chain.block(Address::new(*block)).starts_with(b"BSEL")).unwrap();
    let (address, slot) = (first_block(&chain, "owns"), chain.slot(ino as u32, 0));
    // The seal has the inode's CRC. Made a node of no file, it leaves a chain like Linux's.
    chain.edit((Address::new(seal), 0), |node: &mut RawNode| {
        node.slots[0].set(0);
        node.footer.nid.set(9 << 16);
        node.footer.ino.set(9 << 16);
    });
    chain.edit((Address::new(seal + 1), 0), |inode: &mut RawInode| {
        assert_eq!(inode.footer.nid.get(), ino as u32);
        inode.slots[slot].set(address);
        let checksum = inode.expected_checksum(chain.geometry.checksum_seed);
        inode.extra_mut().i_inode_checksum.set(checksum);
    });
    chain.device
}

#[test]
fn a_claimed_block_is_not_taken_from_bytes_that_are_no_pointers() {
    for name in ["inline", "listed"] {
        let editor = Editor::new(&volume());
        pretend_ownership(name, &editor);
        let before = contents(&open(&Arc::new(editor.device.snapshot())));
        let fs = open(&Arc::new(claim(&editor)));
        assert_eq!(contents(&fs), before, "{name}");
        assert!(
            fs.warnings().iter().any(|warning| warning.contains("does not point there")),
            "{name}: {:?}",
            fs.warnings()
        );
        assert_eq!(blocks(&fs, "claims"), [1, 1, 1], "{name}");
    }
}

/// Linux moves blocks from one file to another (it exchanges ranges, for example): who had the block loses it.
#[test]
fn a_claimed_block_is_taken_from_its_owner() {
    let fs = open(&Arc::new(claim(&Editor::new(&volume()))));
    assert_eq!(blocks(&fs, "claims"), [2, 4, 4], "{:?}", fs.warnings());
    assert_eq!(blocks(&fs, "owns"), [0, 2, 2]);
}

/// What an indirect node holds are numbers of nodes, and no addresses.
#[test]
fn a_claimed_block_is_not_taken_from_an_indirect_node() {
    let device = Arc::new(volume());
    let fs = open(&device);
    // Below the first indirect node.
    fs.write(make(&fs, "far"), (923 + 2 * 1018 + 5) * BLOCK as u64, &[5; 4096], false).unwrap();
    fs.close().unwrap();
    let editor = Editor::new(&device.snapshot());
    let nid = editor.inode(editor.path(&["far"])).i_nid[2].get();
    assert_ne!(nid, 0);
    let address = misname_owner(&editor, nid, 900);
    editor.edit_node(nid, |node: &mut RawNode| node.slots[900].set(address));
    let fs = open(&Arc::new(claim(&editor)));
    assert!(fs.warnings().iter().any(|warning| warning.contains("does not point there")), "{:?}", fs.warnings());
    assert_eq!(blocks(&fs, "claims"), [1, 1, 1]);
}

/// And everything is counted right then.
#[test]
fn a_claimed_block_is_counted_once() {
    let device = Arc::new(claim(&Editor::new(&volume())));
    let fs = open(&device);
    assert_eq!(blocks(&fs, "claims"), [2, 4, 4], "{:?}", fs.warnings());
    fs.close().unwrap();
    let options = basalt_f2fs::check::CheckOptions::default();
    let report = basalt_f2fs::check::check(&*device, &options, &mut |_| ()).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}
