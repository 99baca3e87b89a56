//! A report as aligned text: the path from top to bottom, the newest branch last.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::capture::Moment;
use crate::report::{NamedBranch, SnapshotReport, TraceReport};

pub(crate) mod fold;
#[cfg(feature = "show")]
pub(crate) mod instructions;
pub(crate) mod row;
pub(crate) mod words;

use row::{TextRow, Widths};

const MACHINERY: Style = Style::new().dimmed();
const LAST_JUMP: Style = AnsiColor::Yellow.on_default().bold();
const HEADING: Style = Style::new().bold();

/// How much of a snapshot is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// The path of what was traced. Records of the tracing machinery are only counted,
    /// and branches that repeat themselves are shown once.
    #[default]
    Folded,
    /// Every record.
    All,
}

impl Detail {
    /// [`Detail::All`] if `all` is set, otherwise [`Detail::Folded`].
    pub fn folded_unless(all: bool) -> Self {
        if all { Self::All } else { Self::Folded }
    }
}

/// How text is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextForm {
    /// How much of a snapshot is shown.
    pub detail: Detail,
    /// The width of the terminal in characters. Where the ends of branches do not fit side by side,
    /// one is below the other. `None`: they are side by side.
    pub width: Option<usize>,
}

/// Writes `report` as text with colours. Give an `anstream` stream, which keeps the
/// colours on a terminal and drops them everywhere else.
///
/// # Errors
///
/// When writing to `out` fails.
pub fn write(report: &TraceReport, form: TextForm, out: &mut dyn Write) -> io::Result<()> {
    write_each(report, form, out, &mut |branches, look, out| {
        rows(branches, form, look, out)
    })
}

/// Branches to show, each with how often it was taken in a loop.
pub(crate) type Shown<'a> = [(&'a NamedBranch, usize)];
/// The mark and the style of a branch.
pub(crate) type Look<'a> = dyn Fn(&NamedBranch) -> (char, Style) + 'a;
/// Writes the branches of one snapshot.
pub(crate) type Body<'a> = dyn FnMut(&Shown<'_>, &Look<'_>, &mut dyn Write) -> io::Result<()> + 'a;

/// Writes all of a report but for the branches of its snapshots, which `body` writes.
pub(crate) fn write_each(
    report: &TraceReport,
    form: TextForm,
    out: &mut dyn Write,
    body: &mut Body<'_>,
) -> io::Result<()> {
    for (index, snapshot) in report.snapshots.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_snapshot(report, snapshot, form.detail, out, body)?;
    }
    if report.dropped > 0 {
        writeln!(
            out,
            "\n{} snapshots more were taken and are lost: there was no room for them.",
            report.dropped
        )?;
    }
    Ok(())
}

fn write_snapshot(
    report: &TraceReport,
    snapshot: &SnapshotReport,
    detail: Detail,
    out: &mut dyn Write,
    body: &mut Body<'_>,
) -> io::Result<()> {
    writeln!(
        out,
        "{HEADING}{}{HEADING:#}  (kernel {}, CPU {}, {}[{}])",
        words::happened(snapshot),
        report.kernel,
        snapshot.cpu,
        snapshot.comm,
        snapshot.pid,
    )?;
    for argument in &snapshot.arguments {
        writeln!(
            out,
            "{} = {}",
            argument.name,
            words::argument(&argument.value)
        )?;
    }
    if let Some(refusal) = words::refusal(snapshot) {
        writeln!(out, "{refusal}")?;
        return write_stack(snapshot, detail, out);
    }
    write_legend(report, snapshot, detail, out)?;
    let shown: Vec<_> = snapshot
        .records
        .iter()
        .filter(|branch| detail == Detail::All || !branch.machinery)
        .collect();
    let look = |branch: &NamedBranch| {
        if branch.machinery {
            ('|', MACHINERY)
        } else if snapshot.last_jump == Some(branch.number) {
            ('>', LAST_JUMP)
        } else {
            (' ', Style::new())
        }
    };
    body(&folded(&shown, detail), &look, out)?;
    write_stack(snapshot, detail, out)
}

