//! Jobs: tests that need nothing of each other, and so can run side by side.
//!
//! Most of the time a guest keeps little more than one CPU busy. With as many guests as CPUs,
//! a run of all tests on two CPUs takes little more than half as long.

use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::selection::Selection;
use crate::verdict::{Row, Verdict};
use host::process::Interrupted;

/// How many jobs run at once at the most, whatever the number of CPUs: a job may boot a
/// guest, and each guest has a GiB of memory.
const MAX_JOBS: usize = 4;

/// The time from which on no further test begins (`--within`).
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    end: Instant,
    minutes: u32,
}

impl Limit {
    /// A limit that is reached in `minutes` minutes from now.
    pub fn of_minutes(minutes: u32) -> Self {
        Self {
            end: Instant::now() + Duration::from_secs(60) * minutes,
            minutes,
        }
    }

    /// The reason why no test begins any more, if the limit has been reached. Otherwise
    /// `None`.
    pub fn passed(&self) -> Option<String> {
        (Instant::now() >= self.end).then(|| {
            format!(
                "not begun: the {} minutes of --within were over; what was built is kept",
                self.minutes
            )
        })
    }
}

/// The function of a job. It is given the places of those tests that are wanted, and returns a
/// verdict for each of them.
type Body<'a> = Box<dyn FnOnce(&[usize]) -> Result<Vec<Verdict>> + Send + 'a>;

/// The verdicts at the places `wanted`, of those of `count` tests that were decided together.
///
/// # Errors
///
/// When there is not a verdict for each test.
pub fn wanted_of(verdicts: &[Verdict], count: usize, wanted: &[usize]) -> Result<Vec<Verdict>> {
    ensure!(
        verdicts.len() == count,
        "{} verdicts for {count} tests: a mistake of the harness",
        verdicts.len()
    );
    Ok(wanted
        .iter()
        .map(|place| verdicts[*place].clone())
        .collect())
}

/// One or several tests of one subject that are decided together.
pub struct Job<'a> {
    /// What the tests are about, which is the first part of their lines: `7.3.4 patched`,
    /// `plugin`, `rust`.
    subject: String,
    /// The names of the tests.
    tests: Vec<String>,
    /// The places in `tests` of those that are wanted.
    wanted: Vec<usize>,
    body: Body<'a>,
    /// For a job that was decided when the plan was made: whether it failed. Others need what
    /// it has made, so it is there whether it is wanted or not.
    failed_when_planned: Option<bool>,
}

impl<'a> Job<'a> {
    /// A job of one test. `body` returns its verdict.
    pub fn new(
        subject: impl Into<String>,
        test: impl Into<String>,
        body: impl FnOnce() -> Result<Verdict> + Send + 'a,
    ) -> Self {
        Self::partial(subject, vec![test.into()], |_| Ok(vec![body()?]))
    }

    /// A job of several tests, which are decided together. `body` returns a verdict for each,
    /// in the same order.
    pub fn several(
        subject: impl Into<String>,
        tests: Vec<String>,
        body: impl FnOnce() -> Result<Vec<Verdict>> + Send + 'a,
    ) -> Self {
        let count = tests.len();
        Self::partial(subject, tests, move |wanted| {
            wanted_of(&body()?, count, wanted)
        })
    }

    /// A job of several tests, of which some can be decided without the others. `body` is
    /// given the places of those that are wanted, and returns a verdict for each of them.
    pub fn partial(
        subject: impl Into<String>,
        tests: Vec<String>,
        body: impl FnOnce(&[usize]) -> Result<Vec<Verdict>> + Send + 'a,
    ) -> Self {
        Self {
            subject: subject.into(),
            wanted: (0..tests.len()).collect(),
            tests,
            body: Box::new(body),
            failed_when_planned: None,
        }
    }

    /// A job of one test that cannot run here. Its verdict is SKIP, with this reason.
    pub fn skipped(
        subject: impl Into<String>,
        test: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        let reason = reason.into();
        Self::new(subject, test, || Ok(Verdict::Skip(reason)))
    }

    /// A job of one test that was decided when the plan was made, since others need what it
    /// has made.
    pub fn decided(subject: impl Into<String>, test: impl Into<String>, verdict: Verdict) -> Self {
        Self {
            failed_when_planned: Some(matches!(verdict, Verdict::Fail(_))),
            ..Self::new(subject, test, || Ok(verdict))
        }
    }

    /// This job, or, where there is a reason, a job that skips its tests for that reason.
    pub fn or_skipped(self, reason: Option<impl Into<String>>) -> Self {
        let Some(reason) = reason.map(Into::into) else {
            return self;
        };
        Self {
            body: Box::new(move |wanted| Ok(vec![Verdict::Skip(reason); wanted.len()])),
            ..self
        }
    }

