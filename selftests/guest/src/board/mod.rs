//! Finds out how this machine's branch records are, and keeps it as one JSON document. It is for
//! machines that nobody of this project can sit at.
//!
//! Whatever needs the kernel to do something runs in a process of its own, with a limit: see
//! [`measured`]. The document is written after each step, so that there is one, too, where the
//! machine goes down.

mod cost;
mod identify;
mod kept;
mod machine;
pub(crate) mod measured;
mod records;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use guest_reports::board::{self, BoardReport, BoardVerdict, Part, TestRun, Way};
use guest_reports::kit::{Kit, KitTest};

use crate::verdict::Verdict;
use crate::waste;
use kept::Settings;
use measured::{Measured, Within};

/// The most that one step may take.
const STEP: Duration = Duration::from_secs(60);

/// The document so far, and where it is kept.
struct Document {
    report: BoardReport,
    path: PathBuf,
    begun: Instant,
    until: Instant,
}

/// Tries all that `kit` names, and writes the document to `output`. What has not begun when `within`
/// is over is not tried.
pub(crate) fn run(kit: &Path, output: &Path, within: Duration) -> Result<Verdict> {
    let text = fs::read(kit).with_context(|| format!("cannot read {}", kit.display()))?;
    let kit: Kit =
        serde_json::from_slice(&text).with_context(|| format!("in {}", kit.display()))?;
    measured::catch_interrupts()?;
    let settings = Settings::read();
    let mut document = Document::begin(&kit, output, within)?;

    document.report.brbidr = document.measure(Measured::Brbidr)?;
    document.report.cost = document.measure(Measured::Cost)?;
    for way in waste::names() {
        let way = way.to_owned();
        let wasted = document.measure(Measured::Waste { way: way.clone() })?;
        document.report.waste.push(Way { way, wasted });
    }
    document.report.records = document.measure(Measured::Records)?;
    settings.restore();
    for test in &kit.tests {
        document.try_one(test)?;
        settings.restore();
    }
    document.end()?;
    let said = format!(
        "{} in {:.0} s; the document is {}",
        summary(&document.report),
        document.report.seconds,
        output.display()
    );
    Ok(Verdict::Seen(said))
}

impl Document {
    fn begin(kit: &Kit, path: &Path, within: Duration) -> Result<Self> {
        let begun = Instant::now();
        let not_yet = "not tried yet";
        let mut document = Self {
            report: BoardReport {
                format: board::FORMAT.to_owned(),
                version: board::VERSION,
                kit: kit.version.clone(),
                complete: false,
                under_way: None,
                seconds: 0.0,
                machine: machine::look()?,
                brbidr: Part::missing(not_yet),
                cost: Part::missing(not_yet),
                waste: Vec::new(),
                records: Part::missing(not_yet),
                tests: Vec::new(),
            },
            path: path.to_owned(),
            begun,
            until: begun + within,
        };
        document.keep(None)?;
        Ok(document)
    }

    /// How long the next step may take. `None` where there is no time left.
    fn next(&self) -> Option<Duration> {
        let left = self.until.checked_duration_since(Instant::now());
        left.filter(|left| !left.is_zero())
            .map(|left| left.min(STEP))
    }

    /// What a step finds out.
    fn measure<T: serde::de::DeserializeOwned>(&mut self, what: Measured) -> Result<Part<T>> {
        let Some(limit) = self.next() else {
            return Ok(Part::missing("there was no time left"));
        };
        self.keep(Some(&what.to_string()))?;
        let mut command = measured::this_program()?;
        command.arg("board-part").args(what.arguments());
        let seen = match measured::run(&mut command, limit)? {
            Within::Ended {
                success: true,
                stdout,
                ..
            } => serde_json::from_slice(&stdout)
                .map(Part::Seen)
                .with_context(|| format!("what {what} printed"))?,
            Within::Ended { stderr, .. } => Part::missing(last_line(&stderr)),
            Within::TookTooLong => Part::missing(too_long(limit)),
        };
        if let Part::Missing { missing } = &seen {
            eprintln!("  {what}: {missing}");
        }
        Ok(seen)
    }

