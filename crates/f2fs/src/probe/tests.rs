use basalt_device::MemoryDevice;
use basalt_testkit::rng::Rng;
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::layout::BLOCKS_PER_SEGMENT;
use crate::layout::node::RawNode;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What ext2 and ext3 leave of large files where their superblocks were wiped: each block of addresses in front of the 1024 it names.
#[test]
fn blocks_of_addresses_are_no_nodes() {
    let device = MemoryDevice::new(64 * MIB, 512);
    for at in (300..16_000u32).step_by(1025) {
        let addresses: Vec<u8> = (at + 1..=at + 1024).flat_map(u32::to_le_bytes).collect();
        device.write_at(u64::from(at) << BLOCK_BITS, &addresses).unwrap();
        device.write_at(u64::from(at + 1) << BLOCK_BITS, &[0xA7; 8192]).unwrap();
    }
    assert_eq!(identify(&device), Content::Unknown);
}

/// Bytes that look like chance: two of their blocks may agree in where they are.
#[test]
fn what_looks_like_chance_is_unknown() {
    let device = MemoryDevice::new(64 * MIB, 512);
    let mut rng = Rng::new(3);
    for at in (0..200u32).chain([500, 600]) {
        let mut node = RawNode::new_zeroed();
        rng.fill(node.as_mut_bytes());
        if at >= 500 {
            node.footer.next_blkaddr.set(at + 1_000_000);
        }
        device.write_at(u64::from(at) << BLOCK_BITS, node.as_bytes()).unwrap();
    }
    assert_eq!(identify(&device), Content::Unknown);
}

/// A device in memory does not tell of holes, as a disk does not.
#[test]
fn only_what_was_read_whole_is_called_empty() {
    for (size, content) in [
        (16 * MIB, Content::Empty),
        (16 * MIB + 77, Content::Empty),
        (64 * GIB, Content::Zeros),
        (1 << 40, Content::Zeros),
    ] {
        assert_eq!(identify(&MemoryDevice::new(size, 512)), content, "{size} bytes");
    }
    // Whatever is behind the last whole block counts, too.
    for size in [16 * MIB + 77, 64 * GIB + 77] {
        let device = MemoryDevice::new(size, 512);
        device.write_at(size - 1, &[1]).unwrap();
        assert_eq!(identify(&device), Content::Unknown, "{size} bytes");
    }
}

/// Nodes at the beginning of a single log, with nothing else on the device.
fn with_log(size: u64, first: u32) -> MemoryDevice {
    let device = MemoryDevice::new(size, 512);
    for number in 0..8 {
        let (mut node, at) = (RawNode::new_zeroed(), first + number);
        node.footer.nid.set(10 + number);
        node.footer.ino.set(10 + number);
        node.footer.cp_ver.set(7);
        node.footer.next_blkaddr.set(at + 1);
        device.write_at(u64::from(at) << BLOCK_BITS, node.as_bytes()).unwrap();
    }
    device
}

#[test]
fn logs_are_found_where_mkfs_begins_them() {
    use crate::format::FormatOptions;
    use crate::format::areas::{COLD_DATA, WARM_DATA, WARM_NODE};
    use crate::format::plan::Plan;

    for size in [10 * GIB, 64 * GIB, 100 * GIB, 1 << 40] {
        for (segments_per_section, disk_offset) in [(1, 0), (1, 1), (2, 1), (4, 0), (4, 4), (12, 4), (12, 1), (128, 0)]
        {
            let options =
                FormatOptions { segments_per_section, disk_offset: disk_offset << 20, ..FormatOptions::default() };
            let plan = Plan::new(&MemoryDevice::new(size, 512), &options).unwrap();
            for log in [WARM_NODE, COLD_DATA, WARM_DATA] {
                let device = with_log(size, plan.log_start(log).get());
                assert_eq!(identify(&device), Content::Headless, "{size} bytes, {segments_per_section}, log {log}");
            }
            // As mkfs.f2fs placed it long ago: at the end.
            let sb = &plan.superblock;
            let behind = sb.main_blkaddr.get() + sb.segment_count_main.get() * BLOCKS_PER_SEGMENT;
            let device = with_log(size, behind - 2 * segments_per_section * BLOCKS_PER_SEGMENT);
            assert_eq!(identify(&device), Content::Headless, "{size} bytes, {segments_per_section}, at the end");
        }
    }
}

#[test]
fn a_look_reads_no_more_than_it_says() {
    for size in [64 * GIB, 1 << 40, 16 << 40] {
        let device = MemoryDevice::new(size, 512);
        identify(&device);
        let read = device.counters().bytes_read;
        assert!(read <= 88 * MIB, "{read} bytes of {size}");
    }
}
