//! The other lanes: over ssh, on Arm's model as a stand-in plays it, and one that is a
//! program of a single file.

mod fvp;
mod one_file;
mod ssh;

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use host::paths::Paths;
use host::process::{self, Group};
use kernels::kernel::Kernel;
use kernels::subject::Subject;
use machines::guest::Guest;
use report::Job;
use report::{Report, Verdict};

/// On a patched kernel.
pub fn jobs<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    kernel: &'a Kernel,
    subject: &'a Subject,
) -> Vec<Job<'a>> {
    let title = subject.title(true);
    let name = title.clone();
    vec![
        Job::new(
            &title,
            "lane ssh: an sshd in a VM, over loopback",
            move || ssh::check(paths, guest, kernel, &name),
        ),
        Job::new(&title, "lane fvp: a stand-in for the model", move || {
            fvp::check(paths, kernel, subject)
        }),
        Job::new(
            &title,
            "lane of one file: scripts/lanes/example",
            move || one_file::check(paths, kernel, subject),
        ),
    ]
}

/// What this program did, run as a user runs it.
struct Ran {
    status: Option<i32>,
    stdout: String,
    /// With the log's name before it.
    stderr: String,
}

impl Ran {
    /// The report of `brbe test --json`.
    fn report(&self) -> Result<Report> {
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("no report, but {:?}\n{}", self.stdout, self.stderr))
    }

    /// All tests that ran passed, this one among them.
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

/// How often it is looked whether it is time for Ctrl-C.
const TURN: Duration = Duration::from_millis(100);

/// Runs this program with other arguments. `log` is what its own log is called.
fn brbe(paths: &Paths, log: &str, arguments: &[&str]) -> Result<Ran> {
    let program = start(paths, log, arguments)?;
    program.finish()
}

/// The same, and has it get Ctrl-C once it is time.
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

/// This program, run as a user runs it.
struct Running {
    group: Group,
    log: PathBuf,
}

fn start(paths: &Paths, log: &str, arguments: &[&str]) -> Result<Running> {
    let log = process::fresh(paths.log(log))?;
    let stderr = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(stderr);
    let group = Group::spawn(&mut command)?;
    Ok(Running { group, log })
}

impl Running {
    fn has_ended(&mut self) -> Result<bool> {
        let status = self.group.child().try_wait().context("looking at it")?;
        Ok(status.is_some())
    }

    /// As a terminal's Ctrl-C.
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
