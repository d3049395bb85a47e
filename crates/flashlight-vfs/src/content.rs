//! What files contain: writes that find little room, ranges that become zeros or holes, and where holes are.

use basalt_flashlight::{Change, FlashLight, InodeNumber as Number};
use basalt_nand::NandDevice;
use basalt_vfs::{Attributes, Error, FallocateMode, Result, Seek, Time};

use crate::files::inside;
use crate::{Inner, error};

/// Writes as much as there is room for.
pub(crate) fn write_some<D: NandDevice>(
    volume: &mut FlashLight<Vec<u8>, D>,
    (at, offset): (Number, u64),
    data: &[u8],
    now: Time,
) -> Result<usize> {
    match volume.write(at, offset, data, inside(now)) {
        Ok(()) => Ok(data.len()),
        Err(basalt_flashlight::Error::NoSpace) if data.len() > 1 => {
            // Half of it, and so on: at least a byte, or nothing fits.
            write_some(volume, (at, offset), &data[..data.len() / 2], now)
        }
        Err(failed) => Err(error(failed)),
    }
}

impl<D: NandDevice + Send> Inner<D> {
    /// The file has the times of before: where the kernel keeps them, it sets them itself.
    pub(crate) fn keep_times(&mut self, at: Number, before: &Attributes) -> Result<()> {
        let change = Change { modified: Some(inside(before.mtime)), ..Change::default() };
        self.volume.change(at, &change, inside(before.ctime)).map_err(error)
    }

    /// Punches or zeroes a range. A range that is zeroed is a hole as well, and what is behind the end makes the file longer, unless the size
    /// is to stay. Nothing can be reserved: where a page comes to lie is known when it is written.
    pub(crate) fn fallocate(
        &mut self,
        at: Number,
        mode: FallocateMode,
        (offset, length): (u64, u64),
        now: Time,
    ) -> Result<()> {
        let before = self.attributes(at)?;
        if !before.is_file() {
            return Err(if before.is_dir() { Error::IsDirectory } else { Error::Invalid("no regular file") });
        }
        if length == 0 {
            return Err(Error::Invalid("empty range"));
        }
        let end = offset.checked_add(length).ok_or(Error::FileTooLarge)?;
        let keep_size = mode.contains(FallocateMode::KEEP_SIZE);
        match mode.difference(FallocateMode::KEEP_SIZE) {
            FallocateMode::PUNCH_HOLE if keep_size => {}
            FallocateMode::ZERO_RANGE => {
                // The length first: it is what may be refused.
                if !keep_size && end > before.size {
                    self.volume.set_length(at, end, inside(now)).map_err(error)?;
                }
            }
            none if none.is_empty() => return Err(Error::NotSupported("reserving room on FlashLight")),
            _ => return Err(Error::NotSupported("this mode of fallocate on FlashLight")),
        }
        self.volume.punch(at, offset, length, inside(now)).map_err(error)
    }

    /// The next byte that is data, or in a hole.
    pub(crate) fn seek(&mut self, at: Number, offset: u64, whence: Seek) -> Result<u64> {
        let found = match whence {
            Seek::Data => self.volume.next_data(at, offset),
            Seek::Hole => self.volume.next_hole(at, offset),
        };
        found.map_err(error)?.ok_or(Error::NoData)
    }
}
