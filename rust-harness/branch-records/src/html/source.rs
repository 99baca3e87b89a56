//! A function's source with the path drawn beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write};

use super::escape::Text;
use crate::listing::{Listing, ListingLine, Passage};

/// `HEIGHT` is the height of a line, as in `style.css`; `LANE` is the distance between
/// two arrows. Both are in pixels.
const HEIGHT: usize = 20;
const LANE: usize = 9;
/// The most arrows that are drawn side by side. Further ones share the outermost lane.
const MAX_LANES: usize = 12;
/// How many lines are shown before and after each line that matters.
const AROUND: u32 = 3;
/// How many lines before a function's first line with code its name is looked for.
const HEAD: u32 = 24;
/// The most lines of a function that is shown whole. Longer functions are shown in parts.
const SHORT: u32 = 60;

/// A row of the listing.
enum Row {
    Line(u32),
    /// This many lines are left out.
    Gap(u32),
}

/// An arrow that stands for the branches from one line to another.
struct Arrow {
    from: usize,
    to: usize,
    numbers: Vec<usize>,
    lane: usize,
}

/// What is drawn on a listing.
#[derive(Clone, Copy)]
pub(super) enum Drawn<'a> {
    /// The path of a snapshot. The numbers of branches are those of its records.
    Snapshot {
        /// The last jump before the function returned.
        last_jump: Option<usize>,
    },
    /// The paths of two groups.
    Groups(&'a GroupedLines),
}

/// Which of two groups has what of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupedLines {
    /// Who executed each line.
    pub(super) lines: BTreeMap<u32, [bool; 2]>,
    /// Who took each branch. The number of a branch in the listing is its index here.
    pub(super) branches: Vec<[bool; 2]>,
    /// The line at which the groups part, if it is in this listing.
    pub(super) parting: Option<u32>,
}

impl Drawn<'_> {
    /// What a note says of a branch: whose it is, if it is not of both groups, and `what`.
    fn note(self, number: usize, what: &str) -> String {
        match self {
            Self::Snapshot { .. } => format!("#{number:02} {what}"),
            Self::Groups(groups) => match groups.branches[number] {
                [true, false] => format!("A {what}"),
                [false, true] => format!("B {what}"),
                _ => what.to_owned(),
            },
        }
    }

    /// The class of a branch, or of several from and to the same lines.
    fn branch_class(self, numbers: &[usize]) -> &'static str {
        match self {
            Self::Snapshot {
                last_jump: Some(last),
            } if numbers.contains(&last) => "last",
            Self::Snapshot { .. } => "jump",
            Self::Groups(groups) => {
                let who = numbers.iter().fold([false; 2], |who, number| {
                    let others = groups.branches[*number];
                    [who[0] || others[0], who[1] || others[1]]
                });
                match who {
                    [true, false] => "jump only-a",
                    [false, true] => "jump only-b",
                    _ => "jump",
                }
            }
        }
    }

    /// The class of a line, of which this is known, and at which these branches are.
    fn line_class(
        self,
        number: u32,
        known: Option<&ListingLine>,
        branches: &[usize],
    ) -> &'static str {
        match (self, known) {
            (_, None) => "none",
            (
                Self::Snapshot {
                    last_jump: Some(last),
                },
                _,
            ) if branches.contains(&last) => "last",
            (Self::Snapshot { .. }, Some(line)) if line.executed => "executed",
            (Self::Snapshot { .. }, Some(_)) => "code",
            (Self::Groups(groups), Some(_)) => {
                let is_parting = groups.parting == Some(number);
                match groups.lines.get(&number) {
                    Some([true, true]) if is_parting => "last",
                    Some([true, true]) => "executed",
                    Some([true, false]) => "only-a",
                    Some([false, true]) => "only-b",
                    _ => "code",
                }
            }
        }
    }
}

/// A listing, and how it is to be shown.
pub(super) struct Shown<'a> {
    pub(super) listing: &'a Listing,
    /// The lines of the listing's source file, where the file is at hand.
    pub(super) file: Option<&'a [String]>,
    pub(super) drawn: Drawn<'a>,
    /// Whether the listing is unfolded when the page opens.
    pub(super) open: bool,
}

