//! The other lanes: over ssh, on Arm's model as a stand-in plays it, and one that is a
//! program of a single file.

mod fvp;
mod one_file;
mod ssh;

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::commands::Subject;
use crate::exec::{self, Group};
use crate::guest::Guest;
use crate::jobs::Job;
use crate::kernel::Kernel;
use crate::places::Places;
use crate::verdict::{Report, Verdict};

/// On a patched kernel.
pub fn jobs<'a>(
    places: &'a Places,
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
            move || ssh::check(places, guest, kernel, &name),
        ),
        Job::new(&title, "lane fvp: a stand-in for the model", move || {
            fvp::check(places, kernel, subject)
        }),
        Job::new(
            &title,
            "lane of one file: scripts/lanes/example",
            move || one_file::check(places, kernel, subject),
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

/// Runs this program with other arguments. `log` is what its own log is called.
fn brbe(places: &Places, log: &str, arguments: &[&str]) -> Result<Ran> {
    let log = exec::fresh(places.log(log))?;
    let stderr = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(stderr);
    let mut program = Group::spawn(&mut command)?;
    let mut stdout = String::new();
    let mut pipe = program.child().stdout.take().context("it has no output")?;
    pipe.read_to_string(&mut stdout)
        .context("reading its output")?;
    let status = program.wait()?.code();
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    Ok(Ran {
        status,
        stdout,
        stderr: format!("{}:\n{said}", log.display()),
    })
}
