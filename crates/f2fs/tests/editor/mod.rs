//! A volume to be damaged: finds structures and changes them, checksums brought up to date, so that exactly one rule is broken.

use basalt_segments::Segment;
use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::checkpoint::block::expected_checksum;
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::load::{Loaded, load_pack};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::geometry::superblock_block;
use basalt_f2fs::layout::checkpoint::{CheckpointFlags, RawCheckpoint};
use basalt_f2fs::layout::dentry::{DentryShape, RawDentry, SLOT_LEN};
use basalt_f2fs::layout::inode::{InlineFlags, RawInode};
use basalt_f2fs::layout::nat::{ENTRIES_PER_BLOCK as NAT_ENTRIES, RawNatEntry};
use basalt_f2fs::layout::node::RawNode;
use basalt_f2fs::layout::sit::RawSitEntry;
use basalt_f2fs::layout::summary::{
    ENTRIES_SIZE, JOURNAL_SIZE, RawNatJournalEntry, RawSitJournalEntry, RawSummary, RawSummaryBlock,
};
use basalt_f2fs::layout::superblock::{Features, RawSuperblock};
use basalt_f2fs::layout::{Address, BLOCK_SIZE, bit_lsb, bit_msb};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, XattrFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MIB: u64 = 1 << 20;
const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

fn node(kind: FileKind) -> NewNode<'static> {
    NewNode { kind, permissions: 0o755, rdev: 0x0103, target: b"somewhere" }
}

fn make(fs: &F2fs, parent: u64, name: &str, kind: FileKind) -> u64 {
    let ino = fs.create(parent, name.as_bytes(), &node(kind), &CALLER).unwrap().ino;
    fs.forget(ino, 1);
    ino
}

/// Fills a volume with something of everything, and enough of it that not every segment is an active log's.
fn fill(fs: &F2fs) {
    let root = fs.root();
    let crowd = make(fs, root, "crowd", FileKind::Directory);
    for index in 0..700 {
        make(fs, crowd, &format!("a file with a longer name {index}"), FileKind::Regular);
    }
    let nested = make(fs, root, "outer", FileKind::Directory);
    let inner = make(fs, nested, "inner", FileKind::Directory);
    make(fs, inner, "innermost", FileKind::Directory);
    let big = make(fs, root, "big", FileKind::Regular);
    for index in 0..12 {
        fs.write(big, index * MIB, &vec![index as u8 + 1; MIB as usize], false).unwrap();
    }
    // Below the first indirect node, and below the double indirect one.
    for block in [923 + 2 * 1018 + 5, 923 + 2 * 1018 + 2 * 1018 * 1018 + 7u64] {
        fs.write(big, block * 4096, b"far out", false).unwrap();
    }
    let small = make(fs, root, "small", FileKind::Regular);
    fs.write(small, 0, b"inline", false).unwrap();
    let named = make(fs, root, "attributes", FileKind::Regular);
    fs.set_xattr(named, b"user.short", b"inline", XattrFlags::empty()).unwrap();
    let listed = make(fs, root, "more attributes", FileKind::Regular);
    fs.set_xattr(listed, b"user.long", &[7; 2000], XattrFlags::empty()).unwrap();
    let linked = make(fs, root, "linked", FileKind::Regular);
    fs.link(linked, nested, b"second name").unwrap();
    fs.forget(linked, 1);
    make(fs, root, "link", FileKind::Symlink);
    make(fs, root, "pipe", FileKind::Fifo);
    make(fs, root, "device", FileKind::CharDevice);
}

/// A filled volume of 200 MiB, cleanly closed.
pub fn filled_volume() -> MemoryDevice {
    build(FormatOptions::DEFAULT_FEATURES, |fs| fs.close().unwrap())
}

/// The same, with the size of inline xattrs kept in each inode.
pub fn flexible_volume() -> MemoryDevice {
    build(FormatOptions::DEFAULT_FEATURES | Features::FLEXIBLE_INLINE_XATTR, |fs| fs.close().unwrap())
}

/// The same, cut off after a checkpoint while a file without a name is open.
pub fn volume_with_orphan() -> MemoryDevice {
    build(FormatOptions::DEFAULT_FEATURES, |fs| {
        let open = fs.create(fs.root(), b"open", &node(FileKind::Regular), &CALLER).unwrap();
        fs.write(open.ino, 0, &[1; 10_000], false).unwrap();
        fs.unlink(fs.root(), b"open").unwrap();
        fs.sync().unwrap();
    })
}

