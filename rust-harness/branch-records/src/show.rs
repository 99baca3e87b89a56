//! How a program shows what was recorded: the options of its command line, and what they
//! do.

mod pager;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::InstructionSet;
use crate::brstack;
use crate::capture::Capture;
use crate::compare::{self, GroupComparison, SnapshotGroup};
use crate::filter::FilterField;
use crate::html;
use crate::instructions::perf;
use crate::perfscript;
use crate::report::{NewestRecords, TraceReport};
use crate::sources::{self, Sources};
use crate::summary::{self, CodePoint, Summary};
use crate::symbol::Resolve;
use crate::text::{self, Detail, TextForm};
use pager::Pager;

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

    /// Print what `perf script -F comm,pid,cpu,time,event,brstackinsn` would, with the
    /// instructions disassembled
    #[arg(long, group = "form")]
    pub brstackinsn: bool,

    /// Print what `perf script --show-mmap-events -F ip,brstack` would, for LLVM's
    /// `llvm-profgen --kernel --binary VMLINUX --perfscript FILE`
    #[arg(long, group = "form")]
    pub perfscript: bool,

    /// Show the instructions that were executed between branches, and their source lines
    #[arg(long, conflicts_with_all = ["brstack", "brstackinsn", "perfscript"])]
    pub insn: bool,

    /// Compare two groups of snapshots, and show where their paths part: calls that failed and
    /// calls that did not, or those that pass one of two filters each:
    /// --compare 'cpu == 0' 'cpu == 1'
    #[arg(long, conflicts_with_all = ["all", "insn", "brstack", "brstackinsn", "perfscript"])]
    pub compare: bool,

    /// The filter of a group for --compare, given twice, once for each group:
    /// `--compare 'cpu == 0' 'cpu == 1'` is short for
    /// `--compare --group 'cpu == 0' --group 'cpu == 1'`
    #[arg(long, value_name = "EXPR", value_parser = SnapshotGroup::new, requires = "compare")]
    pub group: Vec<SnapshotGroup>,

    /// Sum up all snapshots: the paths and how often, what was executed most
    #[arg(long, conflicts_with_all = ["compare", "all", "insn", "brstack", "brstackinsn", "perfscript", "html"])]
    pub summary: bool,

    /// The cycles from one point of the code to another, in --summary: FUNCTION, FUNCTION+OFFSET or
    /// FILE:LINE
    #[arg(long, num_args = 2, value_names = ["POINT", "POINT"], requires = "summary")]
    pub between: Vec<CodePoint>,

    /// The width of text, in characters. Without it, text has the terminal's width; where the output
    /// is no terminal, lines have any length
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..))]
    pub width: Option<u16>,

    /// Whether text has colours
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: ColorWhen,

    /// Draw the path on the source of the functions, into this HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Where the source is that was compiled
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,

    /// Look for the kernel's modules and their debug information below this directory. Several are
    /// searched in turn. branch-trace then looks where distributions install them, `./brbe trace`
    /// nowhere else
    #[arg(long, value_name = "DIR")]
    pub modules: Vec<PathBuf>,
}