    /// What the tests are about, which is the first part of their lines.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// The lines, `subject: name`, of the tests that are wanted.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let wanted = self.wanted.iter();
        wanted.map(|place| format!("{}: {}", self.subject, self.tests[*place]))
    }

    /// Whether the job was decided when the plan was made, and failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed_when_planned == Some(true)
    }

    /// Drops the tests that the selection does not take. Returns whether the job is to run.
    pub(crate) fn select(&mut self, selection: &mut Selection) -> bool {
        if self.failed_when_planned.is_some() {
            return selection.takes_next() || self.has_failed();
        }
        let (subject, tests) = (&self.subject, &self.tests);
        self.wanted
            .retain(|place| selection.names(subject, &tests[*place]));
        !self.wanted.is_empty() && selection.takes_next()
    }

    /// Runs the job, unless the limit has been reached: then its tests are skipped. Returns a
    /// row for each test that is wanted. An error of the job's body is a failure of all of
    /// them.
    ///
    /// # Errors
    ///
    /// [`Interrupted`], when this program was interrupted.
    pub(crate) fn run(self, limit: Option<Limit>) -> Result<Vec<Row>> {
        let (start, count) = (Instant::now(), self.wanted.len());
        let late = limit.and_then(|limit| limit.passed());
        let late = late.filter(|_| self.failed_when_planned.is_none());
        let verdicts = match late {
            Some(reason) => Ok(vec![Verdict::Skip(reason); count]),
            None => (self.body)(&self.wanted),
        };
        let verdicts = match verdicts {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => vec![Verdict::Fail(format!("{error:#}")); count],
            Ok(verdicts) if verdicts.len() != count => {
                let reason = format!(
                    "{} verdicts for {count} tests: a mistake of the harness",
                    verdicts.len()
                );
                vec![Verdict::Fail(reason); count]
            }
            Ok(verdicts) => verdicts,
        };
        let tests = self.wanted.iter().map(|place| &self.tests[*place]);
        let rows = tests.zip(verdicts);
        let time = start.elapsed();
        Ok(rows
            .map(|(test, verdict)| Row::announced(&self.subject, test, verdict, time))
            .collect())
    }
}

/// Runs jobs side by side, as many at a time as there are CPUs, at the most [`MAX_JOBS`].
/// Returns the rows in the order of `jobs`, whichever ends first.
///
/// # Errors
///
/// [`Interrupted`], when the run is interrupted. What is under way then ends first.
pub(crate) fn run_all(jobs: Vec<Job<'_>>, limit: Option<Limit>) -> Result<Vec<Row>> {
    let at_once = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let at_once = at_once.min(MAX_JOBS).min(jobs.len());
    let mut rows: Vec<Vec<Row>> = jobs.iter().map(|_| Vec::new()).collect();
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        let (ended, outcomes) = mpsc::channel();
        for _ in 0..at_once {
            let (ended, next) = (ended.clone(), &next);
            scope.spawn(move || {
                while let Some((place, job)) = next() {
                    let outcome = job.run(limit);
                    let interrupted = outcome.is_err();
                    // The receiver stops at the first interruption.
                    if ended.send((place, outcome)).is_err() || interrupted {
                        break;
                    }
                }
            });
        }
        drop(ended);
        for (place, outcome) in outcomes {
            rows[place] = outcome?;
        }
        anyhow::Ok(())
    })?;
    Ok(rows.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use anyhow::bail;

    use super::*;

    #[test]
    fn each_job_is_run_once_and_rows_are_in_their_order() {
        let job = |number: usize| {
            Job::new("x", number.to_string(), move || {
                Ok(Verdict::Pass(number.to_string()))
            })
        };
        let rows = run_all((0..20).map(job).collect(), None).unwrap();
        for (place, row) in rows.iter().enumerate() {
            assert_eq!(row.test, place.to_string());
            assert_eq!(row.verdict(), &Verdict::Pass(place.to_string()));
        }
        assert_eq!(rows.len(), 20);
    }

    #[test]
    fn jobs_run_side_by_side() {
        let at_once = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let together = Barrier::new(at_once.min(MAX_JOBS));
        let wait = || {
            together.wait();
            Ok(Verdict::pass())
        };
        let jobs = (0..at_once.min(MAX_JOBS)).map(|_| Job::new("x", "y", wait));
        run_all(jobs.collect(), None).unwrap();
    }

    /// The verdicts of a job of two tests with this body.
    fn of_two(body: impl FnOnce() -> Result<Vec<Verdict>> + Send) -> Vec<Verdict> {
        let job = Job::several("x", ["a", "b"].map(str::to_owned).to_vec(), body);
        let rows = job.run(None).unwrap();
        rows.iter().map(|row| row.verdict().clone()).collect()
    }

    #[test]
    fn a_test_without_a_verdict_has_failed() {
        let verdicts = of_two(|| Ok(vec![Verdict::pass()]));
        assert_eq!(verdicts.len(), 2);
        let reason = verdicts[0].reason();
        assert!(reason.starts_with("1 verdicts for 2 tests"), "{reason}");
    }

    #[test]
    fn an_error_fails_all_tests_of_its_job() {
        let verdicts = of_two(|| bail!("broken"));
        assert_eq!(verdicts, vec![Verdict::Fail("broken".to_owned()); 2]);
    }

    #[test]
    fn only_what_is_wanted_is_decided() {
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let mut job = Job::partial("x", names, |wanted| {
            assert_eq!(wanted, [1]);
            Ok(vec![Verdict::pass()])
        });
        assert!(job.select(&mut Selection::new(Some("x: b".to_owned()), None)));
        let rows = job.run(None).unwrap();
        assert_eq!((rows.len(), &*rows[0].test), (1, "b"));
    }

    #[test]
    fn nothing_begins_when_it_is_too_late() {
        let verdict = |minutes| {
            let job = Job::new("x", "y", || Ok(Verdict::pass()));
            let rows = job.run(Some(Limit::of_minutes(minutes))).unwrap();
            rows[0].verdict().clone()
        };
        assert_eq!(verdict(60), Verdict::pass());
        let late = verdict(0);
        assert!(late.reason().contains("the 0 minutes"), "{late:?}");
        assert!(matches!(late, Verdict::Skip(_)));
    }

    #[test]
    fn an_interruption_ends_the_run() {
        let jobs = (0..10).map(|_| Job::new("x", "y", || Err(Interrupted.into())));
        let error = run_all(jobs.collect(), None).unwrap_err();
        assert!(error.is::<Interrupted>());
    }
}
