//! A comparison as text: where two groups part, what led there, and what each did next.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::{GroupComparison, GroupReport, Parting, PartingOutcome, PathAlignment};
use crate::report::NamedBranch;
use crate::text::words::{counted, place};
use crate::text::{Detail, TextForm, table};

const HEADING: Style = Style::new().bold();
const PARTING: Style = AnsiColor::Yellow.on_default().bold();
/// The letters that stand for the groups, with their colours.
pub(crate) const GROUPS: [(char, Style); 2] = [
    ('A', AnsiColor::Red.on_default()),
    ('B', AnsiColor::Cyan.on_default()),
];
/// How many branches are shown of a path: the nearest to where it parts.
const SHOWN: usize = 16;

/// Writes `comparison` as text with colours. Give an `anstream` stream, which keeps the
/// colours on a terminal and drops them everywhere else.
///
/// # Errors
///
/// When writing to `out` fails.
pub fn write(comparison: &GroupComparison, form: TextForm, out: &mut impl Write) -> io::Result<()> {
    let functions = match &comparison.functions[..] {
        [] => "nothing".to_owned(),
        [function] => format!("{function}()"),
        several => format!("{} functions", several.len()),
    };
    writeln!(
        out,
        "{HEADING}Two groups of snapshots of {functions}{HEADING:#}  (kernel {})",
        comparison.kernel
    )?;
    let filters = comparison
        .groups
        .each_ref()
        .map(|group| group.filter.chars().count());
    let width = filters[0].max(filters[1]);
    for ((letter, style), group) in GROUPS.iter().zip(&comparison.groups) {
        writeln!(
            out,
            "  {style}{letter}  {:<width$}{style:#}  {}",
            group.filter,
            described(group)
        )?;
    }
    for line in notices(comparison) {
        writeln!(out, "  {line}")?;
    }
    for parting in &comparison.partings {
        writeln!(out)?;
        write_parting(comparison, parting, form, out)?;
    }
    writeln!(out)?;
    for line in conclusion(comparison) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// What has to be known of a comparison before it is read.
pub(crate) fn notices(comparison: &GroupComparison) -> Vec<String> {
    let mut lines = Vec::new();
    if comparison.in_no_group > 0 {
        let is = if comparison.in_no_group == 1 {
            "is"
        } else {
            "are"
        };
        lines.push(format!(
            "{} {is} in neither group, in both, or without records.",
            counted(comparison.in_no_group, "snapshot")
        ));
    }
    if comparison.dropped > 0 {
        lines.push(format!(
            "{} snapshots more were taken and lost: there was no room for them.",
            comparison.dropped
        ));
    }
    if comparison.alignment == PathAlignment::End && !comparison.functions.is_empty() {
        lines.push(
            "No record is of a function's entry: the paths are laid beside each other by their \
             ends."
                .to_owned(),
        );
    }
    if !comparison.all_branches {
        lines.push(
            "Not all branches were recorded: nothing is known of branches that were not taken."
                .to_owned(),
        );
    }
    lines
}

/// What a group consists of.
pub(crate) fn described(group: &GroupReport) -> String {
    let mut parts = vec![
        counted(group.snapshots, "snapshot"),
        counted(group.path_count, "path"),
    ];
    let counts = [
        (group.interrupted, "interrupted, and compared without"),
        (group.cut, "without the entry, and laid beside others"),
        (group.not_aligned, "without the entry, and not compared"),
        (group.left_out, "on rare paths, and not compared"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    parts.extend(counts.map(|(count, what)| format!("{count} {what}")));
    parts.join(", ")
}

fn write_parting(
    comparison: &GroupComparison,
    parting: &Parting,
    form: TextForm,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{PARTING}They part at {}{}{PARTING:#}",
        place(&parting.at),
        when(parting, comparison.alignment),
    )?;
    if let Some(text) = &parting.text {
        writeln!(out, "      {}", text.trim())?;
        let [before, condition, _] = parting.around_condition(text);
        if !condition.is_empty() {
            let blank = |c| if c == '\t' { '\t' } else { ' ' };
            let blank: String = before.trim_start().chars().map(blank).collect();
            let mark = "~".repeat(condition.chars().count());
            writeln!(out, "      {blank}{PARTING}{mark}{PARTING:#}")?;
        }
    }
    for outcome in &parting.outcomes {
        write_outcome(comparison, outcome, out)?;
    }
    if parting.more_outcomes > 0 {
        writeln!(
            out,
            "  … {} more",
            counted(parting.more_outcomes, "outcome")
        )?;
    }
    if !parting.common.is_empty() {
        writeln!(out, "{HEADING}Until then:{HEADING:#}")?;
        let hidden = parting.common.len().saturating_sub(SHOWN);
        if hidden > 0 {
            writeln!(out, "  … {} before", counted(hidden, "branch"))?;
        }
        rows(&parting.common[hidden..], form, out)?;
    }
    for (group, (letter, style)) in GROUPS.iter().enumerate() {
        for outcome in parting.outcomes.iter().filter(|it| it.is_of_one_group()) {
            let Some(next) = &outcome.next[group] else {
                continue;
            };
            writeln!(
                out,
                "{style}{HEADING}{letter} then{HEADING:#}{style:#}{}:",
                of_several(comparison, outcome, group)
            )?;
            if next.is_empty() {
                writeln!(out, "  no branch until the snapshot")?;
            }
            rows(&next[..next.len().min(SHOWN)], form, out)?;
            if let Some(more @ 1..) = next.len().checked_sub(SHOWN) {
                writeln!(out, "  … {} more", counted(more, "branch"))?;
            }
        }
    }
    Ok(())
}

/// Which time it was that the paths came by.
pub(crate) fn when(parting: &Parting, alignment: PathAlignment) -> String {
    match (alignment, parting.before) {
        (PathAlignment::Entry, 0) => String::new(),
        (PathAlignment::Entry, before) => {
            format!(", which they have passed {} before", times(before))
        }
        (PathAlignment::End, 0) => ", the last time".to_owned(),
        (PathAlignment::End, later) => format!(", which they pass {} later", times(later)),
    }
}

fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// What happens at a branch.
pub(crate) fn happens(outcome: &PartingOutcome) -> String {
    match &outcome.to {
        Some(to) => format!("the branch is taken, to {}", place(to)),
        None => "the branch is not taken".to_owned(),
    }
}

fn write_outcome(
    comparison: &GroupComparison,
    outcome: &PartingOutcome,
    out: &mut impl Write,
) -> io::Result<()> {
    let what = happens(outcome);
    let groups = GROUPS.iter().zip(&comparison.groups).zip(outcome.snapshots);
    for (((letter, style), group), count) in groups.filter(|(_, count)| *count > 0) {
        writeln!(
            out,
            "  {style}{letter}{style:#}  {count} of {}: {what}",
            group.snapshots
        )?;
    }
    Ok(())
}

/// Which snapshots of a group did what is told of an outcome, if not all of the group did.
fn of_several(comparison: &GroupComparison, outcome: &PartingOutcome, group: usize) -> String {
    let all = comparison.groups[group].snapshots;
    match outcome.snapshots[group] {
        count if count == all => String::new(),
        count => format!(", {count} of {all}"),
    }
}

fn rows(branches: &[NamedBranch], form: TextForm, out: &mut impl Write) -> io::Result<()> {
    let branches: Vec<_> = branches.iter().collect();
    let form = TextForm {
        detail: Detail::Folded,
        ..form
    };
    table(&branches, form, &|_| (' ', Style::new()), out)
}

/// What the comparison comes to.
pub(crate) fn conclusion(comparison: &GroupComparison) -> Vec<String> {
    let mut lines = Vec::new();
    let letters = GROUPS.map(|(letter, _)| letter);
    let groups = letters.into_iter().zip(&comparison.groups);
    let empty: Vec<_> = groups
        .clone()
        .filter(|(_, group)| group.snapshots == 0)
        .map(|(letter, group)| {
            format!(
                "No snapshot is in {letter}: none passes `{}`.",
                group.filter
            )
        })
        .collect();
    if !empty.is_empty() {
        return empty;
    }
    let of = |count: usize, letter: char, group: &GroupReport| {
        format!("{count} of {} of {letter}", group.snapshots)
    };
    let apart: Vec<_> = groups
        .clone()
        .filter(|(_, group)| group.not_aligned > 0)
        .map(|(letter, group)| of(group.not_aligned, letter, group))
        .collect();
    if !apart.is_empty() {
        lines.push(format!(
            "Not compared: {}. Their records begin in the midst of the call, and agree with no \
             whole path in three branches, or with several.",
            apart.join(", and ")
        ));
    }
    if comparison
        .groups
        .iter()
        .any(|group| group.not_aligned == group.snapshots)
    {
        return lines;
    }
    let alike: Vec<_> = groups
        .filter(|(_, group)| group.alike > 0)
        .map(|(letter, group)| of(group.alike, letter, group))
        .collect();
    match (comparison.partings.is_empty(), &alike[..]) {
        (true, []) => {}
        (true, _) if comparison.same_paths => lines.push(
            "Nothing tells the two groups apart: each path of the one is a path of the other."
                .to_owned(),
        ),
        (true, _) => lines.push(
            "Nothing tells the two groups apart: at no branch has one group an outcome that the \
             other has not."
                .to_owned(),
        ),
        (false, []) => lines.push("That tells all apart that were compared.".to_owned()),
        (false, alike) => lines.push(format!("Not told apart by that: {}.", alike.join(", and "))),
    }
    lines
}