fn build(features: Features, finish: impl FnOnce(&F2fs)) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(200 * MIB, 512));
    let options =
        FormatOptions { features, uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let fs = F2fs::open(shared, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    fill(&fs);
    finish(&fs);
    device.snapshot()
}

/// Where something is: a block and a byte in it.
pub type Spot = (Address, usize);

/// A volume under the knife.
pub struct Editor {
    pub device: MemoryDevice,
    pub geometry: Geometry,
    pub loaded: Loaded,
}

impl Editor {
    pub fn new(base: &MemoryDevice) -> Editor {
        let device = base.snapshot();
        let (geometry, _) = Geometry::read(&device).unwrap();
        let (pack, _) = choose_pack(&device, &geometry).unwrap();
        let loaded = load_pack(&device, &geometry, pack).unwrap();
        Editor { device, geometry, loaded }
    }

    pub fn block(&self, address: Address) -> Vec<u8> {
        let mut block = vec![0; BLOCK_SIZE];
        self.device.read_at(u64::from(address) * BLOCK_SIZE as u64, &mut block).unwrap();
        block
    }

    pub fn put(&self, address: Address, block: &[u8]) {
        self.device.write_at(u64::from(address) * BLOCK_SIZE as u64, block).unwrap();
    }

    /// Changes a structure in place.
    pub fn edit<T>(&self, (address, byte): Spot, change: impl FnOnce(&mut T))
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable,
    {
        let mut block = self.block(address);
        let bytes = &mut block[byte..byte + size_of::<T>()];
        let mut value = T::read_from_bytes(bytes).unwrap();
        change(&mut value);
        bytes.copy_from_slice(value.as_bytes());
        self.put(address, &block);
    }

    pub fn superblock(&self, copy: u32, change: impl FnOnce(&mut RawSuperblock)) {
        let mut superblock = *self.geometry.superblock;
        change(&mut superblock);
        self.put(Address::new(copy), &superblock_block(&superblock));
    }

    /// First block of the pack that counts, and blocks in it.
    pub fn pack(&self) -> (Address, u32) {
        (self.loaded.pack.start, self.loaded.pack.raw.cp_pack_total_block_count.get())
    }

    /// Whether a block is an end of a checkpoint pack, by its checksum at the usual place.
    pub fn is_checkpoint(&self, address: Address) -> bool {
        let block = self.block(address);
        let sum = expected_checksum(&block, BLOCK_SIZE - 4).to_le_bytes();
        block[BLOCK_SIZE - 4..] == sum && block[..8] != [0; 8]
    }

    /// Changes first and last block of the checkpoint alike.
    pub fn checkpoint(&self, change: impl FnOnce(&mut RawCheckpoint)) {
        let (start, total) = self.pack();
        self.edit((start, 0), change);
        let mut block = self.block(start);
        let offset = RawCheckpoint::ref_from_prefix(&block).unwrap().0.checksum_offset.get() as usize;
        if offset <= BLOCK_SIZE - 4 {
            let checksum = expected_checksum(&block, offset);
            block[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());
        }
        self.put(start, &block);
        self.put(start + total - 1, &block);
    }

    /// Where the NAT journal (of the hot data log) and the SIT journal (of the cold data log) are.
    pub fn journals(&self) -> (Spot, Spot) {
        let (start, total) = self.pack();
        let flags = self.loaded.pack.raw.flags();
        if flags.contains(CheckpointFlags::COMPACT_SUMMARY) {
            let block = start + self.loaded.pack.raw.cp_pack_start_sum.get();
            return ((block, 0), (block, JOURNAL_SIZE));
        }
        let after = if flags.intersects(CheckpointFlags::UMOUNT | CheckpointFlags::FASTBOOT) { 7 } else { 4 };
        ((start + total - after, ENTRIES_SIZE), (start + total - after + 2, ENTRIES_SIZE))
    }

    fn nat_spot(&self, nid: u32) -> Spot {
        let entry_at = |index: usize| 2 + index * size_of::<RawNatJournalEntry>() + 4;
        if let Some(index) = self.loaded.nat_journal.iter().position(|entry| entry.nid.get() == nid) {
            let ((block, byte), _) = self.journals();
            return (block, byte + entry_at(index));
        }
        let index = nid / NAT_ENTRIES;
        let block = self.geometry.nat_block(index, bit_msb(&self.loaded.nat_bitmap, index as usize));
        (block, (nid % NAT_ENTRIES) as usize * size_of::<RawNatEntry>())
    }

    pub fn nat(&self, nid: u32) -> RawNatEntry {
        let (block, byte) = self.nat_spot(nid);
        RawNatEntry::read_from_bytes(&self.block(block)[byte..byte + size_of::<RawNatEntry>()]).unwrap()
    }

    pub fn edit_nat(&self, nid: u32, change: impl FnOnce(&mut RawNatEntry)) {
        self.edit(self.nat_spot(nid), change);
    }

    fn sit_spot(&self, segment: Segment) -> Spot {
        let entry_at = |index: usize| 2 + index * size_of::<RawSitJournalEntry>() + 4;
        if let Some(index) = self.loaded.sit_journal.iter().position(|entry| entry.segno.get() == segment.get()) {
            let (_, (block, byte)) = self.journals();
            return (block, byte + entry_at(index));
        }
        let (index, entry) = self.geometry.sit_place(segment);
        let block = self.geometry.sit_block(index, bit_msb(&self.loaded.sit_bitmap, index as usize));
        (block, entry * size_of::<RawSitEntry>())
    }

    pub fn sit(&self, segment: Segment) -> RawSitEntry {
        let (block, byte) = self.sit_spot(segment);
        RawSitEntry::read_from_bytes(&self.block(block)[byte..byte + size_of::<RawSitEntry>()]).unwrap()
    }

    pub fn edit_sit(&self, segment: Segment, change: impl FnOnce(&mut RawSitEntry)) {
        self.edit(self.sit_spot(segment), change);
    }

    pub fn node_address(&self, nid: u32) -> Address {
        self.nat(nid).block_addr.into()
    }

    pub fn inode(&self, ino: u32) -> RawInode {
        RawInode::read_from_bytes(&self.block(self.node_address(ino))).unwrap()
    }

    /// Changes an inode and brings its checksum up to date.
    pub fn edit_inode(&self, ino: u32, change: impl FnOnce(&mut RawInode)) {
        self.edit((self.node_address(ino), 0), |inode: &mut RawInode| {
            change(inode);
            let checksum = inode.expected_checksum(self.geometry.checksum_seed);
            inode.extra_mut().i_inode_checksum.set(checksum);
        });
    }

    pub fn edit_node(&self, nid: u32, change: impl FnOnce(&mut RawNode)) {
        self.edit((self.node_address(nid), 0), change);
    }

    /// The file block addresses that an inode holds itself.
    pub fn slot(&self, ino: u32, index: usize) -> usize {
        self.inode(ino).extra_size() as usize / 4 + index
    }

    /// Every entry of a directory: name, inode number, where the entry is and where its name is.
    pub fn entries(&self, directory: u32) -> Vec<(Vec<u8>, u32, Spot, Spot)> {
        let inode = self.inode(directory);
        let mut found = Vec::new();
        if inode.is_inline(InlineFlags::DENTRY) {
            let range = inode.inline_data_range(self.geometry.flexible_inline_xattr());
            let shape = DentryShape::inline(range.len());
            self.entries_in(self.node_address(directory), range.start, &shape, &mut found);
        } else {
            let slots = &inode.slots[inode.extra_size() as usize / 4..][..400];
            for address in
                slots.iter().map(|slot| slot.get()).filter(|&address| self.geometry.in_main(Address::new(address)))
            {
                self.entries_in(Address::new(address), 0, &DentryShape::BLOCK, &mut found);
            }
        }
        found
    }

    fn entries_in(
        &self,
        address: Address,
        start: usize,
        shape: &DentryShape,
        found: &mut Vec<(Vec<u8>, u32, Spot, Spot)>,
    ) {
        let block = self.block(address);
        let mut slot = 0;
        while slot < shape.entries {
            let at = start + shape.dentries_at + slot * size_of::<RawDentry>();
            let raw = RawDentry::read_from_bytes(&block[at..at + size_of::<RawDentry>()]).unwrap();
            let length = usize::from(raw.name_len.get());
            if !bit_lsb(&block[start..], slot) || length == 0 {
                slot += 1;
                continue;
            }
            let name = start + shape.names_at + slot * SLOT_LEN;
            found.push((block[name..name + length].to_vec(), raw.ino.get(), (address, at), (address, name)));
            slot += length.div_ceil(SLOT_LEN);
        }
    }

    /// The inode with a name in a directory.
    pub fn find(&self, directory: u32, name: &str) -> u32 {
        self.entry(directory, name).1
    }

    pub fn entry(&self, directory: u32, name: &str) -> (Vec<u8>, u32, Spot, Spot) {
        let entries = self.entries(directory);
        entries.into_iter().find(|(found, ..)| found == name.as_bytes()).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Changes the entry of a name.
    pub fn edit_entry(&self, directory: u32, name: &str, change: impl FnOnce(&mut RawDentry)) {
        self.edit(self.entry(directory, name).2, change);
        self.renew_checksum(directory);
    }

    /// Changes the bytes of a name.
    pub fn edit_name(&self, directory: u32, name: &str, change: impl FnOnce(&mut [u8; 4])) {
        self.edit(self.entry(directory, name).3, change);
        self.renew_checksum(directory);
    }

    /// Sets the hash of a name.
    pub fn edit_entry_at(&self, directory: u32, name: &str, hash: u32) {
        self.edit_entry(directory, name, |entry| entry.hash_code.set(hash));
    }

    /// Sets the hash of the entry of a name that leads to inode `ino`.
    pub fn edit_entry_of(&self, directory: u32, name: &str, ino: u32, hash: u32) {
        let entries = self.entries(directory);
        let (.., spot, _) =
            entries.into_iter().find(|entry| entry.0 == name.as_bytes() && entry.1 == ino).expect("the entry is there");
        self.edit(spot, |entry: &mut RawDentry| entry.hash_code.set(hash));
    }

    /// The inode of the first entry of this file type.
    pub fn find_kind(&self, directory: u32, file_type: u8) -> u32 {
        let entries = self.entries(directory);
        let is_kind = |spot: &Spot| self.block(spot.0)[spot.1 + 10] == file_type;
        entries.iter().find(|entry| is_kind(&entry.2)).expect("one of each kind is there").1
    }

    pub fn renew_checksum(&self, ino: u32) {
        self.edit_inode(ino, |_| ());
    }

    /// A file by its path.
    pub fn path(&self, names: &[&str]) -> u32 {
        names.iter().fold(self.geometry.root_ino.get(), |directory, name| self.find(directory, name))
    }

    /// Segment of a block of the main area, and the block's place in it.
    pub fn segment_of(&self, address: Address) -> (Segment, usize) {
        let within = self.geometry.main_block(address);
        (within.segment(), within.offset() as usize)
    }

    pub fn is_log(&self, segment: Segment) -> bool {
        self.loaded.logs.iter().any(|log| log.segment == segment)
    }

    /// Where the summary entry of a block is. Its segment must not be a log's.
    pub fn summary(&self, address: Address) -> Spot {
        let (segment, block) = self.segment_of(address);
        assert!(!self.is_log(segment), "segment {segment} is a log's");
        (self.geometry.summary_block(segment), block * size_of::<RawSummary>())
    }

    pub fn summary_type(&self, segment: Segment) -> Spot {
        assert!(!self.is_log(segment));
        (self.geometry.summary_block(segment), core::mem::offset_of!(RawSummaryBlock, entry_type))
    }

    /// A segment with live blocks that no log writes to, of this type.
    pub fn quiet_segment(&self, kind: u8) -> Segment {
        Segment::new(
            (0..self.geometry.main_segments)
                .find(|&segment| {
                    let entry = self.sit(Segment::new(segment));
                    entry.live() > 0 && entry.kind() == kind && !self.is_log(Segment::new(segment))
                })
                .expect("the volume is filled far enough"),
        )
    }

    /// A segment that is free.
    pub fn free_segment(&self) -> Segment {
        let mut segments = self.geometry.segments().rev();
        segments
            .find(|&segment| self.sit(segment).live() == 0 && !self.is_log(segment))
            .expect("the volume is not full")
    }
}
