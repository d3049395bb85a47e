//! Whole traces of every format, packed and not, through the public door; and any bytes at all.

use std::io::{Cursor, Write};
use std::path::Path;

use basalt_device::RequestKind;
use basalt_device::RequestKind::{Discard, Flush, Read, Write as Put};
use basalt_random::Rng;
use basalt_traces::{
    Counts, Event, Format, IologVersion, IologWriter, ReadOptions, TraceError, TraceReader, TraceRequest,
    TraceStatistics,
};
use proptest::prelude::*;

/// Reads everything; bad lines are left to the counts.
fn read(bytes: impl Into<Vec<u8>>, options: &ReadOptions) -> Result<(Vec<TraceRequest>, Format, Counts), TraceError> {
    let mut reader = TraceReader::new("sample", Cursor::new(bytes.into()), options)?;
    let mut requests = Vec::new();
    for request in reader.by_ref() {
        match request {
            Ok(request) => requests.push(request),
            Err(TraceError::BadLine(_)) if !options.strict => {}
            Err(error) => return Err(error),
        }
    }
    Ok((requests, reader.format(), reader.counts().clone()))
}

/// Time, kind, offset and length of a request.
type Plain = (u64, RequestKind, u64, u64);

fn plain(requests: &[TraceRequest]) -> Vec<Plain> {
    requests.iter().map(|request| (request.time_ns, request.kind, request.offset, request.length)).collect()
}

const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  Q  WS 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G  WS 223490 + 8 [kjournald]
  8,0    3        3     0.000004000   697  D  WS 223490 + 8 [kjournald]
  8,0    3        4     0.000009000   697  D  FN [kworker/3:1H]
  8,0    3        5     0.000010000   697  D WFS 100 + 8 [kjournald]
  8,0    3        6     0.000014000   697  D  DS 4096 + 1024 [fstrim]
  8,0    3        7     0.000020000     0  C  WS 223490 + 8 [0]
  8,0    3        8     1.000004000   697  D  RA 0 + 256 [cat]
CPU3 (8,0):
 Reads Queued:           0,        0KiB\t Writes Queued:           1,        4KiB
";

#[test]
fn every_format_is_recognised_and_read() {
    let sector = |number: u64| number * 512;
    let cases: [(&str, Format, Vec<Plain>); 7] = [
        (
            "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x write 4096 512\n/dev/x wait 100 0\n/dev/x sync 0 0\n/dev/x trim 0 4096\n/dev/x close\n",
            Format::Fio,
            vec![(0, Put, 4096, 512), (100_000, Flush, 0, 0), (100_000, Discard, 0, 4096)],
        ),
        (
            "fio version 3 iolog\n10 /dev/x add\n20 /dev/x open\n500 /dev/x read 4096 512\n507 /dev/x datasync 0 0\n900 /dev/x close\n",
            Format::Fio,
            vec![(0, Read, 4096, 512), (7_000, Flush, 0, 0)],
        ),
        (
            BLKPARSE,
            Format::Blkparse,
            vec![
                (0, Put, sector(223_490), 4096),
                (5_000, Flush, 0, 0),
                (6_000, Put, sector(100), 4096),
                (6_000, Flush, 0, 0),
                (10_000, Discard, sector(4096), 512 << 10),
                (1_000_000_000, Read, 0, 128 << 10),
            ],
        ),
        (
            "128166372003061629,usr,0,Read,7014609920,24576,41286\r\n128166372003061639,usr,0,Write,512,512,1\r\n",
            Format::Msr,
            vec![(0, Read, 7_014_609_920, 24_576), (1_000, Put, 512, 512)],
        ),
        (
            "419,W,8792731648,16384,1577808144360767\n419,R,0,4096,1577808144360768\n",
            Format::Alibaba,
            vec![(0, Put, 8_792_731_648, 16_384), (1_000, Read, 0, 4_096)],
        ),
        (
            "938513000 4 264719034 16 0\n938828000 3 197570570 8 1\n",
            Format::Mqsim,
            vec![(0, Put, sector(264_719_034), 8_192), (315_000, Read, sector(197_570_570), 4_096)],
        ),
        (
            "version,time,op,size,lbn\n1,5633898,2a,6656,42932745\n1,5633900,28,512,1\n",
            Format::Vscsi,
            vec![(0, Put, sector(42_932_745), 6_656), (2_000_000_000, Read, 512, 512)],
        ),
    ];
    for (text, format, expected) in cases {
        for options in
            [ReadOptions::default(), ReadOptions { format: Some(format), strict: true, ..ReadOptions::default() }]
        {
            let (requests, found, counts) = read(text, &options).unwrap();
            assert_eq!((found, plain(&requests)), (format, expected.clone()), "{text}");
            assert_eq!((counts.bad_lines, counts.requests), (0, expected.len() as u64));
            assert_eq!(counts.lines, text.lines().count() as u64);
        }
    }
}

