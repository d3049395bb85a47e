//! The first 20 bytes of each metadata page: docs/flashlight-format.md, "Metadata pages".

use core::hash::Hasher;

use crc::{CRC_32_ISCSI, Crc, Table};
use siphasher::sip::SipHasher13;

use super::Numbers;

/// Bytes of the header.
pub(crate) const HEADER: usize = 20;
const CRC_AT: usize = 16;
/// A byte at a time takes a kilobyte of tables.
static CRC: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISCSI);

/// What a metadata page is for: also the log that it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Area {
    /// First level of the checkpoint: where the second level is.
    Root = 1,
    /// Second level of the checkpoint: where the leaves are.
    Second = 2,
    /// A checkpoint.
    Leaf = 3,
    /// Live pages of blocks.
    Counts = 4,
    /// The inode table, and its index.
    Table = 5,
    /// A directory.
    DirInode = 6,
    /// Entries of a directory that its inode has no room for, and their index.
    Bucket = 7,
    /// A file.
    FileInode = 8,
    /// Places of a file that its inode has no room for.
    ExtentMap = 9,
    /// Extents of a region of a file, which are not in its maps yet.
    ExtentLog = 10,
}

impl Area {
    fn of(number: u8) -> Option<Area> {
        let all = [
            Area::Root,
            Area::Second,
            Area::Leaf,
            Area::Counts,
            Area::Table,
            Area::DirInode,
            Area::Bucket,
            Area::FileInode,
            Area::ExtentMap,
            Area::ExtentLog,
        ];
        all.into_iter().find(|&area| area as u8 == number)
    }
}

/// The header of a metadata page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) area: Area,
    pub(crate) flags: u8,
    pub(crate) sequence: u64,
    pub(crate) owner: u32,
    pub(crate) which: u32,
}

impl Header {
    /// Writes the header of a page that is otherwise complete. `seed` is the volume's.
    pub(crate) fn seal(&self, page: &mut [u8], seed: u32) {
        page[0] = self.area as u8;
        page[1] = self.flags;
        page[2..8].copy_from_slice(&self.sequence.to_le_bytes()[..6]);
        page.set_u32(8, self.owner);
        page.set_u32(12, self.which);
        page.set_u32(CRC_AT, checksum(page, seed));
    }

    /// The header of a page, if it is a metadata page of this volume, and whole.
    pub(crate) fn of(page: &[u8], seed: u32) -> Option<Header> {
        let area = Area::of(page[0])?;
        if page.u32_at(CRC_AT) != checksum(page, seed) {
            return None;
        }
        let sequence = page.u64_at(2) & 0xFFFF_FFFF_FFFF;
        Some(Header { area, flags: page[1], sequence, owner: page.u32_at(8), which: page.u32_at(12) })
    }
}

/// The checksum of a page, whatever stands in its place.
pub(crate) fn checksum(page: &[u8], seed: u32) -> u32 {
    let mut digest = CRC.digest_with_initial(seed);
    digest.update(&page[..CRC_AT]);
    digest.update(&[0; 4]);
    digest.update(&page[HEADER..]);
    digest.finalize()
}

/// The hash of a name: directories find it by this. It is keyed by the volume's number: nobody who does not know it can make names that
/// have the same one.
pub(crate) fn name_hash(name: &[u8], uuid: &[u8; 16]) -> u32 {
    let mut hasher = SipHasher13::new_with_key(uuid);
    hasher.write(name);
    hasher.finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_again_and_a_changed_one_is_not() {
        let mut page = [7; 512];
        let header = Header { area: Area::Bucket, flags: 3, sequence: 0xABCD_1234_5678, owner: 9, which: 77 };
        header.seal(&mut page, 5);
        assert_eq!(Header::of(&page, 5), Some(header));
        assert_eq!(Header::of(&page, 6), None, "a page of another volume");
        page[300] ^= 1;
        assert_eq!(Header::of(&page, 5), None);
        assert_eq!(Header::of(&[0xFF; 512], 5), None, "an erased page");
        assert_eq!(Header::of(&[0; 512], 5), None);
    }
}
