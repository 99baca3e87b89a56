//! The commands of `brbe`, one module for each, and what they share.

pub mod bench;
pub mod board_kit;
mod booted;
pub mod ci_jobs;
pub mod clean;
pub mod cli;
pub mod export;
mod given;
mod implementation;
pub mod judge;
mod lane;
pub mod prove;
pub mod rebase;
pub mod report;
pub mod snapshot;
pub mod submit;
pub mod test;
pub mod trace;
pub mod vm;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;

use ::report::{Job, Plan, Report, Verdict};
use ::submit::patches::APPLIES;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use host::process::Interrupted;
use host::progress;
use kernel_tests::registry::Batch;
use kernels::subject::{Choice, Subject};
use kernels::variant::Variant;

/// Prints what a command found: as JSON, or as `text` writes it.
fn print(
    json: bool,
    found: &impl Serialize,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut out = anstream::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, found).context("writing JSON")?;
        writeln!(out).context("writing")
    } else {
        text(&mut out).context("writing")
    }
}

/// Prints lines of text.
fn print_text(text: &str) -> Result<()> {
    writeln!(anstream::stdout().lock(), "{text}").context("writing")
}

/// What came of a command that has `printed` what it found. That not all is well counts, also
/// where nobody has read why.
fn said(printed: Result<()>, is_good: bool) -> Result<bool> {
    match printed {
        Err(error) if !is_good => {
            progress::say(&format!("brbe: {error:#}"));
            Ok(false)
        }
        printed => printed.map(|()| is_good),
    }
}

/// A series that was to be applied, which others need.
struct Applied {
    name: String,
    verdict: Verdict,
    /// The series with its base, if it applies.
    subject: Option<Subject>,
}

impl Applied {
    /// What has come of preparing the series `name`.
    ///
    /// # Errors
    ///
    /// When preparing it was interrupted. Another error is a verdict.
    fn new(name: String, prepared: Result<Subject>) -> Result<Self> {
        let (subject, verdict) = match prepared {
            Ok(subject) => {
                let seen = match subject.changes().len() {
                    1 => "1 patch".to_owned(),
                    count => format!("{count} patches"),
                };
                (Some(subject), Verdict::Pass(seen))
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => (None, Verdict::Fail(format!("{error:#}"))),
        };
        Ok(Self {
            name,
            verdict,
            subject,
        })
    }

    /// The test that the series applies. A series that does not cannot be tested at all.
    fn job(&self) -> Job<'static> {
        Job::decided(&self.name, APPLIES, self.verdict.clone())
    }
}

/// All tests that there are.
fn all_tests() -> Vec<Batch> {
    [kernel_tests::tests(), harness_tests::tests()].concat()
}

/// Prints a report of tests, and says whether all is well.
fn print_report(json: bool, report: &Report) -> Result<bool> {
    print_report_of(json, report, &[])
}

/// Prints a report of tests, and what there is to say `about` the run, and says whether all is
/// well.
fn print_report_of(json: bool, report: &Report, about: &[String]) -> Result<bool> {
    let retries = match report.retries() {
        0 => "no retries".to_owned(),
        1 => "1 retry".to_owned(),
        more => format!("{more} retries"),
    };
    let longest = report.longest_partition();
    let longest = longest.map(|(partition, seconds)| {
        format!("the longest partition was {partition}: {seconds:.0} s")
    });
    let late = match report.late() {
        0 => None,
        1 => Some("1 test did not begin within the minutes of --within".to_owned()),
        more => Some(format!(
            "{more} tests did not begin within the minutes of --within"
        )),
    };
    let mut about = about.to_vec();
    about.extend(late);
    about.push(retries);
    about.extend(longest);
    let printed = print(json, report, |out| {
        writeln!(out, "\n{}\n{}", report.table(), about.join("; "))?;
        writeln!(out, "{}", report.summary())
    });
    said(printed, report.good())
}

/// Prints the lines of the tests of a plan.
fn print_lines(json: bool, plan: &Plan<'_>) -> Result<()> {
    let lines = plan.lines();
    print(json, &lines, |out| {
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    })
}

/// Which kernel.
#[derive(Args, Clone, Debug, Default)]
pub struct KernelArgs {
    /// The base whose patches are applied: a name in kernel-patches/bases.toml. Without this, the first
    /// one there; `test` takes each base that the tier has tests of
    #[arg(long, value_name = "NAME")]
    pub base: Option<String>,

    /// Take the kernel source from here instead of Debian's package
    ///
    /// Of a git tree HEAD is taken, in a clone; any other tree is copied once, and later
    /// changes of it are not seen. The directory itself is not written to.
    #[arg(long, value_name = "DIR")]
    pub kernel_src: Option<PathBuf>,

    /// Which series of the base. Without this, snapshot; `bench snapshot` then measures cheaper and
    /// rust as well, and `test` takes each series that the tier has tests of
    #[arg(long, value_name = "SERIES", value_parser = series())]
    pub series: Option<Variant>,
}

impl KernelArgs {
    /// Whether no kernel is asked for.
    fn is_default(&self) -> bool {
        let Self {
            base,
            kernel_src,
            series,
        } = self;
        base.is_none() && kernel_src.is_none() && series.is_none()
    }

    /// The choice of a kernel that the options ask for.
    pub fn choice(&self) -> Choice {
        Choice {
            base: self.base.clone(),
            kernel_src: self.kernel_src.clone(),
            series: self.series,
            ..Choice::default()
        }
    }
}

/// The parser of a series's name. In the help it says what each series has.
fn series() -> impl TypedValueParser<Value = Variant> {
    let values =
        Variant::ALL.map(|variant| PossibleValue::new(variant.argument()).help(variant.summary()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Variant>())
}
