//! A file's or a directory's inode, which is one page: docs/flashlight-format.md, "Inodes".

use super::{NONE, Numbers};

pub(crate) const MODE: usize = 20;
pub(crate) const UID: usize = 24;
pub(crate) const GID: usize = 28;
pub(crate) const SIZE: usize = 32;
pub(crate) const ATIME: usize = 40;
pub(crate) const MTIME: usize = 48;
pub(crate) const CTIME: usize = 56;
pub(crate) const KEY: usize = 64;
pub(crate) const RDEV: usize = 68;
pub(crate) const FROM_DIR: usize = 72;
pub(crate) const FROM_KEY: usize = 76;
pub(crate) const FLAGS: usize = 80;
pub(crate) const SUBDIRECTORIES: usize = 84;
/// Of a file, in the same place: pages of data.
pub(crate) const STORED: usize = 84;
pub(crate) const COVERS: usize = 88;
pub(crate) const NAME_LENGTH: usize = 96;
pub(crate) const XATTR_LENGTH: usize = 98;
pub(crate) const COUNT: usize = 100;
pub(crate) const MAPS: usize = 102;
pub(crate) const NAME: usize = 104;
const SERIAL: usize = 8;
const PARENT: usize = 12;

/// The body is the content.
pub(crate) const INLINE: u32 = 1;
/// The directory is gone, from the place that the page says it came from.
pub(crate) const GONE: u32 = 2;
/// Pointers of a directory to buckets or their indexes.
pub(crate) const SLOTS: usize = 16;
/// Bytes of an entry of a directory's log.
pub(crate) const ENTRY: usize = 8;
/// Bytes of an extent.
pub(crate) const EXTENT: usize = 12;
/// Extent maps that a file can have.
pub(crate) const MOST_MAPS: usize = 1024;
/// Extent maps that share the extent log of a region.
pub(crate) const MAPS_PER_REGION: usize = 16;
/// Bytes of the longest name.
pub(crate) const MOST_NAME: usize = 255;

pub(crate) const TYPE: u32 = 0o170_000;
pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const LINK: u32 = 0o120_000;

/// A moment, since the beginning of 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds; what 34 bits with a sign hold (the years 1698 to 2242), and the nearest of that else.
    pub seconds: i64,
    /// Nanoseconds, below 10⁹.
    pub nanoseconds: u32,
}

impl Time {
    pub(crate) fn packed(self) -> u64 {
        let seconds = self.seconds.clamp(-(1 << 33), (1 << 33) - 1);
        (seconds as u64) << 30 | u64::from(self.nanoseconds.min(999_999_999))
    }

    pub(crate) fn unpacked(value: u64) -> Time {
        Time { seconds: value as i64 >> 30, nanoseconds: (value & 0x3FFF_FFFF) as u32 }
    }
}

/// Pointers of a file with so many extent maps: to them, and, where they are more than one region has, to the extent logs of the regions.
pub(crate) const fn pointers(maps: usize) -> usize {
    if maps > MAPS_PER_REGION { maps + maps.div_ceil(MAPS_PER_REGION) } else { maps }
}

/// An inode in a page.
pub(crate) trait Inode {
    /// Makes the page an inode without content.
    fn begin(&mut self, serial: u32, parent: u32, key: u32, name: &[u8]);
    fn serial(&self) -> u32;
    fn parent(&self) -> u32;
    fn set_parent(&mut self, parent: u32);
    fn name(&self) -> &[u8];
    fn is_directory(&self) -> bool;
    fn is_inline(&self) -> bool;
    fn count(&self) -> usize;
    fn set_count(&mut self, count: usize);
    fn maps(&self) -> usize;
    /// Where an extent map is, or [`NONE`]. Behind the last one come the extent logs of the regions.
    fn map(&self, which: usize) -> u32;
    fn set_map(&mut self, which: usize, page: u32);
    /// How many regions with an extent log the maps are in: none, where there are few.
    fn regions(&self) -> usize;
    /// Where the extent log of a region is, or [`NONE`]: also if there are no regions.
    fn region(&self, which: usize) -> u32;
    fn set_region(&mut self, which: usize, page: u32);
    /// Pages of the chip that are its own: this one, and of a file the data and their index.
    fn pages(&self) -> u64;
    /// Where the body begins.
    fn body(&self) -> usize;
    /// Where the body would begin behind the longest name.
    fn body_behind_longest_name(&self) -> usize;
    /// Where the log begins, of extents or of entries.
    fn log(&self) -> usize;
    /// Bytes of the body that are in use.
    fn body_length(&self) -> usize;
    /// Gives the inode another name, if the body has room beside it. The body moves.
    fn rename(&mut self, name: &[u8]) -> bool;
    /// Whether lengths and counts fit the page: anything may stand on a chip.
    fn is_sound(&self) -> bool;
}

impl Inode for [u8] {
    fn begin(&mut self, serial: u32, parent: u32, key: u32, name: &[u8]) {
        self.fill(0);
        self.set_u32(SERIAL, serial);
        self.set_u32(PARENT, parent);
        self.set_u32(KEY, key);
        self.set_u32(FROM_DIR, NONE);
        self.set_u32(FROM_KEY, NONE);
        self.set_u16(NAME_LENGTH, name.len() as u16);
        self[NAME..NAME + name.len()].copy_from_slice(name);
    }

