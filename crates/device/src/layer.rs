//! Devices in front of another device.

use std::sync::Arc;

use crate::{BlockDevice, Result};

/// A device in front of another: it says which that is and what it changes, and all else reaches the device below.
///
/// Each layer is a [`BlockDevice`]. A device that keeps its bytes itself implements [`BlockDevice`] and not this.
///
/// Its methods have other names than those of [`BlockDevice`], so that a call says which it means. Name and sector size are those of the device
/// below.
///
/// ```
/// use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice, Result};
///
/// /// Takes no discards.
/// struct Deaf<D>(D);
///
/// impl<D: BlockDevice> DeviceLayer for Deaf<D> {
///     type Below = D;
///     fn below(&self) -> &D {
///         &self.0
///     }
///     fn on_discard(&self, _: u64, _: u64) -> Result<()> {
///         Ok(())
///     }
/// }
///
/// let device = Deaf(MemoryDevice::new(1 << 20, 512));
/// device.write_at(0, &[1; 512])?;
/// device.discard(0, 512)?;
/// let mut bytes = [0; 512];
/// device.read_at(0, &mut bytes)?;
/// assert_eq!(bytes, [1; 512]);
/// # Ok::<(), basalt_device::DeviceError>(())
/// ```
pub trait DeviceLayer: Send + Sync {
    /// What kind of device is below.
    type Below: BlockDevice + ?Sized;

    /// The device that requests reach which this layer does not change.
    fn below(&self) -> &Self::Below;

    /// What is [`BlockDevice::size`].
    fn layer_size(&self) -> u64 {
        self.below().size()
    }

    /// What is [`BlockDevice::is_read_only`].
    fn layer_is_read_only(&self) -> bool {
        self.below().is_read_only()
    }

    /// What [`BlockDevice::read_at`] does.
    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below().read_at(offset, buf)
    }

    /// What [`BlockDevice::prefetch`] does.
    fn on_prefetch(&self, offset: u64, length: u64) {
        self.below().prefetch(offset, length);
    }

    /// What [`BlockDevice::next_data`] does. A layer that reads other bytes than the device below has, or is larger, answers this too.
    fn on_next_data(&self, offset: u64) -> Option<u64> {
        self.below().next_data(offset).filter(|&at| at < self.layer_size())
    }

    /// What [`BlockDevice::write_at`] and [`BlockDevice::write_vectored_at`] do: a layer that changes writes has one method to change.
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        match slices {
            [only] => self.below().write_at(offset, only),
            _ => self.below().write_vectored_at(offset, slices),
        }
    }

    /// What [`BlockDevice::flush`] does.
    fn on_flush(&self) -> Result<()> {
        self.below().flush()
    }

    /// What [`BlockDevice::discard`] does.
    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.below().discard(offset, length)
    }
}

// A method that is missing here is lost on its way through every layer, also if the trait has an answer of its own for it.
#[warn(clippy::missing_trait_methods)]
impl<L: DeviceLayer> BlockDevice for L {
    fn name(&self) -> &str {
        self.below().name()
    }

    fn size(&self) -> u64 {
        self.layer_size()
    }

    fn sector_size(&self) -> u32 {
        self.below().sector_size()
    }

    fn is_read_only(&self) -> bool {
        self.layer_is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.on_read(offset, buf)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.on_prefetch(offset, length);
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.on_next_data(offset)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.on_write(offset, &[buf])
    }

    fn write_vectored_at(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.on_write(offset, slices)
    }

    fn flush(&self) -> Result<()> {
        self.on_flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.on_discard(offset, length)
    }
}

impl<D: BlockDevice + ?Sized> DeviceLayer for Arc<D> {
    type Below = D;

    fn below(&self) -> &D {
        self
    }
}
