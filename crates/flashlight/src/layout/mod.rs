//! What the bytes of a volume mean: docs/flashlight-format.md has the tables.

pub(crate) mod bucket;
pub(crate) mod extents;
pub(crate) mod header;
pub(crate) mod inode;
pub(crate) mod leaf;
pub(crate) mod tag;

/// No page, no block, no inode.
pub(crate) const NONE: u32 = u32::MAX;

/// Bytes of data of the smallest page.
pub(crate) const LEAST_PAGE: u32 = 2048;

/// Reads and writes numbers at places of a page.
pub(crate) trait Numbers {
    fn u16_at(&self, at: usize) -> u16;
    fn u32_at(&self, at: usize) -> u32;
    fn u64_at(&self, at: usize) -> u64;
    fn set_u16(&mut self, at: usize, value: u16);
    fn set_u32(&mut self, at: usize, value: u32);
    fn set_u64(&mut self, at: usize, value: u64);
}

impl Numbers for [u8] {
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self[at], self[at + 1]])
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes([self[at], self[at + 1], self[at + 2], self[at + 3]])
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) | u64::from(self.u32_at(at + 4)) << 32
    }

    fn set_u16(&mut self, at: usize, value: u16) {
        self[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn set_u32(&mut self, at: usize, value: u32) {
        self[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn set_u64(&mut self, at: usize, value: u64) {
        self[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}
