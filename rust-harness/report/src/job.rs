//! Jobs: tests that need nothing of each other, and so can run side by side.
//!
//! Most of the time a guest keeps little more than one CPU busy. With as many guests as CPUs,
//! a run of all tests on two CPUs takes little more than half as long.

use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::verdict::Verdict;
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

/// The function of a job. It returns a verdict for each of the job's tests.
type Body<'a> = Box<dyn FnOnce() -> Result<Vec<Verdict>> + Send + 'a>;

/// One or several tests of one subject that are decided together.
pub struct Job<'a> {
    /// What the tests are about, which is the first part of their lines: `7.3.4 patched`,
    /// `plugin`, `rust`.
    pub subject: String,
    /// The names of the tests.
    pub tests: Vec<String>,
    body: Body<'a>,
}

/// The result of a job: a verdict for each of its tests, in their order, and the time that
/// the job took.
pub type Outcome = (Vec<Verdict>, Duration);

impl<'a> Job<'a> {
    /// A job of one test. `body` returns its verdict.
    pub fn new(
        subject: impl Into<String>,
        test: impl Into<String>,
        body: impl FnOnce() -> Result<Verdict> + Send + 'a,
    ) -> Self {
        Self::several(subject, vec![test.into()], || Ok(vec![body()?]))
    }

    /// A job of several tests. `body` returns as many verdicts, in the same order.
    pub fn several(
        subject: impl Into<String>,
        tests: Vec<String>,
        body: impl FnOnce() -> Result<Vec<Verdict>> + Send + 'a,
    ) -> Self {
        Self {
            subject: subject.into(),
            tests,
            body: Box::new(body),
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

    /// This job, or, where there is a reason, a job that skips the same tests for that
    /// reason.
    pub fn or_skipped(self, reason: Option<&'a str>) -> Self {
        let Some(reason) = reason else {
            return self;
        };
        let count = self.tests.len();
        Self {
            body: Box::new(move || Ok(vec![Verdict::Skip(reason.to_owned()); count])),
            ..self
        }
    }

    /// This job with a limit: if the limit has been reached when the job is to begin, its
    /// tests are skipped.
    pub fn within(self, limit: Option<Limit>) -> Self {
        let Some(limit) = limit else {
            return self;
        };
        let (count, body) = (self.tests.len(), self.body);
        Self {
            body: Box::new(move || match limit.passed() {
                Some(reason) => Ok(vec![Verdict::Skip(reason); count]),
                None => body(),
            }),
            ..self
        }
    }

    /// Runs the job. An error of its body is a failure of all its tests, unless this program
    /// was interrupted: only [`Interrupted`] is returned as an error.
    pub fn run(self) -> Result<Outcome> {
        let start = Instant::now();
        let verdicts = match (self.body)() {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => vec![Verdict::Fail(format!("{error:#}")); self.tests.len()],
            Ok(verdicts) if verdicts.len() != self.tests.len() => {
                let reason = format!(
                    "{} verdicts for {} tests: a mistake of the harness",
                    verdicts.len(),
                    self.tests.len()
                );
                vec![Verdict::Fail(reason); self.tests.len()]
            }
            Ok(verdicts) => verdicts,
        };
        Ok((verdicts, start.elapsed()))
    }
}

/// Runs jobs side by side, as many at a time as there are CPUs, at the most [`MAX_JOBS`]. Calls
/// `done` for each job that has ended, with its place in `jobs` and its outcome.
///
/// # Errors
///
/// [`Interrupted`], when the run is interrupted. What is under way then ends first.
pub(crate) fn run_all(jobs: Vec<Job<'_>>, mut done: impl FnMut(usize, Outcome)) -> Result<()> {
    let at_once = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let at_once = at_once.min(MAX_JOBS).min(jobs.len());
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        let (ended, outcomes) = mpsc::channel();
        for _ in 0..at_once {
            let (ended, next) = (ended.clone(), &next);
            scope.spawn(move || {
                while let Some((place, job)) = next() {
                    let outcome = job.run();
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
            done(place, outcome?);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use anyhow::bail;

    use super::*;

    #[test]
    fn each_job_is_run_once_and_told_by_its_place() {
        let job = |number: usize| {
            Job::new("x", number.to_string(), move || {
                Ok(Verdict::Pass(number.to_string()))
            })
        };
        let mut seen = vec![None; 20];
        run_all((0..20).map(job).collect(), |place, (verdicts, _)| {
            assert_eq!(seen[place].replace(verdicts), None);
        })
        .unwrap();
        for (place, verdicts) in seen.into_iter().enumerate() {
            assert_eq!(verdicts, Some(vec![Verdict::Pass(place.to_string())]));
        }
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
        run_all(jobs.collect(), |_, _| {}).unwrap();
    }

    #[test]
    fn a_test_without_a_verdict_has_failed() {
        let names = vec!["a".to_owned(), "b".to_owned()];
        let job = Job::several("x", names, || Ok(vec![Verdict::pass()]));
        let (verdicts, _) = job.run().unwrap();
        assert_eq!(verdicts.len(), 2);
        let reason = verdicts[0].reason();
        assert!(reason.starts_with("1 verdicts for 2 tests"), "{reason}");
    }

    #[test]
    fn an_error_fails_all_tests_of_its_job() {
        let names = vec!["a".to_owned(), "b".to_owned()];
        let job = Job::several("x", names, || bail!("broken"));
        let (verdicts, _) = job.run().unwrap();
        assert_eq!(verdicts, vec![Verdict::Fail("broken".to_owned()); 2]);
    }

    #[test]
    fn nothing_begins_when_it_is_too_late() {
        let job = |minutes| {
            let job = Job::new("x", "y", || Ok(Verdict::pass()));
            job.within(Some(Limit::of_minutes(minutes))).run().unwrap()
        };
        assert_eq!(job(60).0, [Verdict::pass()]);
        let (late, _) = job(0);
        assert!(late[0].reason().contains("the 0 minutes"), "{late:?}");
        assert!(matches!(late[0], Verdict::Skip(_)));
    }

    #[test]
    fn an_interruption_ends_the_run() {
        let jobs = (0..10).map(|_| Job::new("x", "y", || Err(Interrupted.into())));
        let error = run_all(jobs.collect(), |_, _| panic!("it has no outcome")).unwrap_err();
        assert!(error.is::<Interrupted>());
    }
}
