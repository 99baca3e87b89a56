//! What the fields of a capture may hold.

use std::ops::RangeInclusive;

use super::{CaptureError, MAX_NAME, MAX_PATH};
use crate::visible::is_visible;

/// Checks that a field is as it has to be. `problem` says what is wrong otherwise.
pub(super) fn check(field: &str, holds: bool, problem: &str) -> Result<(), CaptureError> {
    if holds {
        return Ok(());
    }
    Err(CaptureError::Invalid {
        field: field.to_owned(),
        problem: problem.to_owned(),
    })
}

/// Checks a name. A name is printed on a terminal: it must be short, and must hold
/// nothing that a terminal interprets.
pub(super) fn check_name(field: &str, name: &str) -> Result<(), CaptureError> {
    check(
        field,
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()),
        "not a name of 1 to 512 visible ASCII characters",
    )
}

/// Checks a text: like a name it has at most [`MAX_NAME`] bytes, but it may hold any
/// characters other than control characters.
pub(super) fn check_text(field: &str, text: &str) -> Result<(), CaptureError> {
    check_printable(field, text, 1..=MAX_NAME)
}

/// Checks the path of a file: at most [`MAX_PATH`] bytes, without control characters.
pub(super) fn check_path(field: &str, path: &str) -> Result<(), CaptureError> {
    check_printable(field, path, 1..=MAX_PATH)
}

pub(super) fn check_printable(
    field: &str,
    text: &str,
    bytes: RangeInclusive<usize>,
) -> Result<(), CaptureError> {
    check(
        field,
        bytes.contains(&text.len()) && is_visible(text),
        &format!(
            "not a text of {} to {} bytes without control characters",
            bytes.start(),
            bytes.end()
        ),
    )
}
