//! Graphs: the tasks of a plan, and which of them wait for which.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::artefact::{Artefact, Conditions};
use crate::history::Durations;
use crate::job::Job;
use crate::plan::{AtEnd, Plan, Step};
use crate::schedule::Task;

/// What a task does.
pub(crate) enum Work<'a> {
    /// Makes an artefact, or finds it made.
    Make(Artefact<'a>),
    /// Runs a job.
    Run(Box<Job<'a>>),
    /// Ends a part of the plan, which is made of the tasks at these places.
    End(AtEnd<'a>, Range<usize>),
}

/// The tasks of a plan, each of which waits for some of those before it.
#[derive(Default)]
pub(crate) struct Graph<'a> {
    pub(crate) works: Vec<Work<'a>>,
    pub(crate) tasks: Vec<Task>,
    /// The place of each artefact, by its name.
    artefacts: BTreeMap<String, usize>,
}

impl<'a> Graph<'a> {
    /// The tasks of a plan. `durations` says how long some of them took before.
    pub(crate) fn of(plan: Plan<'a>, durations: &Durations) -> Self {
        let mut graph = Self::default();
        graph.plan(plan, durations);
        graph
    }

    /// Adds the steps of a plan. Returns the places of those tasks that come last.
    fn plan(&mut self, plan: Plan<'a>, durations: &Durations) -> Vec<usize> {
        let mut all = Vec::new();
        for step in plan.steps {
            match step {
                Step::Jobs(jobs) => {
                    let place = |job| self.job(job, Vec::new(), None, durations);
                    all.extend(jobs.into_iter().map(place));
                }
                Step::Chain(jobs) => {
                    for (nth, job) in jobs.into_iter().enumerate() {
                        let after = all.last().copied().filter(|_| nth > 0);
                        all.push(self.job(job, after.into_iter().collect(), after, durations));
                    }
                }
                Step::Last(jobs) => {
                    let place = |job| self.job(job, all.clone(), None, durations);
                    let last: Vec<_> = jobs.into_iter().map(place).collect();
                    all.extend(last);
                }
                Step::Part(plan, at_end) => {
                    let first = self.works.len();
                    let tasks = self.plan(plan, durations);
                    let Some(at_end) = at_end else {
                        all.extend(tasks);
                        continue;
                    };
                    let end = Work::End(at_end, first..self.works.len());
                    let task = Task {
                        after: tasks,
                        ..Task::default()
                    };
                    all.push(self.push(end, task));
                }
            }
        }
        all
    }

    fn job(
        &mut self,
        job: Job<'a>,
        after: Vec<usize>,
        follows: Option<usize>,
        durations: &Durations,
    ) -> usize {
        let seconds = job.expected(durations);
        let (tests, tier) = (job.lines().count(), job.tier());
        let mut task = Task {
            tests,
            tier,
            ..self.task(job.conditions(), seconds, durations)
        };
        task.after.extend(after);
        task.follows = follows;
        self.push(Work::Run(Box::new(job)), task)
    }

    fn artefact(&mut self, artefact: &Artefact<'a>, durations: &Durations) -> usize {
        if let Some(place) = self.artefacts.get(artefact.name()) {
            return *place;
        }
        let seconds = artefact.expected(durations);
        let task = self.task(artefact.conditions(), seconds, durations);
        let place = self.push(Work::Make(artefact.clone()), task);
        self.artefacts.insert(artefact.name().to_owned(), place);
        place
    }

    /// The task that begins under these conditions. The artefacts that it needs are added.
    fn task(&mut self, conditions: &Conditions<'a>, seconds: f64, durations: &Durations) -> Task {
        let needs = conditions.needs.iter();
        Task {
            after: needs.map(|first| self.artefact(first, durations)).collect(),
            holds: conditions.holds.clone(),
            seconds,
            ..Task::default()
        }
    }

    fn push(&mut self, work: Work<'a>, mut task: Task) -> usize {
        task.after.sort_unstable();
        task.after.dedup();
        self.works.push(work);
        self.tasks.push(task);
        self.works.len() - 1
    }
}
