//! Verdicts, and the table that a run of tests ends with.

use std::time::Duration;

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use crate::jobs::{self, Job};
use crate::progress;

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "lowercase")]
pub enum Verdict {
    /// It held. The reason says what was seen, where that is not obvious.
    Pass(String),
    /// It did not, and why.
    Fail(String),
    /// It could not run here, and why.
    Skip(String),
}

impl Verdict {
    /// Held, and nothing more to say.
    pub fn pass() -> Self {
        Self::Pass(String::new())
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Pass(_) => "PASS",
            Self::Fail(_) => "FAIL",
            Self::Skip(_) => "SKIP",
        }
    }

    /// What was seen, or why it failed or was skipped.
    pub fn reason(&self) -> &str {
        let (Self::Pass(reason) | Self::Fail(reason) | Self::Skip(reason)) = self;
        reason
    }
}

/// A test and its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is about: a base, `rust`.
    pub subject: String,
    /// The test's name.
    pub test: String,
    #[serde(flatten)]
    verdict: Verdict,
    /// How long it took, in seconds. Not part of any verdict.
    pub seconds: f64,
}

impl Row {
    /// The row of a test that has just ended, which is told.
    fn new(subject: &str, test: &str, verdict: Verdict, time: Duration) -> Self {
        let reason = verdict.reason().lines().next().unwrap_or_default();
        progress::say(&format!(
            "{} {subject}: {test}{}{reason}",
            verdict.word(),
            if reason.is_empty() { "" } else { ": " }
        ));
        Self {
            subject: subject.to_owned(),
            test: test.to_owned(),
            verdict,
            seconds: time.as_secs_f64(),
        }
    }
}

/// The rows of a run, in the order in which they came.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    rows: Vec<Row>,
    /// What is part of the name of each test that is wanted.
    #[serde(skip)]
    only: Option<String>,
}

impl Report {
    /// A report of those tests only whose line, `subject: name`, contains `only`.
    pub fn of(only: Option<String>) -> Self {
        Self {
            rows: Vec::new(),
            only,
        }
    }

    /// Whether this test is one of those.
    pub fn wants(&self, subject: &str, test: &str) -> bool {
        let line = || format!("{subject}: {test}");
        self.only.as_ref().is_none_or(|only| line().contains(only))
    }

    /// Runs a test, if it is wanted, and notes its verdict. An error is a failure;
    /// the run goes on, unless it was interrupted.
    pub fn run(
        &mut self,
        subject: &str,
        test: impl Into<String>,
        body: impl FnOnce() -> Result<Verdict> + Send,
    ) -> Result<()> {
        let test = test.into();
        if self.wants(subject, &test) {
            self.run_always(subject, test, body)?;
        }
        Ok(())
    }

    /// The same for a test that others need, wanted or not.
    pub fn run_always(
        &mut self,
        subject: &str,
        test: impl Into<String>,
        body: impl FnOnce() -> Result<Verdict> + Send,
    ) -> Result<()> {
        let test = test.into();
        let (verdicts, time) = Job::new(subject, &test, body).run()?;
        for verdict in verdicts {
            self.rows.push(Row::new(subject, &test, verdict, time));
        }
        Ok(())
    }

    /// Runs tests side by side, those that are wanted. Their rows are in the order
    /// of `jobs`, whichever ends first.
    pub fn run_together(&mut self, jobs: Vec<Job<'_>>) -> Result<()> {
        let wanted = |job: &Job<'_>| job.tests.iter().any(|test| self.wants(&job.subject, test));
        let jobs: Vec<_> = jobs.into_iter().filter(wanted).collect();
        let names: Vec<_> = jobs
            .iter()
            .map(|job| (job.subject.clone(), job.tests.clone()))
            .collect();
        let mut rows: Vec<Vec<Row>> = jobs.iter().map(|_| Vec::new()).collect();
        let outcome = jobs::run_all(jobs, |place, (verdicts, time)| {
            let (subject, tests) = &names[place];
            for (test, verdict) in tests.iter().zip(verdicts) {
                if self.wants(subject, test) {
                    rows[place].push(Row::new(subject, test, verdict, time));
                }
            }
        });
        self.rows.extend(rows.into_iter().flatten());
        outcome
    }

