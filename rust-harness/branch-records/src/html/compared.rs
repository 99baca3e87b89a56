//! A comparison as one HTML file: the paths of two groups on one source.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::escape::Text;
use super::source::{Drawn, GroupedLines};
use super::{SourceFiles, head, rows};
use crate::compare::text::{GROUPS, conclusion, described, happens, notices, when};
use crate::compare::{GroupComparison, Parting};
use crate::listing::{self, Jump, Listing, Passage};
use crate::report::step_of;
use crate::sources::Sources;
use crate::symbol::Resolve;
use crate::text::words::{counted, place};

const LEGEND: &str = "\
<p class=\"legend\"><span class=\"executed\">executed by both</span> <span class=\"only-a\">by A \
alone</span> <span class=\"only-b\">by B alone</span> <span class=\"code\">code, not executed</span> \
<span class=\"none\">no code</span> <span class=\"last\">where they part</span></p>
";

/// Writes a comparison as an HTML page. `symbols` must be those that the comparison was made
/// with. `sources` is asked for the text of each source file.
///
/// # Errors
///
/// When writing to `out` fails.
pub fn write(
    comparison: &GroupComparison,
    symbols: &(impl Resolve + ?Sized),
    sources: &Sources<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    head(&comparison.scenario, out)?;
    writeln!(
        out,
        "<p>kernel {} on {}</p>\n</header>",
        Text(&comparison.kernel),
        Text(&comparison.machine)
    )?;
    writeln!(out, "<ul class=\"groups\">")?;
    for (index, group) in comparison.groups.iter().enumerate() {
        writeln!(
            out,
            "<li><b class=\"{}\">{}</b> <code>{}</code>: {}</li>",
            CLASSES[index],
            GROUPS[index].0,
            Text(&group.filter),
            Text(&described(group))
        )?;
    }
    writeln!(out, "</ul>")?;
    for line in notices(comparison) {
        writeln!(out, "<p>{}</p>", Text(&line))?;
    }
    for parting in &comparison.partings {
        write_parting(comparison, parting, out)?;
    }
    for line in conclusion(comparison) {
        writeln!(out, "<p>{}</p>", Text(&line))?;
    }
    write!(out, "{LEGEND}")?;
    let step = step_of(&comparison.machine);
    let listings = comparison.drawn.each_ref().map(|snapshot| {
        let listings = snapshot
            .as_ref()
            .map(|it| listing::of_snapshot(it, symbols, step));
        listings.unwrap_or_default()
    });
    let mut merged = merged(listings);
    if let Some(parting) = comparison.partings.first() {
        mark(&mut merged, parting);
    }
    let drawn = merged
        .iter()
        .map(|(listing, lines)| (listing, Drawn::Groups(lines)));
    let mut files = SourceFiles::of(sources);
    let function = comparison.functions.first().map_or("", String::as_str);
    files.write(function, drawn, out)?;
    for (index, snapshot) in comparison.drawn.iter().enumerate() {
        let Some(snapshot) = snapshot else { continue };
        writeln!(
            out,
            "<details><summary>{}: {}</summary>\n<table>",
            GROUPS[index].0,
            counted(snapshot.records.len(), "branch"),
        )?;
        for branch in &snapshot.records {
            rows::branch(branch, 1, None, out)?;
        }
        writeln!(out, "</table></details>")?;
    }
    writeln!(out, "</body>\n</html>")
}

/// The classes of what one group alone has.
const CLASSES: [&str; 2] = ["only-a", "only-b"];

fn write_parting(
    comparison: &GroupComparison,
    parting: &Parting,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "<section class=\"parting\">\n<h2>They part at {}{}</h2>",
        Text(&place(&parting.at)),
        Text(&when(parting, comparison.alignment)),
    )?;
    if let Some(text) = &parting.text {
        let [before, condition, after] = parting.around_condition(text);
        writeln!(
            out,
            "<pre><code>{}<mark>{}</mark>{}</code></pre>",
            Text(before.trim_start()),
            Text(condition),
            Text(after.trim_end())
        )?;
    }
    writeln!(out, "<ul class=\"groups\">")?;
    for outcome in &parting.outcomes {
        for (index, count) in outcome.snapshots.into_iter().enumerate() {
            if count > 0 {
                writeln!(
                    out,
                    "<li><b class=\"{}\">{}</b> {count} of {}: {}</li>",
                    CLASSES[index],
                    GROUPS[index].0,
                    comparison.groups[index].snapshots,
                    Text(&happens(outcome)),
                )?;
            }
        }
    }
    writeln!(out, "</ul>\n</section>")
}

/// The listings of two paths as one list: a function that both came by is there once.
fn merged([a, b]: [Vec<Listing>; 2]) -> Vec<(Listing, GroupedLines)> {
    let mut all: Vec<(Listing, GroupedLines)> = Vec::new();
    for (group, listing) in a
        .into_iter()
        .map(|one| (0, one))
        .chain(b.into_iter().map(|one| (1, one)))
    {
        let is_same = |(other, _): &&mut (Listing, GroupedLines)| {
            let key = |it: &Listing| {
                (
                    it.function.clone(),
                    it.inlined_into.clone(),
                    it.file.clone(),
                )
            };
            key(other) == key(&listing)
        };
        match all.iter_mut().find(is_same) {
            Some((into, lines)) => add(group, listing, into, lines),
            None => {
                let mut into = Listing {
                    lines: BTreeMap::new(),
                    jumps: Vec::new(),
                    ..listing.clone()
                };
                let mut lines = GroupedLines::default();
                add(group, listing, &mut into, &mut lines);
                all.push((into, lines));
            }
        }
    }
    // The traced function first.
    all.sort_by_key(|(listing, _)| !listing.is_traced);
    all
}

/// Adds what a group has of a function.
fn add(group: usize, listing: Listing, into: &mut Listing, lines: &mut GroupedLines) {
    for jump in listing.jumps {
        let known = into
            .jumps
            .iter()
            .find(|it| (it.from, it.to) == (jump.from, jump.to));
        let number = known.map_or(lines.branches.len(), |known| known.number);
        if known.is_none() {
            lines.branches.push([false; 2]);
            into.jumps.push(Jump { number, ..jump });
        }
        lines.branches[number][group] = true;
    }
    for (number, line) in listing.lines {
        let of_both = into.lines.entry(number).or_default();
        of_both.executed |= line.executed;
        of_both.text = of_both.text.take().or(line.text);
        lines.lines.entry(number).or_default()[group] |= line.executed;
        for passage in line.passages {
            let is_same =
                |it: &&Passage| (it.inwards, &it.other) == (passage.inwards, &passage.other);
            let known = of_both.passages.iter().find(is_same);
            let number = known.map_or(lines.branches.len(), |known| known.number);
            if known.is_none() {
                lines.branches.push([false; 2]);
                of_both.passages.push(Passage { number, ..passage });
            }
            lines.branches[number][group] = true;
        }
    }
}

/// Marks the line at which the groups part.
fn mark(listings: &mut [(Listing, GroupedLines)], parting: &Parting) {
    let Some(symbol) = &parting.at.symbol else {
        return;
    };
    let Some(location) = symbol.innermost() else {
        return;
    };
    let function = symbol
        .inlined
        .last()
        .map_or(symbol.base_name(), |inlined| &inlined.name);
    let is_it = |(listing, _): &&mut (Listing, GroupedLines)| {
        listing.function == function && listing.file == location.file
    };
    if let Some((_, lines)) = listings.iter_mut().find(is_it) {
        lines.parting = location.line;
    }
}