/// Writes a listing as HTML.
pub(super) fn write(shown: &Shown<'_>, out: &mut impl Write) -> io::Result<()> {
    let Shown {
        listing,
        file,
        drawn,
        open,
    } = *shown;
    let open = if open { " open" } else { "" };
    let into = match &listing.inlined_into {
        Some(function) => format!(", inlined into {function}()"),
        None => String::new(),
    };
    let has_text = file.is_some() || listing.lines.values().any(|line| line.text.is_some());
    let missing = if has_text {
        ""
    } else {
        " (the source is not at hand: --source DIR)"
    };
    writeln!(
        out,
        "<details{open}><summary><b>{}()</b> <span class=\"none\">{}{}{missing}</span></summary>",
        Text(&listing.function),
        Text(&listing.file),
        Text(&into),
    )?;
    let rows = rows(listing, file);
    let arrows = arrows(listing, &rows);
    let lanes = arrows.iter().map(|arrow| arrow.lane + 1).max().unwrap_or(0);
    let width = (lanes + 2) * LANE;
    writeln!(out, "<div class=\"source\">")?;
    draw(&arrows, rows.len(), width, drawn, out)?;
    writeln!(out, "<pre style=\"margin-left: {width}px\">")?;
    for row in &rows {
        match row {
            Row::Gap(count) => {
                writeln!(out, "<span class=\"row none\">     … {count} lines</span>")?;
            }
            Row::Line(number) => line(listing, *number, file, drawn, out)?,
        }
    }
    writeln!(out, "</pre></div></details>")
}

fn line(
    listing: &Listing,
    number: u32,
    file: Option<&[String]>,
    drawn: Drawn<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let known = listing.lines.get(&number);
    let leaves = listing.jumps.iter().filter(|jump| jump.from == number);
    let mut notes: Vec<_> = leaves
        .map(|jump| {
            (
                jump.number,
                drawn.note(jump.number, &format!("to line {}", jump.to)),
            )
        })
        .chain(known.into_iter().flat_map(|line| passages(line, drawn)))
        .collect();
    // Oldest first.
    match drawn {
        Drawn::Snapshot { .. } => notes.sort_by_key(|(number, _)| std::cmp::Reverse(*number)),
        Drawn::Groups(_) => notes.sort_by_key(|(number, _)| *number),
    }
    let branches: Vec<_> = notes.iter().map(|(number, _)| *number).collect();
    let class = drawn.line_class(number, known, &branches);
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    let of_file = file.and_then(|lines| lines.get(index.wrapping_sub(1)));
    let text = of_file.or(known.and_then(|line| line.text.as_ref()));
    let notes = together(notes.into_iter().map(|(_, note)| note).collect());
    write!(
        out,
        "<span class=\"row {class}\">{number:>5}  {}",
        Text(&text.map_or(String::new(), |text| spaced(text.trim_end())))
    )?;
    if !notes.is_empty() {
        write!(out, "<i>{}</i>", Text(&notes))?;
    }
    writeln!(out, "</span>")
}

/// Replaces tabs by spaces: the line number in front of the text would shift them.
fn spaced(text: &str) -> String {
    let mut spaced = String::new();
    for c in text.chars() {
        match c {
            '\t' => spaced.extend(std::iter::repeat_n(' ', 8 - spaced.chars().count() % 8)),
            c => spaced.push(c),
        }
    }
    spaced
}

fn passages(line: &ListingLine, drawn: Drawn<'_>) -> impl Iterator<Item = (usize, String)> {
    line.passages.iter().map(move |passage| {
        let Passage {
            number,
            inwards,
            other,
        } = passage;
        let arrow = if *inwards { "from" } else { "to" };
        (*number, drawn.note(*number, &format!("{arrow} {other}")))
    })
}

/// Joins the notes of a line. Of more than four, only the first and the last are shown.
fn together(notes: Vec<String>) -> String {
    match &notes[..] {
        [first, .., last] if notes.len() > 4 => {
            format!("{first}, … {} more …, {last}", notes.len() - 2)
        }
        notes => notes.join(", "),
    }
}

