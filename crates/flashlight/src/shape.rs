//! Telling a volume in an image of a chip, whose shape nothing else says.

use basalt_nand::Geometry;

use crate::layout::leaf::{MAGIC, MAGIC_AT, ROOT_BLOCKS, SHAPE_AT};
use crate::layout::{LEAST_PAGE, Numbers};

/// Bytes of an image that [`find_shape`] needs: the first eight blocks of the largest chip that the format has room for.
pub const SHAPE_BYTES: usize = ROOT_BLOCKS as usize * 128 * (16384 + 2048);

/// The shape of a chip, by what is found of a root in the first bytes of its image: pages one after the other, each with its spare bytes behind it.
/// `raw_bytes` is the length of the whole image. The spare bytes are all that the chip has. Nothing is corrected, so a root in which bits have
/// flipped may be passed over; there are others.
pub fn find_shape(first: &[u8], raw_bytes: u64) -> Option<Geometry> {
    let found = first.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| bytes == MAGIC);
    found.filter_map(|(at, _)| at.checked_sub(MAGIC_AT)).find_map(|start| shape_at(first, start, raw_bytes))
}

fn shape_at(first: &[u8], start: usize, raw_bytes: u64) -> Option<Geometry> {
    let root = first.get(start..start + SHAPE_AT + 12)?;
    let [page_bytes, pages_per_block, blocks] = [0, 4, 8].map(|at| root.u32_at(SHAPE_AT + at));
    let bare = Geometry::new(page_bytes, 0, pages_per_block, blocks).ok().filter(|_| page_bytes >= LEAST_PAGE)?;
    let raw_page = raw_bytes / u64::from(bare.pages());
    let spare_bytes = u32::try_from(raw_page).ok()?.checked_sub(page_bytes)?;
    let shape = Geometry::new(page_bytes, spare_bytes, pages_per_block, blocks).ok()?;
    let raw_block = u64::from(shape.raw_page_bytes() * pages_per_block);
    let is_root = (start as u64).is_multiple_of(raw_block) && start as u64 / raw_block < u64::from(ROOT_BLOCKS);
    (is_root && shape.raw_bytes() == raw_bytes).then_some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW_BLOCK: usize = 64 * (2048 + 96);

    fn root(at: usize) -> Vec<u8> {
        let mut image = vec![0xFF; 8 * RAW_BLOCK];
        image[at + MAGIC_AT..][..8].copy_from_slice(MAGIC);
        for (which, number) in [2048_u32, 64, 1000].into_iter().enumerate() {
            image[at + SHAPE_AT + 4 * which..][..4].copy_from_slice(&number.to_le_bytes());
        }
        image
    }

    #[test]
    fn a_root_in_any_of_the_first_blocks_tells_the_shape() {
        let raw = 1000 * RAW_BLOCK as u64;
        let shape = Geometry::new(2048, 96, 64, 1000).unwrap();
        for block in [0, 3, 7] {
            assert_eq!(find_shape(&root(block * RAW_BLOCK), raw), Some(shape), "block {block}");
        }
        // Not where a root can be; another length; cut off within the root.
        assert_eq!(find_shape(&root(RAW_BLOCK + 2144), raw), None);
        assert_eq!(find_shape(&root(0), raw + 1), None);
        assert_eq!(find_shape(&root(0), 0), None);
        assert_eq!(find_shape(&root(0)[..SHAPE_AT + 11], raw), None);
        assert_eq!(find_shape(b"FLASHLIT", raw), None);
    }
}
