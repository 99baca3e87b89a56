//! A report as one HTML file: the source of the functions on the path, with the path
//! drawn on it. The page needs no other file, and no network.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::listing::{self, Listing};
use crate::report::{NamedBranch, SnapshotReport, TraceReport};
use crate::sources::Sources;
use crate::symbol::Resolve;
use crate::text::words::{self, counted};
use crate::text::{fold, row};

mod compared;
mod escape;
mod rows;
mod source;

pub use compared::write as write_comparison;
pub use escape::Text;
use source::Drawn;

/// The most paths on one page: nobody reads a page with more to its end.
const MAX_PATHS: usize = 100;

const STYLE: &str = include_str!("html/style.css");

/// Writes `report` as an HTML page. `symbols` must be those that the report was made
/// with. `sources` is asked for the text of each source file.
///
/// Snapshots that took the same path are shown as one.
///
/// # Errors
///
/// When writing to `out` fails.
pub fn write(
    report: &TraceReport,
    symbols: &(impl Resolve + ?Sized),
    sources: &Sources<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut page = Page {
        report,
        symbols,
        files: SourceFiles::of(sources),
        out,
    };
    page.write()
}

/// Snapshots that took the same path.
struct Group<'a> {
    first: &'a SnapshotReport,
    times: usize,
}

struct Page<'a, R: ?Sized, W> {
    report: &'a TraceReport,
    symbols: &'a R,
    files: SourceFiles<'a>,
    out: &'a mut W,
}

/// The source files of a page.
struct SourceFiles<'a> {
    sources: &'a Sources<'a>,
    /// The lines of each file, by its name; `None` for a file that is not at hand.
    lines: HashMap<String, Option<Vec<String>>>,
}

impl<'a> SourceFiles<'a> {
    fn of(sources: &'a Sources<'a>) -> Self {
        Self {
            sources,
            lines: HashMap::new(),
        }
    }

    /// Writes the listings of a path in `function`, and what is drawn on each.
    fn write<'l>(
        &mut self,
        function: &str,
        listings: impl Iterator<Item = (&'l Listing, Drawn<'l>)> + Clone,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let traced = listings.clone().find(|(listing, _)| listing.is_traced);
        let traced = traced.map(|(listing, _)| &listing.file);
        let sources = self.sources;
        for (listing, drawn) in listings {
            // A function that is inlined into the traced one is part of it if both are in
            // one file; those from headers are not.
            let is_part =
                listing.inlined_into.as_deref() == Some(function) && Some(&listing.file) == traced;
            let read =
                || sources(&listing.file).map(|text| text.lines().map(str::to_owned).collect());
            let file = self.lines.entry(listing.file.clone()).or_insert_with(read);
            let shown = source::Shown {
                listing,
                file: file.as_deref(),
                drawn,
                open: listing.is_traced || is_part,
            };
            source::write(&shown, out)?;
        }
        Ok(())
    }
}

