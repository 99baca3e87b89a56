//! How a program shows what was recorded: the options of its command line, and what they
//! do.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::brstack;
use crate::capture::Capture;
use crate::html;
use crate::report::TraceReport;
use crate::sources;
use crate::symbol::Resolve;
use crate::text::{self, Detail};

/// Options for how snapshots are shown.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Show {
    /// Show all records: also those of the tracing itself, and each turn of a loop
    #[arg(long)]
    pub all: bool,

    /// Print JSON
    #[arg(long, group = "form")]
    pub json: bool,

    /// Print what `perf script -F comm,pid,cpu,time,event,brstack` would
    #[arg(long, group = "form")]
    pub brstack: bool,

    /// Draw the path on the source of the functions, into this HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Where the source is that was compiled, for --html
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
}

/// Why a capture could not be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShowError {
    /// The output stream could not be written: the terminal, or what stands for it.
    #[error("cannot write what was recorded: {0}")]
    Output(#[source] io::Error),
    /// The file of `--html` could not be written.
    #[error("cannot write {}: {problem}", path.display())]
    Html {
        /// The path of the file.
        path: PathBuf,
        /// Why the file could not be written.
        #[source]
        problem: io::Error,
    },
}

impl Show {
    /// Whether each snapshot can be printed by itself, as it is taken. JSON cannot: it
    /// has a document around the snapshots.
    pub fn is_stream(&self) -> bool {
        !self.json
    }

    /// Whether addresses need names: `--brstack` alone prints none.
    pub fn wants_names(&self) -> bool {
        !self.brstack || self.html.is_some()
    }

    /// Prints a capture in the form that the options ask for. For colours, give an
    /// `anstream` stream.
    ///
    /// # Errors
    ///
    /// When writing to `out` fails.
    pub fn print(
        &self,
        capture: &Capture,
        symbols: &dyn Resolve,
        out: &mut impl Write,
    ) -> Result<(), ShowError> {
        let written = if self.brstack {
            brstack::write(&capture.snapshots, out)
        } else if self.json {
            let report = TraceReport::new(capture, symbols);
            serde_json::to_writer_pretty(&mut *out, &report)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
        } else {
            let report = TraceReport::new(capture, symbols);
            text::write(&report, Detail::folded_unless(self.all), out)
        };
        written.map_err(ShowError::Output)
    }

    /// Writes the page of `--html`, if that is asked for. The file is written whole or
    /// not at all. `sources` is asked for the source files that the tree of `--source`
    /// does not have.
    ///
    /// # Errors
    ///
    /// When the page of `--html` cannot be written.
    pub fn draw(
        &self,
        capture: &Capture,
        symbols: &dyn Resolve,
        sources: &html::Sources<'_>,
    ) -> Result<(), ShowError> {
        let Some(path) = &self.html else {
            return Ok(());
        };
        let read = |name: &str| {
            let given = self.source.as_deref();
            given
                .and_then(|tree| sources::find(tree, name))
                .or_else(|| sources(name))
        };
        let report = TraceReport::new(capture, symbols);
        let write = |out: &mut dyn Write| {
            let mut out = io::BufWriter::new(out);
            html::write(&report, symbols, &read, &mut out)?;
            out.flush()
        };
        whole(path, write).map_err(|problem| ShowError::Html {
            path: path.clone(),
            problem,
        })
    }
}

/// Writes the file `path` so that no reader ever sees it half-written.
///
/// # Errors
///
/// When the file cannot be created or replaced, and when `write` fails. The file `path`
/// is unchanged then.
pub fn whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)?;
    write(&mut file)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        whole(&path, |out| out.write_all(b"first")).unwrap();
        let failed = whole(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let nowhere = folder.path().join("no/page.html");
        assert!(whole(&nowhere, |_| Ok(())).is_err());
    }
}
