//! Unpacking: gzip, zstd and lz4 frames, told apart by their first bytes.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder as Lz4Decoder;
use ruzstd::decoding::StreamingDecoder;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const LZ4: &[u8] = &[0x04, 0x22, 0x4d, 0x18];

/// A stream of unpacked bytes.
pub(crate) type Input = Box<dyn BufRead + Send>;

/// The bytes of `input`, unpacked if they are packed.
pub(crate) fn unpack(input: impl Read + Send + 'static) -> io::Result<Input> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    // A pipe may give its first bytes one by one, but no writer of such formats does.
    let start = input.fill_buf()?;
    let is = |magic: &[u8]| start.starts_with(magic);
    Ok(if is(GZIP) {
        Box::new(BufReader::new(MultiGzDecoder::new(input)))
    } else if is(LZ4) {
        // Goes on behind the end of a frame by itself.
        Box::new(BufReader::new(Lz4Frames { decoder: Lz4Decoder::new(input) }))
    } else if is(ZSTD) {
        Box::new(BufReader::new(ZstdFrames::Between(input)))
    } else {
        Box::new(input)
    })
}

/// All lz4 frames of a stream, one after the other.
struct Lz4Frames<R: BufRead> {
    decoder: Lz4Decoder<R>,
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.decoder.read(buf)?;
            if count > 0 || buf.is_empty() || self.decoder.get_mut().fill_buf()?.is_empty() {
                return Ok(count);
            }
        }
    }
}

/// All zstd frames of a stream, one after the other.
enum ZstdFrames<R: BufRead> {
    Between(R),
    Within(Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
    /// Failed: the source is gone with the decoder.
    Ended,
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(self, ZstdFrames::Ended) {
                ZstdFrames::Ended => return Ok(0),
                ZstdFrames::Between(mut source) => {
                    if source.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let decoder = StreamingDecoder::new(source).map_err(io::Error::other)?;
                    *self = ZstdFrames::Within(Box::new(decoder));
                }
                ZstdFrames::Within(mut decoder) => {
                    let count = decoder.read(buf)?;
                    if count > 0 || buf.is_empty() {
                        *self = ZstdFrames::Within(decoder);
                        return Ok(count);
                    }
                    *self = ZstdFrames::Between(decoder.into_inner());
                }
            }
        }
    }
}