    /// How many passed, failed and were skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |word| {
            self.rows
                .iter()
                .filter(|row| row.verdict.word() == word)
                .count()
        };
        (count("PASS"), count("FAIL"), count("SKIP"))
    }

    /// Whether nothing failed, and something ran.
    pub fn good(&self) -> bool {
        let (passed, failed, _) = self.counts();
        failed == 0 && passed > 0
    }

    /// The table, and below it each failure in full.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table
            .load_preset(UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["", "subject", "test", "seen", "time"]);
        for row in &self.rows {
            let seen = row.verdict.reason().lines().next().unwrap_or_default();
            let time = format!("{:.1} s", row.seconds);
            table.add_row([row.verdict.word(), &row.subject, &row.test, seen, &time]);
        }
        let mut text = format!("{table}\n");
        for row in &self.rows {
            if let Verdict::Fail(reason) = &row.verdict {
                text += &format!("\nFAIL {}: {}\n{reason}\n", row.subject, row.test);
            }
        }
        text
    }

    /// The closing line.
    pub fn summary(&self) -> String {
        let (passed, failed, skipped) = self.counts();
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn report() -> Report {
        let mut report = Report::default();
        let time = Duration::from_millis(1500);
        for (subject, test, verdict) in [
            ("7.3", "selftest", Verdict::pass()),
            (
                "7.0",
                "oops",
                Verdict::Fail("no oops\nthe console:\n  nothing".into()),
            ),
            ("7.3", "nmi", Verdict::Skip("no pseudo-NMI".into())),
        ] {
            report.rows.push(Row::new(subject, test, verdict, time));
        }
        report
    }

    #[test]
    fn only_what_is_wanted_runs() {
        let mut report = Report::of(Some("7.3: build".to_owned()));
        for (subject, test) in [("7.3", "builds"), ("7.3", "boots"), ("7.0", "builds")] {
            report.run(subject, test, || Ok(Verdict::pass())).unwrap();
        }
        assert_eq!(report.counts(), (1, 0, 0));
    }

    #[test]
    fn rows_are_in_the_order_of_the_jobs() {
        let mut report = Report::of(Some("7.3: b".to_owned()));
        let (first, second) = std::sync::mpsc::channel();
        let names = ["b1", "c", "b2"].map(str::to_owned).to_vec();
        let several = Job::several("7.3", names, move || {
            // Where there is one processor, nobody has sent anything yet.
            let _ = second.recv_timeout(Duration::from_secs(1));
            Ok(vec![
                Verdict::pass(),
                Verdict::Fail("c".into()),
                Verdict::pass(),
            ])
        });
        let one = Job::new("7.3", "b3", move || {
            let _ = first.send(());
            Ok(Verdict::pass())
        });
        let other = Job::new("7.0", "b", || bail!("not wanted"));
        report.run_together(vec![several, other, one]).unwrap();
        let tests: Vec<_> = report.rows.iter().map(|row| &row.test).collect();
        assert_eq!(tests, ["b1", "b2", "b3"]);
        assert!(report.good());
    }

    #[test]
    fn the_table_shows_each_verdict_and_failures_in_full() {
        insta::assert_snapshot!(report().table());
        assert_eq!(report().summary(), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_run_without_a_test_is_not_good() {
        assert!(!Report::default().good());
        assert!(!report().good());
    }

    #[test]
    fn an_error_fails_its_test_but_an_interruption_ends_the_run() {
        let mut report = Report::default();
        report.run("x", "y", || bail!("broken")).unwrap();
        assert_eq!(report.counts(), (0, 1, 0));
        let interrupted = report.run("x", "z", || Err(crate::exec::Interrupted.into()));
        assert!(interrupted.unwrap_err().is::<crate::exec::Interrupted>());
        assert_eq!(report.counts(), (0, 1, 0));
    }
}