/// Writes the call stack, if there is one. The functions of the tracing itself are left out unless
/// all of a snapshot is shown.
fn write_stack(snapshot: &SnapshotReport, detail: Detail, out: &mut dyn Write) -> io::Result<()> {
    let frames = snapshot.stack.iter();
    let frames = frames.filter(|frame| detail == Detail::All || !frame.machinery);
    let rows = row::of_stack(frames);
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "The call stack:")?;
    let width = rows.iter().map(|(name, _)| name.chars().count()).max();
    let width = width.unwrap_or_default();
    for (name, location) in rows {
        writeln!(
            out,
            "{}",
            format!("  {name:<width$}  {location}").trim_end()
        )?;
    }
    Ok(())
}

/// Writes a row for each branch. `look` has the mark and the style of each.
pub(crate) fn table(
    branches: &[&NamedBranch],
    form: TextForm,
    look: &Look<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    rows(&folded(branches, form.detail), form, look, out)
}

fn rows(
    branches: &Shown<'_>,
    form: TextForm,
    look: &Look<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let row = |(branch, times): &(&NamedBranch, usize)| TextRow::new(branch, *times);
    let rows: Vec<_> = branches.iter().map(row).collect();
    let mut widths = Widths::default();
    rows.iter().for_each(|row| widths.fit(row));
    let sides = widths.sides(form.width);
    for ((branch, _), row) in branches.iter().zip(rows) {
        let (mark, style) = look(branch);
        for line in row.lines(mark, &widths, sides) {
            writeln!(out, "{style}{line}{style:#}")?;
        }
    }
    Ok(())
}

/// The branches to show. With [`Detail::Folded`], only the newest of branches that repeat
/// themselves are shown.
fn folded<'a>(branches: &[&'a NamedBranch], detail: Detail) -> Vec<(&'a NamedBranch, usize)> {
    let same = |a: &&NamedBranch, b: &&NamedBranch| {
        (a.from.address, a.to.address, a.kind) == (b.from.address, b.to.address, b.kind)
    };
    let runs = match detail {
        Detail::Folded => fold::runs(branches, same),
        Detail::All => fold::none(branches.len()),
    };
    runs.into_iter()
        .flat_map(|run| run.last().map(move |index| (index, run.times)))
        .map(|(index, times)| (branches[index], times))
        .collect()
}

fn write_legend(
    report: &TraceReport,
    snapshot: &SnapshotReport,
    detail: Detail,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (machinery, function) = (snapshot.machinery, &snapshot.function);
    write!(
        out,
        "{} branch records, room for {}, the newest is #00",
        snapshot.records.len(),
        snapshot.asked,
    )?;
    match (machinery, detail) {
        (0, _) => writeln!(out, ".")?,
        (_, Detail::Folded) => writeln!(
            out,
            "; {machinery} of them, within the tracing machinery, are hidden."
        )?,
        (_, Detail::All) => writeln!(
            out,
            ".\n`|` marks the {machinery} within the tracing machinery."
        )?,
    }
    if snapshot.repeated > 0 {
        writeln!(
            out,
            "The {} oldest were in the snapshot before on this CPU, too.",
            snapshot.repeated
        )?;
    }
    #[cfg(feature = "path")]
    if let Some(path) = &snapshot.path {
        writeln!(out, "The path: {path}.")?;
    }
    if let Some(reason) = &report.code_missing {
        writeln!(out, "Some of the code is not known: {reason}.")?;
    }
    if snapshot.moment != Moment::Return {
        return Ok(());
    }
    if snapshot.last_jump.is_some() {
        writeln!(
            out,
            "`>` marks the last jump within {function}() before it returned."
        )
    } else if snapshot.touches_function() {
        writeln!(out, "No jump within {function}() is among the records.")
    } else {
        writeln!(out, "No record touches {function}().")
    }
}

#[cfg(test)]
mod tests;
