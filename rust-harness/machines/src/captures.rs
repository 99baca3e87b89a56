//! Several snapshots that the guest takes in one boot, as one capture in the shared
//! directory. One alone may not be full: the driver empties the buffer when it switches
//! tasks, and an interrupt may take the records.

use anyhow::{Context, Result};
use branch_records::capture::{Capture, MAX_BYTES};

use crate::share::{STOP, Share};

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

/// Lines of bash that do what [`command`]'s does, and have it stop as by Ctrl-C, once there
/// is a [`STOP`] in the directory. Who looks for that starts nothing in between, which
/// would be traced too; and says so more than once, as branch-trace may not listen yet, but
/// not at once: bash has a job ignore what it does not listen to a moment after its start.
pub fn until_stopped<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    format!(
        "{} & trace=$!\n\
         (exec 9<> <(:) && while read -rt 1 -u 9; kill -0 $trace; do\n\
         [ ! -e {STOP} ] || kill -INT $trace\n\
         done) </dev/null >/dev/null 2>&1 &\n\
         wait $trace",
        command(words)
    )
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
    let file = share
        .open(name, MAX_BYTES)
        .context("the guest wrote no capture")?;
    Capture::from_reader(file).context("the guest's capture")
}

/// A word for the guest's shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came of bash's lines with this for a branch-trace, where it is to stop if it is.
    fn ended(trace: &str, is_to_stop: bool) -> (Option<i32>, String) {
        let dir = tempfile::tempdir().unwrap();
        if is_to_stop {
            std::fs::write(dir.path().join(STOP), "").unwrap();
        }
        let mut bash = std::process::Command::new("bash");
        // Not written by this process: what another of its threads starts meanwhile would
        // have it open for writing, and then it cannot be run.
        let write = "printf %s \"$1\" >branch-trace && chmod +x branch-trace";
        let lines = format!("{write}\n{}", until_stopped(["it's"]));
        bash.args(["-c", &lines, "bash", trace]);
        let output = bash.current_dir(dir.path()).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), printed)
    }

    #[test]
    fn a_trace_ends_by_itself_or_when_somebody_wants_it_to() {
        let (status, said) = ended("#!/bin/sh\necho $*; exit 3\n", false);
        assert_eq!(
            (status, said.trim()),
            (Some(3), "--output capture.json it's")
        );
        let listens = "#!/usr/bin/perl\n\
                       sleep 1; $SIG{INT} = sub { print 'stopped'; exit 4 }; sleep 1000\n";
        assert_eq!(ended(listens, true), (Some(4), "stopped".to_owned()));
    }

    #[test]
    fn the_guests_shell_gets_words_as_they_are() {
        assert_eq!(quoted("vfs_*"), "'vfs_*'");
        assert_eq!(quoted("comm == \"it's\""), r#"'comm == "it'\''s"'"#);
        assert_eq!(quoted(""), "''");
    }
}
