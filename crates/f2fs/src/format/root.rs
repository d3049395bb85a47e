//! The directories of a new volume: the root and `lost+found`.

use zerocopy::{FromZeros, IntoBytes};

use super::FormatOptions;
use super::areas::{HOT_DATA, HOT_NODE};
use super::plan::Plan;
use crate::dir::hash::hash;
use crate::layout::dentry::{DentryShape, RawDentry, SLOT_LEN, slots_for};
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::superblock::Features;
use crate::layout::{Address, BLOCK_SIZE, Ino, set_bit_lsb};

/// Name of the directory where a repair puts what has no name.
const LOST_FOUND: &[u8] = b"lost+found";
/// `file_type` of a directory.
const DIRECTORY: u8 = 2;

/// The directories, ready to be written.
pub struct Tree {
    /// Blocks and their addresses.
    pub blocks: Vec<(Address, Vec<u8>)>,
    /// Inode numbers and the addresses of their inodes, in the order of both node log and (for their directory block) data log.
    pub inodes: Vec<(Ino, Address)>,
}

/// Builds inodes and directory blocks: the first blocks of the hot node log and of the hot data log.
pub fn build(plan: &Plan, options: &FormatOptions) -> Tree {
    let root = Ino::from(plan.superblock.root_ino);
    let mut tree = Tree { blocks: Vec::new(), inodes: Vec::new() };
    let mut root_names = vec![(&b"."[..], root), (&b".."[..], root)];
    root_names.extend(plan.lost_found.map(|ino| (LOST_FOUND, ino)));
    let links = root_names.len() as u32;
    tree.add(plan, options, inode(plan, options, root, 0o755, links), &root_names);
    if let Some(ino) = plan.lost_found {
        let mut inode = inode(plan, options, ino, 0o700, 2);
        inode.i_pino.set(root.get());
        inode.i_namelen.set(LOST_FOUND.len() as u32);
        inode.i_name[..LOST_FOUND.len()].copy_from_slice(LOST_FOUND);
        tree.add(plan, options, inode, &[(b".", ino), (b"..", root)]);
    }
    tree
}

impl Tree {
    fn add(&mut self, plan: &Plan, options: &FormatOptions, mut inode: Box<RawInode>, names: &[(&[u8], Ino)]) {
        let index = self.inodes.len() as u32;
        let address = plan.log_start(HOT_NODE) + index;
        let data = plan.log_start(HOT_DATA) + index;
        inode.footer.next_blkaddr = (address + 1).into();
        let first_slot = inode.extra_size() as usize / 4;
        inode.slots[first_slot] = data.into();
        if options.features.contains(Features::INODE_CHECKSUM) {
            let seed = crate::layout::crc::crc_from(!0, &plan.superblock.uuid);
            let checksum = inode.expected_checksum(seed);
            inode.extra_mut().i_inode_checksum.set(checksum);
        }
        self.inodes.push((inode.footer.ino(), address));
        self.blocks.push((address, inode.as_bytes().to_vec()));
        self.blocks.push((data, directory_block(names)));
    }
}

/// A directory's inode with one block of entries.
fn inode(plan: &Plan, options: &FormatOptions, ino: Ino, permissions: u16, links: u32) -> Box<RawInode> {
    let mut inode = Box::new(RawInode::new_zeroed());
    let (seconds, nanoseconds) = (options.time.seconds as u64, options.time.nanoseconds);
    inode.i_mode.set(0o040_000 | permissions);
    inode.i_uid.set(options.root_owner.0);
    inode.i_gid.set(options.root_owner.1);
    inode.i_links.set(links);
    inode.i_size.set(BLOCK_SIZE as u64);
    inode.i_blocks.set(2);
    for (time, nsec) in [
        (&mut inode.i_atime, &mut inode.i_atime_nsec),
        (&mut inode.i_ctime, &mut inode.i_ctime_nsec),
        (&mut inode.i_mtime, &mut inode.i_mtime_nsec),
    ] {
        time.set(seconds);
        nsec.set(nanoseconds);
    }
    inode.i_current_depth.set(1);
    let features = options.features;
    if features.contains(Features::EXTRA_ATTR) {
        inode.i_inline = InlineFlags::EXTRA_ATTR.bits();
        inode.extra_mut().i_extra_isize.set(extra_size(features));
    }
    if features.contains(Features::INODE_CRTIME) {
        let extra = inode.extra_mut();
        extra.i_crtime.set(seconds);
        extra.i_crtime_nsec.set(nanoseconds);
    }
    inode.footer.nid.set(ino.get());
    inode.footer.ino.set(ino.get());
    inode.footer.cp_ver.set(plan.checkpoint_version);
    inode
}

/// Bytes of extra attributes: up to the last field that a feature needs.
pub(crate) fn extra_size(features: Features) -> u16 {
    [
        (Features::COMPRESSION, 36),
        (Features::INODE_CRTIME, 24),
        (Features::INODE_CHECKSUM, 12),
        (Features::PROJECT_QUOTA, 8),
    ]
    .into_iter()
    .find(|&(feature, _)| features.contains(feature))
    .map_or(4, |(_, size)| size)
}

/// A directory block with directories in it, in this order.
fn directory_block(names: &[(&[u8], Ino)]) -> Vec<u8> {
    let shape = DentryShape::BLOCK;
    let mut block = vec![0; BLOCK_SIZE];
    let mut slot = 0;
    for &(name, ino) in names {
        let mut entry = RawDentry { file_type: DIRECTORY, ..RawDentry::default() };
        entry.hash_code.set(hash(name));
        entry.ino.set(ino.get());
        entry.name_len.set(name.len() as u16);
        let at = shape.dentries_at + slot * size_of::<RawDentry>();
        block[at..at + size_of::<RawDentry>()].copy_from_slice(entry.as_bytes());
        let at = shape.names_at + slot * SLOT_LEN;
        block[at..at + name.len()].copy_from_slice(name);
        for used in slot..slot + slots_for(name.len()) {
            set_bit_lsb(&mut block, used, true);
        }
        slot += slots_for(name.len());
    }
    block
}
