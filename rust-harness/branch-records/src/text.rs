//! A report as aligned text: the path from top to bottom, the newest branch last.

use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::record::{BranchType, Cycles, Privilege};
use crate::report::{Branch, End, Report, SnapshotReport};
use crate::symbol::Location;

const MACHINERY: Style = Style::new().dimmed();
const LAST_JUMP: Style = AnsiColor::Yellow.on_default().bold();
const HEADING: Style = Style::new().bold();

/// Writes `report` with colours in it: give an `anstream` stream, which keeps
/// them on a terminal and drops them everywhere else.
///
/// # Errors
///
/// Only those of `out`.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for (index, snapshot) in report.snapshots.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_snapshot(report, snapshot, out)?;
    }
    Ok(())
}

fn write_snapshot(
    report: &Report,
    snapshot: &SnapshotReport,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{HEADING}{}() returned {}{HEADING:#}  (kernel {}, CPU {}, pid {})",
        snapshot.function,
        error_name(snapshot.return_value),
        report.kernel,
        snapshot.cpu,
        snapshot.pid,
    )?;
    if let Some(errno) = snapshot.errno {
        return writeln!(
            out,
            "no branch records: bpf_get_branch_snapshot() returned {}",
            error_name(-i64::from(errno))
        );
    }
    write_legend(report, snapshot, out)?;
    let rows: Vec<_> = snapshot.records.iter().map(Row::new).collect();
    let mut widths = Widths::default();
    rows.iter().for_each(|row| widths.fit(row));
    for (branch, row) in snapshot.records.iter().zip(&rows) {
        let (mark, style) = if branch.machinery {
            ('|', MACHINERY)
        } else if snapshot.last_jump == Some(branch.number) {
            ('>', LAST_JUMP)
        } else {
            (' ', Style::new())
        };
        for line in row.lines(mark, &widths) {
            writeln!(out, "{style}{line}{style:#}")?;
        }
    }
    Ok(())
}

fn write_legend(
    report: &Report,
    snapshot: &SnapshotReport,
    out: &mut impl Write,
) -> io::Result<()> {
    let machinery = snapshot.records.iter().filter(|b| b.machinery).count();
    let function = &snapshot.function;
    writeln!(
        out,
        "{} branch records, room for {}, the newest is #00.",
        snapshot.records.len(),
        snapshot.asked,
    )?;
    #[cfg(feature = "path")]
    writeln!(out, "The path: {}.", snapshot.path)?;
    if let Some(reason) = &report.code_missing {
        writeln!(out, "Some of the code is not known: {reason}.")?;
    }
    if machinery > 0 {
        writeln!(
            out,
            "`|` marks the {machinery} within the tracing machinery."
        )?;
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

/// The cells of one branch.
struct Row {
    number: usize,
    from: Cell,
    to: Cell,
    notes: String,
}

/// One end of a branch: what is on its own line and what is inlined there.
struct Cell {
    name: String,
    location: String,
    /// Name and location of each inlined function.
    inlined: Vec<(String, String)>,
}

/// How wide the columns are.
#[derive(Default)]
struct Widths {
    number: usize,
    from: [usize; 2],
    to: [usize; 2],
}

impl Widths {
    fn fit(&mut self, row: &Row) {
        self.number = self.number.max(row.number.to_string().len()).max(2);
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
}

impl Row {
    fn new(branch: &Branch) -> Self {
        Self {
            number: branch.number,
            from: Cell::new(&branch.from),
            to: Cell::new(&branch.to),
            notes: notes(branch),
        }
    }

    fn lines(&self, mark: char, widths: &Widths) -> Vec<String> {
        let pad = |[name, location]: [&str; 2], widths: [usize; 2]| {
            format!("{name:<0$}  {location:<1$}", widths[0], widths[1])
        };
        let number = format!("[#{:0>1$}]", self.number, widths.number);
        let mut lines = vec![format!(
            "{mark} {number} {}  ->  {}  {}",
            pad([&self.from.name, &self.from.location], widths.from),
            pad([&self.to.name, &self.to.location], widths.to),
            self.notes,
        )];
        let indent = " ".repeat(number.len());
        for level in 0..self.from.inlined.len().max(self.to.inlined.len()) {
            lines.push(format!(
                "{mark} {indent} {}      {}",
                pad(self.from.inlined_at(level), widths.from),
                pad(self.to.inlined_at(level), widths.to),
            ));
        }
        lines
            .into_iter()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }
}

impl Cell {
    fn new(end: &End) -> Self {
        let Some(symbol) = &end.symbol else {
            return Self {
                name: match end.address {
                    Some(address) => format!("{address:#x}"),
                    None => "(unknown)".to_owned(),
                },
                location: String::new(),
                inlined: Vec::new(),
            };
        };
        let mut name = format!("{}+{:#x}", symbol.name, symbol.offset);
        // `bpf_prog_…` and `bpf_trampoline_…` say themselves what they are.
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
    match location {
        Some(Location {
            file,
            line: Some(line),
        }) => format!("({file}:{line})"),
        Some(Location { file, line: None }) => format!("({file})"),
        None => String::new(),
    }
}

/// What sort of branch, and what is out of the ordinary about it.
fn notes(branch: &Branch) -> String {
    let mut notes = Vec::new();
    if branch.kind != BranchType::Unknown {
        notes.push(branch.kind.name().to_owned());
    }
    if !matches!(branch.privilege, Privilege::Kernel | Privilege::Unknown) {
        notes.push(format!("to {}", branch.privilege.name()));
    }
    if branch.mispredicted == Some(true) {
        notes.push("mispredicted".to_owned());
    }
    match branch.cycles {
        Cycles::Unknown => {}
        Cycles::Count(1) => notes.push("1 cycle".to_owned()),
        Cycles::Count(cycles) => notes.push(format!("{cycles} cycles")),
        Cycles::AtLeast(cycles) => notes.push(format!("{cycles} cycles or more")),
    }
    notes.join(", ")
}

/// A return value, and its name when it is an error that has one.
fn error_name(value: i64) -> String {
    // The numbers are the same on arm64 and x86.
    let name = match value {
        -1 => "EPERM",
        -2 => "ENOENT",
        -3 => "ESRCH",
        -4 => "EINTR",
        -5 => "EIO",
        -6 => "ENXIO",
        -7 => "E2BIG",
        -8 => "ENOEXEC",
        -9 => "EBADF",
        -11 => "EAGAIN",
        -12 => "ENOMEM",
        -13 => "EACCES",
        -14 => "EFAULT",
        -16 => "EBUSY",
        -17 => "EEXIST",
        -19 => "ENODEV",
        -20 => "ENOTDIR",
        -21 => "EISDIR",
        -22 => "EINVAL",
        -23 => "ENFILE",
        -24 => "EMFILE",
        -28 => "ENOSPC",
        -34 => "ERANGE",
        -38 => "ENOSYS",
        -95 => "EOPNOTSUPP",
        -524 => "ENOTSUPP",
        value => return value.to_string(),
    };
    format!("{value} (-{name})")
}

#[cfg(test)]
mod tests;
