//! The records of a segment as bytes.

use basalt_segments::BLOCKS_PER_SEGMENT;

use super::super::places::Content;
use super::super::records::Record;
use crate::hints::bytes::Reader;
use crate::hints::packed::Packed;

const BLOCKS: usize = BLOCKS_PER_SEGMENT as usize;

/// Bytes of a segment with one record for all blocks.
pub const COMMON_BYTES: usize = 5 + Packed::COMMON_BYTES;

/// What is kept of a segment beside records: its group, and how long ago a user overwrote one of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    pub group: u8,
    pub untouched: u32,
}

/// Records that were kept.
pub enum Kept {
    Common(Record),
    Each(Box<[Record; BLOCKS]>),
}

/// A segment as bytes at this time.
pub fn keep(about: About, content: &Content<'_>, now: u32) -> Vec<u8> {
    let mut bytes = vec![about.group];
    bytes.extend(about.untouched.to_le_bytes());
    let packed = match content {
        Content::Common(record, _) => Packed::Common(record.packed(now)),
        Content::Each(records) => Packed::each(|at| records.get(at).copied().unwrap_or_default().packed(now)),
    };
    packed.write(&mut bytes);
    bytes
}

/// The segment that these bytes are of; `None` if they are of none.
pub fn kept(bytes: &[u8], now: u32) -> Option<(About, Kept)> {
    let mut reader = Reader(bytes);
    let about = About { group: reader.u8()?, untouched: reader.u32()? };
    let kept = match Packed::read(&mut reader)? {
        Packed::Common(triple) => Kept::Common(Some(Record::unpacked(triple, now)).filter(|record| record.is_known())?),
        Packed::Each(triples) => {
            let mut records = Box::new([Record::default(); BLOCKS]);
            records.iter_mut().zip(*triples).for_each(|(record, triple)| *record = Record::unpacked(triple, now));
            Kept::Each(records)
        }
    };
    Some((about, kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About { group: 5, untouched: 70_000 };

    fn through(records: &[Record; BLOCKS], now: u32) -> (usize, Box<[Record; BLOCKS]>) {
        let bytes = keep(ABOUT, &Content::Each(records), now);
        match kept(&bytes, now) {
            Some((about, Kept::Each(read))) => {
                assert_eq!(about, ABOUT);
                (bytes.len(), read)
            }
            _ => panic!("{bytes:?}"),
        }
    }

    #[test]
    fn records_come_back_at_their_places() {
        let now = 1 << 20;
        let is_there = |at: usize| !at.is_multiple_of(3);
        let mixed: [Record; BLOCKS] = std::array::from_fn(|at| {
            let written = (at as u32).wrapping_mul(0x9E37_79B9) >> 12;
            if is_there(at) { Record::first(written) } else { Record::default() }
        });
        let (bytes, read) = through(&mixed, now);
        assert_eq!(bytes, 6 + 3 * BLOCKS);
        for (at, (was, is)) in mixed.iter().zip(read.iter()).enumerate() {
            assert_eq!(is.is_known(), is_there(at));
            assert!(!is.is_known() || is.age(now).abs_diff(was.age(now)) <= was.age(now) / 12);
        }
        let alike: [Record; BLOCKS] =
            std::array::from_fn(|at| if at < 400 { Record::first(5) } else { Record::default() });
        let (bytes, read) = through(&alike, now);
        assert_eq!(bytes, 6 + 4 * 3, "256, 144 and 112");
        assert_eq!(read.iter().filter(|record| record.is_known()).count(), 400);
    }

    #[test]
    fn a_common_record_comes_back() {
        let bytes = keep(ABOUT, &Content::Common(Record::second(0), 17), 1000);
        assert_eq!(bytes.len(), COMMON_BYTES);
        let Some((ABOUT, Kept::Common(record))) = kept(&bytes, 1000) else { panic!("{bytes:?}") };
        assert!(record.is_overwritten() && record.age(1000).abs_diff(1000) < 80);
    }

    #[test]
    fn bytes_of_no_segment_are_refused() {
        let records: [Record; BLOCKS] = std::array::from_fn(|at| Record::first(at as u32 * 10_000));
        let bytes = keep(ABOUT, &Content::Each(&records), 1 << 24);
        assert!((0..bytes.len()).all(|end| kept(&bytes[..end], 7).is_none()));
    }
}
