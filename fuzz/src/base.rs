//! Small volumes that hold something of everything, made once a process; and where in them each structure is.

use basalt_segments::Segment;
use std::sync::{Arc, OnceLock};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::checkpoint::load::load;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::inode::{InlineFlags, RawInode};
use basalt_f2fs::layout::nat::{ENTRIES_PER_BLOCK, RawNatEntry};
use basalt_f2fs::layout::node::RawNode;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::layout::{Address, BLOCK_SIZE, bit_msb};
use basalt_f2fs::{Clock, F2fs, Geometry, OpenOptions};
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, NewNode, Time, XattrFlags};
use zerocopy::FromBytes;

/// Size of a base volume.
const SIZE: u64 = 80 << 20;
/// Node ids that a base volume uses at most.
const NODE_IDS: u32 = 4 * ENTRIES_PER_BLOCK;
/// What the names of many empty files begin with.
const MANY: &str = "file with a longer name than most";
/// Who does everything.
pub const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// Time that stands still, so that a run can be repeated.
pub struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Time {
        Time { seconds: 1_700_000_000, nanoseconds: 5 }
    }
}

/// A volume and what is where in it. Addresses are in blocks.
pub struct Base {
    /// The volume.
    pub device: MemoryDevice,
    /// Where its areas are.
    pub geometry: Geometry,
    /// First block of each checkpoint pack, and its blocks.
    pub packs: [(Address, u32); 2],
    /// Current NAT blocks that have entries in use.
    pub nat: Vec<Address>,
    /// Current SIT blocks that have entries.
    pub sit: Vec<Address>,
    /// Node ids in use.
    pub nids: Vec<u32>,
    /// Inodes.
    pub inodes: Vec<Address>,
    /// Inodes that are directories in blocks, or inline.
    pub inline_directories: Vec<Address>,
    /// Nodes that are no inodes.
    pub nodes: Vec<Address>,
    /// Directory blocks.
    pub dentries: Vec<Address>,
    /// The segments with live blocks, logs included.
    pub segments: Vec<Segment>,
}

/// One of the base volumes: closed cleanly; with flexible inline xattrs and every field Basalt writes; cut off with files open
/// that have no name; without any feature, two segments in a section.
pub fn base(which: u8) -> &'static Base {
    static BASES: [OnceLock<Base>; 4] = [const { OnceLock::new() }; 4];
    let which = which % 4;
    BASES[usize::from(which)].get_or_init(|| make(which))
}

fn make(which: u8) -> Base {
    let features = match which {
        1 => FormatOptions::DEFAULT_FEATURES | Features::FLEXIBLE_INLINE_XATTR | Features::PROJECT_QUOTA,
        3 => Features::empty(),
        _ => FormatOptions::DEFAULT_FEATURES,
    };
    let options = FormatOptions {
        features,
        uuid: Some([7; 16]),
        discard_reads_zeros: true,
        segments_per_section: if which == 3 { 2 } else { 1 },
        ..FormatOptions::default()
    };
    let device = Arc::new(MemoryDevice::new(SIZE, 512));
    format(&*device, &options, &mut |_, _| ()).expect("the options are sound");
    let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(StoppedClock)).expect("just formatted");
    fill(&fs).expect("there is room");
    if which == 2 {
        leave_open(&fs).expect("there is room");
    } else {
        fs.close().expect("nothing is wrong");
    }
    describe(device.snapshot())
}

/// What a node of a kind starts with.
pub fn new_node(kind: FileKind, target: &[u8]) -> NewNode<'_> {
    NewNode { kind, permissions: 0o755, rdev: 0x0103, target }
}

fn add(fs: &F2fs, parent: u64, name: &str, kind: FileKind) -> basalt_vfs::Result<u64> {
    let target = if kind == FileKind::Symlink { &b"somewhere/else"[..] } else { b"" };
    let ino = fs.create(parent, name.as_bytes(), &new_node(kind, target), &CALLER)?.ino;
    fs.forget(ino, 1);
    Ok(ino)
}

fn fill(fs: &F2fs) -> basalt_vfs::Result<()> {
    let root = fs.root();
    let crowd = add(fs, root, "crowd", FileKind::Directory)?;
    for index in 0..260 {
        add(fs, crowd, &format!("{MANY} {index}"), FileKind::Regular)?;
    }
    fs.sync()?;
    let outer = add(fs, root, "outer", FileKind::Directory)?;
    let inner = add(fs, outer, "inner", FileKind::Directory)?;
    add(fs, inner, "innermost", FileKind::Directory)?;
    let inline = add(fs, root, "inline", FileKind::Regular)?;
    fs.write(inline, 0, b"a few bytes", false)?;
    let plain = add(fs, root, "plain", FileKind::Regular)?;
    fs.write(plain, 0, &[3; 40_000], false)?;
    fs.sync()?;
    let sparse = add(fs, root, "sparse", FileKind::Regular)?;
    // In the inode, below both direct nodes, both indirect ones and the double indirect one.
    for block in
        [1, 930, 923 + 1018, 923 + 2 * 1018 + 5, 923 + 2 * 1018 + 1018 * 1018, 923 + 2 * 1018 + 2 * 1018 * 1018 + 7]
    {
        fs.write(sparse, block * BLOCK_SIZE as u64, b"far out", false)?;
    }
    let reserved = add(fs, root, "reserved", FileKind::Regular)?;
    fs.fallocate(reserved, FallocateMode::KEEP_SIZE, 0, 100_000)?;
    let few = add(fs, root, "few attributes", FileKind::Regular)?;
    fs.set_xattr(few, b"user.short", b"inline", XattrFlags::empty())?;
    let many = add(fs, root, "many attributes", FileKind::Directory)?;
    fs.set_xattr(many, b"user.long", &[7; 2000], XattrFlags::empty())?;
    fs.set_xattr(many, b"trusted.other", b"value", XattrFlags::empty())?;
    fs.link(inline, outer, b"second name")?;
    fs.forget(inline, 1);
    for (name, kind) in [
        ("link", FileKind::Symlink),
        ("pipe", FileKind::Fifo),
        ("device", FileKind::CharDevice),
        ("socket", FileKind::Socket),
    ] {
        add(fs, root, name, kind)?;
    }
    fs.sync()?;
    // Changes after the last writeback of the tables, for the journals.
    fs.write(plain, 4096, &[4; 5000], false)?;
    fs.unlink(crowd, b"file with a longer name than most 7")?;
    fs.sync()
}

