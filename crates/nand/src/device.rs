//! The interface of a NAND device.

use crate::Geometry;

/// What reading a page has shown, beside its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// No bit had flipped, or nobody looks.
    Clean,
    /// Bits had flipped and were set right; this many in the worst codeword. The page should be copied before there are more.
    Corrected(u32),
}

/// Why a request to a NAND device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NandError {
    /// More bits have flipped than error correction sets right. The buffers hold what was read.
    #[error("page {page}: more bits have flipped than can be corrected")]
    Uncorrectable {
        /// The page.
        page: u32,
    },
    /// The chip says that programming failed. The page holds nothing of use; the block is to be copied and retired.
    #[error("page {page}: programming failed")]
    ProgramFailed {
        /// The page.
        page: u32,
    },
    /// The chip says that erasing failed. The block is to be retired.
    #[error("block {block}: erasing failed")]
    EraseFailed {
        /// The block.
        block: u32,
    },
    /// The chip has no such page or block.
    #[error("{what} {number} is beyond the end of the chip, which has {limit}")]
    OutOfRange {
        /// `page` or `block`.
        what: &'static str,
        /// The number asked for.
        number: u32,
        /// How many there are.
        limit: u32,
    },
    /// A buffer has not the length of a page or of its spare bytes.
    #[error("page {page}: buffers of {data} and {spare} bytes do not fit")]
    Length {
        /// The page.
        page: u32,
        /// Bytes of the data buffer.
        data: u32,
        /// Bytes of the spare buffer.
        spare: u32,
    },
    /// The request breaks a rule of NAND flash: a mistake of the caller, which a real chip answers with lost data.
    #[error("page {page}: {rule}")]
    Rule {
        /// The page; the first one of a block.
        page: u32,
        /// What was done that a chip does not bear.
        rule: Rule,
    },
    /// The chip has no power.
    #[error("the chip has no power")]
    PowerLost,
    /// The operating system reports an error.
    #[error("page {page}: error {errno} of the operating system")]
    Os {
        /// The page; the first one of a block.
        page: u32,
        /// The error's number.
        errno: i32,
    },
}

/// A rule of NAND flash that a request broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// The page was programmed since its block was erased.
    #[error("it is programmed a second time without an erase")]
    Twice,
    /// A later page of the block was programmed before it.
    #[error("it is programmed after a later page of its block")]
    Order,
    /// The block is bad.
    #[error("its block is bad, and is written or erased")]
    Bad,
}

/// Result of a request to a NAND device.
pub type Result<T> = core::result::Result<T, NandError>;

/// A NAND chip behind error correction: pages of data and spare bytes that are programmed once and in order, and blocks that are erased.
///
/// Requests complete in order: once one has returned, what it did outlasts a power cut. A cut in the middle of a program or an erase
/// leaves what it was about in any state, and one that changes with later reads.
pub trait NandDevice {
    /// The shape of the chip. `spare_bytes` counts what is free for the caller and protected by error correction.
    fn geometry(&self) -> Geometry;

    /// Flipped bits that are set right in each codeword; 0 if nobody knows, or nothing is set right.
    fn correctable(&self) -> u32 {
        0
    }

    /// Reads a page: `data` is a whole page, `spare` all spare bytes, or either is empty where it is not wanted. An erased page reads as
    /// 0xFF. Spare bytes without data may come as they are on the chip, with flipped bits. Errors: [`NandError::Uncorrectable`], or what
    /// the transport says.
    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus>;

    /// Programs a page, with all its spare bytes; with none they stay erased. It must be erased, and no later page of its block programmed since.
    /// Errors: [`NandError::ProgramFailed`] means that the block is to be retired.
    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<()>;

    /// Erases a block. Errors: [`NandError::EraseFailed`] means that it is to be retired.
    fn erase(&mut self, block: u32) -> Result<()>;

    /// Whether the block is marked bad, in the factory or by [`mark_bad`](NandDevice::mark_bad).
    fn is_bad(&mut self, block: u32) -> Result<bool>;

    /// Marks a block bad, for ever. It cannot fail for wear: where the chip does not take the mark, the device remembers it some other
    /// way, or says [`NandError::ProgramFailed`] and whoever asks must remember.
    fn mark_bad(&mut self, block: u32) -> Result<()>;

    /// Waits until what was done outlasts a power cut, where it does not by itself: a chip that is a file. Others need not do anything.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Checks that a page exists and that buffers fit; either may be empty.
pub fn check_page(geometry: &Geometry, page: u32, data: usize, spare: usize) -> Result<()> {
    if page >= geometry.pages() {
        return Err(NandError::OutOfRange { what: "page", number: page, limit: geometry.pages() });
    }
    let fits = |length: usize, whole: u32| length == 0 || length == whole as usize;
    if fits(data, geometry.page_bytes) && fits(spare, geometry.spare_bytes) {
        Ok(())
    } else {
        Err(NandError::Length { page, data: data as u32, spare: spare as u32 })
    }
}

/// Checks that a page exists, and that `data` is a whole page; `spare` may be empty.
pub fn check_program(geometry: &Geometry, page: u32, data: usize, spare: usize) -> Result<()> {
    check_page(geometry, page, data, spare)?;
    if data > 0 { Ok(()) } else { Err(NandError::Length { page, data: 0, spare: spare as u32 }) }
}

/// Checks that a block exists.
pub fn check_block(geometry: &Geometry, block: u32) -> Result<()> {
    if block < geometry.blocks {
        return Ok(());
    }
    Err(NandError::OutOfRange { what: "block", number: block, limit: geometry.blocks })
}

impl<D: NandDevice + ?Sized> NandDevice for &mut D {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn correctable(&self) -> u32 {
        (**self).correctable()
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus> {
        (**self).read(page, data, spare)
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<()> {
        (**self).program(page, data, spare)
    }

    fn erase(&mut self, block: u32) -> Result<()> {
        (**self).erase(block)
    }

    fn is_bad(&mut self, block: u32) -> Result<bool> {
        (**self).is_bad(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<()> {
        (**self).mark_bad(block)
    }

    fn flush(&mut self) -> Result<()> {
        (**self).flush()
    }
}

/// Whether all bytes are as erasing leaves them.
pub fn is_erased(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0xFF)
}
