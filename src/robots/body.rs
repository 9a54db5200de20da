//! The body of a robots.txt: read within its limit, and unpacked within it.

use super::BODY_MAX;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap};
use std::error::Error;
use std::io::{self, Read};

/// Most bytes that are kept: one more than counts, to know that there are more.
const KEPT_MAX: usize = BODY_MAX + 1;

/// Most bytes that are read: packing may add a little.
const RAW_MAX: usize = KEPT_MAX + 16 * 1024;

/// The body, unpacked; of a longer one [`KEPT_MAX`] bytes. `None`: it ends before its time, or cannot be
/// unpacked.
pub(super) async fn read(response: Response<Incoming>) -> Option<Vec<u8>> {
    let packing = Packing::of(response.headers())?;
    let length_known = response.body().size_hint().exact().is_some()
        || response.headers().contains_key(header::TRANSFER_ENCODING);
    let mut body = response.into_body();
    let mut raw = Vec::new();
    while raw.len() < RAW_MAX {
        match body.frame().await {
            None => return packing.unpack(raw, End::Whole),
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                raw.extend_from_slice(&data[..data.len().min(RAW_MAX - raw.len())]);
            }
            // Of bodies that end with the connection, many end without TLS's good-bye.
            Some(Err(error)) if !length_known && is_end_of_stream(&error) => {
                return packing.unpack(raw, End::Whole);
            }
            Some(Err(_)) => return None,
        }
    }
    packing.unpack(raw, End::Cut)
}

fn is_end_of_stream(error: &hyper::Error) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

/// Whether the packed body has its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Cut,
}

enum Packing {
    None,
    Gzip,
    Deflate,
}

impl Packing {
    /// How the body is packed; `None` if in a way that was not asked for.
    fn of(headers: &HeaderMap) -> Option<Packing> {
        let mut packing = Packing::None;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            for name in value.to_str().ok()?.split(',') {
                let said = match name.trim().to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Packing::Gzip,
                    "deflate" => Packing::Deflate,
                    _ => return None,
                };
                let Packing::None = packing else { return None };
                packing = said;
            }
        }
        Some(packing)
    }

    fn unpack(self, mut raw: Vec<u8>, end: End) -> Option<Vec<u8>> {
        match self {
            Packing::Gzip if raw.starts_with(&[0x1f, 0x8b]) => inflate(MultiGzDecoder::new(&raw[..]), end),
            // The name means zlib's format, but some send the bare stream.
            Packing::Deflate if is_zlib(&raw) => inflate(ZlibDecoder::new(&raw[..]), end),
            Packing::Deflate if !raw.is_empty() => inflate(DeflateDecoder::new(&raw[..]), end),
            // Not packed, whatever was said.
            Packing::None | Packing::Gzip | Packing::Deflate => {
                raw.truncate(KEPT_MAX);
                Some(raw)
            }
        }
    }
}

/// The first bytes of what `packed` holds: a small body can hold gigabytes.
fn inflate(packed: impl Read, end: End) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let read = packed.take(KEPT_MAX as u64).read_to_end(&mut text);
    let enough = text.len() == KEPT_MAX;
    (enough || (read.is_ok() && end == End::Whole)).then_some(text)
}

/// Compression method 8, and a check over the first two bytes.
fn is_zlib(raw: &[u8]) -> bool {
    matches!(raw, [cmf, flg, ..] if cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flg)) % 31 == 0)
}