/// Whether text has colours.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorWhen {
    /// On terminals, unless the environment has NO_COLOR
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl ColorWhen {
    /// Makes this the choice for all `anstream` streams of the process.
    pub fn apply(self) {
        let choice = match self {
            Self::Auto => colorchoice::ColorChoice::Auto,
            Self::Always => colorchoice::ColorChoice::Always,
            Self::Never => colorchoice::ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// Why a capture could not be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShowError {
    /// Two groups are compared, and another number of filters was given.
    #[error("--group was given {0} times: give it twice, a filter for each group, or leave it out")]
    Groups(usize),
    /// Nothing says where the kernel image is, which --perfscript has to tell.
    #[error("--perfscript needs the kernel's symbols: give --vmlinux FILE")]
    NoImage,
    /// The capture is of a machine whose instructions are not known.
    #[error(
        "--insn and --brstackinsn show instructions of arm64 and x86-64, and this is a trace of {0}"
    )]
    NoInstructions(String),
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

/// Spells out the words of a command line: `--compare A B` is short for `--compare --group A
/// --group B`, where both words are filters, or neither can be the name of anything that is traced.
/// `--compare` alone is what it is.
pub fn spelled_out(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.into_iter().peekable();
    let mut spelled = Vec::new();
    // What is wrong with a filter is said of the option.
    let is_meant = |text: &str| text.contains([' ', '=', '<', '>', '"', '\'']);
    let is_filter = |text: &str| is_meant(text) || SnapshotGroup::new(text).is_ok();
    let is_group = |word: &OsString| word != "--" && word.to_str().is_some_and(is_filter);
    while let Some(word) = words.next() {
        if word == "--" {
            spelled.push(word);
            break;
        }
        let is_compare = word == "--compare";
        spelled.push(word);
        if !is_compare {
            continue;
        }
        let groups: Vec<_> = std::iter::from_fn(|| words.next_if(is_group))
            .take(2)
            .collect();
        match <[_; 2]>::try_from(groups) {
            Ok(groups) => spelled.extend(
                groups
                    .into_iter()
                    .flat_map(|group| ["--group".into(), group]),
            ),
            // The name of a function may be a filter, too.
            Err(others) => spelled.extend(others),
        }
    }
    spelled.extend(words);
    spelled
}

impl Show {
    /// Whether each snapshot can be printed by itself, as it is taken. JSON cannot: it
    /// has a document around the snapshots. A comparison is one of all of them, and so
    /// is a summary. `--perfscript` begins with a line of its own.
    pub fn is_stream(&self) -> bool {
        !self.json && !self.compare && !self.summary && !self.perfscript
    }

    /// The groups that are compared, if any are.
    ///
    /// # Errors
    ///
    /// [`ShowError::Groups`].
    pub fn groups(&self) -> Result<Option<[SnapshotGroup; 2]>, ShowError> {
        match &self.group[..] {
            _ if !self.compare => Ok(None),
            [] => Ok(Some(SnapshotGroup::by_error())),
            [a, b] => Ok(Some([a.clone(), b.clone()])),
            others => Err(ShowError::Groups(others.len())),
        }
    }

    /// The words of a command line that ask for this on another machine, without what is for this
    /// one: `--html`, `--source` and `--modules`.
    pub fn words(&self) -> Vec<String> {
        let flags = [
            ("--all", self.all),
            ("--json", self.json),
            ("--brstack", self.brstack),
            ("--brstackinsn", self.brstackinsn),
            ("--perfscript", self.perfscript),
            ("--insn", self.insn),
            ("--summary", self.summary),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        let mut words: Vec<_> = flags.map(|(flag, _)| flag.to_owned()).collect();
        words.extend(self.group_words());
        if !self.between.is_empty() {
            words.push("--between".to_owned());
            words.extend(self.between.iter().map(ToString::to_string));
        }
        match self.color {
            ColorWhen::Auto => {}
            ColorWhen::Always => words.push("--color=always".to_owned()),
            ColorWhen::Never => words.push("--color=never".to_owned()),
        }
        if let Some(width) = self.width {
            words.extend(["--width".to_owned(), width.to_string()]);
        }
        words
    }

    /// The words of a command line that ask for a comparison of these groups, if one is asked for.
    pub fn group_words(&self) -> Vec<String> {
        let compare = self.compare.then(|| "--compare".to_owned());
        let groups = self.group.iter();
        let groups = groups.flat_map(|group| ["--group".to_owned(), group.text().to_owned()]);
        compare.into_iter().chain(groups).collect()
    }

    /// Whether the filter of a group that is compared asks for `field`.
    pub fn asks_for(&self, field: FilterField) -> bool {
        let groups = self.groups().ok().flatten();
        groups.is_some_and(|groups| groups.iter().any(|group| group.filter().asks_for(field)))
    }

    fn form(&self) -> TextForm {
        let terminal = || {
            let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
            Some(width.0)
        };
        TextForm {
            detail: Detail::folded_unless(self.all),
            width: self.width.or_else(terminal).map(usize::from),
        }
    }

    /// Whether addresses need names: `--brstack` and `--perfscript` alone print none.
    pub fn wants_names(&self) -> bool {
        !(self.brstack || self.perfscript) || self.html.is_some()
    }

    /// Whether the output is one for people: other programs may not expect an empty line in it.
    pub fn is_for_people(&self) -> bool {
        !(self.json || self.brstack || self.brstackinsn || self.perfscript)
    }

    /// Prints a capture in the form that the options ask for. For colours, give an
    /// `anstream` stream. `sources` is asked for the source files that the tree of `--source` does
    /// not have.
    ///
    /// # Errors
    ///
    /// When writing to `out` fails, [`ShowError::Groups`], [`ShowError::NoImage`] and
    /// [`ShowError::NoInstructions`].
    pub fn print(
        &self,
        capture: &Capture,
        symbols: &dyn Resolve,
        sources: &Sources<'_>,
        out: &mut dyn Write,
    ) -> Result<(), ShowError> {
        self.print_after(
            &mut NewestRecords::default(),
            capture,
            symbols,
            sources,
            out,
        )
    }

    /// Prints a capture that comes after others, of which `newest` knows, as [`Show::print`] does.
    ///
    /// # Errors
    ///
    /// When [`Show::print`] fails.
    pub fn print_after(
        &self,
        newest: &mut NewestRecords,
        capture: &Capture,
        symbols: &dyn Resolve,
        sources: &Sources<'_>,
        out: &mut dyn Write,
    ) -> Result<(), ShowError> {
        let machine = &capture.kernel.machine;
        if (self.insn || self.brstackinsn) && InstructionSet::of(machine).is_none() {
            return Err(ShowError::NoInstructions(machine.clone()));
        }
        // Each branch is written by itself.
        let out = &mut io::BufWriter::new(out);
        let written = if let Some(groups) = self.groups()? {
            let read = |name: &str| self.read(name, sources);
            let comparison = GroupComparison::new(capture, symbols, &groups, &read);
            if self.json {
                write_json(&comparison, out)
            } else {
                compare::text::write(&comparison, self.form(), out)
            }
        } else if self.summary {
            let read = |name: &str| self.read(name, sources);
            let summary = Summary::new(capture, symbols, self.between.as_array());
            if self.json {
                write_json(&summary, out)
            } else {
                summary::text::write(&summary, self.form(), &read, out)
            }
        } else if self.brstack {
            brstack::write(&capture.snapshots, out)
        } else if self.brstackinsn {
            perf::write(capture, symbols, out)
        } else if self.perfscript {
            let image = symbols.image().ok_or(ShowError::NoImage)?;
            perfscript::write(capture, &image, out)
        } else {
            let mut report = TraceReport::after(newest, capture, symbols);
            if self.insn {
                report = report.with_instructions(capture, symbols);
            }
            if self.json {
                write_json(&report, out)
            } else if self.insn {
                let read = |name: &str| self.read(name, sources);
                text::instructions::write(&report, self.form(), &read, out)
            } else {
                text::write(&report, self.form(), out)
            }
        };
        written
            .and_then(|()| out.flush())
            .map_err(ShowError::Output)
    }

    /// Prints a capture to the standard output, as [`Show::print`] does. On a terminal, what is for
    /// people goes to a pager: the program that the environment calls `PAGER`, or else `less`, if it
    /// is there.
    ///
    /// # Errors
    ///
    /// When [`Show::print`] fails. A reader that has seen enough is no error.
    pub fn print_paged(
        &self,
        capture: &Capture,
        symbols: &dyn Resolve,
        sources: &Sources<'_>,
    ) -> Result<(), ShowError> {
        let on_screen = || {
            let mut out = anstream::stdout().lock();
            self.print(capture, symbols, sources, &mut out)
        };
        let pager = self.is_for_people().then(Pager::on_terminal).flatten();
        let Some(mut pager) = pager else {
            return on_screen();
        };
        let colors = anstream::AutoStream::choice(&io::stdout());
        let to_pager: &mut dyn Write = &mut pager;
        let mut out = anstream::AutoStream::new(to_pager, colors);
        let printed = self.print(capture, symbols, sources, &mut out);
        if !pager.wait().map_err(ShowError::Output)? {
            return on_screen();
        }
        match printed {
            Err(ShowError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed,
        }
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
        sources: &Sources<'_>,
    ) -> Result<(), ShowError> {
        let Some(path) = &self.html else {
            return Ok(());
        };
        let read = |name: &str| self.read(name, sources);
        let groups = self.groups()?;
        let write = |out: &mut dyn Write| {
            let mut out = io::BufWriter::new(out);
            match &groups {
                Some(groups) => {
                    let comparison = GroupComparison::new(capture, symbols, groups, &read);
                    html::write_comparison(&comparison, symbols, &read, &mut out)?;
                }
                None => {
                    let report = TraceReport::new(capture, symbols);
                    html::write(&report, symbols, &read, &mut out)?;
                }
            }
            out.flush()
        };
        whole(path, write).map_err(|problem| ShowError::Html {
            path: path.clone(),
            problem,
        })
    }

    /// The text of a source file: from the tree of `--source`, or by `sources`.
    fn read(&self, name: &str, sources: &Sources<'_>) -> Option<String> {
        let given = self.source.as_deref();
        given
            .and_then(|tree| sources::find(tree, name))
            .or_else(|| sources(name))
    }
}

fn write_json(shown: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, shown)?;
    writeln!(out)
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
    fn two_filters_behind_compare_are_its_groups() {
        let spelled = |words: &[&str]| {
            let words = words.iter().map(OsString::from);
            let spelled: Vec<_> = spelled_out(words)
                .into_iter()
                .map(|word| word.into_string().unwrap())
                .collect();
            spelled.join(" ")
        };
        assert_eq!(
            spelled(&["--compare", "cgroup == '/a'", "cpu = 1", "vfs_read"]),
            "--compare --group cgroup == '/a' --group cpu = 1 vfs_read"
        );
        assert_eq!(
            spelled(&["--compare", "cpu == 0", "cpu == 1", "vfs_read"]),
            "--compare --group cpu == 0 --group cpu == 1 vfs_read"
        );
        for same in [
            &["--compare", "vfs_read"][..],
            &["--compare", "failed", "vfs_read"],
            &["--compare"],
            &["vfs_read", "--", "--compare", "cpu == 0", "cpu == 1"],
            &["--compare", "cpu == 0", "--", "cpu == 1"],
        ] {
            assert_eq!(spelled(same), same.join(" "));
        }
    }

    #[test]
    fn groups_come_in_pairs() {
        let groups = |group: &[&str]| {
            let show = Show {
                compare: true,
                group: group
                    .iter()
                    .map(|text| SnapshotGroup::new(text).unwrap())
                    .collect(),
                ..Show::default()
            };
            let groups = show.groups().map_err(|error| error.to_string())?;
            Ok::<_, String>(groups.unwrap().map(|group| group.text().to_owned()))
        };
        assert_eq!(groups(&[]).unwrap(), ["failed", "!failed"]);
        assert_eq!(groups(&["cpu == 0", "cpu == 1"]).unwrap()[1], "cpu == 1");
        assert!(groups(&["cpu == 0"]).unwrap_err().contains("1 times"));
        assert_eq!(Show::default().groups().unwrap(), None);
    }

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
