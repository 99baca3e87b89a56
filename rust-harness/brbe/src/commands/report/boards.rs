//! What a board says, beside what another machine says.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use board_kit::compare::{self, ComparedRow, Section};
use board_kit::kit::EMULATED;
use guest_reports::board::BoardReport;

use super::Format;
use crate::commands::print;
use host::paths::Paths;
use kernel_tests::kept_figures;

/// The path of a file, and its text.
type Document<'a> = (&'a Path, String);

/// Prints what a board says in the document `board`, beside what the machine of the document
/// `other` says, or the emulated machine.
pub(super) fn report(
    paths: &Paths,
    board: &Document<'_>,
    other: Option<&Document<'_>>,
    format: Format,
) -> Result<()> {
    let is_json = match format {
        Format::Table => false,
        Format::Json => true,
        _ => bail!(
            "what a board says is printed as a table or as JSON: --format table, --format json"
        ),
    };
    let board = read(board)?;
    let (other, name) = match other {
        Some(other) => (read(other)?, "the other machine"),
        None => (
            kept_figures::known(paths, EMULATED)?,
            "the emulated machine",
        ),
    };
    let sections = compare::sections(&board, &other);
    print(is_json, &sections, |out| {
        for section in &sections {
            writeln!(out, "{}", table(section, name))?;
        }
        let rows = sections.iter().flat_map(|section| &section.rows);
        let differences = rows.filter(|row| row.differs).count();
        writeln!(
            out,
            "{differences} rows that are to be alike differ (marked ≠)"
        )
    })
}

fn read((path, text): &Document<'_>) -> Result<BoardReport> {
    let report = BoardReport::read(text.as_bytes());
    report.with_context(|| format!("in {}", path.display()))
}

fn table(section: &Section, other: &str) -> String {
    let mut table = report::table([section.about, "", "the board", other]);
    for ComparedRow {
        what,
        board,
        other,
        differs,
    } in &section.rows
    {
        let mark = if *differs { "≠" } else { "" };
        table.add_row([what, mark, board, other]);
    }
    table.to_string()
}
