//! Documents in JSON that a guest hands to a host: read within bounds, and written at once.

use std::io::{self, BufReader, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CaptureError;

/// How many bytes are read at once.
const PART: usize = 1 << 20;

/// Reads a document of at most `most` bytes to its end. It is parsed as it is read: a document may
/// be as large as what it becomes.
///
/// # Errors
///
/// When `reader` fails, when the document is longer, and when it is not that of a `D`.
pub(crate) fn read<D: DeserializeOwned>(reader: impl Read, most: u64) -> Result<D, CaptureError> {
    // A byte more than it may have is the sign that it has more.
    let mut bounded = reader.take(most + 1);
    let parsed = serde_json::from_reader(BufReader::with_capacity(PART, &mut bounded));
    if bounded.limit() == 0 {
        return Err(CaptureError::TooLong(most));
    }
    parsed.map_err(|error| match error.classify() {
        serde_json::error::Category::Io => CaptureError::Read(io::Error::from(error)),
        _ => CaptureError::Json(error),
    })
}

/// Writes a document as one line, at once: a guest's file may be on a file system where each
/// write is a message to the host.
///
/// # Errors
///
/// When the document has more than `most` bytes, and when `writer` fails.
pub(crate) fn write(
    document: &impl Serialize,
    mut writer: impl Write,
    most: u64,
) -> Result<(), CaptureError> {
    let mut text = serde_json::to_vec(document)?;
    text.push(b'\n');
    if text.len() as u64 > most {
        return Err(CaptureError::TooLong(most));
    }
    writer
        .write_all(&text)
        .and_then(|()| writer.flush())
        .map_err(CaptureError::Write)
}
