//! `brbe bench tiers`: how long the tests of each tier take, here and on machines with more CPUs.

use std::io::Seek as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Args;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use crate::commands::{self, test};
use host::cpu_time::CpuTime;
use host::paths::Paths;
use host::process::{self, ProcessGroup};
use report::{History, Report, Simulated, Tier};

/// How many tasks at once are simulated.
const AT_ONCE: [usize; 5] = [2, 4, 8, 16, 32];

/// `./brbe test` with each tier, seconds and the use of the CPUs
///
/// A run is warm if nothing had to be built: run this command twice. Then each tier is
/// simulated with more CPUs: each test as long as it took in its last run here, however many run
/// beside it, and no kernel and no program to be built.
#[derive(Args, Debug)]
pub(super) struct Tiers {
    /// Run the tiers up to this one
    #[arg(long, value_name = "TIER", value_parser = test::tier(), default_value = "full")]
    up_to: Tier,

    /// Run nothing: simulate with what the last runs took
    #[arg(long)]
    simulate: bool,

    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// The figures of a tier.
#[derive(Debug, Serialize)]
struct Measured {
    tier: &'static str,
    /// How many tests the tier has.
    tests: usize,
    /// The run. `None` if it was only simulated.
    run: Option<MeasuredRun>,
    simulated: Vec<Simulated>,
}

/// A run of a tier.
#[derive(Debug, Serialize)]
struct MeasuredRun {
    seconds: f64,
    /// The share of the time in which a CPU of this machine had something to do, from 0 to 1.
    cpu_use: f64,
    passed: usize,
    failed: usize,
    skipped: usize,
    retries: u32,
}

impl Tiers {
    /// Runs the command.
    pub(super) fn run(&self, paths: &Paths) -> Result<()> {
        let tiers = Tier::EACH.into_iter().filter(|tier| *tier <= self.up_to);
        let mut measured = Vec::new();
        for tier in tiers {
            let run = (!self.simulate).then(|| run(tier)).transpose()?;
            let history = History::load(paths)?;
            let (tests, simulated) = test::with_plan(paths, tier, |plan| {
                let tests = plan.lines().len();
                (tests, plan.simulate(history.last(), &AT_ONCE))
            })?;
            measured.push(Measured {
                tier: tier.name(),
                tests,
                run,
                simulated,
            });
        }
        commands::print(self.json, &measured, |out| {
            writeln!(out, "{}", table(&measured))
        })
    }
}

/// Runs the tests of a tier.
fn run(tier: Tier) -> Result<MeasuredRun> {
    let mut command = Command::new(process::this_program());
    command.args(["test", "--json", "--unrecorded", "--tier", tier.name()]);
    let mut printed = tempfile::tempfile().context("a file for the report")?;
    let stdout = printed.try_clone().context("a file for the report")?;
    command.stdin(Stdio::null()).stdout(stdout);
    let (start, before) = (Instant::now(), CpuTime::now()?);
    ProcessGroup::spawn(&mut command)?.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_use = CpuTime::now()?.use_since(&before);
    printed.rewind().context("reading the report")?;
    let report: Report = serde_json::from_reader(printed)
        .with_context(|| format!("the tests of the tier {tier} ended without a report"))?;
    let (passed, failed, skipped) = report.counts();
    Ok(MeasuredRun {
        seconds,
        cpu_use,
        passed,
        failed,
        skipped,
        retries: report.retries(),
    })
}

fn table(measured: &[Measured]) -> Table {
    let minutes = |seconds: f64| format!("{:.1} min", seconds / 60.0);
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    let mut header = [
        "tier",
        "tests",
        "here",
        "CPUs used",
        "verdicts",
        "longest path",
    ]
    .map(str::to_owned)
    .to_vec();
    header.extend(AT_ONCE.map(|at_once| format!("{at_once} at once")));
    table.set_header(header);
    for tier in measured {
        let run = tier.run.as_ref();
        let verdicts = |run: &MeasuredRun| {
            format!(
                "{} passed, {} failed, {} skipped, {} retries",
                run.passed, run.failed, run.skipped, run.retries
            )
        };
        let longest = tier
            .simulated
            .first()
            .map(|simulated| simulated.longest_path);
        let mut row = vec![
            tier.tier.to_owned(),
            tier.tests.to_string(),
            run.map(|run| minutes(run.seconds)).unwrap_or_default(),
            run.map(|run| format!("{:.0} %", 100.0 * run.cpu_use))
                .unwrap_or_default(),
            run.map(verdicts).unwrap_or_default(),
            longest.map(minutes).unwrap_or_default(),
        ];
        row.extend(
            tier.simulated
                .iter()
                .map(|simulated| minutes(simulated.seconds)),
        );
        table.add_row(row);
    }
    table
}
