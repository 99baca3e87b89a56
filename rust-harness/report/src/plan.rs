//! Plans: what a run of tests will do, known before anything runs.

use anyhow::Result;

use crate::job::{self, Job, Limit};
use crate::outcome::Report;
use crate::selection::Selection;
use crate::verdict::Row;

/// Makes what the jobs of a step need.
type Prepare<'a> = Box<dyn FnOnce() -> Result<()> + 'a>;
/// Is given the rows of a plan that has ended, and whether the plan's limit was reached.
type AtEnd<'a> = Box<dyn FnOnce(&[Row], bool) -> Result<()> + 'a>;

/// A step of a plan.
enum PlanStep<'a> {
    /// Jobs that need nothing of each other. They run side by side.
    Jobs {
        jobs: Vec<Job<'a>>,
        prepare: Option<Prepare<'a>>,
    },
    /// A plan, and what is done at its end.
    Part { plan: Plan<'a>, at_end: AtEnd<'a> },
}

/// The jobs of a run, in steps that come one after the other.
#[derive(Default)]
pub struct Plan<'a> {
    steps: Vec<PlanStep<'a>>,
}

impl<'a> Plan<'a> {
    /// Adds a job that runs alone, after what was planned before.
    pub fn then(&mut self, job: Job<'a>) {
        self.side_by_side(vec![job]);
    }

    /// Adds jobs that run one after the other.
    pub fn in_order(&mut self, jobs: impl IntoIterator<Item = Job<'a>>) {
        jobs.into_iter().for_each(|job| self.then(job));
    }

    /// Adds jobs that run side by side.
    pub fn side_by_side(&mut self, jobs: Vec<Job<'a>>) {
        let prepare = None;
        self.steps.push(PlanStep::Jobs { jobs, prepare });
    }

    /// Adds jobs that run side by side. If any of them is to run, `prepare` first makes what
    /// all of them need. If that fails, none of them runs, and the row of a test `kernel` has
    /// the error.
    pub fn side_by_side_on(
        &mut self,
        jobs: Vec<Job<'a>>,
        prepare: impl FnOnce() -> Result<()> + 'a,
    ) {
        let prepare: Option<Prepare<'a>> = Some(Box::new(prepare));
        self.steps.push(PlanStep::Jobs { jobs, prepare });
    }

    /// Adds all steps of another plan.
    pub fn append(&mut self, plan: Self) {
        self.steps.extend(plan.steps);
    }

    /// Adds all steps of another plan. When they have run, `at_end` is given their rows, and
    /// whether the limit of the run was reached.
    pub fn part(&mut self, plan: Self, at_end: impl FnOnce(&[Row], bool) -> Result<()> + 'a) {
        let at_end = Box::new(at_end);
        self.steps.push(PlanStep::Part { plan, at_end });
    }

    /// Drops the tests that the selection does not take. Those that others need are dropped
    /// only in the partitions that they do not belong to, and stay there too if they failed.
    pub fn select(&mut self, selection: &mut Selection) {
        for step in &mut self.steps {
            match step {
                PlanStep::Jobs { jobs, .. } => jobs.retain_mut(|job| job.select(selection)),
                PlanStep::Part { plan, .. } => plan.select(selection),
            }
        }
    }

