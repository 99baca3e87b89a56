//! A run of tests: which of them run, their rows, and the table at its end.

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::{Deserialize, Serialize};

use crate::job::{self, Job, Limit};
use crate::selection::Selection;
use crate::verdict::{Row, Verdict};

/// A run of tests: which of them run, and the rows of those that have run, in the order in
/// which the rows were added.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    rows: Vec<Row>,
    #[serde(skip)]
    selection: Selection,
    #[serde(skip)]
    limit: Option<Limit>,
    /// The lines, `subject: name`, of the tests, if this report only lists tests.
    #[serde(skip)]
    listed: Option<Vec<String>>,
}

impl Report {
    /// A report for a run of the tests that `selection` takes.
    pub fn of(selection: Selection) -> Self {
        Self {
            selection,
            ..Self::default()
        }
    }

    /// This report with a limit: tests that have not begun when the limit is reached are
    /// skipped.
    pub fn within(self, limit: Option<Limit>) -> Self {
        Self { limit, ..self }
    }

    /// A report that only lists the tests that `selection` takes, and runs none of them.
    /// Tests that others need do run: see [`Report::run_always`].
    pub fn list_of(selection: Selection) -> Self {
        Self {
            listed: Some(Vec::new()),
            ..Self::of(selection)
        }
    }

    /// The lines, `subject: name`, of the tests that were listed. `None` for a report that
    /// runs its tests.
    pub fn listed(&self) -> Option<&[String]> {
        self.listed.as_deref()
    }

    /// Adds the rows of another report, perhaps of a run on another machine.
    pub fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// The rows of the tests that have been run or skipped so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether this report is about all tests: the selection takes all of them, and the
    /// limit, if there is one, has not been reached.
    pub fn is_whole(&self) -> bool {
        let is_late = self.limit.is_some_and(|limit| limit.passed().is_some());
        self.selection.is_all() && !is_late
    }

    /// Whether the selection takes a test by its name, in whichever partition it is.
    pub fn wants(&self, subject: &str, test: &str) -> bool {
        self.selection.names(subject, test)
    }

    /// Adds the line of a test to the list, if this report only lists tests. Returns whether
    /// it does.
    fn only_lists(&mut self, subject: &str, test: &str) -> bool {
        let Some(listed) = &mut self.listed else {
            return false;
        };
        listed.push(format!("{subject}: {test}"));
        true
    }

    /// Runs a test, if the selection takes it, and adds its row. An error of `body` is a
    /// failure of the test, and the run goes on, unless it was interrupted.
    pub fn run(
        &mut self,
        subject: &str,
        test: impl Into<String>,
        body: impl FnOnce() -> Result<Verdict> + Send,
    ) -> Result<()> {
        let test = test.into();
        if !self.wants(subject, &test) || !self.selection.takes_next() {
            return Ok(());
        }
        if self.only_lists(subject, &test) {
            return Ok(());
        }
        let job = Job::new(subject, test, body).within(self.limit);
        self.note(job)
    }

    /// Runs a test that others need, even if the selection does not take it or this report
    /// only lists tests. Adds its row if the test belongs to this partition and tests are not
    /// only listed. Otherwise adds its row only if the test failed.
    pub fn run_always(
        &mut self,
        subject: &str,
        test: impl Into<String>,
        body: impl FnOnce() -> Result<Verdict> + Send,
    ) -> Result<()> {
        let test = test.into();
        let is_ours = self.selection.takes_next();
        let job = Job::new(subject, &test, body);
        if is_ours && self.listed.is_none() {
            return self.note(job);
        }
        let mut report = Self::default();
        report.note(job)?;
        if !report.good_or_skipped() {
            self.append(report);
        } else if is_ours {
            self.only_lists(subject, &test);
        }
        Ok(())
    }

    /// Runs a job, and adds a row for each of its tests.
    fn note(&mut self, job: Job<'_>) -> Result<()> {
        let (subject, tests) = (job.subject.clone(), job.tests.clone());
        let (verdicts, time) = job.run()?;
        let rows = tests.iter().zip(verdicts);
        self.rows
            .extend(rows.map(|(test, verdict)| Row::announced(&subject, test, verdict, time)));
        Ok(())
    }

