//! The command line of `brbe`: its commands, and how they are run.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use branch_records::show::spelled_out;
use clap::{Parser, Subcommand};

use super::{
    bench::Bench, board_kit::BoardKit, ci_jobs::CiJobs, clean::Clean, export::Export, judge::Judge,
    prove::Prove, rebase::Rebase, report::ReportCommand, snapshot::SnapshotCommand, submit::Submit,
    test::TestCommand, trace::Trace, vm::Vm,
};
use host::cache::{Lock, RUNS};
use host::paths::Paths;
use host::process;
use machines::fvp::model_child;
use machines::qemu::vmtest_child;
use nix::sys::signal::{SigHandler, Signal, signal};

/// bpf_get_branch_snapshot() on arm64: build it, boot it, see what it says
///
/// Everything is built with the tools of a Debian root of its own and kept below
/// BRBE_HOME (~/.cache/brbe). Guests run in an unmodified QEMU, to which a plugin
/// adds Arm's Branch Record Buffer Extension (FEAT_BRBE).
#[derive(Parser, Debug)]
#[command(name = "brbe", version, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Parses the words of a command line, of which the first one is the program's name.
    ///
    /// # Errors
    ///
    /// When they are no command line of `brbe`, or ask for help.
    pub fn of<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Result<Self, clap::Error> {
        Self::try_parse_from(spelled_out(words.into_iter().map(Into::into)))
    }
}

const EXIT_STATUS: &str = "\
Exit status:
  0    all is well
  1    a test failed or none passed, a patch does not apply, a promise is broken, or nothing was
       recorded
  2    an option is unknown or has a wrong value, or the host lacks something
  3    any other error, such as an option that the lane does not take, or a base that there is
       not: the message says which
  130  interrupted
`./brbe vm` ends as its command does: ./brbe vm --help.

`./brbe shell [COMMAND]` runs a command, or a shell, with the same tools.";

#[derive(Subcommand, Debug)]
enum Command {
    Snapshot(SnapshotCommand),
    Trace(Trace),
    Vm(Vm),
    Export(Export),
    BoardKit(BoardKit),
    Test(TestCommand),
    Prove(Prove),
    Judge(Judge),
    Report(ReportCommand),
    CiJobs(CiJobs),
    Submit(Submit),
    Rebase(Rebase),
    Bench(Bench),
    Clean(Clean),
    /// One virtual machine: what this program runs as a process of its own.
    #[command(name = "__vm", hide = true)]
    VmChild,
    /// One run of Arm's model: what this program runs as a process of its own.
    #[command(name = "__fvp", hide = true)]
    Fvp {
        settings: String,
    },
}

impl Cli {
    /// Runs the command. Returns the exit status: success if all is well.
    ///
    /// # Errors
    ///
    /// When the command could not do its work. A test that fails is no error.
    pub fn run(self) -> Result<ExitCode> {
        let is_well = match self.command {
            Command::Vm(vm) => return with(|paths| vm.run(paths)),
            Command::Snapshot(snapshot) => with(|paths| snapshot.run(paths).map(|()| true)),
            Command::Trace(trace) => with(|paths| trace.run(paths)),
            Command::Test(test) => with(|paths| test.run(paths)),
            Command::Export(export) => with(|paths| export.run(paths).map(|()| true)),
            Command::BoardKit(kit) => with(|paths| kit.run(paths).map(|()| true)),
            Command::Judge(judge) => with(|paths| judge.run(paths)),
            Command::Prove(prove) => with(|paths| prove.run(paths)),
            Command::Report(report) => with(|paths| report.run(paths)),
            Command::CiJobs(jobs) => with(|paths| jobs.run(paths).map(|()| true)),
            Command::Submit(submit) => with(|paths| submit.run(paths)),
            Command::Rebase(rebase) => with(|paths| rebase.run(paths)),
            Command::Bench(bench) => with(|paths| bench.run(paths).map(|()| true)),
            Command::Clean(clean) => clean.run(&prepare()?).map(|()| true),
            Command::VmChild => vmtest_child::main().map(|()| true),
            Command::Fvp { settings } => model_child::main(&settings).map(|()| true),
        };
        Ok(if is_well? {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        })
    }
}

/// Calls `run`, which uses the caches. Until it returns, no `brbe clean` removes them.
fn with<T>(run: impl FnOnce(&Paths) -> Result<T>) -> Result<T> {
    let paths = prepare()?;
    let _lock = Lock::share(&paths, RUNS)?;
    run(&paths)
}

/// The paths, from the environment. From here on, Ctrl-C first ends the processes that this
/// one has started.
fn prepare() -> Result<Paths> {
    let hangup = ignore_hangup()?;
    ctrlc::set_handler(process::interrupt).context("catching Ctrl-C")?;
    // What nohup has ignored stays so.
    if matches!(hangup, SigHandler::SigIgn) {
        ignore_hangup()?;
    }
    Paths::from_env()
}

/// Has SIGHUP do nothing. Returns what it did before.
fn ignore_hangup() -> Result<SigHandler> {
    // SAFETY: the signal is ignored, and no handler of this program runs.
    let before = unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) };
    before.context("ignoring SIGHUP")
}
