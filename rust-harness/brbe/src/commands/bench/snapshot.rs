//! `brbe bench snapshot`: how many instructions a snapshot takes.

use anyhow::Result;
use clap::Args;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use crate::commands::{self, KernelArgs, Subject};
use crate::cost;
use crate::guest::Guest;
use crate::places::Places;

/// The snapshot in C and in Rust, in instructions
///
/// Both kernels take snapshots on machines with 8, 16, 32 and 64 records, and the
/// plugin counts what is executed from the entry of the driver's function to its
/// return. Full ones count.
#[derive(Args, Debug)]
pub(super) struct Snapshot {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

/// Instructions of a full snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Row {
    records: u8,
    c: u64,
    rust: Option<u64>,
}

impl Snapshot {
    /// Runs the command.
    pub(super) fn run(&self, places: &Places) -> Result<()> {
        let in_c = Subject::prepare(places, &self.kernel)?;
        let in_rust = in_c.in_rust(places)?;
        let guest = Guest::prepare(places)?;
        let count = |subject: &Subject, records| {
            let title = subject.title(true);
            let kernel = subject.builder.kernel(subject.patched(), &title)?;
            cost::instructions(places, &guest, &kernel, &title, records)
        };
        // One language after the other: changing the configuration takes time.
        let mut rows = Vec::new();
        for records in [8, 16, 32, 64] {
            let c = count(&in_c, records)?;
            let rust = None;
            rows.push(Row { records, c, rust });
        }
        if let Some(in_rust) = &in_rust {
            for row in &mut rows {
                row.rust = Some(count(in_rust, row.records)?);
            }
        }
        commands::print(self.json, &rows, |out| writeln!(out, "{}", table(&rows)))
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header([
        "records",
        "instructions in C",
        "in Rust",
        "Rust / C",
    ]);
    for row in rows {
        let ratio = |rust: u64| format!("{:.2}", rust as f64 / row.c as f64);
        table.add_row([
            row.records.to_string(),
            row.c.to_string(),
            row.rust.map_or_else(String::new, |rust| rust.to_string()),
            row.rust.map_or_else(String::new, ratio),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered() {
        let row = |records, c, rust| Row { records, c, rust };
        insta::assert_snapshot!(table(&[row(8, 1000, Some(1050)), row(64, 4000, None)]));
    }
}
