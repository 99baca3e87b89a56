//! `brbe bench plugin`: how much slower QEMU is with the plugin.

use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde::{Deserialize, Serialize};

use crate::commands::{self, KernelArgs};
use host::paths::Paths;
use kernels::kernel::Kernel;
use kernels::subject::Subject;
use machines::guest::{self, Guest, Task};
use machines::machine_spec::MachineSpec;

/// The plugin against the same QEMU without it
///
/// The same kernel boots with and without the plugin, in turns, and runs loops
/// full of branches: one sorts, the other calls functions through a table. The
/// fastest of each counts.
#[derive(Args, Debug)]
pub(super) struct BenchPlugin {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Boots of each kind
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,

    /// Print the ratios as JSON
    #[arg(long)]
    json: bool,
}

/// The times of the guest's loops in nanoseconds, as the guest prints them.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Loops {
    sort: f64,
    calls: f64,
}

impl Loops {
    const SLOWEST: Self = Self {
        sort: f64::MAX,
        calls: f64::MAX,
    };

    fn faster(self, other: Self) -> Self {
        Self {
            sort: self.sort.min(other.sort),
            calls: self.calls.min(other.calls),
        }
    }
}

/// How many times as long something takes with the plugin as without it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Ratio {
    what: &'static str,
    ratio: f64,
    /// The most that the ratio is meant to be.
    limit: f64,
}

impl BenchPlugin {
    /// Runs the command.
    pub(super) fn run(&self, paths: &Paths) -> Result<()> {
        let subject = Subject::prepare(paths, &self.kernel.choice())?;
        let title = subject.title(true);
        let kernel = subject.builder().kernel(subject.patched(), &title)?;
        let guest = Guest::in_qemu(paths);
        let ratios = self.measure(&guest, &kernel)?;
        commands::print(self.json, &ratios, |out| {
            writeln!(out, "{}", table(&ratios))
        })
    }

    fn measure(&self, guest: &Guest, kernel: &Kernel) -> Result<Vec<Ratio>> {
        let stock = MachineSpec {
            plugin: None,
            ..MachineSpec::default()
        };
        let (mut boot, mut idle_boot) = (f64::MAX, f64::MAX);
        let (mut without, mut idle, mut recording) =
            (Loops::SLOWEST, Loops::SLOWEST, Loops::SLOWEST);
        for round in 1..=self.rounds {
            let of = format!("{round} of {}", self.rounds);
            let boot_with = |machine: &MachineSpec, name: &str, command: &str| {
                measure(guest, kernel, machine, &format!("{name}, {of}"), command)
            };
            let (time, loops) = boot_with(&stock, "without the plugin", "./branch-guest loops")?;
            let [loops] = loops[..] else {
                anyhow::bail!("the guest printed {} times instead of one", loops.len())
            };
            boot = boot.min(time);
            without = without.faster(loops);
            let both = "./branch-guest loops && ./branch-guest loops --record";
            let (time, loops) = boot_with(&MachineSpec::default(), "with the plugin", both)?;
            let [first, second] = loops[..] else {
                anyhow::bail!("the guest printed {} times instead of two", loops.len())
            };
            idle_boot = idle_boot.min(time);
            idle = idle.faster(first);
            recording = recording.faster(second);
        }
        let ratio = |what, with: f64, without: f64, limit| Ratio {
            what,
            ratio: with / without,
            limit,
        };
        Ok(vec![
            ratio("boot, nothing recorded", idle_boot, boot, 1.3),
            ratio("sorting, nothing recorded", idle.sort, without.sort, 1.3),
            ratio("calling, nothing recorded", idle.calls, without.calls, 1.3),
            ratio("sorting, recorded", recording.sort, without.sort, 3.0),
            ratio("calling, recorded", recording.calls, without.calls, 3.0),
        ])
    }
}

/// Boots once. Returns the seconds until the kernel starts the first program, and the times
/// of the loops.
fn measure(
    guest: &Guest,
    kernel: &Kernel,
    machine: &MachineSpec,
    name: &str,
    command: &str,
) -> Result<(f64, Vec<Loops>)> {
    let share = guest.share()?;
    let task = Task {
        name,
        command,
        share: &share,
        timeout: guest::TIMEOUT,
    };
    let run = guest.run(kernel, machine, &task)?;
    let status = guest::status(&run)?;
    ensure!(
        status == 0,
        "the loops ended with {status}:\n{}",
        run.output
    );
    let console = fs::read_to_string(&run.console)
        .with_context(|| format!("reading {}", run.console.display()))?;
    let boot = booted(&console).context("the console does not show when the boot was over")?;
    let loops = run.output.lines().filter(|line| line.starts_with('{'));
    let loops = loops
        .map(|line| serde_json::from_str(line).context("reading the guest's times"))
        .collect::<Result<_>>()?;
    Ok((boot, loops))
}

/// The seconds until the kernel starts the first program, from a line of the console:
/// `[    1.077137] Run /init as init process`.
fn booted(console: &str) -> Option<f64> {
    let line = console
        .lines()
        .find(|line| line.ends_with(" as init process"))?;
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']')?.0.trim().parse().ok()
}

fn table(ratios: &[Ratio]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header([
        "with the plugin",
        "ratio",
        "meant to be at most",
    ]);
    for Ratio { what, ratio, limit } in ratios {
        table.add_row([
            (*what).to_owned(),
            format!("{ratio:.2}"),
            format!("{limit:.1}"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_shows_when_the_boot_was_over() {
        let console = "[    0.9] x\n[    1.077137] Run /tmp/i.sh as init process\n[    2.0] y\n";
        assert_eq!(booted(console), Some(1.077_137));
        assert_eq!(booted("[ 1.0] Kernel panic"), None);
        assert_eq!(booted("] as init process"), None);
    }

    #[test]
    fn rendered() {
        let ratio = Ratio {
            what: "boot",
            ratio: 1.234,
            limit: 1.3,
        };
        insta::assert_snapshot!(table(&[ratio]), @r"
        ┌─────────────────┬───────┬─────────────────────┐
        │ with the plugin ┆ ratio ┆ meant to be at most │
        ╞═════════════════╪═══════╪═════════════════════╡
        │ boot            ┆ 1.23  ┆ 1.3                 │
        └─────────────────┴───────┴─────────────────────┘
        ");
    }
}
