//! The 12 spare bytes beside a page: docs/flashlight-format.md, "Spare bytes". They are hints for cleaning, recovery and levelling of wear, and
//! never needed to read a file.

use super::{NONE, Numbers};

/// Bytes of a tag.
pub(crate) const TAG: usize = 12;

/// What stands beside a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The file's inode number; [`NONE`] beside metadata.
    pub(crate) serial: u32,
    /// The page's place in the file, in pages.
    pub(crate) offset: u32,
    /// How often the block was erased.
    pub(crate) erases: u32,
}

impl Tag {
    /// The tag beside a metadata page.
    pub(crate) fn metadata(erases: u32) -> Tag {
        Tag { serial: NONE, offset: NONE, erases }
    }

    pub(crate) fn bytes(&self) -> [u8; TAG] {
        let mut bytes = [0; TAG];
        bytes.set_u32(0, self.serial);
        bytes.set_u32(4, self.offset);
        bytes.set_u32(8, self.erases.min(0x00FF_FFFE));
        bytes[11] = check(&bytes);
        bytes
    }

    /// The tag beside a page that was programmed; `None` beside an erased one, or where bits have flipped.
    pub(crate) fn of(bytes: &[u8]) -> Option<Tag> {
        let whole = bytes[11] == check(bytes);
        whole.then(|| Tag { serial: bytes.u32_at(0), offset: bytes.u32_at(4), erases: bytes.u32_at(8) & 0x00FF_FFFF })
    }
}

fn check(bytes: &[u8]) -> u8 {
    bytes[..11].iter().fold(0x5A, |sum, byte| sum ^ byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erased_page_has_no_tag() {
        assert_eq!(Tag::of(&[0xFF; TAG]), None);
        let tag = Tag { serial: 70_000, offset: 3, erases: 900 };
        assert_eq!(Tag::of(&tag.bytes()), Some(tag));
        let mut flipped = tag.bytes();
        flipped[5] ^= 4;
        assert_eq!(Tag::of(&flipped), None);
        assert_eq!(Tag::of(&Tag::metadata(0).bytes()), Some(Tag::metadata(0)));
    }
}