impl<R: Resolve + ?Sized, W: Write> Page<'_, R, W> {
    fn write(&mut self) -> io::Result<()> {
        let report = self.report;
        let groups = groups(&report.snapshots);
        head(&report.scenario, self.out)?;
        writeln!(
            self.out,
            "<p>kernel {} on {}, {} in {}{}</p>\n</header>",
            Text(&report.kernel),
            Text(&report.machine),
            counted(report.snapshots.len(), "snapshot"),
            counted(groups.len(), "path"),
            match report.dropped {
                0 => String::new(),
                lost => format!(", {lost} more lost: there was no room for them"),
            },
        )?;
        write!(self.out, "{LEGEND}")?;
        for group in groups.iter().take(MAX_PATHS) {
            self.path(group)?;
        }
        if let Some(left @ 1..) = groups.len().checked_sub(MAX_PATHS) {
            writeln!(
                self.out,
                "<p>{} more are left out.</p>",
                counted(left, "path")
            )?;
        }
        writeln!(self.out, "</body>\n</html>")
    }

    fn path(&mut self, group: &Group<'_>) -> io::Result<()> {
        let snapshot = group.first;
        writeln!(
            self.out,
            "<section>\n<h2>{}</h2>\n<p>{}CPU {}, {}[{}], {}</p>",
            Text(&words::happened(snapshot)),
            match group.times {
                1 => String::new(),
                times => format!("{times} times this path; the first: "),
            },
            snapshot.cpu,
            Text(&snapshot.comm),
            snapshot.pid,
            counted(snapshot.records.len(), "branch record"),
        )?;
        for argument in &snapshot.arguments {
            let value = words::argument(&argument.value);
            writeln!(
                self.out,
                "<p><code>{} = {}</code></p>",
                Text(&argument.name),
                Text(&value)
            )?;
        }
        #[cfg(feature = "path")]
        if let Some(path) = &snapshot.path {
            writeln!(self.out, "<p>The path: {}.</p>", Text(&path.to_string()))?;
        }
        if let Some(refusal) = words::refusal(snapshot) {
            writeln!(self.out, "<p>{}</p>", Text(&refusal))?;
        }
        let listings = listing::of_snapshot(snapshot, self.symbols, self.report.step());
        let drawn = Drawn::Snapshot {
            last_jump: snapshot.last_jump,
        };
        let listings = listings.iter().map(|listing| (listing, drawn));
        self.files.write(&snapshot.function, listings, self.out)?;
        self.branches(snapshot)?;
        self.stack(snapshot)?;
        writeln!(self.out, "</section>")
    }

    /// Writes the call stack, if there is one.
    fn stack(&mut self, snapshot: &SnapshotReport) -> io::Result<()> {
        let rows = row::of_stack(snapshot.stack.iter().filter(|frame| !frame.machinery));
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(
            self.out,
            "<details><summary>the call stack: {}</summary>\n<table>",
            counted(rows.len(), "function")
        )?;
        for (name, location) in rows {
            writeln!(
                self.out,
                "<tr><td>{}</td><td>{}</td></tr>",
                Text(name.trim_start()),
                Text(&location)
            )?;
        }
        writeln!(self.out, "</table></details>")
    }

    /// Writes the records of a snapshot as an HTML table.
    fn branches(&mut self, snapshot: &SnapshotReport) -> io::Result<()> {
        let shown: Vec<_> = shown(snapshot).collect();
        let hidden = snapshot.records.len() - shown.len();
        writeln!(
            self.out,
            "<details><summary>{}{}</summary>\n<table>",
            counted(shown.len(), "branch"),
            match hidden {
                0 => String::new(),
                hidden => format!(", and {hidden} of the tracing itself"),
            },
        )?;
        for run in fold::runs(&shown, |a, b| same(a, b)) {
            for branch in run.last().map(|index| shown[index]) {
                rows::branch(branch, run.times, snapshot.last_jump, self.out)?;
            }
        }
        writeln!(self.out, "</table></details>")
    }
}

/// Writes the beginning of a page, up to what its header has below the title.
fn head(title: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>{title}</h1>",
        title = Text(title),
    )
}

/// The branches of a snapshot that are not within the tracing machinery, oldest first.
fn shown(snapshot: &SnapshotReport) -> impl Iterator<Item = &NamedBranch> {
    snapshot.records.iter().filter(|branch| !branch.machinery)
}

fn same(a: &NamedBranch, b: &NamedBranch) -> bool {
    (a.from.address, a.to.address, a.kind) == (b.from.address, b.to.address, b.kind)
}

/// Groups snapshots by their paths. The groups are in the order in which the first
/// snapshot of each was taken.
fn groups(snapshots: &[SnapshotReport]) -> Vec<Group<'_>> {
    let mut index = HashMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for snapshot in snapshots {
        let ends: Vec<_> = shown(snapshot)
            .map(|branch| (branch.from.address, branch.to.address))
            .collect();
        let what = (&*snapshot.function, snapshot.moment, snapshot.errno);
        let next = groups.len();
        let group = *index.entry((what, snapshot.returned, ends)).or_insert(next);
        match groups.get_mut(group) {
            Some(group) => group.times += 1,
            None => groups.push(Group {
                first: snapshot,
                times: 1,
            }),
        }
    }
    groups
}

const LEGEND: &str = "\
<p class=\"legend\"><span class=\"executed\">executed</span> <span class=\"code\">code, not \
executed</span> <span class=\"none\">no code</span> <span class=\"last\">the last jump before \
the function returned</span></p>
";

#[cfg(test)]
mod tests;