    /// Tries a test.
    fn try_one(&mut self, test: &KitTest) -> Result<()> {
        let ended = |verdict, reason: String, seconds| TestRun {
            name: test.name.clone(),
            decides: test.decides,
            verdict,
            reason,
            seconds,
        };
        let Some(limit) = self.next() else {
            let why = "there was no time left".to_owned();
            self.report.tests.push(ended(BoardVerdict::Error, why, 0.0));
            return Ok(());
        };
        self.keep(Some(&test.name))?;
        let mut command: Command = measured::this_program()?;
        command.arg("--json").args(&test.arguments);
        let begun = Instant::now();
        let (verdict, reason) = match measured::run(&mut command, limit)? {
            Within::Ended { stdout, stderr, .. } => {
                verdict(&stdout).unwrap_or_else(|| (BoardVerdict::Error, last_line(&stderr)))
            }
            Within::TookTooLong => (BoardVerdict::Error, too_long(limit)),
        };
        let seconds = begun.elapsed().as_secs_f64();
        if verdict != BoardVerdict::Pass {
            eprintln!("  {}: {reason}", test.name);
        }
        self.report.tests.push(ended(verdict, reason, seconds));
        Ok(())
    }

    /// Writes the document, and says what is under way.
    fn keep(&mut self, under_way: Option<&str>) -> Result<()> {
        if let Some(what) = under_way {
            eprintln!("{:3.0} s  {what}", self.begun.elapsed().as_secs_f64());
        }
        self.report.under_way = under_way.map(str::to_owned);
        self.report.seconds = self.begun.elapsed().as_secs_f64();
        self.write()
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Writes the document to the disk, where it is should the machine go down.
    fn write(&self) -> Result<()> {
        let mut text = serde_json::to_vec(&self.report)?;
        text.push(b'\n');
        let mut partial = self.path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let mut file = File::create(&partial)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&partial, &self.path)?;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.report.complete = true;
        self.keep(None)
    }
}

/// What came of the tests, in a line.
fn summary(report: &BoardReport) -> String {
    let count = |wanted| {
        let tests = report.tests.iter();
        tests.filter(|test| test.verdict == wanted).count()
    };
    format!(
        "{} passed, {} failed, {} skipped, {} without a verdict",
        count(BoardVerdict::Pass),
        count(BoardVerdict::Fail),
        count(BoardVerdict::Skip),
        count(BoardVerdict::Error)
    )
}

fn too_long(limit: Duration) -> String {
    format!("it took longer than {} s and was ended", limit.as_secs())
}

/// The last line of what a process said, without the mark of an error.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or("it said nothing");
    line.strip_prefix("Error: ").unwrap_or(line).to_owned()
}

/// The verdict in the line of JSON that a test ends with.
fn verdict(stdout: &[u8]) -> Option<(BoardVerdict, String)> {
    #[derive(serde::Deserialize)]
    struct Line {
        verdict: String,
        #[serde(default)]
        reason: String,
    }
    let text = String::from_utf8_lossy(stdout);
    let line: Line = serde_json::from_str(text.lines().next_back()?).ok()?;
    let verdict = match line.verdict.as_str() {
        "PASS" => BoardVerdict::Pass,
        "FAIL" => BoardVerdict::Fail,
        "SKIP" => BoardVerdict::Skip,
        _ => BoardVerdict::Error,
    };
    Some((verdict, line.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_prints_no_verdict_has_none() {
        let line = br#"{"test":"twice","verdict":"SKIP","reason":"no BRBE"}"#;
        let skipped = (BoardVerdict::Skip, "no BRBE".to_owned());
        assert_eq!(
            verdict(&[b"a\n".as_slice(), line, b"\n"].concat()),
            Some(skipped)
        );
        assert_eq!(verdict(b"killed"), None);
        assert_eq!(verdict(b""), None);
        let passed = verdict(br#"{"test":"twice","verdict":"PASS"}"#);
        assert_eq!(passed, Some((BoardVerdict::Pass, String::new())));
    }

    #[test]
    fn the_last_line_says_why() {
        assert_eq!(
            last_line(b"libbpf: x\nError: cannot load it\n\n"),
            "cannot load it"
        );
        assert_eq!(last_line(b""), "it said nothing");
    }
}
