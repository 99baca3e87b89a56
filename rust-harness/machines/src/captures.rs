//! Has branch-trace take several snapshots in one boot of the guest, and write them to the
//! shared directory as one capture.
//!
//! A snapshot alone may not be full: the driver empties the buffer when it switches tasks,
//! and an interrupt may take the records.

use anyhow::{Context, Result, bail};
use branch_records::capture::{Capture, MAX_BYTES};
use branch_records::report::TraceReport;
use branch_records::vmlinux;
use kernels::kernel::Kernel;

use crate::backend::Run;
use crate::guest::{self, Guest, Task};
use crate::machine_spec::MachineSpec;
use crate::share::{STOP, Share};

/// Arguments of branch-trace for a trace of why the kernel refuses a map, which
/// `branch-guest` has it do ten times.
pub const WORDS: [&str; 6] = [
    "--errors",
    "array_map_alloc_check",
    "--",
    "./branch-guest",
    "provoke",
    "refused-map",
];

/// Name of the file in the shared directory that branch-trace writes its capture to.
const FILE: &str = "capture.json";

/// A line of shell that runs branch-trace with the arguments `words` and has it write a
/// capture.
pub fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    branch_trace(["--output", FILE].into_iter().chain(words))
}

/// A line of shell that runs branch-trace with the arguments `words` and has it show what it
/// records, instead of writing a capture.
pub fn branch_trace<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(quoted).collect();
    format!("./branch-trace {}", words.join(" "))
}

/// Lines of bash that run branch-trace as the line of [`command`] does, and that stop it as
/// Ctrl-C would, once there is a file [`STOP`] in the shared directory.
///
/// The loop that looks for the file starts no program, because that would be traced too. It
/// sends SIGINT more than once, because branch-trace may not have its handler yet. It does
/// not send SIGINT at once: bash makes a job ignore it, unless the job handles it, but only a
/// moment after the job's start.
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

/// Runs branch-trace in the guest, with `words` as its arguments. Returns what was printed
/// there, and the capture if anything was recorded. `name` is in the names of the logs.
///
/// # Errors
///
/// When the guest fails, nothing could be traced, or the capture cannot be read.
pub fn take<'a>(
    guest: &Guest,
    kernel: &Kernel,
    name: &str,
    words: impl IntoIterator<Item = &'a str>,
    share: &Share,
) -> Result<(String, Option<Capture>)> {
    let task = Task {
        name,
        command: &command(words),
        share,
        timeout: guest::TIMEOUT,
    };
    let run = guest.run(kernel, &MachineSpec::default(), &task)?;
    let has_recorded = has_recorded(&run, &run.output)?;
    let capture = has_recorded.then(|| read(share)).transpose()?;
    Ok((run.output, capture))
}

/// Whether branch-trace has recorded anything, by its exit status. If it could not trace,
/// that is an error with the words `said`.
///
/// # Errors
///
/// When the guest failed, or nothing could be traced.
pub fn has_recorded(run: &Run, said: &str) -> Result<bool> {
    match guest::status(run)? {
        0 => Ok(true),
        1 => Ok(false),
        status => bail!(
            "nothing could be traced (exit status {status}):\n{}",
            said.trim()
        ),
    }
}

/// Takes snapshots of why the kernel refuses a map, and puts names to them on this side.
/// Returns one of them as a capture and as a report: the first that shows how the function
/// came to its end, or else the first. `name` is in the names of the logs.
///
/// # Errors
///
/// Those of [`take`], and others when nothing was recorded, or the kernel's debug information
/// cannot be read.
pub fn of_refused_map(
    guest: &Guest,
    kernel: &Kernel,
    name: &str,
) -> Result<(Capture, TraceReport)> {
    let share = guest.share()?;
    let (said, capture) = take(guest, kernel, name, WORDS, &share)?;
    let mut capture = capture.with_context(|| {
        format!(
            "nothing was recorded when the guest's kernel refused a map. The guest says:\n{}",
            said.trim()
        )
    })?;
    let files = |path: &str| guest.file(&share, path);
    let mut report = vmlinux::report(&capture, kernel.vmlinux()?, files)
        .context("putting names to the addresses")?;
    let mut snapshots = report.snapshots.iter();
    let shows = snapshots.position(|snapshot| snapshot.last_jump.is_some());
    let chosen = shows.unwrap_or(0);
    capture.snapshots = vec![capture.snapshots.swap_remove(chosen)];
    report.snapshots = vec![report.snapshots.swap_remove(chosen)];
    Ok((capture, report))
}

/// Reads the capture that branch-trace has written to `share`, run by the line of [`command`]
/// or by those of [`until_stopped`].
///
/// # Errors
///
/// When there is no such file, it is not a regular file or too large, or it is no capture.
pub fn read(share: &Share) -> Result<Capture> {
    read_as(share, FILE)
}

/// Reads the capture that branch-trace has written to `share` as the file `name`.
///
/// # Errors
///
/// When there is no such file, it is not a regular file or too large, or it is no capture.
pub fn read_as(share: &Share, name: &str) -> Result<Capture> {
    let file = share
        .open(name, MAX_BYTES)
        .context("the guest wrote no capture")?;
    Capture::from_reader(file).context("the guest's capture")
}

/// Quotes a word for the guest's shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the lines of [`until_stopped`] with the script `trace` as branch-trace, and, if
    /// `is_to_stop` is set, with a file [`STOP`]. Returns the exit status and what was
    /// printed.
    fn ended(trace: &str, is_to_stop: bool) -> (Option<i32>, String) {
        let dir = tempfile::tempdir().unwrap();
        if is_to_stop {
            std::fs::write(dir.path().join(STOP), "").unwrap();
        }
        let mut bash = std::process::Command::new("bash");
        // bash writes the script, not this process: a program that another thread starts
        // meanwhile would have the script open for writing, and then the script cannot be
        // run.
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
