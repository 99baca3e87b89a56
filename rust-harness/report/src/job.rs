//! Jobs: tests that are decided together.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::artefact::{Artefact, Conditions};
use crate::body;
use crate::history::Durations;
use crate::selection::Selection;
use crate::tier::Tier;
use crate::verdict::{Decided, Row, Verdict};
use host::process::{self, Interrupted};
use host::retries;

/// How long a job is expected to take that never ran, in seconds: a short test with its boot.
const UNKNOWN: f64 = 10.0;

/// The function of a job. It is given the places of those tests that are wanted, and returns a
/// verdict for each of them.
type Body<'a> = Box<dyn FnOnce(&[usize]) -> Result<Vec<Decided>> + Send + 'a>;

/// The verdicts at the places `wanted`, of those of `count` tests that were decided together.
///
/// # Errors
///
/// When there is not a verdict for each test.
pub fn wanted_of<V: Clone>(verdicts: &[V], count: usize, wanted: &[usize]) -> Result<Vec<V>> {
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

/// A test of a job.
#[derive(Clone, Debug)]
struct JobTest {
    name: String,
    /// The first tier that has the test.
    tier: Tier,
}

/// One or several tests of one subject that are decided together.
pub struct Job<'a> {
    /// What the tests are about, which is the first part of their lines: `7.3.4 patched`,
    /// `plugin`, `rust`.
    subject: String,
    tests: Vec<JobTest>,
    /// The places in `tests` of those that are wanted.
    wanted: Vec<usize>,
    body: Body<'a>,
    conditions: Conditions<'a>,
    decision: Decision,
}

