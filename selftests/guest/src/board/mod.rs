//! Finds out how this machine's branch records are, and keeps it as one JSON document. It is for
//! machines that nobody of this project can sit at.
//!
//! Whatever needs the kernel to do something runs in a process of its own, with a limit: see
//! [`measured`]. The document is written after each step, so that there is one, too, where the
//! machine goes down.

mod cost;
mod identify;
mod machine;
pub(crate) mod measured;
mod records;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use guest_reports::board::{self, BoardReport, BoardVerdict, Part, TestRun, Way};
use guest_reports::kit::{Kit, KitTest};

use crate::settings::Settings;
use crate::verdict::{Verdict, tell};
use crate::waste;
use measured::{Measured, Within};

/// Why a step was left out.
const NO_TIME: &str = "there was no time left";
/// The most that one step may take.
const STEP: Duration = Duration::from_secs(60);

/// The document so far, and where it is kept.
struct Document {
    report: BoardReport,
    path: PathBuf,
    begun: Instant,
    /// When no step begins any more.
    until: Instant,
    /// Whether a step was left out for that.
    left_out: bool,
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
            left_out: false,
        };
        document.keep(None)?;
        Ok(document)
    }

    /// Whether there is time for another step. If not, the document will not be complete.
    fn has_time(&mut self) -> bool {
        let has_time = Instant::now() < self.until;
        self.left_out |= !has_time;
        has_time
    }

    /// What a step finds out.
    fn measure<T: serde::de::DeserializeOwned>(&mut self, what: Measured) -> Result<Part<T>> {
        if !self.has_time() {
            return Ok(Part::missing(NO_TIME));
        }
        self.keep(Some(&what.to_string()))?;
        let mut command = measured::this_program()?;
        command.arg("board-part").args(what.arguments());
        let seen = match measured::run(&mut command, STEP)? {
            Within::Ended {
                status,
                stdout,
                stderr,
            } if !status.success() => Part::missing(why(status, &stderr).unwrap_or_else(|| {
                format!("it printed {} bytes and ended with {status}", stdout.len())
            })),
            Within::Ended { stdout, .. } => serde_json::from_slice(&stdout)
                .map_or_else(|error| Part::missing(error.to_string()), Part::Seen),
            Within::NotInTime(said) => Part::missing(said),
        };
        if let Part::Missing { missing } = &seen {
            tell(&format!("  {what}: {missing}"));
        }
        Ok(seen)
    }

    /// Tries a test.
    fn try_one(&mut self, test: &KitTest) -> Result<()> {
        let mut seconds = 0.0;
        let (verdict, reason) = if self.has_time() {
            self.keep(Some(&test.name))?;
            let mut command = measured::this_program()?;
            command.arg("--json").args(&test.arguments);
            let begun = Instant::now();
            let ran = measured::run(&mut command, STEP)?;
            seconds = begun.elapsed().as_secs_f64();
            match ran {
                Within::Ended {
                    status,
                    stdout,
                    stderr,
                } => verdict(&stdout).unwrap_or_else(|| {
                    let why = why(status, &stderr);
                    (
                        BoardVerdict::Error,
                        why.unwrap_or_else(|| "it printed no verdict".to_owned()),
                    )
                }),
                Within::NotInTime(said) => (BoardVerdict::Error, said),
            }
        } else {
            (BoardVerdict::Error, NO_TIME.to_owned())
        };
        if verdict != BoardVerdict::Pass {
            tell(&format!("  {}: {reason}", test.name));
        }
        self.report.tests.push(TestRun {
            name: test.name.clone(),
            decides: test.decides,
            verdict,
            reason,
            seconds,
        });
        Ok(())
    }

    /// Writes the document, and says what is under way.
    fn keep(&mut self, under_way: Option<&str>) -> Result<()> {
        if let Some(what) = under_way {
            let seconds = self.begun.elapsed().as_secs_f64();
            tell(&format!("{seconds:3.0} s  {what}"));
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
        // Somebody else may have left a link there, for root to write through.
        let _ = fs::remove_file(&partial);
        let mut file = File::create_new(&partial)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&partial, &self.path)?;
        if let Some(dir) = self.path.parent() {
            // Not every file system takes that.
            let _ = File::open(dir).and_then(|dir| dir.sync_all());
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.report.complete = !self.left_out;
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

/// Why a process ended so, by its status and by the last line that it said. `None`: it says nothing.
fn why(status: ExitStatus, said: &[u8]) -> Option<String> {
    if let Some(signal) = status.signal() {
        return Some(format!("it was killed by signal {signal}"));
    }
    let said = String::from_utf8_lossy(said);
    let is_of_panics = |line: &&str| line.trim().is_empty() || line.starts_with("note: ");
    let line = said.lines().rev().find(|line| !is_of_panics(line))?;
    Some(line.strip_prefix("Error: ").unwrap_or(line).to_owned())
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
        let failed = ExitStatus::from_raw(2 << 8);
        let why = |said: &str| why(failed, said.as_bytes());
        assert_eq!(
            why("libbpf: x\nError: cannot load it\n\n").as_deref(),
            Some("cannot load it")
        );
        let panicked = "thread panicked\nout of range\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(why(panicked).as_deref(), Some("out of range"));
        assert_eq!(why(""), None);
        let killed = super::why(ExitStatus::from_raw(11), b"half a line");
        assert_eq!(killed.as_deref(), Some("it was killed by signal 11"));
    }
}