/// The rows that are shown of a listing. A short function is shown whole. Of a longer
/// one, its first line is shown, and the lines that matter with some around them. Where
/// the file is not at hand, the lines with code are shown.
fn rows(listing: &Listing, file: Option<&[String]>) -> Vec<Row> {
    let numbers = || listing.lines.keys().copied();
    let (Some(first), Some(last)) = (numbers().min(), numbers().max()) else {
        return Vec::new();
    };
    let Some(file) = file else {
        return numbers().map(Row::Line).collect();
    };
    let first = head(&listing.function, first, file);
    let end = u32::try_from(file.len()).unwrap_or(u32::MAX);
    let last = if last.saturating_add(1) <= end {
        last + 1
    } else {
        last
    };
    let is_short = last - first <= SHORT;
    let matters = |number: &u32| {
        let line = listing.lines.get(number);
        line.is_some_and(|line| line.executed || !line.passages.is_empty())
            || listing.jumps.iter().any(|jump| jump.to == *number)
    };
    let around = |number: u32| number.saturating_sub(AROUND)..=number.saturating_add(AROUND);
    let mut shown: BTreeSet<u32> = if is_short {
        (first..=last).collect()
    } else {
        numbers().filter(matters).flat_map(around).collect()
    };
    shown.insert(first);
    shown.retain(|number| (first..=last).contains(number));
    let mut rows = Vec::new();
    let mut before: Option<u32> = None;
    for number in shown {
        let gap = before.map_or(0, |before| number - before - 1);
        if gap > 0 {
            rows.push(Row::Gap(gap));
        }
        rows.push(Row::Line(number));
        before = Some(number);
    }
    let gap = before.map_or(0, |before| last - before);
    if gap > 0 {
        rows.push(Row::Gap(gap));
    }
    rows
}

/// The number of the line where a function is declared, if that is found right before its
/// code; otherwise `first`.
fn head(function: &str, first: u32, file: &[String]) -> u32 {
    let name = format!("{function}(");
    let begins = |number: &u32| {
        let line = file.get(*number as usize - 1);
        line.is_some_and(|line| {
            !line.starts_with([' ', '\t', '*', '#', '/']) && line.contains(&name)
        })
    };
    let before = first.saturating_sub(HEAD).max(1)..=first;
    before.rev().find(begins).unwrap_or(first)
}

/// The jumps of a listing as arrows from row to row. Arrows that overlap are side by
/// side.
fn arrows(listing: &Listing, rows: &[Row]) -> Vec<Arrow> {
    let row: BTreeMap<u32, usize> = rows
        .iter()
        .enumerate()
        .filter_map(|(index, row)| match row {
            Row::Line(number) => Some((*number, index)),
            Row::Gap(_) => None,
        })
        .collect();
    let mut numbers: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for jump in &listing.jumps {
        if let (Some(from), Some(to)) = (row.get(&jump.from), row.get(&jump.to)) {
            numbers.entry((*from, *to)).or_default().push(jump.number);
        }
    }
    let arrow = |((from, to), numbers)| Arrow {
        from,
        to,
        numbers,
        lane: 0,
    };
    let mut arrows: Vec<_> = numbers.into_iter().map(arrow).collect();
    // Short arrows come first, and so lie inside.
    arrows.sort_by_key(|arrow| arrow.from.abs_diff(arrow.to));
    for index in 0..arrows.len() {
        let (before, rest) = arrows.split_at_mut(index);
        let meets = |other: &&Arrow| {
            let [a, b] = [&rest[0], *other].map(|x| (x.from.min(x.to), x.from.max(x.to)));
            a.0 <= b.1 && b.0 <= a.1
        };
        let taken: BTreeSet<_> = before
            .iter()
            .filter(meets)
            .map(|other| other.lane)
            .collect();
        let free = (0..MAX_LANES).find(|lane| !taken.contains(lane));
        rest[0].lane = free.unwrap_or(MAX_LANES - 1);
    }
    arrows
}

fn draw(
    arrows: &[Arrow],
    rows: usize,
    width: usize,
    drawn: Drawn<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut svg = String::new();
    for arrow in arrows {
        let class = drawn.branch_class(&arrow.numbers);
        let middle = |row: usize| row * HEIGHT + HEIGHT / 2;
        let (from, to) = (middle(arrow.from), middle(arrow.to));
        // An arrow leaves a line lower than it arrives at one, so that the two do not
        // coincide.
        let (from, to) = (from + 3, to - 3);
        let right = width - 2;
        let left = right.saturating_sub((arrow.lane + 1) * LANE);
        let numbers: Vec<_> = arrow.numbers.iter().map(|n| drawn.note(*n, "")).collect();
        let numbers: Vec<_> = numbers.iter().map(|note| note.trim_end()).collect();
        // A write to a String does not fail.
        let _ = write!(
            svg,
            "<g class=\"{class}\"><title>{}</title><path d=\"M{right} {from}H{left}V{to}H{right}\"/>\
             <path class=\"head\" d=\"M{right} {to}l-6 -3.5v7z\"/></g>",
            numbers.join(", ")
        );
    }
    writeln!(
        out,
        "<svg width=\"{width}\" height=\"{}\">{svg}</svg>",
        rows * HEIGHT
    )
}
