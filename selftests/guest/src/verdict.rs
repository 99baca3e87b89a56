//! The verdict that a test ends with, as a line and as an exit status.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use anyhow::{Error, Result};
use guest_support::cpus;
use guest_support::kallsyms::{Kallsyms, NO_SNAPSHOTS};
use guest_support::perf::{self, CannotRecord};
use serde::Serialize;

use crate::image::Image;
use crate::path::NoPath;

/// The verdict of a test that could be tried.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The kernel does what it should.
    Pass,
    /// The kernel does what it should, and this much of it was seen.
    Seen(String),
    /// The kernel does not do what it should, for this reason.
    Fail(String),
    /// This machine or kernel does not have what the test is about.
    Skip(String),
}

/// Returns from a test with `Verdict::Fail` unless the condition holds.
macro_rules! check {
    ($holds:expr, $($reason:tt)+) => {
        if !$holds {
            return Ok($crate::verdict::Verdict::Fail(format!($($reason)+)));
        }
    };
}
pub(crate) use check;

/// The error of a test where the machine or the kernel does not have what the test is about.
/// The test is skipped for this reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Skipped(String);

/// Checks that the kernel has snapshots.
pub(crate) fn needs_snapshots() -> Result<()> {
    let installed = Image::of_this_kernel().and_then(Image::snapshot_function);
    // Before there is a PMU, no function is in its place.
    if matches!(installed, Ok(Some(_))) || Kallsyms::once()?.has_snapshot_function() {
        return Ok(());
    }
    Err(no_snapshots())
}

/// The error of a test where the kernel has no snapshots. The test is skipped.
pub(crate) fn no_snapshots() -> Error {
    Skipped(NO_SNAPSHOTS.to_owned()).into()
}

/// Events that have the branches of each CPU recorded for snapshots, as long as they are open. A
/// test is skipped where that is not supported.
pub(crate) fn record_everywhere() -> Result<Vec<(u32, OwnedFd)>> {
    perf::open_everywhere(&cpus::online()?, perf::FOR_SNAPSHOTS).map_err(cannot_record)
}

/// The error of a test where branches cannot be recorded. The test is skipped where that is
/// not supported.
pub(crate) fn cannot_record(error: io::Error) -> Error {
    let why = CannotRecord::from(error);
    if why.is_unsupported() {
        Skipped(why.to_string()).into()
    } else {
        why.into()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    test: &'a str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
}

/// Prints the one line that a host looks for, and chooses the exit status.
pub(crate) fn report(
    test: &str,
    outcome: &Result<Verdict>,
    json: bool,
    on_stderr: bool,
) -> ExitCode {
    let (verdict, reason, status) = told(outcome);
    let line = line(test, verdict, &reason, json);
    let written = if on_stderr {
        writeln!(std::io::stderr(), "{line}")
    } else {
        writeln!(std::io::stdout(), "{line}")
    };
    match written {
        Ok(()) => ExitCode::from(status),
        // The verdict was not written: it must not count as one.
        Err(_) => ExitCode::from(2),
    }
}

/// Prints a line on standard error. Nobody need read it: the test goes on all the same.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// What is said of the outcome of a test: the verdict's name, the reason, the exit status.
fn told(outcome: &Result<Verdict>) -> (&'static str, String, u8) {
    match outcome {
        Ok(Verdict::Seen(what)) => ("PASS", what.clone(), 0),
        Ok(Verdict::Pass) => ("PASS", String::new(), 0),
        Ok(Verdict::Fail(reason)) => ("FAIL", reason.clone(), 1),
        Ok(Verdict::Skip(reason)) => ("SKIP", reason.clone(), 77),
        Err(error) if error.is::<Skipped>() => ("SKIP", format!("{error:#}"), 77),
        // Records that are no path are a failure, wherever in a test they were seen.
        Err(error) if error.is::<NoPath>() => ("FAIL", format!("{error:#}"), 1),
        Err(error) => ("ERROR", format!("{error:#}"), 2),
    }
}

/// The line that says what came of a test.
pub(crate) fn line_of(test: &str, outcome: &Result<Verdict>) -> String {
    let (verdict, reason, _) = told(outcome);
    line(test, verdict, &reason, false)
}

fn line(test: &str, verdict: &'static str, reason: &str, json: bool) -> String {
    // One line, whatever an error message holds.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason = reason.as_str();
    let line = Line {
        test,
        verdict,
        reason,
    };
    match serde_json::to_string(&line) {
        Ok(line) if json => line,
        _ if reason.is_empty() => format!("{verdict} {test}"),
        _ => format!("{verdict} {test}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_supported_is_skipped_and_what_is_forbidden_is_an_error() {
        let is_skipped = |errno| {
            let error = cannot_record(io::Error::from_raw_os_error(errno));
            error.context("on CPU 3").is::<Skipped>()
        };
        assert!(is_skipped(rustix::io::Errno::OPNOTSUPP.raw_os_error()));
        assert!(!is_skipped(rustix::io::Errno::ACCESS.raw_os_error()));
    }

    #[test]
    fn a_verdict_is_one_line() {
        assert_eq!(line("a", "PASS", "", false), "PASS a");
        assert_eq!(line("a", "FAIL", "x\n y", false), "FAIL a: x y");
        assert_eq!(
            line("a", "SKIP", "\"no\"", true),
            r#"{"test":"a","verdict":"SKIP","reason":"\"no\""}"#
        );
        assert_eq!(
            line("a", "PASS", "", true),
            r#"{"test":"a","verdict":"PASS"}"#
        );
    }
}
