//! What becomes of snapshots: they are shown as they come, or all of them are shown or
//! written at the end.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use branch_records::capture::Capture;
use branch_records::modules::ModuleError;
use branch_records::report::NewestRecords;
use branch_records::show::{self, Show};
use branch_records::sources;
use guest_support::kallsyms::Kallsyms;

use crate::interrupt;
use crate::names::Names;
use crate::screen::Screen;

/// The number of snapshots that `--top` sums up: the newest ones.
const NEWEST: usize = 2_000;
/// The least time from one summary of `--top` to the next.
const RENEWED: Duration = Duration::from_secs(1);

/// While tracing goes on, at most one part in this many of the time is spent on showing
/// snapshots.
const SHARE: u32 = 4;

/// Where snapshots go.
pub(crate) enum Output<'a> {
    /// Snapshots are written to a file, for another machine to show.
    File(&'a Path),
    /// Snapshots are shown on this machine.
    Shown {
        show: &'a Show,
        names: Names,
        /// What was shown last: some of its records may come again.
        newest: NewestRecords,
    },
    /// The newest snapshots are summed up on this machine, again and again.
    Top {
        show: &'a Show,
        names: Names,
        screen: Screen,
        /// Why some modules have no lines: said when the screen is again what it was.
        problems: Vec<ModuleError>,
    },
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
            Output::Shown { show, names, .. } | Output::Top { show, names, .. }
                if show.wants_names() =>
            {
                names.missing()
            }
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
            Output::File(_) | Output::Top { .. } => true,
            Output::Shown { show, .. } => !show.is_stream() || show.html.is_some(),
        }
    }

    /// The number of snapshots, the newest ones, that are shown again and again while tracing goes
    /// on.
    pub(crate) fn renews(&self) -> Option<usize> {
        matches!(self.output, Output::Top { .. }).then_some(NEWEST)
    }

    /// Shows the snapshots of `capture` while tracing goes on.
    pub(crate) fn some(&mut self, capture: &Capture, kallsyms: &Kallsyms) -> Result<()> {
        let began = Instant::now();
        let least = match &mut self.output {
            Output::File(_) => return Ok(()),
            Output::Shown {
                show,
                names,
                newest,
            } => {
                say(names.open_modules(capture));
                print(show, names, newest, capture, kallsyms, self.shown)?;
                Duration::from_millis(1)
            }
            Output::Top {
                show,
                names,
                screen,
                problems,
            } => {
                problems.extend(names.open_modules(capture));
                let text = text(show, names, capture, kallsyms)?;
                screen.show(&text).context("cannot write the summary")?;
                RENEWED
            }
        };
        self.shown = true;
        let end = Instant::now();
        self.next = end + ((end - began) * (SHARE - 1)).max(least);
        Ok(())
    }

    /// Shows or writes all snapshots at the end.
    pub(crate) fn all(self, capture: &Capture, kallsyms: &Kallsyms) -> Result<()> {
        match self.output {
            Output::File(path) => write(capture, path),
            Output::Top {
                show,
                names,
                screen,
                problems,
            } => {
                drop(screen);
                say(problems);
                say(names.open_modules(capture));
                print_all(show, &names, capture, Some(kallsyms))
            }
            Output::Shown { show, names, .. } => {
                say(names.open_modules(capture));
                draw(show, &names, capture, Some(kallsyms))?;
                if show.is_stream() {
                    return Ok(());
                }
                print_all(show, &names, capture, Some(kallsyms))
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
    if vmlinux.is_none() {
        eprintln!(
            "branch-trace: without --vmlinux FILE the functions of kernel {} have no names",
            capture.kernel.release
        );
    }
    let names = Names::of(vmlinux, &capture.kernel, &show.modules)?;
    say(names.open_modules(&capture));
    draw(show, &names, &capture, None)?;
    interrupt::catch()?;
    print_all(show, &names, &capture, None)?;
    Ok(capture)
}

/// Says why some modules have no lines.
fn say(problems: Vec<ModuleError>) {
    for problem in problems {
        eprintln!("branch-trace: {problem}");
    }
}

/// Prints snapshots while tracing goes on, `again` if others were printed before.
fn print(
    show: &Show,
    names: &Names,
    newest: &mut NewestRecords,
    capture: &Capture,
    kallsyms: &Kallsyms,
    again: bool,
) -> Result<()> {
    names.with(capture, Some(kallsyms), |symbols| {
        let mut out = anstream::stdout().lock();
        if again && show.is_for_people() {
            writeln!(out).context("cannot write what was recorded")?;
        }
        let sources = |name: &str| here(names, name);
        Ok(show.print_after(newest, capture, symbols, &sources, &mut out)?)
    })
}

/// Prints what all snapshots say, on terminals by a pager.
fn print_all(
    show: &Show,
    names: &Names,
    capture: &Capture,
    kallsyms: Option<&Kallsyms>,
) -> Result<()> {
    // On a terminal, Ctrl-C is for the pager.
    if !show.is_for_people() || !io::stdout().is_terminal() {
        interrupt::end_by_the_next();
    }
    names.with(capture, kallsyms, |symbols| {
        Ok(show.print_paged(capture, symbols, &|name| here(names, name))?)
    })
}

/// What is printed of a capture, with colours if the standard output has them.
fn text(show: &Show, names: &Names, capture: &Capture, kallsyms: &Kallsyms) -> Result<String> {
    names.with(capture, Some(kallsyms), |symbols| {
        let colors = anstream::AutoStream::choice(&std::io::stdout());
        let mut out = anstream::AutoStream::new(Vec::new(), colors);
        show.print(capture, symbols, &|name| here(names, name), &mut out)?;
        Ok(String::from_utf8_lossy(&out.into_inner()).into_owned())
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
