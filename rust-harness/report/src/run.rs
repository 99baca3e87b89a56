//! Runs of plans: as many tasks at once as the machine has CPUs and memory for, and the one
//! with the longest path behind it first.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};

use crate::artefact::Artefact;
use crate::graph::{Graph, Work};
use crate::history::{Durations, History};
use crate::job::Job;
use crate::limit::Limit;
use crate::outcome::Report;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::verdict::{Row, Verdict};
use host::memory;
use host::paths::Paths;
use host::process::Interrupted;
use host::progress::Overview;

/// How much memory a task is expected to take, in MiB: a guest has 1 GiB, and QEMU some more.
const MEMORY: u64 = 1536;

/// How a plan is run.
#[derive(Clone, Copy, Debug)]
pub struct Runner<'a> {
    /// Where the history of runs is kept.
    pub paths: &'a Paths,
    /// From when on no test begins any more.
    pub limit: Option<Limit>,
    /// How many tasks run at once at the most. `None`: as many as there are CPUs, and memory
    /// for them.
    pub at_once: Option<NonZeroUsize>,
}

impl<'a> Runner<'a> {
    /// A run without limits.
    pub fn new(paths: &'a Paths) -> Self {
        Self {
            paths,
            limit: None,
            at_once: None,
        }
    }

    /// Runs a plan, and keeps what was seen for later runs. Tests that have not begun when the
    /// limit is reached are skipped. If an artefact cannot be made, a row has the error, and
    /// the tests that need it are skipped.
    ///
    /// # Errors
    ///
    /// `Interrupted`, when the run is interrupted, and what a function at the end of a part
    /// returns. What goes wrong in a test is a row.
    pub fn run(&self, plan: Plan<'_>) -> Result<Report> {
        let history = History::load(self.paths)?;
        let mut seen = History::default();
        let outcome = self.rows(plan, history.durations(), &mut seen);
        if let Ok(rows) = &outcome {
            seen.saw(rows);
        }
        let kept = seen.keep(self.paths).context("keeping what was seen");
        let rows = outcome?;
        kept?;
        Ok(Report::from(rows))
    }

    fn at_once(&self) -> usize {
        self.at_once.map_or_else(
            || {
                let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
                let room = memory::available_mib().map_or(1, |mib| mib / MEMORY);
                cpus.min(usize::try_from(room).unwrap_or(cpus)).max(1)
            },
            NonZeroUsize::get,
        )
    }

    fn rows(&self, plan: Plan<'_>, durations: &Durations, seen: &mut History) -> Result<Vec<Row>> {
        let graph = Graph::of(plan, durations);
        let mut running = Running {
            limit: self.limit,
            rows: graph.works.iter().map(|_| Vec::new()).collect(),
            after: graph.tasks.iter().map(|task| task.after.clone()).collect(),
            names: graph.works.iter().map(name).collect(),
            schedule: Schedule::new(graph.tasks),
            works: graph.works.into_iter().map(Some).collect(),
            failed: BTreeMap::new(),
            tests: Counted::default(),
        };
        running.tests.all = running.works.iter().flatten().map(tests_of).sum();
        let at_once = self.at_once();
        thread::scope(|scope| {
            let (ended, outcomes) = mpsc::channel();
            let overview = Overview::start();
            loop {
                while running.schedule.running().len() < at_once {
                    let Some(place) = running.schedule.begin() else {
                        break;
                    };
                    running.begin(place, scope, &ended)?;
                }
                if running.schedule.is_done() {
                    break;
                }
                overview.show(&running.text(at_once));
                let Ended {
                    place,
                    outcome,
                    time,
                } = outcomes.recv().context("a task is lost")?;
                if let (true, Some(name)) = (outcome.is_work(), &running.names[place]) {
                    seen.took(name.clone(), time.as_secs_f64());
                }
                running.end(place, outcome)?;
            }
            anyhow::Ok(())
        })?;
        Ok(running.rows.into_iter().flatten().collect())
    }
}

/// The name by which it is known how long a task takes.
fn name(work: &Work<'_>) -> Option<String> {
    match work {
        Work::Make(artefact) => Some(artefact.name().to_owned()),
        Work::Run(job) => Some(job.name()),
        Work::End(..) => None,
    }
}

fn tests_of(work: &Work<'_>) -> usize {
    match work {
        Work::Run(job) => job.lines().count(),
        Work::Make(_) | Work::End(..) => 0,
    }
}

/// What came of a task.
enum Outcome {
    /// An artefact is there.
    Made,
    /// An artefact could not be made.
    NotMade(Error),
    /// An artefact was not made, since it was too late.
    Late,
    /// A job has decided its tests.
    Decided(Vec<Row>),
    /// The run was interrupted.
    Interrupted,
}

impl Outcome {
    /// Whether the time that the task took says how long it takes.
    fn is_work(&self) -> bool {
        match self {
            Self::Made => true,
            Self::Decided(rows) => !rows
                .iter()
                .all(|row| matches!(row.verdict(), Verdict::Skip(_))),
            Self::NotMade(_) | Self::Late | Self::Interrupted => false,
        }
    }
}

/// A task that has ended.
struct Ended {
    place: usize,
    outcome: Outcome,
    time: Duration,
}

