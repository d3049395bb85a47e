//! How many pages and blocks a chip has, and how large they are.

/// The shape of a chip, as its data sheet gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Data bytes of a page: a power of two from 512 on.
    pub page_bytes: u32,
    /// Bytes beside each page that whoever has the device may use. On a bare chip error correction needs most of them.
    pub spare_bytes: u32,
    /// Pages of a block: a power of two.
    pub pages_per_block: u32,
    /// Blocks of the chip, bad ones included.
    pub blocks: u32,
}

/// No chip has this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// The page is no power of two, or out of range.
    #[error("a page of {0} bytes: give a power of two from 512 to 65536")]
    Page(u32),
    /// More spare than data.
    #[error("{spare} spare bytes beside a page of {page}: give fewer than that")]
    Spare {
        /// Bytes asked for.
        spare: u32,
        /// Data bytes of the page.
        page: u32,
    },
    /// The number of pages in a block is no power of two, or out of range.
    #[error("{0} pages in a block: give a power of two from 2 to 1024")]
    PagesPerBlock(u32),
    /// No block, or pages that 32 bits do not count.
    #[error("{0} blocks: give at least one, and not more than 2^32 pages in all")]
    Blocks(u32),
}

impl Geometry {
    /// The shape, where a chip can have it.
    pub fn new(
        page_bytes: u32,
        spare_bytes: u32,
        pages_per_block: u32,
        blocks: u32,
    ) -> Result<Geometry, GeometryError> {
        if !page_bytes.is_power_of_two() || !(512..=65536).contains(&page_bytes) {
            return Err(GeometryError::Page(page_bytes));
        }
        if spare_bytes >= page_bytes {
            return Err(GeometryError::Spare { spare: spare_bytes, page: page_bytes });
        }
        if !pages_per_block.is_power_of_two() || !(2..=1024).contains(&pages_per_block) {
            return Err(GeometryError::PagesPerBlock(pages_per_block));
        }
        if blocks == 0 || blocks.checked_mul(pages_per_block).is_none() {
            return Err(GeometryError::Blocks(blocks));
        }
        Ok(Geometry { page_bytes, spare_bytes, pages_per_block, blocks })
    }

    /// Pages of the chip.
    pub const fn pages(&self) -> u32 {
        self.blocks * self.pages_per_block
    }

    /// Data bytes of a block.
    pub const fn block_bytes(&self) -> u64 {
        self.page_bytes as u64 * self.pages_per_block as u64
    }

    /// Data bytes of the chip.
    pub const fn bytes(&self) -> u64 {
        self.block_bytes() * self.blocks as u64
    }

    /// Data and spare bytes of the chip: the length of an image of it.
    pub const fn raw_bytes(&self) -> u64 {
        self.raw_page_bytes() as u64 * self.pages() as u64
    }

    /// Data and spare bytes of a page.
    pub const fn raw_page_bytes(&self) -> u32 {
        self.page_bytes + self.spare_bytes
    }

    /// The block that a page is in.
    pub const fn block_of(&self, page: u32) -> u32 {
        page / self.pages_per_block
    }

    /// The place of a page in its block, from 0.
    pub const fn page_in_block(&self, page: u32) -> u32 {
        page % self.pages_per_block
    }

    /// The first page of a block.
    pub const fn first_page(&self, block: u32) -> u32 {
        block * self.pages_per_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shapes_that_chips_have_are_taken() {
        let chip = Geometry::new(2048, 64, 64, 2048).unwrap();
        assert_eq!((chip.bytes(), chip.block_bytes(), chip.pages()), (256 << 20, 128 << 10, 131_072));
        assert_eq!((chip.block_of(130), chip.page_in_block(130), chip.first_page(2)), (2, 2, 128));
        assert_eq!(Geometry::new(2000, 64, 64, 1), Err(GeometryError::Page(2000)));
        assert_eq!(Geometry::new(512, 512, 64, 1), Err(GeometryError::Spare { spare: 512, page: 512 }));
        assert_eq!(Geometry::new(512, 16, 0, 1), Err(GeometryError::PagesPerBlock(0)));
        assert_eq!(Geometry::new(512, 16, 32, 0), Err(GeometryError::Blocks(0)));
        assert_eq!(Geometry::new(512, 16, 1024, 1 << 22), Err(GeometryError::Blocks(1 << 22)));
        assert!(Geometry::new(65536, 0, 1024, (1 << 22) - 1).is_ok());
    }
}
