//! Documents in JSON that a guest hands to a host: read within bounds, and written at once.

use std::io::{Read, Write};

use serde::Serialize;

use super::CaptureError;

/// Reads a document of at most `most` bytes to its end.
///
/// # Errors
///
/// When `reader` fails, and when the document is longer.
pub(crate) fn read(reader: impl Read, most: u64) -> Result<Vec<u8>, CaptureError> {
    let mut text = Vec::new();
    reader
        .take(most + 1)
        .read_to_end(&mut text)
        .map_err(CaptureError::Read)?;
    if text.len() as u64 > most {
        return Err(CaptureError::TooLong(most));
    }
    Ok(text)
}

/// Writes a document as one line, at once: a guest's file may be on a file system where each
/// write is a message to the host.
///
/// # Errors
///
/// When `writer` fails.
pub(crate) fn write(document: &impl Serialize, mut writer: impl Write) -> Result<(), CaptureError> {
    let mut text = serde_json::to_vec(document)?;
    text.push(b'\n');
    writer
        .write_all(&text)
        .and_then(|()| writer.flush())
        .map_err(CaptureError::Write)
}
