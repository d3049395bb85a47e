//! How often and when files were written, in a bounded number of records.

use rustc_hash::FxHashMap;

use super::hints::{pack, unpack};
use crate::hints::bytes::Reader;
use crate::hints::packed::Triple;
use crate::hotness::Written;

/// Bytes of a record in a table that is between 7/16 and 7/8 full, with a byte for each place besides.
const RECORD_BYTES: usize = (size_of::<(u32, Written)>() + 1) * 16 / 7;

/// A file's number, and what is known of it.
const KEPT_BYTES: usize = size_of::<u32>() + size_of::<Triple>();

/// Files that are kept at most: numbers that somebody chose may all fall together in a table.
const KEPT_MAX: u32 = 1 << 16;

/// The files that were written last. Of more than may be kept, those that were not written for the longest time are forgotten.
pub struct WrittenFiles {
    /// Those written since the others were put aside.
    young: FxHashMap<u32, Written>,
    old: FxHashMap<u32, Written>,
    /// Files in each of both at most.
    most: usize,
}

impl Default for WrittenFiles {
    fn default() -> Self {
        WrittenFiles { young: FxHashMap::default(), old: FxHashMap::default(), most: usize::MAX }
    }
}

impl WrittenFiles {
    /// Takes no more than so many bytes from now on.
    pub fn limit(&mut self, bytes: usize) {
        self.most = (bytes / 2 / RECORD_BYTES).max(1);
    }

    /// What is known of a file.
    pub fn get(&self, file: u32) -> Option<Written> {
        self.young.get(&file).or_else(|| self.old.get(&file)).copied()
    }

    /// A block of a file is written now.
    pub fn write(&mut self, file: u32, now: u32) {
        let written = self.get(file).unwrap_or_default().again(now);
        if self.young.len() >= self.most && !self.young.contains_key(&file) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(file, written);
    }

    /// As bytes at this time, no more than so many: the files that were written last. Their number, and seven bytes each.
    pub fn keep(&self, now: u32, most: usize) -> Vec<u8> {
        let forgotten = self.old.iter().filter(|(file, _)| !self.young.contains_key(file));
        let mut files: Vec<(u32, Written)> =
            self.young.iter().chain(forgotten).map(|(file, written)| (*file, *written)).collect();
        // By number, too, so that the same files are the same bytes.
        files.sort_unstable_by_key(|(file, written)| (std::cmp::Reverse(written.time), *file));
        files.truncate((most.saturating_sub(size_of::<u32>()) / KEPT_BYTES).min(KEPT_MAX as usize));
        // KEPT_MAX at most.
        let mut bytes = (files.len() as u32).to_le_bytes().to_vec();
        for (file, written) in files {
            bytes.extend(file.to_le_bytes());
            bytes.extend(pack(written, now));
        }
        bytes
    }

    /// What was kept, at this time; `None` if it is something else. As many as there is room for.
    pub fn kept(&self, reader: &mut Reader<'_>, now: u32) -> Option<WrittenFiles> {
        let mut files = WrittenFiles { most: self.most, ..WrittenFiles::default() };
        let count = reader.u32().filter(|count| *count <= KEPT_MAX)?;
        for _ in 0..count {
            let file = reader.u32()?;
            let written = unpack([reader.u8()?, reader.u8()?, reader.u8()?], now);
            let half = if files.young.len() < files.most { &mut files.young } else { &mut files.old };
            if half.len() < files.most && written.count > 0 {
                half.insert(file, written);
            }
        }
        Some(files)
    }

    /// All times are this much less, and none is below zero.
    pub fn subtract_from_times(&mut self, less: u32) {
        for written in self.young.values_mut().chain(self.old.values_mut()) {
            written.time = written.time.saturating_sub(less);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_written_last_are_kept() {
        let mut files = WrittenFiles::default();
        files.limit(2 * 10 * RECORD_BYTES);
        for now in 0..100 {
            files.write(7, now);
            files.write(100 + now, now);
        }
        assert_eq!(files.get(7), Some(Written { count: 100, time: 99 }));
        assert_eq!(files.get(199), Some(Written { count: 1, time: 99 }));
        assert!(files.get(195).is_some() && files.get(170).is_none());
        assert!(files.young.len() + files.old.len() <= 20);
        files.subtract_from_times(90);
        assert_eq!((files.get(7).unwrap().time, files.get(195).unwrap().time), (9, 5));
    }

    /// Two in each half: file 1 is in both, once with one write and once with two.
    #[test]
    fn a_file_is_kept_once_and_those_written_last_stay_longest() {
        let mut files = WrittenFiles::default();
        files.limit(2 * 2 * RECORD_BYTES);
        (1..).zip([1, 2, 3, 1]).for_each(|(now, file)| files.write(file, now));
        let bytes = files.keep(5, 1000);
        assert_eq!(bytes.len(), 4 + 3 * KEPT_BYTES);
        let mut kept = files.kept(&mut Reader(&bytes), 5).unwrap();
        assert_eq!(kept.get(1), Some(Written { count: 2, time: 4 }));
        kept.write(8, 6);
        kept.write(9, 7);
        assert!(kept.get(1).is_some() && kept.get(2).is_none());
    }
}