    /// The lines, `subject: name`, of all tests.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for step in &self.steps {
            match step {
                PlanStep::Jobs { jobs, .. } => lines.extend(jobs.iter().flat_map(Job::lines)),
                PlanStep::Part { plan, .. } => lines.extend(plan.lines()),
            }
        }
        lines
    }

    /// Whether the line of a test contains `text`.
    pub fn is_there(&self, text: &str) -> bool {
        self.lines().iter().any(|line| line.contains(text))
    }

    /// Whether a test that was decided when the plan was made has failed. Tests that need it
    /// are not in the plan then.
    pub fn has_failed(&self) -> bool {
        self.steps.iter().any(|step| match step {
            PlanStep::Jobs { jobs, .. } => jobs.iter().any(Job::has_failed),
            PlanStep::Part { plan, .. } => plan.has_failed(),
        })
    }

    /// Runs the plan. Tests that have not begun when the limit is reached are skipped.
    ///
    /// # Errors
    ///
    /// `Interrupted`, when the run is interrupted, and what a function at the end of a
    /// part returns. What goes wrong in a test is a row.
    pub fn run(self, limit: Option<Limit>) -> Result<Report> {
        let mut rows = Vec::new();
        self.add_rows(limit, &mut rows)?;
        Ok(Report::from(rows))
    }

    fn add_rows(self, limit: Option<Limit>, rows: &mut Vec<Row>) -> Result<()> {
        let is_late = || limit.is_some_and(|limit| limit.passed().is_some());
        for step in self.steps {
            match step {
                PlanStep::Jobs { jobs, prepare } => {
                    let Some(first) = jobs.first() else {
                        continue;
                    };
                    let subject = first.subject().to_owned();
                    let prepared = match prepare {
                        Some(prepare) if !is_late() => prepare(),
                        _ => Ok(()),
                    };
                    rows.extend(match prepared {
                        Ok(()) => job::run_all(jobs, limit)?,
                        Err(error) => Job::new(subject, "kernel", || Err(error)).run(None)?,
                    });
                }
                PlanStep::Part { plan, at_end } => {
                    let before = rows.len();
                    plan.add_rows(limit, rows)?;
                    at_end(&rows[before..], is_late())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::bail;

    use super::*;
    use crate::verdict::Verdict;
    use host::process::Interrupted;

    fn passing(subject: &'static str, test: &'static str) -> Job<'static> {
        Job::new(subject, test, || Ok(Verdict::pass()))
    }

    fn only(text: &str) -> Selection {
        Selection::new(Some(text.to_owned()), None)
    }

    /// A plan of the tests `7.3: a` to `7.3: e`, of which the first is one that others need.
    fn five() -> Plan<'static> {
        let mut plan = Plan::default();
        plan.then(Job::decided("7.3", "a", Verdict::pass()));
        plan.then(passing("7.3", "b"));
        plan.side_by_side(["c", "d", "e"].map(|test| passing("7.3", test)).into());
        plan
    }

    #[test]
    fn only_what_is_wanted_runs() {
        let mut plan = Plan::default();
        plan.in_order([
            passing("7.3", "builds"),
            Job::new("7.3", "boots", || bail!("not wanted")),
            Job::new("7.0", "builds", || bail!("not wanted")),
        ]);
        plan.select(&mut only("7.3: build"));
        assert_eq!(plan.run(None).unwrap().counts(), (1, 0, 0));
    }

    #[test]
    fn partitions_together_are_all_tests() {
        let part = |text: &str| {
            let mut plan = five();
            plan.select(&mut Selection::new(None, Some(text.parse().unwrap())));
            plan.lines()
        };
        let (first, second) = (part("1/2"), part("2/2"));
        assert_eq!((first.len(), second.len()), (3, 2));
        let mut all = [first, second].concat();
        all.sort_unstable();
        assert_eq!(all, five().lines());
    }

    #[test]
    fn what_others_need_is_there_whatever_is_wanted() {
        let mut plan = five();
        plan.select(&mut only("7.3: e"));
        assert_eq!(plan.lines(), ["7.3: a", "7.3: e"]);
        let mut plan = Plan::default();
        plan.then(passing("7.3", "x"));
        plan.then(Job::decided("7.3", "a", Verdict::Fail("no".to_owned())));
        plan.select(&mut Selection::new(None, Some("1/2".parse().unwrap())));
        assert!(plan.has_failed() && !five().has_failed());
        let report = plan.run(None).unwrap();
        assert_eq!(report.counts(), (1, 1, 0), "a failure is told everywhere");
    }

    #[test]
    fn a_plan_names_its_tests_and_runs_nothing() {
        let mut plan = five();
        plan.side_by_side_on(
            vec![Job::new("7.3", "f", || bail!("not to be run"))],
            || bail!("not to be prepared"),
        );
        let expected = ["a", "b", "c", "d", "e", "f"].map(|test| format!("7.3: {test}"));
        assert_eq!(plan.lines(), expected);
    }

    #[test]
    fn what_cannot_be_prepared_fails_once() {
        let mut plan = Plan::default();
        let jobs = ["a", "b"].map(|name| Job::new("7.3", name, || bail!("not to be run")));
        plan.side_by_side_on(jobs.into(), || bail!("no kernel"));
        plan.side_by_side_on(Vec::new(), || bail!("nobody asked"));
        let report = plan.run(None).unwrap();
        assert_eq!(report.counts(), (0, 1, 0));
        assert_eq!(report.rows()[0].verdict().reason(), "no kernel");
    }

    #[test]
    fn what_is_too_late_is_skipped_and_nothing_is_prepared_for_it() {
        let mut plan = Plan::default();
        plan.then(Job::new("7.3", "a", || bail!("begun")));
        plan.side_by_side_on(vec![Job::new("7.3", "b", || bail!("begun"))], || {
            bail!("prepared")
        });
        plan.then(Job::decided("7.3", "c", Verdict::pass()));
        let report = plan.run(Some(Limit::of_minutes(0))).unwrap();
        assert_eq!(report.counts(), (1, 0, 2));
    }

    #[test]
    fn a_part_ends_with_its_rows_alone() {
        let seen = RefCell::new(Vec::new());
        let mut plan = five();
        plan.part(five(), |rows, is_late| {
            seen.borrow_mut()
                .extend(rows.iter().map(|row| row.test.clone()));
            assert!(!is_late);
            Ok(())
        });
        assert_eq!(plan.run(None).unwrap().counts(), (10, 0, 0));
        assert_eq!(*seen.borrow(), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn an_error_fails_its_test_but_an_interruption_ends_the_run() {
        let mut plan = Plan::default();
        plan.then(Job::new("x", "y", || bail!("broken")));
        assert_eq!(plan.run(None).unwrap().counts(), (0, 1, 0));
        let mut plan = five();
        plan.then(Job::new("x", "z", || Err(Interrupted.into())));
        assert!(plan.run(None).unwrap_err().is::<Interrupted>());
    }
}
