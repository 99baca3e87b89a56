//! Several snapshots that the guest takes in one boot, as one capture in the shared
//! directory. One alone may not be full: the driver empties the buffer when it switches
//! tasks, and an interrupt may take the records.

use std::fs::File;

use anyhow::{Context, Result};
use branch_records::capture::Capture;

use crate::guest::Share;

/// What branch-trace is asked for: why a map is refused, ten times.
pub const WORDS: [&str; 6] = [
    "--errors",
    "array_map_alloc_check",
    "--",
    "./branch-guest",
    "provoke",
    "refused-map",
];

/// Where branch-trace puts them.
const FILE: &str = "capture.json";

/// A line of shell that has branch-trace do what these words say.
pub fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    shown(["--output", FILE].into_iter().chain(words))
}

/// The same, and it shows what it records itself.
pub fn shown<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(quoted).collect();
    format!("./branch-trace {}", words.join(" "))
}

/// Reads what it recorded.
///
/// # Errors
///
/// When that is missing, or no capture.
pub fn read(share: &Share) -> Result<Capture> {
    read_as(share, FILE)
}

/// The same from a file of another name.
///
/// # Errors
///
/// As [`read`].
pub fn read_as(share: &Share, name: &str) -> Result<Capture> {
    let file = File::open(share.path().join(name)).context("the guest wrote no capture")?;
    Capture::from_reader(file).context("the guest's capture")
}

/// A word for the guest's shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_shell_gets_words_as_they_are() {
        assert_eq!(quoted("vfs_*"), "'vfs_*'");
        assert_eq!(quoted("comm == \"it's\""), r#"'comm == "it'\''s"'"#);
        assert_eq!(quoted(""), "''");
    }
}