#[test]
fn the_event_of_a_blkparse_text_is_a_choice() {
    let options = |event| ReadOptions { event, ..ReadOptions::default() };
    let (queued, _, _) = read(BLKPARSE, &options(Event::Queued)).unwrap();
    assert_eq!(plain(&queued), [(0, Put, 223_490 * 512, 4096)]);
    let (completed, _, counts) = read(BLKPARSE, &options(Event::Completed)).unwrap();
    assert_eq!(plain(&completed), [(0, Put, 223_490 * 512, 4096)]);
    assert_eq!((counts.lines, counts.other_lines), (10, 9));
    let without = BLKPARSE.replace(" C ", " G ");
    let error = read(without, &options(Event::Completed)).unwrap_err();
    assert!(error.to_string().contains("no `C` events"), "{error}");
}

#[test]
fn bad_lines_are_named_and_counted() {
    let text = format!("1 4 0 8 0\nnonsense\n2 4 8 8 1\n3 4 8 0 1\n{}\n4 4 16 8 0\n", "9".repeat(100_000));
    let (requests, _, counts) = read(text.clone(), &ReadOptions::default()).unwrap();
    assert_eq!(requests.len(), 3);
    assert_eq!((counts.bad_lines, counts.lines), (3, 6));
    assert_eq!(counts.first_bad_line.unwrap().to_string(), "sample:2: 5 fields are expected, not 1");

    let strict = ReadOptions { strict: true, ..ReadOptions::default() };
    let error = read(text, &strict).unwrap_err();
    assert!(matches!(error, TraceError::BadLine(bad) if bad.line == 2));
    let mut reader = TraceReader::new("x", Cursor::new("1 4 0 8 0\nbad\n2 4 8 8 1\n"), &strict).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert!(reader.next().is_none(), "a strict reader ends at a bad line");
}

