//! What becomes of snapshots: they are shown as they come, or all of them are shown or
//! written at the end.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use branch_records::capture::Capture;
use branch_records::show::{self, Show};
use branch_records::sources;
use guest_support::kallsyms::Kallsyms;

use crate::names::Names;

/// While tracing goes on, at most one part in this many of the time is spent on showing
/// snapshots.
const SHARE: u32 = 4;

/// Where snapshots go.
pub(crate) enum Output<'a> {
    /// Snapshots are written to a file, for another machine to show.
    File(&'a Path),
    /// Snapshots are shown on this machine.
    Shown { show: &'a Show, names: Names },
}

/// The stream of snapshots to the output.
pub(crate) struct Stream<'a> {
    output: Output<'a>,
    shown: bool,
    /// The time at which more snapshots may be shown: reading the kernel's symbols takes
    /// time.
    next: Instant,
}

impl<'a> Stream<'a> {
    pub(crate) fn to(output: Output<'a>) -> Self {
        Self {
            output,
            shown: false,
            next: Instant::now(),
        }
    }

    /// A message that says which names are missing and how to get them, if any are needed
    /// and missing.
    pub(crate) fn missing(&self) -> Option<String> {
        match &self.output {
            Output::Shown { show, names } if show.wants_names() => names.missing(),
            _ => None,
        }
    }

    /// Whether it is time to show more snapshots.
    pub(crate) fn is_ready(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Whether snapshots are shown one after the other, while tracing goes on.
    pub(crate) fn is_live(&self) -> bool {
        matches!(&self.output, Output::Shown { show, .. } if show.is_stream())
    }

    /// Whether all snapshots are needed at the end.
    pub(crate) fn keeps(&self) -> bool {
        match &self.output {
            Output::File(_) => true,
            Output::Shown { show, .. } => !show.is_stream() || show.html.is_some(),
        }
    }

    /// Shows the snapshots of `capture` while tracing goes on.
    pub(crate) fn some(&mut self, capture: &Capture, kallsyms: &Kallsyms) -> Result<()> {
        let Output::Shown { show, names } = &self.output else {
            return Ok(());
        };
        let began = Instant::now();
        print(show, names, capture, Some(kallsyms), self.shown)?;
        self.shown = true;
        let end = Instant::now();
        self.next = end + (end - began).max(Duration::from_millis(1)) * (SHARE - 1);
        Ok(())
    }

    /// Shows or writes all snapshots at the end.
    pub(crate) fn all(&self, capture: &Capture, kallsyms: &Kallsyms) -> Result<()> {
        match &self.output {
            Output::File(path) => write(capture, path),
            Output::Shown { show, names } => {
                if !show.is_stream() {
                    print(show, names, capture, Some(kallsyms), false)?;
                }
                draw(show, names, capture, Some(kallsyms))
            }
        }
    }
}

/// Shows the capture that another run wrote to `path`, and returns it.
pub(crate) fn show_file(path: &Path, vmlinux: Option<&Path>, show: &Show) -> Result<Capture> {
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let capture = Capture::from_reader(file)
        .with_context(|| format!("{} cannot be shown", path.display()))?;
    let names = match vmlinux {
        Some(vmlinux) => Names::of(vmlinux)?,
        None => {
            eprintln!(
                "branch-trace: without --vmlinux FILE the functions of kernel {} have no names",
                capture.kernel.release
            );
            Names::Alone
        }
    };
    print(show, &names, &capture, None, false)?;
    draw(show, &names, &capture, None)?;
    Ok(capture)
}

fn print(
    show: &Show,
    names: &Names,
    capture: &Capture,
    kallsyms: Option<&Kallsyms>,
    again: bool,
) -> Result<()> {
    names.with(capture, kallsyms, |symbols| {
        let mut out = anstream::stdout().lock();
        if again && show.is_for_people() {
            writeln!(out).context("cannot write what was recorded")?;
        }
        Ok(show.print(capture, symbols, &|name| here(names, name), &mut out)?)
    })
}

fn draw(show: &Show, names: &Names, capture: &Capture, kallsyms: Option<&Kallsyms>) -> Result<()> {
    let Some(page) = &show.html else {
        return Ok(());
    };
    names.with(capture, kallsyms, |symbols| {
        Ok(show.draw(capture, symbols, &|name| here(names, name))?)
    })?;
    eprintln!("branch-trace: the path on the source: {}", page.display());
    Ok(())
}

/// A source file from the tree in which the kernel was compiled, if that was on this machine.
fn here(names: &Names, name: &str) -> Option<String> {
    sources::read(names.tree()?, name)
}

/// Writes the capture to the file `path`, whole or not at all.
fn write(capture: &Capture, path: &Path) -> Result<()> {
    let written = show::whole(path, |out| {
        capture.to_writer(out).map_err(std::io::Error::other)
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}
