//! What a device below the volume would be asked for.

use basalt_segments::MainBlock;

/// Hears of every block that is written or read, in order, with its place: whoever wants to know how long a device takes.
///
/// The volume itself has no device. What is not simulated (metadata outside the main area) is not told.
pub trait Traffic: Send {
    /// `count` neighbouring blocks of one segment are written, from `first` on, by users or by cleaning.
    fn write(&mut self, first: MainBlock, count: u32);

    /// Cleaning reads `count` neighbouring live blocks of one segment, from `first` on, to move them.
    fn read(&mut self, first: MainBlock, count: u32);

    /// A checkpoint: all that was written has to be durable.
    fn checkpoint(&mut self);
}
