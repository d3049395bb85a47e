//! Single structures, from any bytes.

use basalt_segments::Segment;
use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::checkpoint::block::expected_checksum;
use basalt_f2fs::checkpoint::fields::bitmap_places;
use basalt_f2fs::checkpoint::load::load;
use basalt_f2fs::checkpoint::pack::read_pack;
use basalt_f2fs::dir::{entries, hash};
use basalt_f2fs::layout::checkpoint::{BITMAP_OFFSET, RawCheckpoint};
use basalt_f2fs::layout::dentry::{DentryShape, SLOT_LEN, slots_for};
use basalt_f2fs::layout::inode::RawInode;
use basalt_f2fs::layout::node::RawNode;
use basalt_f2fs::layout::summary::{JOURNAL_SIZE, nat_journal, sit_journal};
use basalt_f2fs::layout::superblock::{Features, RawSuperblock, SUPERBLOCK_SIZE};
use basalt_f2fs::layout::{BLOCK_SIZE, Ino, nat};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, fuzzing};
use basalt_fuse::protocol::{Operation, Request};
use zerocopy::{FromBytes, IntoBytes};

use super::base::{Base, StoppedClock, base, block};
use super::guarded::GuardedDevice;

/// The bytes at the start of `data` over a copy of `original`: XOR, so that short inputs are small changes.
fn over(original: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    bytes.iter_mut().zip(data).for_each(|(byte, change)| *byte ^= change);
    bytes
}

/// A changed superblock on a device of any size: refused, or a geometry whose every address is on the device.
pub fn superblock(data: &[u8]) {
    let Some((head, data)) = data.split_first() else { return };
    let mut bytes = over(base(*head).geometry.superblock.as_bytes(), data);
    bytes.truncate(SUPERBLOCK_SIZE);
    let Ok(mut superblock) = RawSuperblock::read_from_bytes(&bytes) else { return };
    if head & 0x80 != 0 {
        let crc = superblock.expected_crc();
        superblock.crc.set(crc);
    }
    let _ = superblock.label();
    let size = if head & 0x40 != 0 { 20 << 40 } else { base(*head).device.size() };
    let device = MemoryDevice::new(size, 512);
    let Ok(geometry) = Geometry::from_superblock(superblock, 0, &device) else { return };
    let blocks = size / BLOCK_SIZE as u64;
    assert!(u64::from(geometry.main) + u64::from(geometry.main_blocks()) <= blocks);
    assert!(geometry.node_ids().get() >= nat::ENTRIES_PER_BLOCK);
    assert!(geometry.node_ids().nat_block() <= geometry.nat_blocks);
    assert!(geometry.nat_block(geometry.nat_blocks - 1, true) < geometry.ssa);
    assert!(geometry.sit_block(geometry.sit_blocks_used() - 1, true) < geometry.nat);
    assert!(
        geometry.summary_block(Segment::new(geometry.main_segments - 1)) < geometry.main
            || geometry.features.contains(Features::READ_ONLY)
    );
    // The checkpoint area is empty.
    assert!(load(&device, &geometry).is_err());
}

/// A changed checkpoint: its fields, bitmaps, orphans and summaries.
pub fn checkpoint(data: &[u8]) {
    let [which, position, data @ ..] = data else { return };
    let base = base(*which);
    let device = base.device.snapshot();
    let newest = usize::from(base.packs_newest());
    let (start, total) = base.packs[newest];
    // The other pack is gone: this one counts.
    write(&device, base.packs[1 - newest].0.get(), &[0; BLOCK_SIZE]);
    let target = if *position < 128 { start } else { start + u32::from(*position) % total };
    let mut bytes = over(&block(&device, target), data);
    if target == start || target == start + total - 1 {
        fix_checkpoint(&mut bytes);
        let total = RawCheckpoint::read_from_prefix(&bytes).map_or(1, |(raw, _)| raw.cp_pack_total_block_count.get());
        write(&device, start.get(), &bytes);
        write(&device, (start + total.clamp(1, 512) - 1).get(), &bytes);
    } else {
        write(&device, target.get(), &bytes);
    }
    let guarded = Arc::new(GuardedDevice::new(device, u64::MAX, true));
    if let Ok((loaded, _)) = load(&*guarded, &base.geometry) {
        let (sit, nat) = bitmap_places(loaded.pack.raw.flags(), &base.geometry);
        assert!(sit + loaded.sit_bitmap.len() <= loaded.pack.bytes.len());
        assert!(nat + loaded.nat_bitmap.len() <= loaded.pack.bytes.len());
    }
    let _ = read_pack(&*guarded, &base.geometry, 0);
    mount(guarded, false);
}

