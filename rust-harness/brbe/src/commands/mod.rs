//! The commands of `brbe`, one module for each, and what they share.

pub mod bench;
pub mod ci_jobs;
pub mod clean;
pub mod cli;
mod lane;
pub mod prove;
pub mod rebase;
pub mod report;
pub mod snapshot;
pub mod submit;
pub mod test;
pub mod trace;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;

use ::report::{Report, Verdict};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use host::paths::Paths;
use kernels::subject::{Choice, Subject};
use kernels::variant::Variant;

use ::submit::patches::APPLIES;

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

/// Prepares the series that `args` name, as a test that others need. `None` if the series
/// does not apply.
fn applied(
    paths: &Paths,
    args: &KernelArgs,
    name: &str,
    report: &mut Report,
) -> Result<Option<Subject>> {
    let mut subject = None;
    report.run_always(name, APPLIES, || {
        let prepared = Subject::prepare(paths, &args.choice())?;
        let count = prepared.changes().len();
        subject = Some(prepared);
        Ok(Verdict::Pass(format!("{count} patches")))
    })?;
    Ok(subject)
}

/// Prints a report of tests, and says whether all is well.
fn print_report(json: bool, report: &Report) -> Result<bool> {
    print(json, report, |out| {
        writeln!(out, "\n{}\n{}", report.table(), report.summary())
    })?;
    Ok(report.good())
}

/// Prints a report of tests, or the lines of tests that were only to be listed. Returns
/// whether all is well.
fn print_outcome(json: bool, report: &Report) -> Result<bool> {
    let Some(lines) = report.listed() else {
        return print_report(json, report);
    };
    print(json, &lines, |out| {
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    })?;
    Ok(true)
}

/// Which kernel.
#[derive(Args, Clone, Debug)]
pub struct KernelArgs {
    /// The base whose patches are applied: a name in kernel-patches/bases.toml
    #[arg(long, value_name = "NAME")]
    pub base: Option<String>,

    /// Take the kernel source from here instead of Debian's package
    ///
    /// Of a git tree HEAD is taken, in a clone; any other tree is copied. The
    /// directory itself is not written to.
    #[arg(long, value_name = "DIR")]
    pub kernel_src: Option<PathBuf>,

    /// Which series of the base
    #[arg(long, value_name = "SERIES", value_parser = series())]
    pub series: Option<Variant>,
}

impl KernelArgs {
    /// The choice of a kernel that the options ask for.
    pub fn choice(&self) -> Choice {
        Choice {
            base: self.base.clone(),
            kernel_src: self.kernel_src.clone(),
            series: self.series,
        }
    }
}

/// The parser of a series's name. In the help it says what each series has.
fn series() -> impl TypedValueParser<Value = Variant> {
    let values =
        Variant::ALL.map(|variant| PossibleValue::new(variant.argument()).help(variant.summary()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Variant>())
}
