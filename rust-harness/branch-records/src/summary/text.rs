//! A summary as text.

use std::io::{self, Write};

use anstyle::Style;

use super::{Between, Distribution, HotBranch, Summary, SummaryPath};
use crate::capture::Returned;
use crate::sources::{self, Sources};
use crate::symbol::Location;
use crate::text::words::{self, counted, place};
use crate::text::{Detail, TextForm, table};

const HEADING: Style = Style::new().bold();
/// The most paths that are shown with their branches, and in all.
const MAX_PATHS: usize = 10;
/// The most branches, edges and lines that are shown.
const MAX_ROWS: usize = 10;
/// The most characters of a bar.
const BAR: u64 = 40;

/// Writes `summary` as text with colours. `sources` is asked for the text of source files. Give an
/// `anstream` stream, which keeps the colours on a terminal and drops them everywhere else.
///
/// # Errors
///
/// When writing to `out` fails.
pub fn write(
    summary: &Summary,
    form: TextForm,
    sources: &Sources<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let functions = match &summary.functions[..] {
        [] => "nothing".to_owned(),
        [function] => format!("{function}()"),
        [function, more @ ..] => format!("{function}() and {} more", more.len()),
    };
    writeln!(
        out,
        "{HEADING}{} of {functions}, {}{HEADING:#}  (kernel {})",
        counted(summary.snapshots, "snapshot"),
        counted(summary.path_count, "path"),
        summary.kernel
    )?;
    let counts = [
        (summary.whole, "begin with the function's entry"),
        (
            summary.interrupted,
            "were interrupted, and are counted without",
        ),
        (summary.empty, "have no records"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "  {count} {what}.")?;
    }
    if summary.dropped > 0 {
        writeln!(
            out,
            "  {} more are lost: there was no room for them.",
            summary.dropped
        )?;
    }
    write_paths(summary, out)?;
    write_branches(summary, out)?;
    write_lines(summary, sources, out)?;
    if let Some(between) = &summary.between {
        write_between(between, out)?;
    }
    write_first_path(summary, form, out)
}

fn write_paths(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    if summary.paths.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{HEADING}Paths{HEADING:#}")?;
    writeln!(
        out,
        "  {:>6} {:>9} {:>8} {:>7} {:>7}  returned",
        "share", "snapshots", "branches", "median", "p99"
    )?;
    for path in summary.paths.iter().take(MAX_PATHS) {
        let cycles = |number: fn(&Distribution) -> u64| {
            path.cycles
                .as_ref()
                .map_or("-".to_owned(), |all| number(all).to_string())
        };
        writeln!(
            out,
            "  {:>6} {:>9} {:>8} {:>7} {:>7}  {}",
            share(path.snapshots as u64, summary.snapshots as u64),
            path.snapshots,
            path.records.len(),
            cycles(|all| all.median),
            cycles(|all| all.p99),
            returned(path)
        )?;
    }
    if let Some(more @ 1..) = summary.path_count.checked_sub(MAX_PATHS) {
        writeln!(out, "  … {} more", counted(more, "path"))?;
    }
    writeln!(
        out,
        "  (median and p99: cycles to the last branch, from the entry or else from the first branch)"
    )?;
    Ok(())
}

fn write_first_path(summary: &Summary, form: TextForm, out: &mut impl Write) -> io::Result<()> {
    let Some(path) = summary.paths.first() else {
        return Ok(());
    };
    writeln!(out, "\n{HEADING}The most frequent path{HEADING:#}")?;
    let branches: Vec<_> = path.records.iter().collect();
    let form = TextForm {
        detail: Detail::Folded,
        ..form
    };
    table(&branches, form, &|_| (' ', Style::new()), out)
}

fn returned(path: &SummaryPath) -> String {
    // An address is another one each time.
    match path.returned {
        Some(Returned::Pointer(address)) if address != 0 && path.errno().is_none() => {
            format!("{}: a pointer", path.function)
        }
        Some(value) => format!("{}: {}", path.function, words::value(value)),
        None => path.function.clone(),
    }
}

fn write_branches(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    if summary.branches.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{HEADING}Branches that were taken most{HEADING:#}")?;
    for branch in summary.branches.iter().take(MAX_ROWS) {
        let HotBranch {
            count, from, to, ..
        } = branch;
        let kind = branch.kind.name();
        let missed = match branch.mispredicted {
            0 => String::new(),
            missed => format!(", {} mispredicted", share(missed, *count)),
        };
        writeln!(
            out,
            "  {count:>8}  {} -> {}  {kind}{missed}",
            place(from),
            place(to)
        )?;
    }
    if !summary.edges.is_empty() {
        writeln!(out, "\n{HEADING}Edges between functions{HEADING:#}")?;
    }
    for edge in summary.edges.iter().take(MAX_ROWS) {
        writeln!(out, "  {:>8}  {} -> {}", edge.count, edge.from, edge.to)?;
    }
    Ok(())
}

fn write_lines(summary: &Summary, sources: &Sources<'_>, out: &mut impl Write) -> io::Result<()> {
    if summary.lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{HEADING}Lines that were executed most{HEADING:#}")?;
    for line in summary.lines.iter().take(MAX_ROWS) {
        let text = sources::line(sources, &Location::new(&*line.file, Some(line.line)));
        writeln!(
            out,
            "  {:>8}  {} ({}:{})  {}",
            line.count,
            line.function,
            line.file,
            line.line,
            text.unwrap_or_default().trim()
        )?;
    }
    Ok(())
}

fn write_between(between: &Between, out: &mut impl Write) -> io::Result<()> {
    let Between {
        from, to, cycles, ..
    } = between;
    writeln!(out, "\n{HEADING}Cycles from {from} to {to}{HEADING:#}")?;
    if between.not_counted > 0 {
        writeln!(out, "  {} times not counted.", between.not_counted)?;
    }
    if cycles.count == 0 {
        return writeln!(
            out,
            "  The one never comes after the other, with all cycles counted."
        );
    }
    writeln!(
        out,
        "  {} times: {} to {}, median {}, p90 {}, p99 {}",
        cycles.count, cycles.least, cycles.greatest, cycles.median, cycles.p90, cycles.p99
    )?;
    let most = cycles
        .buckets
        .iter()
        .map(|bucket| bucket.count)
        .max()
        .unwrap_or(1);
    for bucket in &cycles.buckets {
        let bar = usize::try_from((bucket.count * BAR).div_ceil(most)).unwrap_or(0);
        writeln!(
            out,
            "  {:>10}+ {:>8}  {}",
            bucket.from,
            bucket.count,
            "#".repeat(bar)
        )?;
    }
    Ok(())
}

/// A share of a whole in percent.
fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}