    fn good_or_skipped(&self) -> bool {
        self.counts().1 == 0
    }

    /// Runs those of `jobs` that the selection takes, side by side. Their rows are in the
    /// order of `jobs`, whichever ends first. If there are any, `prepare` first makes what
    /// all of them need. If that fails, none of them runs, and the row of a test `kernel` has
    /// the error.
    pub fn run_together(
        &mut self,
        jobs: Vec<Job<'_>>,
        prepare: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut selection = self.selection.clone();
        let wanted = |job: &Job<'_>| {
            let names = &mut job.tests.iter();
            names.any(|test| selection.names(&job.subject, test)) && selection.takes_next()
        };
        let jobs: Vec<_> = jobs.into_iter().filter(wanted).collect();
        self.selection = selection;
        if self.listed.is_some() {
            for job in &jobs {
                for test in &job.tests {
                    if self.wants(&job.subject, test) {
                        self.only_lists(&job.subject, test);
                    }
                }
            }
            return Ok(());
        }
        let Some(first) = jobs.first() else {
            return Ok(());
        };
        let limit = self.limit;
        let is_late = limit.is_some_and(|limit| limit.passed().is_some());
        if !is_late && let Err(error) = prepare() {
            let subject = first.subject.clone();
            return self.note(Job::new(subject, "kernel", || Err(error)));
        }
        let names: Vec<_> = jobs
            .iter()
            .map(|job| (job.subject.clone(), job.tests.clone()))
            .collect();
        let mut rows: Vec<Vec<Row>> = jobs.iter().map(|_| Vec::new()).collect();
        let jobs = jobs.into_iter().map(|job| job.within(limit)).collect();
        let outcome = job::run_all(jobs, |place, (verdicts, time)| {
            let (subject, tests) = &names[place];
            for (test, verdict) in tests.iter().zip(verdicts) {
                if self.wants(subject, test) {
                    rows[place].push(Row::announced(subject, test, verdict, time));
                }
            }
        });
        self.rows.extend(rows.into_iter().flatten());
        outcome
    }

    /// Whether the line, `subject: test`, of a test that has run or is listed contains
    /// `text`.
    pub fn has(&self, text: &str) -> bool {
        let mut rows = self.rows.iter();
        let mut listed = self.listed.iter().flatten();
        rows.any(|row| format!("{}: {}", row.subject, row.test).contains(text))
            || listed.any(|line| line.contains(text))
    }

    /// The verdict of the first test of this name, whatever its subject.
    pub fn verdict(&self, test: &str) -> Option<&Verdict> {
        let row = self.rows.iter().find(|row| row.test == test)?;
        Some(row.verdict())
    }

    /// The numbers of tests that passed, that failed and that were skipped, in this order.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |word| {
            self.rows
                .iter()
                .filter(|row| row.verdict().word() == word)
                .count()
        };
        (count("PASS"), count("FAIL"), count("SKIP"))
    }

    /// Whether no test failed, and at least one passed.
    pub fn good(&self) -> bool {
        let (passed, failed, _) = self.counts();
        failed == 0 && passed > 0
    }

    /// The table of all rows, and below it each failure in full.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table
            .load_preset(UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["", "subject", "test", "seen", "time"]);
        for row in &self.rows {
            let seen = row.verdict().reason().lines().next().unwrap_or_default();
            let time = format!("{:.1} s", row.seconds);
            table.add_row([row.verdict().word(), &row.subject, &row.test, seen, &time]);
        }
        let mut text = format!("{table}\n");
        for row in &self.rows {
            if let Verdict::Fail(reason) = row.verdict() {
                text += &format!("\nFAIL {}: {}\n{reason}\n", row.subject, row.test);
            }
        }
        text
    }

    /// The line that closes a report: how many tests passed, failed and were skipped.
    pub fn summary(&self) -> String {
        let (passed, failed, skipped) = self.counts();
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use anyhow::bail;

    pub(crate) fn report() -> Report {
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
            report
                .rows
                .push(Row::announced(subject, test, verdict, time));
        }
        report
    }

    #[test]
    fn only_what_is_wanted_runs() {
        let selection = Selection::new(Some("7.3: build".to_owned()), None);
        let mut report = Report::of(selection);
        for (subject, test) in [("7.3", "builds"), ("7.3", "boots"), ("7.0", "builds")] {
            report.run(subject, test, || Ok(Verdict::pass())).unwrap();
        }
        assert_eq!(report.counts(), (1, 0, 0));
    }

    #[test]
    fn rows_are_in_the_order_of_the_jobs() {
        let mut report = Report::of(Selection::new(Some("7.3: b".to_owned()), None));
        let (first, second) = std::sync::mpsc::channel();
        let names = ["b1", "c", "b2"].map(str::to_owned).to_vec();
        let several = Job::several("7.3", names, move || {
            // Where there is one CPU, the other job has not run and has sent nothing yet.
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
        report
            .run_together(vec![several, other, one], || Ok(()))
            .unwrap();
        let tests: Vec<_> = report.rows.iter().map(|row| &row.test).collect();
        assert_eq!(tests, ["b1", "b2", "b3"]);
        assert!(report.good());
    }

    /// Runs the tests `7.3: a` to `7.3: e`, of which the first is one that others need.
    fn run_five(report: &mut Report) {
        let mut ran = false;
        report
            .run_always("7.3", "a", || {
                ran = true;
                Ok(Verdict::pass())
            })
            .unwrap();
        assert!(ran);
        report.run("7.3", "b", || Ok(Verdict::pass())).unwrap();
        let job = |name: &str| Job::new("7.3", name, || Ok(Verdict::pass()));
        let jobs = ["c", "d", "e"].map(job).into();
        report.run_together(jobs, || Ok(())).unwrap();
    }

    #[test]
    fn partitions_together_are_all_tests() {
        let part = |text: &str| {
            let selection = Selection::new(None, Some(text.parse().unwrap()));
            let mut report = Report::of(selection);
            run_five(&mut report);
            report
        };
        let (mut first, second) = (part("1/2"), part("2/2"));
        assert_eq!((first.counts().0, second.counts().0), (3, 2));
        first.append(second);
        let mut tests: Vec<_> = first.rows.iter().map(|row| &*row.test).collect();
        tests.sort_unstable();
        assert_eq!(tests, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn a_list_runs_nothing_but_what_others_need() {
        let mut report = Report::list_of(Selection::default());
        run_five(&mut report);
        let refused = || bail!("not to be prepared");
        let job = Job::new("7.3", "f", || bail!("not to be run"));
        report.run_together(vec![job], refused).unwrap();
        let expected = ["a", "b", "c", "d", "e", "f"].map(|test| format!("7.3: {test}"));
        assert_eq!(report.listed(), Some(&expected[..]));
        assert_eq!(report.counts(), (0, 0, 0));
    }

    #[test]
    fn what_cannot_be_prepared_fails_once() {
        let mut report = Report::default();
        let jobs = ["a", "b"].map(|name| Job::new("7.3", name, || bail!("not to be run")));
        report
            .run_together(jobs.into(), || bail!("no kernel"))
            .unwrap();
        assert_eq!(report.counts(), (0, 1, 0));
        assert_eq!(report.rows[0].verdict().reason(), "no kernel");
        report
            .run_together(Vec::new(), || bail!("nobody asked"))
            .unwrap();
    }

    #[test]
    fn what_is_too_late_is_skipped_and_nothing_is_prepared_for_it() {
        let mut report = Report::default().within(Some(Limit::of_minutes(0)));
        report.run("7.3", "a", || bail!("begun")).unwrap();
        let job = Job::new("7.3", "b", || bail!("begun"));
        report
            .run_together(vec![job], || bail!("prepared"))
            .unwrap();
        report
            .run_always("7.3", "c", || Ok(Verdict::pass()))
            .unwrap();
        assert_eq!(report.counts(), (1, 0, 2));
    }

    #[test]
    fn a_report_comes_back_from_json() {
        let text = serde_json::to_string(&report()).unwrap();
        let again: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(again.table(), report().table());
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
        let interrupted = report.run("x", "z", || Err(host::process::Interrupted.into()));
        assert!(interrupted.unwrap_err().is::<host::process::Interrupted>());
        assert_eq!(report.counts(), (0, 1, 0));
    }
}