/// When it is known what comes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// When its body has run.
    Running,
    /// Before it runs: its tests are skipped.
    Skipped,
    /// Since the plan was made. Others need what the job has made, so it is there whether it is
    /// wanted or not.
    WhenPlanned {
        /// Whether the job failed.
        has_failed: bool,
    },
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
    /// given the places of those that are wanted, and returns what came of each of them.
    pub fn partial<V: Into<Decided>>(
        subject: impl Into<String>,
        tests: Vec<String>,
        body: impl FnOnce(&[usize]) -> Result<Vec<V>> + Send + 'a,
    ) -> Self {
        let test = |name| JobTest {
            name,
            tier: Tier::default(),
        };
        Self {
            subject: subject.into(),
            wanted: (0..tests.len()).collect(),
            tests: tests.into_iter().map(test).collect(),
            body: Box::new(|wanted| Ok(body(wanted)?.into_iter().map(Into::into).collect())),
            conditions: Conditions::default(),
            decision: Decision::Running,
        }
    }

    /// A job of one test that cannot run here. Its verdict is SKIP, with this reason.
    pub fn skipped(
        subject: impl Into<String>,
        test: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        let job = Self::new(subject, test, || Ok(Verdict::pass()));
        job.or_skipped(Some(reason))
    }

    /// A job of one test that was decided when the plan was made, since others need what it
    /// has made.
    pub fn decided(subject: impl Into<String>, test: impl Into<String>, verdict: Verdict) -> Self {
        Self {
            decision: Decision::WhenPlanned {
                has_failed: matches!(verdict, Verdict::Fail(_)),
            },
            ..Self::new(subject, test, || Ok(verdict))
        }
    }

    /// This job, which begins when `artefacts` are there.
    #[must_use]
    pub fn needing(mut self, artefacts: impl IntoIterator<Item = Artefact<'a>>) -> Self {
        self.conditions.needs.extend(artefacts);
        self
    }

    /// This job, beside which no other task runs that holds the same resource. It holds one
    /// resource at the most.
    #[must_use]
    pub fn holding(mut self, resource: impl Into<String>) -> Self {
        self.conditions.holds = Some(resource.into());
        self
    }

    /// This job, whose tests are in `tier` and those after it.
    #[must_use]
    pub fn in_tier(self, tier: Tier) -> Self {
        let tiers = vec![tier; self.tests.len()];
        self.in_tiers(&tiers)
    }

    /// This job, with the first tier of each of its tests.
    #[must_use]
    pub fn in_tiers(mut self, tiers: &[Tier]) -> Self {
        debug_assert_eq!(tiers.len(), self.tests.len());
        for (test, tier) in self.tests.iter_mut().zip(tiers) {
            test.tier = *tier;
        }
        self
    }

    /// This job, or, where there is a reason, a job that skips its tests for that reason.
    pub fn or_skipped(self, reason: Option<impl Into<String>>) -> Self {
        let Some(reason) = reason.map(Into::into) else {
            return self;
        };
        Self {
            body: Box::new(move |wanted| Ok(vec![Verdict::Skip(reason).into(); wanted.len()])),
            conditions: Conditions::default(),
            decision: Decision::Skipped,
            ..self
        }
    }

    /// Puts the tests of earlier tiers into `tier`.
    pub(crate) fn raise(&mut self, tier: Tier) {
        for test in &mut self.tests {
            test.tier = test.tier.max(tier);
        }
    }

    /// The first tier that has one of the wanted tests.
    pub(crate) fn tier(&self) -> Tier {
        let wanted = self.wanted.iter();
        let tiers = wanted.map(|place| self.tests[*place].tier);
        tiers.min().unwrap_or_default()
    }

    /// Under which conditions the job begins.
    pub(crate) fn conditions(&self) -> &Conditions<'a> {
        &self.conditions
    }

    /// The name of the job, which tells it from others: its first test, and how many more it
    /// has, whether they are wanted or not.
    pub(crate) fn name(&self) -> String {
        let Some((first, more)) = self.tests.split_first() else {
            return self.subject.clone();
        };
        let first = format!("{}: {}", self.subject, first.name);
        match more.len() {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    }

    /// Whether all tests of the job are wanted, so that it takes as long as it ever does.
    pub(crate) fn is_whole(&self) -> bool {
        self.wanted.len() == self.tests.len()
    }

    /// How long the job is expected to take, in seconds.
    pub(crate) fn expected(&self, durations: &Durations) -> f64 {
        if self.decision != Decision::Running {
            return 0.0;
        }
        durations.get(&self.name()).copied().unwrap_or(UNKNOWN)
    }

    /// The lines, `subject: name`, of the tests that are wanted.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let wanted = self.wanted.iter();
        wanted.map(|place| format!("{}: {}", self.subject, self.tests[*place].name))
    }

    /// Whether the job was decided when the plan was made, and failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.decision == Decision::WhenPlanned { has_failed: true }
    }

    /// How many of the wanted tests the selection takes.
    pub(crate) fn count(&self, selection: &Selection) -> usize {
        if self.is_decided_for_others() {
            return 0;
        }
        let tests = self.wanted.iter().map(|place| &self.tests[*place]);
        let taken = tests.filter(|test| selection.takes(&self.subject, &test.name, test.tier));
        taken.count()
    }

    /// Whether the job was decided when the plan was made.
    pub(crate) fn is_decided_for_others(&self) -> bool {
        matches!(self.decision, Decision::WhenPlanned { .. })
    }

    /// Drops the tests that the selection does not take. Returns whether the job is to run.
    pub(crate) fn select(&mut self, selection: &Selection) -> bool {
        if self.is_decided_for_others() {
            return true;
        }
        let (subject, tests) = (&self.subject, &self.tests);
        self.wanted.retain(|place| {
            let JobTest { name, tier } = &tests[*place];
            selection.takes(subject, name, *tier)
        });
        !self.wanted.is_empty()
    }

    /// The rows of a job that is not run, for this reason.
    pub(crate) fn not_run(self, reason: &str) -> Result<Vec<Row>> {
        self.or_skipped(Some(reason)).run()
    }

    /// Whether the job is still to be decided, by running it.
    pub(crate) fn is_to_run(&self) -> bool {
        self.decision == Decision::Running
    }

    /// Runs the job. Returns a row for each test that is wanted. An error of the job's body is a
    /// failure of all of them.
    ///
    /// # Errors
    ///
    /// [`Interrupted`], when this program was interrupted.
    pub(crate) fn run(self) -> Result<Vec<Row>> {
        let (start, count) = (Instant::now(), self.wanted.len());
        retries::take();
        let mut verdicts = match body::call(|| (self.body)(&self.wanted)) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => vec![Verdict::Fail(format!("{error:#}")).into(); count],
            Ok(verdicts) if verdicts.len() != count => {
                let reason = format!(
                    "{} verdicts for {count} tests: a mistake of the harness",
                    verdicts.len()
                );
                vec![Verdict::Fail(reason).into(); count]
            }
            Ok(verdicts) => verdicts,
        };
        let has_failed = |decided: &Decided| matches!(decided.verdict, Verdict::Fail(_));
        if process::interrupted() && verdicts.iter().any(has_failed) {
            // The interruption has ended what the test started, too: it says nothing.
            return Err(Interrupted.into());
        }
        if let Some(first) = verdicts.first_mut() {
            first.retries += retries::take();
        }
        let tests = self.wanted.iter().map(|place| &self.tests[*place]);
        let rows = tests.zip(verdicts);
        let time = start.elapsed();
        Ok(rows
            .map(|(test, decided)| Row::announced(&self.subject, &test.name, decided, time))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    /// The verdicts of a job of two tests with this body.
    fn of_two(body: impl FnOnce() -> Result<Vec<Verdict>> + Send) -> Vec<Verdict> {
        let job = Job::several("x", ["a", "b"].map(str::to_owned).to_vec(), body);
        let rows = job.run().unwrap();
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
    fn a_panic_fails_the_tests_of_its_job() {
        let verdicts = of_two(|| panic!("at the disco"));
        let failed = Verdict::Fail("it panicked: at the disco".to_owned());
        assert_eq!(verdicts, vec![failed; 2]);
    }

    #[test]
    fn only_what_is_wanted_is_decided() {
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let mut job = Job::partial("x", names, |wanted| {
            assert_eq!(wanted, [1]);
            Ok(vec![Verdict::pass()])
        });
        assert!(job.select(&Selection::of(Some("x: b".to_owned()), Tier::Quick)));
        let rows = job.run().unwrap();
        assert_eq!((rows.len(), &*rows[0].test), (1, "b"));
    }

    #[test]
    fn what_was_done_again_for_a_job_is_told_once() {
        retries::note();
        let names = ["a", "b"].map(str::to_owned).to_vec();
        let again = Decided {
            verdict: Verdict::pass(),
            retries: 1,
        };
        let job = Job::partial("x", names, |_| {
            retries::note();
            retries::note();
            Ok(vec![again.clone(), Verdict::pass().into()])
        });
        let rows = job.run().unwrap();
        assert_eq!([rows[0].retries, rows[1].retries], [3, 0]);
    }

    #[test]
    fn a_job_has_the_tests_of_its_tier_and_those_before() {
        let job = || {
            let names = ["a", "b"].map(str::to_owned).to_vec();
            let job = Job::partial("x", names, |_| Ok(Vec::<Verdict>::new()));
            job.in_tiers(&[Tier::Quick, Tier::All])
        };
        let lines = |tier| {
            let mut job = job();
            job.select(&Selection::of(None, tier));
            job.lines().collect::<Vec<_>>()
        };
        assert_eq!(lines(Tier::Quick), ["x: a"]);
        assert_eq!(lines(Tier::Full), ["x: a"]);
        assert_eq!(lines(Tier::All), ["x: a", "x: b"]);
        assert_eq!(job().name(), "x: a and 1 more");
    }
}
