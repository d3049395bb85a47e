//! Reading and writing all of a request, whatever its alignment and however much the kernel takes at once.

use std::fs::File;
use std::io::{self, IoSlice};

use rustix::io::Errno;

use super::FileDevice;
use super::direct::{Piece, is_aligned, pieces};
use crate::range::total_length;

/// Slices that one pwritev takes (the kernel's UIO_MAXIOV).
const MAX_SLICES: usize = 1024;

impl FileDevice {
    /// Fills `buf`; returns how many bytes, fewer only where the file ends.
    pub(super) fn read_request(&self, offset: u64, buf: &mut [u8]) -> io::Result<u64> {
        if !self.direct || self.is_sector_aligned(offset) && is_aligned(buf, self.sector_size) {
            return Ok(fill(&self.file, offset, buf)? as u64);
        }
        self.bounce.with(|bounce| {
            let mut done = 0;
            for piece in pieces(offset, buf.len() as u64, self.sector_size) {
                let sectors = &mut bounce[..piece.length];
                let filled = fill(&self.file, piece.offset, sectors)?;
                let got = filled.saturating_sub(piece.skip).min(piece.wanted);
                buf[done..done + got].copy_from_slice(&sectors[piece.skip..piece.skip + got]);
                done += got;
                if got < piece.wanted {
                    break;
                }
            }
            Ok(done as u64)
        })
    }

    /// Writes all of the slices, one behind the other.
    pub(super) fn write_request(&self, offset: u64, slices: &[&[u8]]) -> io::Result<()> {
        let straight = self.is_sector_aligned(offset) && slices.iter().all(|slice| is_aligned(slice, self.sector_size));
        if self.direct && !straight {
            return self.write_bounced(offset, slices);
        }
        match slices {
            [slice] => write_all(&self.file, offset, &mut [IoSlice::new(slice)]),
            _ => {
                let mut filled: Vec<IoSlice<'_>> =
                    slices.iter().filter(|slice| !slice.is_empty()).map(|slice| IoSlice::new(slice)).collect();
                write_all(&self.file, offset, &mut filled)
            }
        }
    }

    fn write_bounced(&self, offset: u64, slices: &[&[u8]]) -> io::Result<()> {
        let mut source = slices.iter().copied();
        let mut current: &[u8] = &[];
        self.bounce.with(|bounce| {
            for piece in pieces(offset, total_length(slices), self.sector_size) {
                let sectors = &mut bounce[..piece.length];
                // Two writes to different parts of one sector must not undo each other.
                let partial = piece.wanted < piece.length;
                let _guard = partial.then(|| self.partial_sectors.lock());
                if partial {
                    self.read_edges(&piece, sectors)?;
                }
                gather(&mut source, &mut current, &mut sectors[piece.skip..piece.skip + piece.wanted]);
                write_all(&self.file, piece.offset, &mut [IoSlice::new(sectors)])?;
            }
            Ok(())
        })
    }

    /// Reads the first and the last sector of a piece, where it does not cover them.
    fn read_edges(&self, piece: &Piece, sectors: &mut [u8]) -> io::Result<()> {
        let sector = self.sector_size as usize;
        if piece.skip > 0 {
            read_exact(&self.file, piece.offset, &mut sectors[..sector])?;
        }
        let last = piece.length - sector;
        let covered_to_the_end = piece.skip + piece.wanted == piece.length;
        let read_already = last == 0 && piece.skip > 0;
        if !covered_to_the_end && !read_already {
            read_exact(&self.file, piece.offset + last as u64, &mut sectors[last..])?;
        }
        Ok(())
    }

    fn is_sector_aligned(&self, offset: u64) -> bool {
        offset.is_multiple_of(u64::from(self.sector_size))
    }
}

/// Reads until `buf` is full or the file ends; returns the bytes read.
fn fill(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(file, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

fn read_exact(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    if fill(file, offset, buf)? < buf.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Writes until nothing is left of `slices`.
fn write_all(file: &File, offset: u64, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    let mut at = offset;
    let mut left: usize = slices.iter().map(|slice| slice.len()).sum();
    while left > 0 {
        match rustix::io::pwritev(file, &slices[..slices.len().min(MAX_SLICES)], at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                IoSlice::advance_slices(&mut slices, count);
                at += count as u64;
                left -= count;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Moves the next bytes of `source` to `target`; `current` is the slice in progress.
fn gather<'a>(source: &mut impl Iterator<Item = &'a [u8]>, current: &mut &'a [u8], target: &mut [u8]) {
    let mut rest = target;
    while !rest.is_empty() {
        if current.is_empty() {
            // The target is never longer than what the source still has.
            let Some(next) = source.next() else { return };
            *current = next;
        }
        let (now, later) = current.split_at(current.len().min(rest.len()));
        let (to, behind) = rest.split_at_mut(now.len());
        to.copy_from_slice(now);
        (*current, rest) = (later, behind);
    }
}