fn fix_checkpoint(bytes: &mut [u8]) {
    let offset = RawCheckpoint::read_from_prefix(bytes).map_or(0, |(raw, _)| raw.checksum_offset.get() as usize);
    if (BITMAP_OFFSET..=BLOCK_SIZE - 4).contains(&offset) {
        let checksum = expected_checksum(bytes, offset);
        bytes[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn write(device: &MemoryDevice, address: u32, bytes: &[u8]) {
    device.write_at(u64::from(address) * BLOCK_SIZE as u64, bytes).expect("inside the device");
}

/// Opens a volume, makes a file, and closes it.
fn mount(device: Arc<GuardedDevice>, read_only: bool) {
    use basalt_vfs::FileSystem;
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    let Ok(fs) = F2fs::open(device, options, Arc::new(StoppedClock)) else { return };
    let node = super::base::new_node(basalt_vfs::FileKind::Regular, b"");
    if let Ok(made) = fs.create(fs.root(), b"made", &node, &super::base::CALLER) {
        let _ = fs.write(made.ino, 0, &[1; 20_000], false);
        let _ = fs.fallocate(made.ino, basalt_vfs::FallocateMode::empty(), 0, 100_000);
    }
    let _ = (fs.sync(), fs.stat_fs(), fs.info(), fs.close());
}

/// A changed block of NAT or SIT; and the bytes alone as a journal.
pub fn tables(data: &[u8]) {
    let [which, position, data @ ..] = data else { return };
    let mut journal = [0; JOURNAL_SIZE];
    journal.iter_mut().zip(data).for_each(|(byte, from)| *byte = *from);
    assert!(nat_journal(&journal).is_none_or(|entries| entries.len() <= 38));
    assert!(sit_journal(&journal).is_none_or(|entries| entries.len() <= 6));
    let base = base(*which);
    let device = base.device.snapshot();
    let table = if position & 1 == 0 { &base.nat } else { &base.sit };
    let address = table[usize::from(position >> 1) % table.len()];
    write(&device, address.get(), &over(&block(&device, address), data));
    mount(Arc::new(GuardedDevice::new(device, u64::MAX, true)), false);
}

/// Any block as an inode and as a node: refused, or every range lies inside the block.
pub fn node_inode(data: &[u8]) {
    let Some((head, data)) = data.split_first() else { return };
    let base = base(*head);
    let original = base.inodes[data.len() % base.inodes.len()];
    let bytes = over(&block(&base.device, original), data);
    let (Ok(mut inode), Ok(node)) = (RawInode::read_from_bytes(&bytes), RawNode::ref_from_bytes(&bytes)) else {
        return;
    };
    let _ = (node.footer.offset(), node.footer.flags());
    if head & 0x80 != 0 {
        let checksum = inode.expected_checksum(base.geometry.checksum_seed);
        inode.extra_mut().i_inode_checksum.set(checksum);
    }
    let accepted = fuzzing::check_inode(&inode, inode.footer.ino(), &base.geometry).is_ok();
    for flexible in [false, true] {
        let (data, xattrs) = (inode.inline_data_range(flexible), inode.inline_xattr_range(flexible));
        assert!(!accepted || data.start >= 364 && data.start <= data.end && data.end <= xattrs.start);
        assert!(data.end <= 4052 && xattrs.end == 4052 && inode.address_slots(flexible) >= 1);
    }
}

/// Any bytes as a directory block, or as an inline directory of some size.
pub fn dentry(data: &[u8]) {
    let [head, low, data @ ..] = data else { return };
    let shape = if head & 1 == 0 {
        DentryShape::BLOCK
    } else {
        DentryShape::inline((usize::from(u16::from_le_bytes([*low, head >> 4])) % 3689) & !3)
    };
    let mut bytes = vec![0; shape.size];
    bytes.iter_mut().zip(data).for_each(|(byte, from)| *byte = *from);
    let mut slot = 0;
    while let Some(used) = entries::next_used(&bytes, &shape, slot) {
        assert!(used >= slot && used < shape.entries);
        let entry = entries::entry(&bytes, &shape, used);
        slot = used + 1;
        let Some(name) = entries::name(&bytes, &shape, used, &entry) else { continue };
        let found = entries::find(&bytes, &shape, entry.hash_code.get(), name);
        assert!(found.is_some_and(|found| found <= used));
        slot = used + slots_for(name.len());
    }
    let _ = (entries::is_empty(&bytes, &shape), entries::is_vacant(&bytes, &shape));
    let name = &data[..data.len().min(255)];
    if !name.is_empty()
        && let Some(room) = entries::find_room(&bytes, &shape, slots_for(name.len()))
    {
        let hash = hash::hash(name);
        entries::insert(&mut bytes, &shape, room, hash, name, Ino::new(9), 1);
        let entry = entries::entry(&bytes, &shape, room);
        assert_eq!(entries::name(&bytes, &shape, room, &entry), Some(name));
        entries::redirect(&mut bytes, &shape, room, Ino::new(10), 2);
        assert!(entries::find(&bytes, &shape, hash, name).is_some());
        entries::remove(&mut bytes, &shape, room);
        assert_eq!(entries::find_room(&bytes, &shape, name.len().div_ceil(SLOT_LEN)), Some(room));
    }
    for slot in 0..shape.entries {
        entries::remove(&mut bytes, &shape, slot);
    }
    assert!(entries::is_vacant(&bytes, &shape));
}

/// Any bytes as the list of an inode's extended attributes.
pub fn xattr(data: &[u8]) {
    if let Ok(count) = fuzzing::read_xattrs(data) {
        // The smallest entry takes four bytes.
        assert!(count <= data.len() / 4);
    }
    let _ = basalt_vfs::acl::Acl::from_compact(data);
    let _ = basalt_vfs::acl::Acl::parse(data);
}

/// Any bytes as a message from the kernel.
pub fn fuse_request(data: &[u8]) {
    let mut whole = data.to_vec();
    if let Some(length) = whole.get_mut(..4)
        && data.len().is_multiple_of(2)
    {
        // The right length, so that the arguments are reached.
        length.copy_from_slice(&(data.len() as u32).to_ne_bytes());
    }
    if let Ok(request) = Request::parse(&whole) {
        match request.operation {
            Operation::BatchForget(list) => assert!(list.iter().count() <= data.len() / 16),
            Operation::SetXattr(body) => {
                let _ = (body.decode(false), body.decode(true));
            }
            _ => {}
        }
    }
}

impl Base {
    /// Whether the newest checkpoint is in the second pack.
    fn packs_newest(&self) -> bool {
        let version = |pack: usize| {
            let head = block(&self.device, self.packs[pack].0);
            u64::read_from_bytes(&head[..8]).unwrap_or_default()
        };
        version(1) > version(0)
    }
}