#[test]
fn one_volume_of_several() {
    let text = "1,R,0,512,10\n2,W,512,512,20\n1,W,1024,512,30\n";
    let (requests, _, counts) = read(text, &ReadOptions::default()).unwrap();
    assert_eq!((requests.len(), counts.volumes), (3, 2));
    assert_eq!(counts.volume_names, ["1", "2"]);
    let options = ReadOptions { volume: Some("2".into()), ..ReadOptions::default() };
    let (requests, _, counts) = read(text, &options).unwrap();
    assert_eq!(plain(&requests), [(0, Put, 512, 512)]);
    assert_eq!(counts.other_volume_lines, 2);
    let options = ReadOptions { volume: Some("3".into()), ..ReadOptions::default() };
    let error = read(text, &options).unwrap_err().to_string();
    assert!(error.ends_with("no volume `3`; it has 1, 2"), "{error}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut packer = lz4_flex::frame::FrameEncoder::new(Vec::new());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Many lines of MQSim's text.
fn long_trace(lines: u64) -> String {
    (0..lines).map(|line| format!("{} 0 {} 8 {}\n", line * 10, line * 7 % 99_991, line % 2)).collect()
}

#[test]
fn packed_traces_are_unpacked_also_in_several_frames() {
    let text = long_trace(20_000);
    let expected = read(text.clone(), &ReadOptions::default()).unwrap().0;
    assert_eq!(expected.len(), 20_000);
    // A frame may end within a line.
    let (head, tail) = text.as_bytes().split_at(100_003);
    for pack in [gzip, lz4, zstd] {
        let one = pack(text.as_bytes());
        assert!(one.len() < text.len());
        assert!(read(one.clone(), &ReadOptions::default()).unwrap().0 == expected);
        let two = [pack(head), pack(tail)].concat();
        assert!(read(two, &ReadOptions::default()).unwrap().0 == expected);
        // Cut short: the requests before come out, then an error that says where.
        let error = read(&one[..one.len() / 2], &ReadOptions::default()).unwrap_err();
        assert!(matches!(error, TraceError::Read { .. }), "{error}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let mut rng = Rng::new(11);
    let mut time_ns = 0;
    let requests: Vec<TraceRequest> = (0..5_000)
        .map(|_| {
            let at = time_ns;
            time_ns += rng.below(50) * 1_000;
            let (offset, length) = (rng.below(1 << 40), rng.between(1, 1 << 20));
            match rng.below(4) {
                0 => TraceRequest::flush(at),
                1 => TraceRequest { time_ns: at, kind: Read, offset, length },
                2 => TraceRequest { time_ns: at, kind: Put, offset, length },
                _ => TraceRequest { time_ns: at, kind: Discard, offset, length },
            }
        })
        .collect();
    for version in [IologVersion::Two, IologVersion::Three] {
        let mut writer = IologWriter::new(Vec::new(), version, "disk").unwrap();
        requests.iter().for_each(|request| writer.push(request).unwrap());
        let options = ReadOptions { strict: true, ..ReadOptions::default() };
        let (found, _, _) = read(writer.finish().unwrap(), &options).unwrap();
        let with_times = |request: &TraceRequest| match version {
            IologVersion::Two => TraceRequest { time_ns: 0, ..*request },
            IologVersion::Three => *request,
        };
        assert!(found == requests.iter().map(with_times).collect::<Vec<_>>(), "{version:?}");
    }
}

/// The two public samples beside the repository, where they are.
#[test]
fn public_samples() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let options = ReadOptions { strict: true, ..ReadOptions::default() };
    let numbers = |name: &str| {
        let mut reader = TraceReader::open(shared.join(name), &options).unwrap();
        let mut statistics = TraceStatistics::new();
        reader.by_ref().for_each(|request| statistics.add(&request.unwrap()));
        (reader.format(), reader.counts().lines, statistics)
    };
    if !shared.join("cloudphysics-io.csv.gz").exists() {
        eprintln!("the public samples are not here; the samples in this file remain");
        return;
    }
    let (format, lines, statistics) = numbers("cloudphysics-io.csv.gz");
    assert_eq!((format, lines), (Format::Vscsi, 113_873));
    assert_eq!((statistics.reads.requests, statistics.writes.requests), (46_974, 66_898));
    assert_eq!(statistics.duration_ns, 7_200_000_000_000);
    let (format, lines, statistics) = numbers("tpcc-small.trace.gz");
    assert_eq!((format, lines), (Format::Mqsim, 6_999));
    assert_eq!((statistics.reads.requests, statistics.writes.requests), (4_381, 2_618));
}

#[path = "../../../fuzz/src/trace.rs"]
mod fuzzed;

/// What the fuzzer begins with, and whatever it has found.
#[test]
fn the_corpus_of_the_fuzzer() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        fuzzed::trace(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 9);
}

/// Text that looks like traces, cut up and mixed.
fn almost_a_trace() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("fio version 3 iolog\n"),
        Just("fio version 2 iolog\n"),
        Just("\n"),
        Just(","),
        Just(" "),
        Just("8,0"),
        Just("1"),
        Just("0.000000001"),
        Just("18446744073709551615"),
        Just("write"),
        Just("W"),
        Just("FWFS"),
        Just("D"),
        Just("Q"),
        Just("+"),
        Just("Read"),
        Just("2a"),
        Just("CPU0"),
        Just("wait"),
        Just("trim"),
        Just("\u{fffd}"),
        Just("-"),
        Just("device_id"),
    ];
    proptest::collection::vec(word, 0..200).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_read_to_their_end(
        bytes in prop_oneof![proptest::collection::vec(any::<u8>(), 0..2_000), almost_a_trace()],
        packing in 0..4_usize,
        format in proptest::option::of(0..Format::ALL.len()),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut packed = match packing {
            0 => bytes.clone(),
            1 => gzip(&bytes),
            2 => lz4(&bytes),
            _ => zstd(&bytes),
        };
        if let Some(byte) = (!packed.is_empty()).then(|| cut.index(packed.len())) {
            packed[byte] ^= (byte % 3) as u8;
        }
        let options = ReadOptions { format: format.map(|index| Format::ALL[index]), ..ReadOptions::default() };
        if let Ok((requests, _, counts)) = read(packed, &options) {
            prop_assert_eq!(counts.requests, requests.len() as u64);
            // A line gives at most a flush, a transfer and a flush.
            prop_assert!(counts.requests <= 3 * counts.lines);
            for request in requests {
                prop_assert!(i64::try_from(request.end()).is_ok());
                prop_assert_eq!(request.length == 0, request.kind == Flush);
            }
        }
    }
}
