//! `brbe report`: puts together what several runs have seen.

mod boards;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use guest_reports::board;

use host::paths::Paths;
use report::kcidb::{self, Origin};
use report::{Durations, Flaky, History, Partition, Row, Verdict, html, junit, ktap};

/// The most bytes of a report. A longer file is no report.
const MAX_BYTES: u64 = 64 << 20;

/// Merge the reports of several runs, and print them as one
///
/// The files are what `brbe test --json` printed, such as that of each of several
/// machines that ran a partition. An empty file is that of a run that ended before its report: the
/// report has a failed test for it.
///
/// What the kit of `brbe board-kit` wrote on a board is put beside what the emulated machine says,
/// or beside a second such file.
///
/// With --flaky or --durations, and without files: what the runs on this machine have seen.
#[derive(Args, Debug)]
pub struct ReportCommand {
    /// Print which tests needed another try in one of their last ten runs on this machine, or
    /// failed now and then
    #[arg(long, conflicts_with_all = ["files", "format", "durations"])]
    flaky: bool,

    /// Print how long tests took on this machine, for scripts/durations.json
    #[arg(long, conflicts_with_all = ["files", "format"])]
    durations: bool,

    /// The format of the output: of a board's document, table or json
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Of --format kcidb: the name that KernelCI knows your CI system by
    #[arg(long, value_name = "NAME", required_if_eq("format", "kcidb"))]
    origin: Option<Origin>,

    /// Of --format kcidb: a name that your CI system gives to no other run
    #[arg(long, value_name = "NAME", required_if_eq("format", "kcidb"))]
    run: Option<String>,

    /// The reports, in this order
    #[arg(required_unless_present_any = ["flaky", "durations"], value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// A table, as `brbe test` prints it
    #[default]
    Table,
    /// JSON, to be merged again
    Json,
    /// JUnit's XML, for CI engines
    Junit,
    /// KTAP, for the kernel's tools
    Ktap,
    /// JSON for KernelCI's database, with --origin and --run
    Kcidb,
    /// A page of HTML
    Html,
}

impl ReportCommand {
    /// Runs the command. Returns whether all is well.
    pub fn run(&self, paths: &Paths) -> Result<bool> {
        if self.flaky {
            flaky(&History::load(paths)?)?;
            return Ok(true);
        }
        if self.durations {
            let rounded = |(task, seconds): (&String, &f64)| (task.clone(), seconds.round());
            let history = History::load(paths)?;
            let durations: Durations = history.durations().iter().map(rounded).collect();
            super::print(true, &durations, |_| Ok(()))?;
            return Ok(true);
        }
        let texts = self
            .files
            .iter()
            .map(|path| Ok((path.as_path(), text_of(path)?)));
        let texts: Vec<_> = texts.collect::<Result<_>>()?;
        if let [board, others @ ..] = &*texts
            && board::is_one(&board.1)
        {
            let other = match others {
                [] => None,
                [other] => Some(other),
                _ => bail!("a board is put beside one other machine: name two files at the most"),
            };
            boards::report(paths, board, other, self.format)?;
            return Ok(true);
        }
        let mut all = report::Report::default();
        for (path, text) in &texts {
            ensure!(
                !board::is_one(text),
                "{} is the document of a board, and the first file is none: name a board's document \
                 first, and no reports of `brbe test` with it",
                path.display()
            );
            if text.trim_ascii().is_empty() {
                all.append(vec![ended_early(path)].into());
                continue;
            }
            let problem = || {
                format!(
                    "{} is no report of `brbe test --json`, and no document of a board",
                    path.display()
                )
            };
            all.append(serde_json::from_str(text).with_context(problem)?);
        }
        // One report may be looked at alone. Several are of one run, of which all have to be there.
        if texts.len() > 1 {
            let missing = all.missing_partitions().into_iter().map(never_reported);
            all.append(missing.collect::<Vec<_>>().into());
        }
        let text = match self.format {
            Format::Table => return super::print_report(false, &all),
            Format::Json => return super::print_report(true, &all),
            Format::Junit => junit::document(&all).context("making XML")?,
            Format::Ktap => ktap::document(&all),
            Format::Html => html::document(&all),
            Format::Kcidb => {
                let origin = self
                    .origin
                    .as_ref()
                    .context("--format kcidb needs --origin")?;
                let run = self.run.as_ref().context("--format kcidb needs --run")?;
                let json = kcidb::document(&all, origin, run).context("making JSON")?;
                format!("{json}\n")
            }
        };
        let mut out = anstream::stdout().lock();
        let printed = out.write_all(text.as_bytes()).context("writing");
        super::said(printed, all.good())
    }
}

/// The row of a run that has left an empty file.
fn ended_early(path: &Path) -> Row {
    let said = "the file is empty: the run that was to write it ended before its report. What it \
                printed on standard error says why";
    let verdict = Verdict::Fail(said.to_owned());
    Row::new(
        &path.display().to_string(),
        "has a report",
        verdict,
        Duration::ZERO,
    )
}

/// The row of a partition that none of the reports is of.
fn never_reported(partition: Partition) -> Row {
    let said = "none of the files is its report: the job that was to run it has failed, or its \
                report was not handed on";
    let verdict = Verdict::Fail(said.to_owned());
    let subject = format!("partition {partition}");
    Row::new(&subject, "has a report", verdict, Duration::ZERO)
}

/// The text of a file.
///
/// # Errors
///
/// When the file cannot be read, is no text, or has more than [`MAX_BYTES`].
fn text_of(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("reading {}", path.display()))?;
    ensure!(
        text.len() as u64 <= MAX_BYTES,
        "{} has more than {} MiB, and is no report",
        path.display(),
        MAX_BYTES >> 20
    );
    Ok(text)
}

/// Prints the tests that are flaky.
fn flaky(history: &History) -> Result<()> {
    let found = history.flaky();
    super::print(false, &found, |out| {
        for Flaky {
            test,
            runs,
            retried,
            failed,
        } in &found
        {
            let said = format!("of {runs} runs {retried} needed another try, and {failed} failed");
            writeln!(out, "{test}: {said}")?;
        }
        if found.is_empty() {
            writeln!(out, "no test that was run here is known to be flaky")?;
        }
        Ok(())
    })
}
