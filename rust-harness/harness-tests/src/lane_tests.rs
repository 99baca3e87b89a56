//! Tests of the lanes other than QEMU: a machine that is reached by ssh, Arm's model as a
//! stand-in plays it, and a user's program of a single file.

mod fvp;
mod one_file;
mod ssh;

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use host::cargo;
use host::paths::Paths;
use host::process::{self, ProcessGroup};
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use report::{Artefact, Report, Verdict};

/// The tests of the other lanes.
pub fn tests() -> Vec<Batch> {
    let of = |name, check: fn(&Context<'_>) -> Result<Verdict>| {
        let test = Test {
            needs_plugin: true,
            ..Test::new(name, Scope::DEFAULT)
        };
        Batch::of_one(test, move |context, _| check(context))
    };
    let fvp = of("lane fvp: a stand-in for the model", fvp::check);
    vec![
        of("lane ssh: an sshd in a VM, over loopback", ssh::check),
        fvp.needing(|context, _| vec![stand_in(context)]),
        of("lane of one file: scripts/lanes/example", one_file::check),
    ]
}

/// The program that plays Arm's model, as an artefact.
fn stand_in<'a>(context: &Context<'a>) -> Artefact<'a> {
    let paths = context.paths;
    let program = Artefact::new("stand-in for Arm's model", || {
        cargo::stand_in(paths).map(|_| ())
    });
    program.holding(cargo::TARGET)
}

/// The result of a run of this program as a user runs it.
struct Ran {
    status: Option<i32>,
    stdout: String,
    /// What it wrote to stderr, after the path of the log that keeps it.
    stderr: String,
}

impl Ran {
    /// The report of `brbe test --json`.
    fn report(&self) -> Result<Report> {
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("no report, but {:?}\n{}", self.stdout, self.stderr))
    }

    /// Checks that all tests that ran passed, `test` among them.
    fn expect_passed(&self, test: &str) -> Result<()> {
        let report = self.report()?;
        let is_passed = matches!(report.verdict(test), Some(Verdict::Pass(_)));
        ensure!(
            self.status == Some(0) && is_passed,
            "status {:?}, and {test} was to pass:\n{}\n{}",
            self.status,
            report.table(),
            self.stderr
        );
        Ok(())
    }
}

/// The time between two checks whether it is time for Ctrl-C.
const TURN: Duration = Duration::from_millis(100);

/// Runs this program, `brbe`, with other arguments to its end. `log` is the name of the log
/// that gets its stderr.
fn brbe(paths: &Paths, log: &str, arguments: &[&str]) -> Result<Ran> {
    let program = start(paths, log, arguments)?;
    program.finish()
}

/// Runs this program as [`brbe`] does, and sends it SIGINT, as Ctrl-C does, once `is_time`
/// returns true.
fn brbe_until(
    paths: &Paths,
    log: &str,
    arguments: &[&str],
    is_time: impl Fn() -> bool,
) -> Result<Ran> {
    let mut program = start(paths, log, arguments)?;
    while !is_time() && !program.has_ended()? {
        thread::sleep(TURN);
    }
    program.interrupt()?;
    program.finish()
}

/// A run of this program as a user runs it, which has not been waited for.
struct Running {
    group: ProcessGroup,
    log: PathBuf,
}

fn start(paths: &Paths, log: &str, arguments: &[&str]) -> Result<Running> {
    let log = process::fresh(paths.log(log))?;
    let stderr = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let mut command = Command::new(process::this_program());
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(stderr);
    let group = ProcessGroup::spawn(&mut command)?;
    Ok(Running { group, log })
}

impl Running {
    fn has_ended(&mut self) -> Result<bool> {
        let status = self.group.child().try_wait().context("looking at it")?;
        Ok(status.is_some())
    }

    /// Sends SIGINT, as Ctrl-C on a terminal does, unless the program has ended.
    fn interrupt(&mut self) -> Result<()> {
        if self.has_ended()? {
            return Ok(());
        }
        let id = Pid::from_raw(self.group.child().id().cast_signed());
        kill(id, Signal::SIGINT).context("sending it SIGINT")
    }

    fn finish(mut self) -> Result<Ran> {
        let mut stdout = String::new();
        let pipe = self.group.child().stdout.take();
        let mut pipe = pipe.context("it has no output")?;
        pipe.read_to_string(&mut stdout)
            .context("reading its output")?;
        let status = self.group.wait()?.code();
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        Ok(Ran {
            status,
            stdout,
            stderr: format!("{}:\n{said}", self.log.display()),
        })
    }
}
