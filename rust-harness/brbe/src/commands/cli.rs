//! The command line.

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use super::{
    bench::Bench, ci_jobs::CiJobs, clean::Clean, prove::Prove, rebase::Rebase, report::Report,
    snapshot::Snapshot, submit::Submit, test::Test, trace::Trace,
};
use crate::cache::{Lock, RUNS};
use crate::exec;
use crate::machine;
use crate::places::Places;

/// bpf_get_branch_snapshot() on arm64: build it, boot it, see what it says
///
/// Everything is built with the tools of a Debian root of its own and kept below
/// BRBE_HOME (~/.cache/brbe). The guest is an unmodified QEMU, to which a plugin
/// adds Arm's Branch Record Buffer Extension (FEAT_BRBE).
#[derive(Parser, Debug)]
#[command(name = "brbe", version, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUS: &str = "\
Exit status:
  0    all is well
  1    a test failed
  2    the command line is wrong, or the host lacks something
  3    something else went wrong: the message says what
  130  interrupted

`./brbe shell [COMMAND]` runs a command, or a shell, with the same tools.";

#[derive(Subcommand, Debug)]
enum Command {
    Snapshot(Snapshot),
    Trace(Trace),
    Test(Test),
    Prove(Prove),
    Report(Report),
    CiJobs(CiJobs),
    Submit(Submit),
    Rebase(Rebase),
    Bench(Bench),
    Clean(Clean),
    /// One virtual machine: what this program runs as a process of its own.
    #[command(name = "__vm", hide = true)]
    Vm,
    /// One run of Arm's model, the same.
    #[command(name = "__fvp", hide = true)]
    Fvp {
        settings: String,
    },
}

impl Cli {
    /// Runs the command. Returns whether all is well.
    ///
    /// # Errors
    ///
    /// When something else went wrong.
    pub fn run(self) -> Result<bool> {
        match self.command {
            Command::Snapshot(snapshot) => with(|places| snapshot.run(places).map(|()| true)),
            Command::Trace(trace) => with(|places| trace.run(places)),
            Command::Test(test) => with(|places| test.run(places)),
            Command::Prove(prove) => with(|places| prove.run(places)),
            Command::Report(report) => report.run(),
            Command::CiJobs(jobs) => with(|places| jobs.run(places).map(|()| true)),
            Command::Submit(submit) => with(|places| submit.run(places)),
            Command::Rebase(rebase) => with(|places| rebase.run(places)),
            Command::Bench(bench) => with(|places| bench.run(places).map(|()| true)),
            Command::Clean(clean) => clean.run(&prepare()?).map(|()| true),
            Command::Vm => machine::child::main().map(|()| true),
            Command::Fvp { settings } => machine::fvp::child::main(&settings).map(|()| true),
        }
    }
}

/// Runs what uses the caches: while it does, nobody clears them.
fn with(run: impl FnOnce(&Places) -> Result<bool>) -> Result<bool> {
    let places = prepare()?;
    let _lock = Lock::share(&places, RUNS)?;
    run(&places)
}

/// From here on, Ctrl-C ends what was started first.
fn prepare() -> Result<Places> {
    ctrlc::set_handler(exec::interrupt).context("catching Ctrl-C")?;
    Places::from_env()
}
