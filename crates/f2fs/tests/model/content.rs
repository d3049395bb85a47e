//! The content of a file that may have holes of terabytes.

use std::collections::BTreeMap;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Bytes by page; what is not there is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
}

impl Content {
    /// Puts `data` at `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let length = (PAGE as usize - within).min(data.len() - done);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Box::new([0; PAGE as usize]));
            page[within..within + length].copy_from_slice(&data[done..done + length]);
            done += length;
        }
    }

    /// The bytes at `offset`.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        let end = offset + length as u64;
        for (index, page) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = index * PAGE;
            let (from, to) = (start.max(offset), (start + PAGE).min(end));
            data[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
        }
        data
    }

    /// Makes the bytes from `from` to `to` zero.
    pub fn zero(&mut self, from: u64, to: u64) {
        let whole = from.div_ceil(PAGE)..to / PAGE;
        if whole.start < whole.end {
            let gone: Vec<u64> = self.pages.range(whole).map(|(index, _)| *index).collect();
            gone.iter().for_each(|index| drop(self.pages.remove(index)));
        }
        for index in [from / PAGE, to / PAGE] {
            let start = index * PAGE;
            let (first, last) = (from.max(start), to.min(start + PAGE));
            if first < last
                && let Some(page) = self.pages.get_mut(&index)
            {
                page[(first - start) as usize..(last - start) as usize].fill(0);
            }
        }
    }

    /// Whether all bytes from `from` to `to` are zero.
    pub fn is_zero(&self, from: u64, to: u64) -> bool {
        self.pages.range(from / PAGE..to.div_ceil(PAGE)).all(|(index, page)| {
            let start = index * PAGE;
            let (first, last) = (from.max(start), to.min(start + PAGE));
            first >= last || page[(first - start) as usize..(last - start) as usize].iter().all(|&byte| byte == 0)
        })
    }

    /// Whether every page from `from` to `to` was written.
    pub fn is_present(&self, from: u64, to: u64) -> bool {
        let pages = from / PAGE..to.div_ceil(PAGE);
        self.pages.range(pages.clone()).count() as u64 == pages.end - pages.start
    }
}
