//! One branch as a line of a table.

use std::fmt::Write as _;

use crate::report::{Endpoint, NamedBranch, StackFrame};
use crate::symbol::Location;

use super::words;

/// The cells of one branch.
pub(super) struct TextRow {
    number: usize,
    from: Cell,
    to: Cell,
    notes: String,
}

/// One end of a branch: the function at the address, and the functions inlined there.
struct Cell {
    name: String,
    location: String,
    /// Name and location of each inlined function.
    inlined: Vec<(String, String)>,
}

/// The widths of the columns, in characters.
#[derive(Default)]
pub(super) struct Widths {
    number: usize,
    from: [usize; 2],
    to: [usize; 2],
    notes: usize,
}

/// Where the target of a branch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    /// Beside its source.
    Beside,
    /// Below its source.
    Below,
}

/// Name and location of each function on a stack, those that were inlined before the function that
/// they were inlined into.
pub(crate) fn of_stack<'a>(frames: impl Iterator<Item = &'a StackFrame>) -> Vec<(String, String)> {
    let rows = |frame: &StackFrame| {
        let cell = Cell::new(&Endpoint {
            address: Some(frame.address),
            symbol: frame.symbol.clone(),
        });
        let inlined = cell.inlined.into_iter().rev();
        inlined.chain([(cell.name, cell.location)])
    };
    frames.flat_map(rows).collect()
}

impl Widths {
    pub(super) fn fit(&mut self, row: &TextRow) {
        self.number = self.number.max(row.number.to_string().len()).max(2);
        self.notes = self.notes.max(row.notes.chars().count());
        for (widths, cell) in [(&mut self.from, &row.from), (&mut self.to, &row.to)] {
            let lines = cell
                .inlined
                .iter()
                .map(|(name, location)| (name, location))
                .chain([(&cell.name, &cell.location)]);
            for (name, location) in lines {
                widths[0] = widths[0].max(name.chars().count());
                widths[1] = widths[1].max(location.chars().count());
            }
        }
    }

    /// Whether rows fit into a terminal of this width with both ends side by side.
    pub(super) fn sides(&self, width: Option<usize>) -> Sides {
        let ends = self.from.iter().chain(&self.to).sum::<usize>();
        let needed = "  [#] ".len() + self.number + ends + "    ->      ".len() + self.notes;
        match width {
            Some(width) if width < needed => Sides::Below,
            _ => Sides::Beside,
        }
    }
}

impl TextRow {
    /// The row of a branch that was taken `times` times.
    pub(super) fn new(branch: &NamedBranch, times: usize) -> Self {
        Self {
            number: branch.number,
            from: Cell::new(&branch.from),
            to: Cell::new(&branch.to),
            notes: words::notes(branch, times),
        }
    }

    pub(super) fn lines(&self, mark: char, widths: &Widths, sides: Sides) -> Vec<String> {
        let number = format!("[#{:0>1$}]", self.number, widths.number);
        let indent = " ".repeat(number.len());
        let lines = match sides {
            Sides::Beside => self.beside(&number, &indent, widths),
            Sides::Below => self.below(&number, &indent),
        };
        lines
            .into_iter()
            .map(|line| format!("{mark} {line}").trim_end().to_owned())
            .collect()
    }

    fn beside(&self, number: &str, indent: &str, widths: &Widths) -> Vec<String> {
        let pad = |[name, location]: [&str; 2], widths: [usize; 2]| {
            format!("{name:<0$}  {location:<1$}", widths[0], widths[1])
        };
        let mut lines = vec![format!(
            "{number} {}  ->  {}  {}",
            pad([&self.from.name, &self.from.location], widths.from),
            pad([&self.to.name, &self.to.location], widths.to),
            self.notes,
        )];
        for level in 0..self.from.inlined.len().max(self.to.inlined.len()) {
            lines.push(format!(
                "{indent} {}      {}",
                pad(self.from.inlined_at(level), widths.from),
                pad(self.to.inlined_at(level), widths.to),
            ));
        }
        lines
    }

    fn below(&self, number: &str, indent: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for (lead, cell, notes) in [(number, &self.from, ""), ("->", &self.to, &self.notes)] {
            let lead = format!("{lead:>0$}", indent.len());
            let Cell { name, location, .. } = cell;
            let parts = [name, location, notes].map(str::trim_end);
            let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            lines.push(format!("{lead} {}", parts.join("  ")));
            let inlined = cell.inlined.iter();
            lines.extend(inlined.map(|(name, location)| format!("{indent} {name}  {location}")));
        }
        lines
    }
}

impl Cell {
    fn new(end: &Endpoint) -> Self {
        let Some(symbol) = &end.symbol else {
            return Self {
                name: words::name(end),
                location: String::new(),
                inlined: Vec::new(),
            };
        };
        let mut name = symbol.place();
        // The names `bpf_prog_…` and `bpf_trampoline_…` show that the module is `bpf`.
        if let Some(module) = symbol.module.as_deref().filter(|module| *module != "bpf") {
            // A write to a String does not fail.
            let _ = write!(name, " [{module}]");
        }
        Self {
            name,
            location: source(symbol.location.as_ref()),
            inlined: symbol
                .inlined
                .iter()
                .map(|inlined| {
                    (
                        format!("  . {}", inlined.name),
                        source(inlined.location.as_ref()),
                    )
                })
                .collect(),
        }
    }

    fn inlined_at(&self, level: usize) -> [&str; 2] {
        self.inlined
            .get(level)
            .map_or(["", ""], |(name, location)| [name, location])
    }
}

fn source(location: Option<&Location>) -> String {
    location.map(words::source).unwrap_or_default()
}
