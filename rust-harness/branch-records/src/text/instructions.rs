//! The path as the instructions that were executed, below the source lines that they belong to.

use std::collections::HashMap;
use std::io::{self, Write};

use anstyle::Style;

use super::{TextForm, words, write_each};
use crate::instructions::ExecutedInstruction;
use crate::report::{NamedBranch, TraceReport};
use crate::sources::{self, Sources};
use crate::symbol::{Location, Symbol};

const SOURCE: Style = Style::new().dimmed();

/// Writes `report`, which has instructions, as text with colours. `sources` is asked for the text
/// of each source file.
///
/// # Errors
///
/// When writing to `out` fails.
pub(crate) fn write(
    report: &TraceReport,
    form: TextForm,
    sources: &Sources<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut lines = SourceLines {
        sources,
        known: HashMap::new(),
    };
    write_each(report, form, out, &mut |branches, look, out| {
        let mut listing = Listing {
            lines: &mut lines,
            width: form.width.unwrap_or(usize::MAX),
            shown: None,
            out,
        };
        for (branch, times) in branches {
            listing.branch(branch, *times, look(branch))?;
        }
        Ok(())
    })
}

/// The texts of source lines. Each is looked up once.
struct SourceLines<'a> {
    sources: &'a Sources<'a>,
    known: HashMap<(String, u32), Option<String>>,
}

impl SourceLines<'_> {
    fn text(&mut self, location: &Location) -> Option<String> {
        let key = (location.file.clone(), location.line?);
        let look_up = || sources::line(self.sources, location);
        self.known.entry(key).or_insert_with(look_up).clone()
    }
}

struct Listing<'a, 'b> {
    lines: &'a mut SourceLines<'b>,
    width: usize,
    /// The source line that the last instruction belongs to, as it was shown.
    shown: Option<String>,
    out: &'a mut dyn Write,
}

impl Listing<'_, '_> {
    fn branch(
        &mut self,
        branch: &NamedBranch,
        times: usize,
        (mark, style): (char, Style),
    ) -> io::Result<()> {
        let number = format!("[#{:02}]", branch.number);
        let notes = words::notes(branch, times);
        let from = branch.from.address;
        let last = branch.instructions.len().checked_sub(1);
        for (index, instruction) in branch.instructions.iter().enumerate() {
            if instruction.after_gap {
                self.shown = None;
                writeln!(self.out, "         …")?;
            }
            self.source(instruction)?;
            let place = place(instruction);
            let is_last = last == Some(index);
            if !is_last || !from.is_some_and(|from| instruction.branches(from)) {
                writeln!(self.out, "  {place:>8}  {}", instruction.text)?;
                continue;
            }
            let target = if instruction.encoding.has_target() {
                String::new()
            } else {
                format!(" -> {}", words::name(&branch.to))
            };
            let line = format!(
                "{place:>8}  {:<30}  {number}{target}  {notes}",
                instruction.text
            );
            writeln!(self.out, "{mark} {style}{}{style:#}", line.trim_end())?;
        }
        let last = branch.instructions.last();
        if !from.is_some_and(|from| last.is_some_and(|last| last.branches(from))) {
            // An exception, or code that the capture does not hold.
            self.shown = None;
            let (from, to) = (words::name(&branch.from), words::name(&branch.to));
            let line = format!("{number} {from} -> {to}  {notes}");
            writeln!(self.out, "{mark} {style}{}{style:#}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes the source line of an instruction, unless the instruction before belongs to it, too.
    fn source(&mut self, instruction: &ExecutedInstruction) -> io::Result<()> {
        let Some(symbol) = &instruction.symbol else {
            self.shown = None;
            return Ok(());
        };
        let mut line = function(symbol);
        if let Some(location) = symbol.innermost() {
            line += &format!("  {}", words::source(location));
            if let Some(text) = self.lines.text(location) {
                line += &format!("  {}", text.trim());
            }
        }
        if self.shown.as_ref() != Some(&line) {
            let cut: String = line.chars().take(self.width).collect();
            writeln!(self.out, "{SOURCE}{}{SOURCE:#}", cut.trim_end())?;
            self.shown = Some(line);
        }
        Ok(())
    }
}

/// The function that a source line is in, with the function that it was inlined into.
fn function(symbol: &Symbol) -> String {
    let module = symbol.module.as_deref().filter(|module| *module != "bpf");
    let module = module.map_or(String::new(), |module| format!(" [{module}]"));
    match symbol.inlined.last() {
        Some(inlined) => format!("{} in {}{module}", inlined.name, symbol.name),
        None => format!("{}{module}", symbol.name),
    }
}

/// Where an instruction is in its function.
fn place(instruction: &ExecutedInstruction) -> String {
    match &instruction.symbol {
        Some(symbol) => format!("+{:#x}", symbol.offset),
        None => format!("{:#x}", instruction.address),
    }
}