/// Leaves the volume with a checkpoint that knows files without a name.
fn leave_open(fs: &F2fs) -> basalt_vfs::Result<()> {
    for name in [&b"open"[..], b"open too"] {
        let ino = fs.create(fs.root(), name, &new_node(FileKind::Regular, b""), &CALLER)?.ino;
        fs.write(ino, 0, &[1; 10_000], false)?;
        fs.unlink(fs.root(), name)?;
    }
    fs.sync()
}

/// Reads a block of a device that has it.
pub fn block(device: &dyn BlockDevice, address: Address) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_SIZE];
    device.read_at(u64::from(address) * BLOCK_SIZE as u64, &mut bytes).expect("inside the device");
    bytes
}

fn describe(device: MemoryDevice) -> Base {
    let (geometry, _) = Geometry::read(&device).expect("the base volume is sound");
    let (loaded, _) = load(&device, &geometry).expect("the base volume is sound");
    let pack = |index: u32| {
        let start = geometry.checkpoint + index * 512;
        // `cp_pack_total_block_count`.
        let total = u32::read_from_bytes(&block(&device, start)[136..140]).unwrap_or_default();
        (start, total.clamp(1, 512))
    };
    let nat_blocks = NODE_IDS / ENTRIES_PER_BLOCK;
    let nat = (0..nat_blocks).map(|index| geometry.nat_block(index, bit_msb(&loaded.nat_bitmap, index as usize)));
    let sit = (0..geometry.sit_blocks_used())
        .map(|index| geometry.sit_block(index, bit_msb(&loaded.sit_bitmap, index as usize)));
    let mut base = Base {
        packs: [pack(0), pack(1)],
        nat: nat.collect(),
        sit: sit.collect(),
        nids: Vec::new(),
        inodes: Vec::new(),
        inline_directories: Vec::new(),
        nodes: Vec::new(),
        dentries: Vec::new(),
        segments: loaded.logs.iter().map(|log| log.segment).collect(),
        geometry,
        device,
    };
    for nid in 3..NODE_IDS {
        let journaled = loaded.nat_journal.iter().find(|entry| entry.nid.get() == nid).map(|entry| entry.entry);
        let at = (nid % ENTRIES_PER_BLOCK) as usize * size_of::<RawNatEntry>();
        let stored =
            &block(&base.device, base.nat[(nid / ENTRIES_PER_BLOCK) as usize])[at..at + size_of::<RawNatEntry>()];
        let entry = journaled.or_else(|| RawNatEntry::read_from_bytes(stored).ok());
        let Some(address) = entry.map(|entry| entry.address()).filter(|&address| address != Address::NULL) else {
            continue;
        };
        // Of many files that are alike, a few will do: damage should hit what matters.
        if !is_one_of_many(&block(&base.device, address)) || nid % 32 == 0 {
            base.nids.push(nid);
            sort_node(&mut base, address);
        }
    }
    base.segments.sort_unstable();
    base.segments.dedup();
    base
}

fn is_one_of_many(node: &[u8]) -> bool {
    RawInode::ref_from_bytes(node).is_ok_and(|inode| inode.i_name.starts_with(MANY.as_bytes()))
}

/// Files a node where it belongs.
fn sort_node(base: &mut Base, address: Address) {
    let bytes = block(&base.device, address);
    base.segments.push(Segment::new(base.geometry.segment_of(address).get()));
    let is_inode = RawNode::ref_from_bytes(&bytes).is_ok_and(|node| node.footer.nid == node.footer.ino);
    if !is_inode {
        return base.nodes.push(address);
    }
    base.inodes.push(address);
    let Ok(inode) = RawInode::ref_from_bytes(&bytes) else { return };
    if inode.is_inline(InlineFlags::DENTRY) {
        base.inline_directories.push(address);
    } else if u32::from(inode.i_mode.get()) & 0o170_000 == FileKind::Directory.mode_bits() {
        let first = inode.extra_size() as usize / 4;
        let addresses = inode.slots[first..first + 800].iter().map(|slot| Address::from(*slot));
        base.dentries.extend(addresses.filter(|&address| base.geometry.in_main(address)));
    }
}
