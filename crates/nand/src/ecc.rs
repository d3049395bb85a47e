//! A chip without error correction, corrected in software.
//!
//! Each 512 bytes of a page are a codeword, together with their share of the spare bytes that are left for the caller. Spare bytes of a
//! page: two for the factory's bad-block marker, the caller's, then the parity of the first 512 bytes, of the second, and so on.

use crate::device::{NandDevice, NandError, ReadStatus, Result, check_page, check_program};
use crate::{Bch, Geometry};

/// Data bytes of a codeword.
const SECTOR: usize = 512;
/// Where chips carry the factory's mark of a bad block.
const MARKER: usize = 2;
/// The most spare bytes of a chip.
const MOST_SPARE: usize = 1024;

/// The chip cannot be corrected this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EccError {
    /// The parity has no room beside a page.
    #[error("{spare} spare bytes a page hold no parity of {parity}: choose a code that corrects fewer bits")]
    NoRoom {
        /// Spare bytes of the chip.
        spare: u32,
        /// Bytes that parity takes.
        parity: u32,
    },
    /// No chip has so much spare.
    #[error("{0} spare bytes a page: at most 1024 are supported")]
    TooMuchSpare(u32),
}

/// A device whose pages are corrected by [`Bch<T>`]: up to `T` flipped bits of each 512 bytes. It has fewer spare bytes than the chip.
#[derive(Debug)]
pub struct Ecc<D, const T: usize> {
    device: D,
    chip: Geometry,
    spare: [u8; MOST_SPARE],
}

impl<D: NandDevice, const T: usize> Ecc<D, T> {
    /// Corrects what `device` reads. Errors: the chip has too few spare bytes, or too many.
    pub fn new(device: D) -> core::result::Result<Ecc<D, T>, EccError> {
        let chip = device.geometry();
        let parity = chip.page_bytes / SECTOR as u32 * Bch::<T>::PARITY_BYTES as u32;
        if chip.spare_bytes as usize > MOST_SPARE {
            return Err(EccError::TooMuchSpare(chip.spare_bytes));
        }
        if chip.spare_bytes < parity + MARKER as u32 {
            return Err(EccError::NoRoom { spare: chip.spare_bytes, parity });
        }
        Ok(Ecc { device, chip, spare: [0xFF; MOST_SPARE] })
    }

    /// The chip itself.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// The chip, without correction.
    pub fn into_device(self) -> D {
        self.device
    }

    fn sectors(&self) -> usize {
        self.chip.page_bytes as usize / SECTOR
    }

    /// Spare bytes left for the caller.
    fn free(&self) -> usize {
        self.chip.spare_bytes as usize - MARKER - self.sectors() * Bch::<T>::PARITY_BYTES
    }

    /// Of the spare bytes of the chip, those of the caller and the parity that belong to a codeword.
    fn shares(&mut self, sector: usize) -> (&mut [u8], &mut [u8]) {
        let (free, sectors) = (self.free(), self.sectors());
        let (caller, parity) = self.spare[MARKER..].split_at_mut(free);
        let share = sector * free / sectors..(sector + 1) * free / sectors;
        let parity = &mut parity[sector * Bch::<T>::PARITY_BYTES..][..Bch::<T>::PARITY_BYTES];
        (&mut caller[share], parity)
    }
}

impl<D: NandDevice, const T: usize> NandDevice for Ecc<D, T> {
    fn geometry(&self) -> Geometry {
        Geometry { spare_bytes: self.free() as u32, ..self.chip }
    }

