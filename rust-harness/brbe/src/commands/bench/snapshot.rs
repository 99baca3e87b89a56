//! `brbe bench snapshot`: how many instructions a snapshot takes.

use anyhow::Result;
use clap::Args;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use crate::commands::{self, KernelArgs, Subject, Variant};
use crate::cost::{self, Cost, Costs};
use crate::guest::Guest;
use crate::places::Places;

/// Snapshots of each series, in instructions
///
/// Each kernel takes snapshots on machines with 8, 16, 32 and 64 records, of a full, a
/// half full and an empty buffer. The plugin counts what is executed from the entry of
/// the driver's function to its return, and what of that with exceptions masked.
#[derive(Args, Debug)]
pub(super) struct Snapshot {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

/// What one series takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Row {
    kernel: String,
    records: u8,
    #[serde(flatten)]
    costs: Costs,
}

impl Snapshot {
    /// Runs the command.
    pub(super) fn run(&self, places: &Places) -> Result<()> {
        let first = Subject::prepare(places, &self.kernel)?;
        let mut subjects = vec![first];
        if self.kernel.series.is_none() {
            for variant in [Variant::Cheaper, Variant::Rust] {
                subjects.extend(subjects[0].with(places, variant)?);
            }
        }
        let guest = Guest::prepare(places)?;
        // One series after the other: changing the configuration takes time.
        let mut rows = Vec::new();
        for subject in &subjects {
            let title = subject.title(true);
            let kernel = subject.builder.kernel(subject.patched(), &title)?;
            for records in [8, 16, 32, 64] {
                rows.push(Row {
                    kernel: title.clone(),
                    records,
                    costs: cost::measure(places, &guest, &kernel, &title, records)?,
                });
            }
        }
        commands::print(self.json, &rows, |out| writeln!(out, "{}", table(&rows)))
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header([
        "kernel",
        "records",
        "full",
        "of the first",
        "half full",
        "empty",
    ]);
    for row in rows {
        let Costs { full, half, empty } = row.costs;
        let first = rows.iter().find(|first| first.records == row.records);
        let first = first.unwrap_or(row).costs.full.total;
        let cell = |Cost { total, masked }| format!("{total} ({masked} masked)");
        table.add_row([
            row.kernel.clone(),
            row.records.to_string(),
            cell(full),
            format!("{:.2}", full.total as f64 / first as f64),
            half.map_or_else(String::new, cell),
            cell(empty),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered() {
        let cost = |total| Cost {
            total,
            masked: total - 10,
        };
        let row = |kernel: &str, full| Row {
            kernel: kernel.to_owned(),
            records: 64,
            costs: Costs {
                full: cost(full),
                half: (full > 2000).then(|| cost(full / 2)),
                empty: cost(100),
            },
        };
        insta::assert_snapshot!(table(&[
            row("7.3.4 patched", 5000),
            row("7.3.4 cheaper", 1800)
        ]));
    }
}
