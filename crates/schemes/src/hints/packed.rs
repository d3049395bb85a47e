//! What is known of a segment's blocks as bytes: three for each, or for all of them together.

use basalt_segments::BLOCKS_PER_SEGMENT;

use super::bytes::Reader;

const BLOCKS: usize = BLOCKS_PER_SEGMENT as usize;
/// The same for all blocks.
const COMMON: u8 = 0;
/// For each place, one after the other.
const EACH: u8 = 1;
/// Lengths, less one, and what is known of as many places.
const RUNS: u8 = 2;

/// What is known of a block. Of one of which nothing is, the first byte is 0.
pub type Triple = [u8; 3];

/// What is known of the blocks of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packed {
    /// The same of all that are live.
    Common(Triple),
    /// Of each place.
    Each(Box<[Triple; BLOCKS]>),
}

impl Packed {
    /// Bytes of [`Common`](Packed::Common).
    pub const COMMON_BYTES: usize = 1 + size_of::<Triple>();

    /// Of each place.
    pub fn each(mut of: impl FnMut(usize) -> Triple) -> Packed {
        let mut triples = Box::new([Triple::default(); BLOCKS]);
        triples.iter_mut().enumerate().for_each(|(at, triple)| *triple = of(at));
        Packed::Each(triples)
    }

    /// Adds the bytes.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Packed::Common(triple) => {
                bytes.push(COMMON);
                bytes.extend(triple);
            }
            Packed::Each(triples) => {
                let runs: Vec<&[Triple]> = triples.chunk_by(|a, b| a == b).flat_map(|run| run.chunks(256)).collect();
                if runs.len() * 4 < triples.len() * 3 {
                    bytes.push(RUNS);
                    // Runs are of 256 at most.
                    runs.iter().for_each(|run| bytes.extend([(run.len() - 1) as u8, run[0][0], run[0][1], run[0][2]]));
                } else {
                    bytes.push(EACH);
                    bytes.extend(triples.as_flattened());
                }
            }
        }
    }

    /// What these bytes say; `None` if they are of no segment.
    pub fn read(reader: &mut Reader<'_>) -> Option<Packed> {
        let form = reader.u8()?;
        let triple = |reader: &mut Reader<'_>| Some([reader.u8()?, reader.u8()?, reader.u8()?]);
        if form == COMMON {
            return triple(reader).filter(|triple| triple[0] > 0).map(Packed::Common);
        }
        let mut triples = Box::new([Triple::default(); BLOCKS]);
        let mut at = 0;
        while at < BLOCKS {
            let count = match form {
                EACH => 1,
                RUNS => usize::from(reader.u8()?) + 1,
                _ => return None,
            };
            triples.get_mut(at..at + count)?.fill(triple(reader)?);
            at += count;
        }
        Some(Packed::Each(triples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(packed: &Packed) -> usize {
        let mut bytes = Vec::new();
        packed.write(&mut bytes);
        assert_eq!(Packed::read(&mut Reader(&bytes)).as_ref(), Some(packed));
        bytes.len()
    }

    #[test]
    fn segments_come_back_in_as_few_bytes_as_they_need() {
        assert_eq!(through(&Packed::Common([1, 2, 3])), Packed::COMMON_BYTES);
        let mixed = |at: usize| if at.is_multiple_of(3) { [0; 3] } else { [1, at as u8, (at >> 8) as u8] };
        assert_eq!(through(&Packed::each(mixed)), 1 + 3 * BLOCKS);
        assert_eq!(through(&Packed::each(|at| [u8::from(at < 400); 3])), 1 + 4 * 3, "256, 144 and 112");
    }

    #[test]
    fn bytes_of_no_segment_are_refused() {
        for packed in
            [Packed::Common([7; 3]), Packed::each(|at| [at as u8; 3]), Packed::each(|at| [(at / 200) as u8; 3])]
        {
            let mut bytes = Vec::new();
            packed.write(&mut bytes);
            assert!((0..bytes.len()).all(|end| Packed::read(&mut Reader(&bytes[..end])).is_none()));
        }
        let is_read = |form: u8, rest: &[u8]| Packed::read(&mut Reader(&[&[form], rest].concat())).is_some();
        assert!(is_read(COMMON, &[1, 2, 3]) && !is_read(COMMON, &[0, 2, 3]) && !is_read(3, &[1; 2000]));
        assert!(
            is_read(RUNS, &[255, 1, 1, 1, 255, 1, 1, 1]) && !is_read(RUNS, &[255, 1, 1, 1, 254, 1, 1, 1, 1, 1, 1, 1])
        );
    }

    #[test]
    fn runs_are_taken_where_they_are_shorter() {
        let with_runs = |count: usize| {
            let run = move |at: usize| at.min(count - 1);
            through(&Packed::each(|at| [1, run(at) as u8, (run(at) >> 8) as u8]))
        };
        // The last run is longer than one, up to 256.
        assert_eq!([300, 383].map(with_runs), [1 + 4 * 300, 1 + 4 * 383]);
        assert_eq!([384, 400, 500].map(with_runs), [1 + 3 * BLOCKS; 3]);
    }
}