/// How many tests there are, and how many are decided.
#[derive(Default)]
struct Counted {
    all: usize,
    decided: usize,
}

/// A run that is under way.
struct Running<'a> {
    limit: Option<Limit>,
    schedule: Schedule,
    /// What each task does, until it begins.
    works: Vec<Option<Work<'a>>>,
    /// For each task, those that ended before it began.
    after: Vec<Vec<usize>>,
    names: Vec<Option<String>>,
    /// The rows of each task.
    rows: Vec<Vec<Row>>,
    /// The names of the artefacts that are not there, by their tasks.
    failed: BTreeMap<usize, String>,
    tests: Counted,
}

impl<'a> Running<'a> {
    fn is_late(&self) -> bool {
        self.limit.is_some_and(|limit| limit.passed().is_some())
    }

    /// Begins a task in a thread of its own, which sends what came of it. What takes no time is
    /// done here.
    fn begin<'scope>(
        &mut self,
        place: usize,
        scope: &'scope Scope<'scope, '_>,
        ended: &Sender<Ended>,
    ) -> Result<()>
    where
        'a: 'scope,
    {
        let Some(work) = self.works[place].take() else {
            return Ok(());
        };
        let missing = self.after[place]
            .iter()
            .find_map(|first| self.failed.get(first));
        let missing = missing.cloned();
        let limit = self.limit;
        let body: Box<dyn FnOnce() -> Outcome + Send + 'a> = match (work, missing) {
            (Work::End(at_end, tasks), _) => {
                let rows: Vec<_> = self.rows[tasks].iter().flatten().cloned().collect();
                at_end(&rows, self.is_late())?;
                self.schedule.end(place);
                return Ok(());
            }
            (Work::Make(_), Some(missing)) => {
                self.failed.insert(place, missing);
                self.schedule.end(place);
                return Ok(());
            }
            (Work::Run(job), Some(missing)) => {
                let rows = job.not_run(&format!("not run without {missing}"))?;
                self.decided(place, rows);
                self.schedule.end(place);
                return Ok(());
            }
            (Work::Make(artefact), None) => Box::new(move || make(&artefact, limit)),
            (Work::Run(job), None) => Box::new(move || run(*job, limit)),
        };
        let ended = ended.clone();
        scope.spawn(move || {
            let start = Instant::now();
            let outcome = body();
            let time = start.elapsed();
            // The receiver stops at the first interruption.
            let _ = ended.send(Ended {
                place,
                outcome,
                time,
            });
        });
        Ok(())
    }

    fn decided(&mut self, place: usize, rows: Vec<Row>) {
        self.tests.decided += rows.len();
        self.rows[place] = rows;
    }

    fn end(&mut self, place: usize, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Made | Outcome::Late => {}
            Outcome::Interrupted => return Err(Interrupted.into()),
            Outcome::Decided(rows) => self.decided(place, rows),
            Outcome::NotMade(error) => {
                let name = self.names[place].clone().unwrap_or_default();
                // The row names the artefact as a test: that it can be made.
                self.rows[place] = Job::new("artefacts", &name, || Err(error)).run(None)?;
                self.failed.insert(place, name);
            }
        }
        self.schedule.end(place);
        Ok(())
    }

    /// How far the run is, in a line.
    fn text(&self, at_once: usize) -> String {
        let Counted { all, decided } = self.tests;
        let mut text = format!("{decided} of {all} tests");
        let running = self.schedule.running();
        let making = running.iter().filter(|place| {
            let mut after = self.after.iter().enumerate();
            after.any(|(next, first)| first.contains(place) && self.schedule.waits(next))
        });
        let making: BTreeSet<_> = making
            .filter_map(|place| self.names[*place].as_deref())
            .collect();
        if !making.is_empty() {
            let making: Vec<_> = making.into_iter().collect();
            let (wait, names) = (self.waiting(), making.join(", "));
            text += &format!("; {wait} tasks wait, for {names} first");
        }
        let minutes = self.schedule.seconds_left(at_once) / 60.0;
        text + &format!("; about {:.0} min left", minutes.ceil())
    }

    /// How many tasks wait for others.
    fn waiting(&self) -> usize {
        let waits = |(place, work): (usize, &Option<Work<'_>>)| {
            matches!(work, Some(Work::Run(_) | Work::Make(_))) && self.schedule.waits(place)
        };
        self.works
            .iter()
            .enumerate()
            .filter(|one| waits(*one))
            .count()
    }
}

fn make(artefact: &Artefact<'_>, limit: Option<Limit>) -> Outcome {
    if limit.is_some_and(|limit| limit.passed().is_some()) {
        return Outcome::Late;
    }
    match artefact.make() {
        Ok(()) => Outcome::Made,
        Err(error) if error.is::<Interrupted>() => Outcome::Interrupted,
        Err(error) => Outcome::NotMade(error),
    }
}

fn run(job: Job<'_>, limit: Option<Limit>) -> Outcome {
    // The only error of a job is that it was interrupted.
    job.run(limit)
        .map_or(Outcome::Interrupted, Outcome::Decided)
}

#[cfg(test)]
mod tests;
