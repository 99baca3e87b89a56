//! Runs this program as a user does, to see what it prints.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use host::logs::Log;
use host::paths::Paths;
use host::process::{self, ProcessGroup};
use report::{Report, Verdict};

/// The result of a run of this program as a user runs it.
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    /// What it wrote to stderr, after the path of the log that keeps it.
    pub(crate) stderr: String,
}

impl Ran {
    /// The report of `brbe test --json`.
    pub(crate) fn report(&self) -> Result<Report> {
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("no report, but {:?}\n{}", self.stdout, self.stderr))
    }

    /// Checks that all tests that ran passed, `test` among them.
    pub(crate) fn expect_passed(&self, test: &str) -> Result<()> {
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

/// How long the program has for its end after SIGTERM.
const ENDING: Duration = Duration::from_secs(10);
/// The time between two checks whether it is time for Ctrl-C.
const TURN: Duration = Duration::from_millis(100);

/// Runs this program, `brbe`, with other arguments to its end. `log` is the name of the log
/// that gets its stderr.
pub(crate) fn brbe(paths: &Paths, log: &str, arguments: &[&str]) -> Result<Ran> {
    let program = start(paths, log, arguments)?;
    program.finish()
}

/// Runs this program as [`brbe`] does, and sends it SIGINT, as Ctrl-C does, once `is_time`
/// returns true.
pub(crate) fn brbe_until(
    paths: &Paths,
    log: &str,
    arguments: &[&str],
    is_time: impl Fn() -> bool,
) -> Result<Ran> {
    let mut program = start(paths, log, arguments)?;
    while !is_time() && !program.has_ended()? {
        thread::sleep(TURN);
    }
    program.signal(Signal::SIGINT)?;
    program.finish()
}

/// A run of this program as a user runs it, which has not been waited for.
struct Running {
    group: ProcessGroup,
    log: Log,
}

fn start(paths: &Paths, log: &str, arguments: &[&str]) -> Result<Running> {
    let log = Log::fresh(paths.log(log))?;
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

    /// Sends a signal, unless the program has ended.
    fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.has_ended()? {
            return Ok(());
        }
        let id = Pid::from_raw(self.group.child().id().cast_signed());
        kill(id, signal).with_context(|| format!("sending it {signal}"))
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

impl Drop for Running {
    /// Ends the program if it still runs. It then ends the machines that it has started, which are in
    /// process groups of their own.
    fn drop(&mut self) {
        // What is left after that is killed with its group.
        let _ = self.signal(Signal::SIGTERM);
        let _ = self.group.wait_within(ENDING);
    }
}
