//! `brbe`: see the library for how it works, `brbe --help` for what it does.

use std::process::ExitCode;

use anyhow::{Context, Result};
use brbe::commands::{
    bench::Bench, ci_jobs::CiJobs, clean::Clean, prove::Prove, report::Report, snapshot::Snapshot,
    test::Test, trace::Trace,
};
use brbe::exec::{self, Interrupted};
use brbe::machine;
use brbe::places::Places;
use clap::{Parser, Subcommand};

/// bpf_get_branch_snapshot() on arm64: build it, boot it, see what it says
///
/// Everything is built with the tools of a Debian root of its own and kept below
/// BRBE_HOME (~/.cache/brbe). The guest is an unmodified QEMU, to which a plugin
/// adds Arm's Branch Record Buffer Extension (FEAT_BRBE).
#[derive(Parser, Debug)]
#[command(name = "brbe", version, after_help = EXIT_STATUS)]
struct Cli {
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

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) if error.is::<Interrupted>() || exec::interrupted() => {
            eprintln!("brbe: interrupted");
            ExitCode::from(130)
        }
        // Whoever read our output has had enough of it.
        Err(error) if error.chain().any(is_broken_pipe) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("brbe: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    let kind = match cause.downcast_ref::<serde_json::Error>() {
        Some(error) => error.io_error_kind(),
        None => cause.downcast_ref().map(std::io::Error::kind),
    };
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

/// Returns whether all is well.
fn run(command: Command) -> Result<bool> {
    match command {
        Command::Snapshot(snapshot) => snapshot.run(&prepare()?).map(|()| true),
        Command::Trace(trace) => trace.run(&prepare()?),
        Command::Test(test) => test.run(&prepare()?),
        Command::Prove(prove) => prove.run(&prepare()?),
        Command::Report(report) => report.run(),
        Command::CiJobs(jobs) => jobs.run(&prepare()?).map(|()| true),
        Command::Bench(bench) => bench.run(&prepare()?).map(|()| true),
        Command::Clean(clean) => clean.run(&prepare()?).map(|()| true),
        Command::Vm => machine::child::main().map(|()| true),
        Command::Fvp { settings } => machine::fvp::child::main(&settings).map(|()| true),
    }
}

/// From here on, Ctrl-C ends what was started first.
fn prepare() -> Result<Places> {
    ctrlc::set_handler(exec::interrupt).context("catching Ctrl-C")?;
    Places::from_env()
}
