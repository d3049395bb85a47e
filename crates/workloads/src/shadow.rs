//! What every file must hold: which write each of its bytes came from. Kept only if a run is to be verified.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::operation::MAX_REQUEST;

/// Bytes of one file from one write.
#[derive(Debug, Clone, Copy)]
struct Extent {
    end: u64,
    write: u64,
    /// Where that write began, and how long it was.
    from: u64,
}

/// One file: extents by their first byte, holes between them.
#[derive(Debug, Default)]
struct Image {
    size: u64,
    extents: BTreeMap<u64, Extent>,
}

impl Image {
    /// Forgets what lies in `start..end`.
    fn cut(&mut self, start: u64, end: u64) {
        let first = self.extents.range(..start).next_back().filter(|(_, extent)| extent.end > start);
        let first = first.map_or(start, |(first, _)| *first);
        let touched: Vec<(u64, Extent)> = self.extents.range(first..end).map(|(at, extent)| (*at, *extent)).collect();
        for (at, extent) in touched {
            self.extents.remove(&at);
            if at < start {
                self.extents.insert(at, Extent { end: start, ..extent });
            }
            if extent.end > end {
                self.extents.insert(end, extent);
            }
        }
    }
}

/// Every file of a run, by number; paths lead to numbers.
#[derive(Debug, Default)]
pub struct Shadow {
    images: FxHashMap<u64, Image>,
    paths: FxHashMap<String, u64>,
    next: u64,
}

impl Shadow {
    /// A new file.
    pub fn create(&mut self, path: &str) -> u64 {
        self.next += 1;
        self.images.insert(self.next, Image::default());
        self.paths.insert(path.to_owned(), self.next);
        self.next
    }

    /// The file of a path, if it is known.
    pub fn open(&self, path: &str) -> Option<u64> {
        self.paths.get(path).copied()
    }

    /// A name that is gone. Files that are still open lose their image: nothing is checked of them any more.
    pub fn unlink(&mut self, path: &str) {
        if let Some(file) = self.paths.remove(path) {
            self.images.remove(&file);
        }
    }

    /// A file under a new name, or a directory with all below it.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(file) = self.paths.remove(from) {
            self.unlink(to);
            self.paths.insert(to.to_owned(), file);
            return;
        }
        let prefix = format!("{from}/");
        let below: Vec<String> = self.paths.keys().filter(|path| path.starts_with(&prefix)).cloned().collect();
        for path in below {
            if let Some(file) = self.paths.remove(&path) {
                self.paths.insert(format!("{to}/{}", &path[prefix.len()..]), file);
            }
        }
    }

    /// Bytes written by write number `write`.
    pub fn write(&mut self, file: u64, offset: u64, length: u64, write: u64) {
        if let Some(image) = self.images.get_mut(&file) {
            let end = offset + length;
            image.cut(offset, end);
            image.extents.insert(offset, Extent { end, write, from: offset });
            image.size = image.size.max(end);
        }
    }

    /// A new size.
    pub fn truncate(&mut self, file: u64, size: u64) {
        if let Some(image) = self.images.get_mut(&file) {
            image.cut(size, u64::MAX);
            image.size = size;
        }
    }

    /// Compares what was read at `offset` with what was written.
    pub fn check(
        &self,
        file: u64,
        path: &str,
        offset: u64,
        found: &[u8],
        asked: usize,
        content: &Content,
    ) -> Result<()> {
        let Some(image) = self.images.get(&file) else { return Ok(()) };
        let wrong = |offset: u64| Err(Error::Mismatch { path: path.to_owned(), offset });
        let expected = image.size.saturating_sub(offset).min(asked as u64);
        if found.len() as u64 != expected {
            return wrong(offset + expected.min(found.len() as u64));
        }
        let end = offset + expected;
        let mut at = offset;
        while at < end {
            let extent = image.extents.range(..=at).next_back().map(|(_, extent)| *extent);
            let piece = |until: u64| &found[(at - offset) as usize..(until - offset) as usize];
            let until = match extent.filter(|extent| extent.end > at) {
                Some(extent) => {
                    let until = extent.end.min(end);
                    let written = content.of(extent.write, MAX_REQUEST as usize);
                    let expected = &written[(at - extent.from) as usize..(until - extent.from) as usize];
                    if let Some(wrong_at) = first_difference(piece(until), expected) {
                        return wrong(at + wrong_at as u64);
                    }
                    until
                }
                None => {
                    let until = image.extents.range(at..end).next().map_or(end, |(next, _)| *next);
                    if let Some(wrong_at) = piece(until).iter().position(|byte| *byte != 0) {
                        return wrong(at + wrong_at as u64);
                    }
                    until
                }
            };
            at = until;
        }
        Ok(())
    }

    /// Every path with its file and size, sorted by path.
    pub fn files(&self) -> Vec<(String, u64, u64)> {
        let mut files: Vec<(String, u64, u64)> = self
            .paths
            .iter()
            .map(|(path, file)| (path.clone(), *file, self.images.get(file).map_or(0, |image| image.size)))
            .collect();
        files.sort();
        files
    }
}

fn first_difference(found: &[u8], expected: &[u8]) -> Option<usize> {
    if found == expected {
        return None;
    }
    found.iter().zip(expected).position(|(one, other)| one != other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Contents;
    use basalt_random::Rng;

    /// Random writes and truncations on a shadow and on plain bytes agree; one changed byte is noticed.
    #[test]
    fn agrees_with_plain_bytes() {
        let content = Content::new(3, Contents::Random);
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut shadow = Shadow::default();
            let file = shadow.create("f");
            let mut bytes: Vec<u8> = Vec::new();
            for write in 0..60 {
                let offset = rng.below(3000);
                if rng.chance(15) {
                    bytes.resize(offset as usize, 0);
                    shadow.truncate(file, offset);
                    continue;
                }
                let length = rng.between(1, 700) as usize;
                let end = offset as usize + length;
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(content.of(write, length));
                shadow.write(file, offset, length as u64, write);
            }
            assert!(shadow.check(file, "f", 0, &bytes, 10_000, &content).is_ok(), "seed {seed}");
            let Some(last) = bytes.len().checked_sub(1) else { continue };
            bytes[last] ^= 1;
            let wrong = shadow.check(file, "f", 0, &bytes, 10_000, &content);
            assert!(matches!(wrong, Err(Error::Mismatch { offset, .. }) if offset == last as u64), "seed {seed}");
            assert!(shadow.check(file, "f", 0, &bytes[..last], 10_000, &content).is_err(), "seed {seed}");
        }
    }
}
