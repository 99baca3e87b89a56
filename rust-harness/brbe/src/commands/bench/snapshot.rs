//! `brbe bench snapshot`: how many instructions a snapshot takes.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};

use crate::commands::given::GivenArgs;
use crate::commands::{self, KernelArgs};
use host::arch::Arch;
use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::cost::{self, Cost, Costs, Measured, RECORDS};
use kernel_tests::kept_figures;
use kernels::requirements::MachineNeeds;
use kernels::subject::{Configuration, Subject};
use kernels::variant::Variant;
use machines::guest::Guest;

/// Snapshots of the series snapshot, cheaper and rust, in instructions
///
/// Each kernel takes snapshots on machines with 8, 16, 32 and 64 records, of a full, a
/// half full and an empty buffer. The plugin counts what is executed from the entry of
/// the driver's function to its return, and what of that with exceptions masked.
#[derive(Args, Debug)]
pub(super) struct BenchSnapshot {
    #[command(flatten)]
    kernel: KernelArgs,

    #[command(flatten)]
    given: GivenArgs,

    /// Keep the counts in Documentation/cost.json, for cover letters, and make the tables of
    /// Documentation/cost.md anew
    #[arg(long, conflicts_with_all = ["kernel_src", "image"])]
    write: bool,

    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

impl BenchSnapshot {
    /// Runs the command.
    pub(super) fn run(&self, paths: &Paths) -> Result<()> {
        let guest = Guest::in_qemu(paths);
        let given = self.given.open(MachineNeeds::of_tests(Arch::Arm64))?;
        let subjects = match given {
            Some(_) => Vec::new(),
            None => self.subjects(paths)?,
        };
        let of_subjects = subjects
            .iter()
            .map(|subject| Context::patched(paths, &guest, subject));
        let of_given = given
            .iter()
            .map(|given| Context::given(paths, &guest, given));
        // One series after the other: changing the configuration takes time.
        let mut rows = Vec::new();
        for context in of_subjects.chain(of_given) {
            for records in RECORDS {
                rows.push(Measured {
                    kernel: context.title.clone(),
                    records,
                    costs: cost::measure(&context, Configuration::Ordinary, records)?,
                });
            }
        }
        if self.write {
            write(paths, &rows)?;
        }
        commands::print(self.json, &rows, |out| writeln!(out, "{}", table(&rows)))
    }

    /// The series whose snapshots are measured.
    fn subjects(&self, paths: &Paths) -> Result<Vec<Subject>> {
        let mut subjects = vec![Subject::prepare(paths, &self.kernel.choice())?];
        if self.kernel.series.is_none() {
            for variant in [Variant::Cheaper, Variant::Rust] {
                subjects.extend(subjects[0].with(paths, variant)?);
            }
        }
        Ok(subjects)
    }
}

/// Keeps the counts in `Documentation/cost.json`, in the place of those of the same kernels,
/// and makes the tables of `Documentation/cost.md` anew.
fn write(paths: &Paths, rows: &[Measured]) -> Result<()> {
    let mut all = cost::known(paths)?;
    all.retain(|known| !rows.iter().any(|row| row.kernel == known.kernel));
    all.extend_from_slice(rows);
    all.sort_by(|a, b| (&a.kernel, a.records).cmp(&(&b.kernel, b.records)));
    kept_figures::keep(paths, cost::KNOWN, &all)?;
    let command = "./brbe bench snapshot --write";
    kept_figures::replace(paths, "Documentation/cost.md", command, &document(&all))
}

/// The tables of `Documentation/cost.md`, one for each kernel.
fn document(all: &[Measured]) -> String {
    let mut text = String::new();
    for kernel in all.chunk_by(|a, b| a.kernel == b.kernel) {
        let _ = writeln!(
            text,
            "## {}\n\n| records | full | half full | empty |\n|---|---|---|---|",
            kernel[0].kernel
        );
        for Measured { records, costs, .. } in kernel {
            let Costs { full, half, empty } = *costs;
            let half = half.map_or_else(String::new, counts);
            let cells = [counts(full), half, counts(empty)];
            let _ = writeln!(text, "| {records} | {} |", cells.join(" | "));
        }
        text.push('\n');
    }
    text
}

fn counts(cost: Cost) -> String {
    let Cost { total, masked } = cost;
    format!("{total} ({masked} masked)")
}

fn table(rows: &[Measured]) -> Table {
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
        table.add_row([
            row.kernel.clone(),
            row.records.to_string(),
            counts(full),
            format!("{:.2}", full.total as f64 / first as f64),
            half.map_or_else(String::new, counts),
            counts(empty),
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
        let row = |kernel: &str, full| Measured {
            kernel: kernel.to_owned(),
            records: 64,
            costs: Costs {
                full: cost(full),
                half: (full > 2000).then(|| cost(full / 2)),
                empty: cost(100),
            },
        };
        let rows = [row("7.3.4 patched", 5000), row("7.3.4 cheaper", 1800)];
        insta::assert_snapshot!(table(&rows));
        insta::assert_snapshot!(document(&rows));
    }
}