    fn serial(&self) -> u32 {
        self.u32_at(SERIAL)
    }

    fn parent(&self) -> u32 {
        self.u32_at(PARENT)
    }

    fn set_parent(&mut self, parent: u32) {
        self.set_u32(PARENT, parent);
    }

    fn name(&self) -> &[u8] {
        &self[NAME..][..usize::from(self.u16_at(NAME_LENGTH))]
    }

    fn is_directory(&self) -> bool {
        self.u32_at(MODE) & TYPE == DIRECTORY
    }

    fn is_inline(&self) -> bool {
        self.u32_at(FLAGS) & INLINE != 0
    }

    fn count(&self) -> usize {
        self.u16_at(COUNT).into()
    }

    fn set_count(&mut self, count: usize) {
        self.set_u16(COUNT, count as u16);
    }

    fn maps(&self) -> usize {
        self.u16_at(MAPS).into()
    }

    fn map(&self, which: usize) -> u32 {
        self.u32_at(self.body() + 4 * which)
    }

    fn set_map(&mut self, which: usize, page: u32) {
        self.set_u32(self.body() + 4 * which, page);
    }

    fn regions(&self) -> usize {
        pointers(self.maps()) - self.maps()
    }

    fn region(&self, which: usize) -> u32 {
        if which < self.regions() { self.map(self.maps() + which) } else { NONE }
    }

    fn set_region(&mut self, which: usize, page: u32) {
        self.set_map(self.maps() + which, page);
    }

    fn pages(&self) -> u64 {
        if self.is_directory() || self.is_inline() {
            return 1;
        }
        let index = (0..pointers(self.maps())).filter(|&at| self.map(at) != NONE).count();
        1 + index as u64 + u64::from(self.u32_at(STORED))
    }

    fn body(&self) -> usize {
        (NAME + usize::from(self.u16_at(NAME_LENGTH)) + usize::from(self.u16_at(XATTR_LENGTH))).next_multiple_of(4)
    }

    fn body_behind_longest_name(&self) -> usize {
        (NAME + MOST_NAME + usize::from(self.u16_at(XATTR_LENGTH))).next_multiple_of(4)
    }

    fn log(&self) -> usize {
        self.body() + if self.is_directory() { 4 * SLOTS } else { 4 * pointers(self.maps()) }
    }

    fn body_length(&self) -> usize {
        let before = self.log() - self.body();
        match (self.is_directory(), self.is_inline()) {
            (true, _) => before + ENTRY * self.count(),
            (false, true) => self.count(),
            (false, false) => before + EXTENT * self.count(),
        }
    }

    fn rename(&mut self, name: &[u8]) -> bool {
        let (old, length) = (self.body(), self.body_length());
        let (name_length, beside) = (usize::from(self.u16_at(NAME_LENGTH)), usize::from(self.u16_at(XATTR_LENGTH)));
        let new = (NAME + name.len() + beside).next_multiple_of(4);
        if new + length > self.len() {
            return false;
        }
        if new > old {
            self.copy_within(old..old + length, new);
            self.copy_within(NAME + name_length..NAME + name_length + beside, NAME + name.len());
        } else {
            self.copy_within(NAME + name_length..NAME + name_length + beside, NAME + name.len());
            self.copy_within(old..old + length, new);
        }
        self[NAME..NAME + name.len()].copy_from_slice(name);
        self.set_u16(NAME_LENGTH, name.len() as u16);
        true
    }

    fn is_sound(&self) -> bool {
        let name = usize::from(self.u16_at(NAME_LENGTH));
        name <= MOST_NAME
            && self.maps() <= MOST_MAPS
            && self.log() <= self.len()
            && self.body() + self.body_length() <= self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_another_length_moves_what_is_behind_it() {
        let mut page = [0; 2048];
        page.begin(7, 2, 99, b"short");
        page.set_u16(XATTR_LENGTH, 3);
        page[NAME + 5..NAME + 8].copy_from_slice(b"xyz");
        page.set_u32(FLAGS, INLINE);
        page.set_count(1500);
        let body = page.body();
        (0..1500).for_each(|at| page[body + at] = at as u8);
        for name in [&b"a"[..], &[b'n'; 255], b"middle"] {
            assert!(page.rename(name) && page.name() == name && page.is_sound());
            let body = page.body();
            assert_eq!(&page[NAME + name.len()..][..3], b"xyz");
            assert!((0..1500).all(|at| page[body + at] == at as u8), "{name:?}");
        }
        page.set_count(1800);
        assert!(page.is_sound() && !page.rename(&[b'n'; 255]), "no room");
        assert_eq!(page.name(), b"middle");
        page.set_u16(XATTR_LENGTH, 5000);
        assert!(!page.is_sound());
    }

    #[test]
    fn times_are_what_they_were() {
        for seconds in [0, -1, 1_700_000_000, 8_000_000_000, -8_000_000_000] {
            let time = Time { seconds, nanoseconds: 999_999_999 };
            assert_eq!(Time::unpacked(time.packed()), time);
        }
        assert_eq!(Time::unpacked(Time { seconds: i64::MAX, nanoseconds: 0 }.packed()).seconds, (1 << 33) - 1);
    }
}
