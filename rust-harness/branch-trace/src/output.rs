//! What becomes of snapshots: they are shown as they come, or all at the end.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use branch_records::capture::Capture;
use branch_records::show::{self, Show};
use branch_records::sources;
use guest_support::kallsyms::Kallsyms;

use crate::names::Names;

/// Of the time at most one part in so many is spent on showing, while it is traced.
const SHARE: u32 = 4;

/// Where they go.
pub(crate) enum Output<'a> {
    /// Into a file, for another machine to show.
    File(&'a Path),
    /// On this one.
    Shown { show: &'a Show, names: Names },
}

/// Snapshots on the way to a reader.
pub(crate) struct Stream<'a> {
    output: Output<'a>,
    shown: bool,
    /// When there may be more: to read the kernel's symbols takes time.
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

    /// What names there are not, and what to do for them.
    pub(crate) fn missing(&self) -> Option<String> {
        match &self.output {
            Output::Shown { show, names } if show.wants_names() => names.missing(),
            _ => None,
        }
    }

    /// Whether snapshots are to be shown now.
    pub(crate) fn is_ready(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Whether they are shown one after the other.
    pub(crate) fn is_live(&self) -> bool {
        matches!(&self.output, Output::Shown { show, .. } if show.is_stream())
    }

    /// Whether all of them are needed at the end.
    pub(crate) fn keeps(&self) -> bool {
        match &self.output {
            Output::File(_) => true,
            Output::Shown { show, .. } => !show.is_stream() || show.html.is_some(),
        }
    }

    /// Shows some of them.
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

    /// Shows, or writes, all of them.
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

/// Shows what another run wrote.
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
        if again && !show.brstack {
            writeln!(out).context("cannot write what was recorded")?;
        }
        Ok(show.print(capture, symbols, &mut out)?)
    })
}

fn draw(show: &Show, names: &Names, capture: &Capture, kallsyms: Option<&Kallsyms>) -> Result<()> {
    let Some(page) = &show.html else {
        return Ok(());
    };
    names.with(capture, kallsyms, |symbols| {
        // Where it was compiled, if that was here.
        let here = |name: &str| sources::read(names.tree()?, name);
        Ok(show.draw(capture, symbols, &here)?)
    })?;
    eprintln!("branch-trace: the path on the source: {}", page.display());
    Ok(())
}

/// Writes the capture: whole or not at all.
fn write(capture: &Capture, path: &Path) -> Result<()> {
    let written = show::whole(path, |out| {
        capture.to_writer(out).map_err(std::io::Error::other)
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}