    fn correctable(&self) -> u32 {
        T as u32
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus> {
        check_page(&self.geometry(), page, data.len(), spare.len())?;
        let whole = self.chip.spare_bytes as usize;
        self.device.read(page, data, &mut self.spare[..whole])?;
        // Without the data of its codeword nothing is corrected: the loop ends at once.
        let (mut worst, mut lost) = (0, false);
        for (sector, content) in data.chunks_exact_mut(SECTOR).enumerate() {
            let (share, parity) = self.shares(sector);
            match Bch::<T>::correct(&mut [content, share], parity) {
                Ok(flipped) => worst = worst.max(flipped),
                Err(_) => lost = true,
            }
        }
        spare.copy_from_slice(&self.spare[MARKER..][..spare.len()]);
        match (lost, worst) {
            (true, _) => Err(NandError::Uncorrectable { page }),
            (false, 0) => Ok(ReadStatus::Clean),
            (false, flipped) => Ok(ReadStatus::Corrected(flipped)),
        }
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<()> {
        check_program(&self.geometry(), page, data.len(), spare.len())?;
        let whole = self.chip.spare_bytes as usize;
        self.spare[..whole].fill(0xFF);
        self.spare[MARKER..][..spare.len()].copy_from_slice(spare);
        for (sector, content) in data.chunks_exact(SECTOR).enumerate() {
            let (share, parity) = self.shares(sector);
            Bch::<T>::parity(&[content, share], parity);
        }
        self.device.program(page, data, &self.spare[..whole])
    }

    fn erase(&mut self, block: u32) -> Result<()> {
        self.device.erase(block)
    }

    fn is_bad(&mut self, block: u32) -> Result<bool> {
        self.device.is_bad(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<()> {
        self.device.mark_bad(block)
    }

    fn flush(&mut self) -> Result<()> {
        self.device.flush()
    }
}

/// A chip behind the stronger of two codes that its spare bytes have room for. The shape of the chip alone decides, so whoever opens it again
/// corrects it the same way.
#[derive(Debug)]
pub enum Corrected<D> {
    /// Eight flipped bits of each 512 bytes: 13 bytes of parity.
    Eight(Ecc<D, 8>),
    /// Four: 7 bytes of parity.
    Four(Ecc<D, 4>),
}

/// Has the code that is there do something.
macro_rules! either {
    ($corrected:expr, $ecc:ident => $what:expr) => {
        match $corrected {
            Corrected::Eight($ecc) => $what,
            Corrected::Four($ecc) => $what,
        }
    };
}

/// Spare bytes that a code leaves at least: what FlashLight says of a page of data.
const LEFT: u32 = 12;

impl<D: NandDevice> Corrected<D> {
    /// Corrects what `device` reads. Errors: the chip has too few spare bytes for either code beside 12 that are left, or too many.
    pub fn new(device: D) -> core::result::Result<Corrected<D>, EccError> {
        let chip = device.geometry();
        let parity = chip.page_bytes / SECTOR as u32 * Bch::<8>::PARITY_BYTES as u32;
        if chip.spare_bytes >= MARKER as u32 + parity + LEFT {
            return Ecc::new(device).map(Corrected::Eight);
        }
        let weaker = Ecc::new(device)?;
        match weaker.geometry().spare_bytes {
            LEFT.. => Ok(Corrected::Four(weaker)),
            left => Err(EccError::NoRoom {
                spare: chip.spare_bytes,
                parity: chip.spare_bytes - left - MARKER as u32 + LEFT,
            }),
        }
    }

    /// The chip itself.
    pub fn device(&mut self) -> &mut D {
        either!(self, ecc => ecc.device())
    }
}

impl<D: NandDevice> NandDevice for Corrected<D> {
    fn geometry(&self) -> Geometry {
        either!(self, ecc => ecc.geometry())
    }

    fn correctable(&self) -> u32 {
        either!(self, ecc => ecc.correctable())
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus> {
        either!(self, ecc => ecc.read(page, data, spare))
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<()> {
        either!(self, ecc => ecc.program(page, data, spare))
    }

    fn erase(&mut self, block: u32) -> Result<()> {
        either!(self, ecc => ecc.erase(block))
    }

    fn is_bad(&mut self, block: u32) -> Result<bool> {
        either!(self, ecc => ecc.is_bad(block))
    }

    fn mark_bad(&mut self, block: u32) -> Result<()> {
        either!(self, ecc => ecc.mark_bad(block))
    }

    fn flush(&mut self) -> Result<()> {
        either!(self, ecc => ecc.flush())
    }
}
