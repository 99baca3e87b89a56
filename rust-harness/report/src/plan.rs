//! Plans: what a run of tests will do, known before anything runs.

use anyhow::Result;

use crate::history::Durations;
use crate::job::Job;
use crate::partition;
use crate::selection::{Partition, Selection};
use crate::tier::Tier;
use crate::verdict::Row;

/// Is given the rows of a plan that has ended, and whether some of its tests may not have run:
/// the run's limit was reached, or an artefact could not be made. It is called while other tasks
/// wait to begin, and so must not take long.
pub(crate) type AtEnd<'a> = Box<dyn FnOnce(&[Row], bool) -> Result<()> + 'a>;

/// A step of a plan.
pub(crate) enum Step<'a> {
    /// Jobs that run in any order.
    Jobs(Vec<Job<'a>>),
    /// Jobs that run one after the other.
    Chain(Vec<Job<'a>>),
    /// Jobs that run when all steps before them in the same plan have ended.
    Last(Vec<Job<'a>>),
    /// A plan, and what is done at its end.
    Part(Plan<'a>, Option<AtEnd<'a>>),
}

/// The jobs of a run. They run in any order and side by side, but for what is said otherwise.
#[derive(Default)]
pub struct Plan<'a> {
    pub(crate) steps: Vec<Step<'a>>,
}

impl<'a> Plan<'a> {
    /// Adds jobs that run in any order.
    pub fn any(&mut self, jobs: impl IntoIterator<Item = Job<'a>>) {
        self.steps.push(Step::Jobs(jobs.into_iter().collect()));
    }

    /// Adds jobs that run one after the other, because each is done faster after the one before
    /// it.
    pub fn in_order(&mut self, jobs: impl IntoIterator<Item = Job<'a>>) {
        self.steps.push(Step::Chain(jobs.into_iter().collect()));
    }

    /// Adds a job that runs when all has ended that was added to this plan before.
    pub fn last(&mut self, job: Job<'a>) {
        self.steps.push(Step::Last(vec![job]));
    }

    /// Adds all steps of another plan.
    pub fn group(&mut self, plan: Self) {
        self.steps.push(Step::Part(plan, None));
    }

    /// Adds all steps of another plan. When they have ended, `at_end` is given their rows, and
    /// whether some of the tests may not have run: the run's limit was reached, or an artefact
    /// could not be made. It must not take long: meanwhile no other task begins.
    pub fn part(&mut self, plan: Self, at_end: impl FnOnce(&[Row], bool) -> Result<()> + 'a) {
        self.steps.push(Step::Part(plan, Some(Box::new(at_end))));
    }

    /// Puts the tests of earlier tiers into `tier`.
    pub fn at_least(&mut self, tier: Tier) {
        self.retain(&mut |job| {
            job.raise(tier);
            true
        });
    }

    /// Drops the tests that the selection does not take. Those that others need stay.
    pub fn select(&mut self, selection: &Selection) {
        self.retain(&mut |job| job.select(selection));
    }

    /// How many tests the selection takes, without those that others need.
    pub fn count(&self, selection: &Selection) -> usize {
        let mut count = 0;
        self.visit(&mut |job| count += job.count(selection));
        count
    }

    /// Drops the tests that are of other partitions. All partitions of a run are made of the
    /// same tests with the same `durations`. Those that others need belong to the first one,
    /// and to each if they failed.
    pub fn deal(&mut self, partition: Partition, durations: &Durations) {
        let mut shares = Vec::new();
        self.units(&mut |jobs| shares.push(partition::Share::of(jobs, durations)));
        let mut dealt = partition::deal(&shares, partition.count()).into_iter();
        self.units(&mut |jobs| {
            let is_mine = dealt.next() == Some(partition.place());
            jobs.retain(|job| {
                if job.is_decided_for_others() {
                    partition.place() == 0 || job.has_failed()
                } else {
                    is_mine
                }
            });
        });
    }

    /// Calls `each` with the jobs that are dealt together: each job, and all of a chain, which
    /// would take longer apart.
    fn units(&mut self, each: &mut impl FnMut(&mut Vec<Job<'a>>)) {
        for step in &mut self.steps {
            match step {
                Step::Chain(jobs) => each(jobs),
                Step::Jobs(jobs) | Step::Last(jobs) => {
                    let dealt = std::mem::take(jobs).into_iter().flat_map(|job| {
                        let mut alone = vec![job];
                        each(&mut alone);
                        alone
                    });
                    *jobs = dealt.collect();
                }
                Step::Part(plan, _) => plan.units(each),
            }
        }
    }

    /// Drops the jobs that are not `wanted`, which is asked in the plan's order.
    fn retain(&mut self, wanted: &mut impl FnMut(&mut Job<'a>) -> bool) {
        for step in &mut self.steps {
            match step {
                Step::Jobs(jobs) | Step::Chain(jobs) | Step::Last(jobs) => {
                    jobs.retain_mut(&mut *wanted);
                }
                Step::Part(plan, _) => plan.retain(wanted),
            }
        }
    }

    fn visit(&self, each: &mut impl FnMut(&Job<'a>)) {
        for step in &self.steps {
            match step {
                Step::Jobs(jobs) | Step::Chain(jobs) | Step::Last(jobs) => {
                    jobs.iter().for_each(&mut *each);
                }
                Step::Part(plan, _) => plan.visit(each),
            }
        }
    }

    /// The lines, `subject: name`, of all tests.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.visit(&mut |job| lines.extend(job.lines()));
        lines
    }

    /// Whether the line of a test contains `text`.
    pub fn is_there(&self, text: &str) -> bool {
        self.lines().iter().any(|line| line.contains(text))
    }

    /// Whether a test that was decided when the plan was made has failed. Tests that need it
    /// are not in the plan then.
    pub fn has_failed(&self) -> bool {
        let mut has_failed = false;
        self.visit(&mut |job| has_failed |= job.has_failed());
        has_failed
    }
}

#[cfg(test)]
mod tests;
