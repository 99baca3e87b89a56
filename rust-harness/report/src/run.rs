//! Runs of plans: as many tasks at once as keep the CPUs busy and have memory, and first the
//! one from which it is the longest way to the end of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use crate::artefact::Artefact;
use crate::body;
use crate::graph::{Graph, Work};
use crate::history::{Durations, FOUND, History};
use crate::job::Job;
use crate::limit::Limit;
use crate::outcome::Report;
use crate::plan::Plan;
use crate::schedule::{First, Schedule};
use crate::verdict::{Row, Verdict};
use host::cache;
use host::memory;
use host::paths::Paths;
use host::process::Interrupted;
use host::progress::{self, Overview};

/// How much memory a task is expected to take, in MiB: a guest has 1 GiB, and QEMU some more.
const MEMORY: u64 = 1536;
/// A disk that has less free space, in bytes, is taken for a full one: what needed more may have
/// removed what it had written by then.
const LEAST_ROOM: u64 = 64 << 20;
/// How often it is shown how far a run is.
const REFRESH: Duration = Duration::from_secs(5);
/// The subject of the rows of what is no test.
const RUN: &str = "run";

/// How a plan is run.
#[derive(Clone, Copy, Debug)]
pub struct Runner<'a> {
    /// Where the history of runs is kept.
    pub paths: &'a Paths,
    /// Whether the run is kept in the history. One on other machines or of another kind would
    /// mislead.
    pub is_kept: bool,
    /// From when on no test begins any more.
    pub limit: Option<Limit>,
    /// With how many bytes of free space below the caches a failure is taken for one of a full disk.
    /// Then nothing begins any more.
    pub least_room: u64,
    /// How many tasks run at once at the most. `None`: half as many again as there are CPUs, as
    /// far as there is memory for them.
    pub at_once: Option<NonZeroUsize>,
}

impl<'a> Runner<'a> {
    /// A run without limits, which is kept in the history.
    pub fn new(paths: &'a Paths) -> Self {
        Self {
            paths,
            is_kept: true,
            limit: None,
            least_room: LEAST_ROOM,
            at_once: None,
        }
    }

    /// Runs a plan, and keeps what was seen for later runs. Tests that have not begun when the
    /// limit is reached are skipped. If an artefact cannot be made, or a function at the end of
    /// a part fails, a row of the subject `run` has the error. The tests that need the artefact
    /// are skipped.
    ///
    /// # Errors
    ///
    /// `Interrupted`, when the run is interrupted. What has ended by then is kept in the history.
    pub fn run(&self, plan: Plan<'_>) -> Result<Report> {
        let expected = History::load(self.paths)?.expected(self.paths)?;
        let mut seen = History::default();
        let outcome = self.report(plan, &expected, &mut seen);
        if self.is_kept
            && let Err(error) = seen.keep(self.paths)
        {
            progress::say(&format!("brbe: how long tests took is not kept: {error:#}"));
        }
        outcome
    }

    /// Why nothing begins any more, if the disk is full. Said at once, too: what failed by that says
    /// so in other words, or not at all.
    fn full(&self) -> Option<String> {
        let room = cache::room(self.paths).ok()?;
        (room < self.least_room).then(|| {
            let why = format!(
                "not begun: the file system of {} has {} MiB free, and what failed then says nothing. \
                 Make room there, as by ./brbe clean, and start again: what was built is kept",
                self.paths.home("").display(),
                room >> 20
            );
            progress::say(&format!("brbe: {why}"));
            why
        })
    }

    fn at_once(&self) -> usize {
        self.at_once.map_or_else(
            || {
                let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
                let room = memory::available_mib().map_or(1, |mib| mib / MEMORY);
                // Guests and builds wait now and then: for each other, for a disk, for a time-out.
                let tasks = cpus + cpus.div_ceil(2);
                tasks.min(usize::try_from(room).unwrap_or(tasks)).max(1)
            },
            NonZeroUsize::get,
        )
    }

    fn report(&self, plan: Plan<'_>, durations: &Durations, seen: &mut History) -> Result<Report> {
        let graph = Graph::of(plan, durations);
        let mut running = Running {
            runner: self,
            full: None,
            on_full_disk: BTreeSet::new(),
            rows: graph.works.iter().map(|_| Vec::new()).collect(),
            names: graph.works.iter().map(name).collect(),
            is_artefact: graph
                .works
                .iter()
                .map(|work| matches!(work, Work::Make(_)))
                .collect(),
            begun: BTreeMap::new(),
            seen,
            schedule: Schedule::new(graph.tasks),
            works: graph.works.into_iter().map(Some).collect(),
            failed: BTreeMap::new(),
            made: Made::default(),
            tests: Counted::default(),
        };
        running.tests.all = running.works.iter().flatten().map(tests_of).sum();
        let at_once = self.at_once();
        thread::scope(|scope| {
            let (ended, outcomes) = mpsc::channel();
            let overview = Overview::start();
            loop {
                let first = running.first(at_once);
                while running.schedule.running().len() < at_once {
                    let Some(place) = running.schedule.begin(first) else {
                        break;
                    };
                    running.begin(place, scope, &ended)?;
                }
                if running.schedule.is_done() {
                    break;
                }
                overview.show(&running.text(at_once));
                if let Ok(ended) = outcomes.recv_timeout(REFRESH) {
                    running.end(ended)?;
                }
            }
            anyhow::Ok(())
        })?;
        let rows: Vec<_> = running.rows.into_iter().flatten().collect();
        Ok(Report::from(rows).with_late(running.tests.late))
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

/// How many tests a task has.
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
    /// A job has decided its tests. `is_whole`: all that it has.
    Decided { rows: Vec<Row>, is_whole: bool },
    /// The run was interrupted.
    Interrupted,
}

impl Outcome {
    fn has_failed(&self) -> bool {
        let is_failure = |row: &Row| matches!(row.verdict(), Verdict::Fail(_));
        match self {
            Self::NotMade(_) => true,
            Self::Decided { rows, .. } => rows.iter().any(is_failure),
            Self::Made | Self::Late | Self::Interrupted => false,
        }
    }

    /// Whether `seconds` is how long the task takes when it does all of its work.
    fn is_typical(&self, seconds: f64) -> bool {
        match self {
            Self::Made => seconds >= FOUND,
            Self::Decided { rows, is_whole } => {
                let mut rows = rows.iter();
                *is_whole && rows.all(|row| matches!(row.verdict(), Verdict::Pass(_)))
            }
            Self::NotMade(_) | Self::Late | Self::Interrupted => false,
        }
    }
}

/// A task that has ended.
struct Ended {
    place: usize,
    outcome: Outcome,
}

/// How many tests there are, how many are decided, and how many of these did not begin before the
/// limit.
#[derive(Default)]
struct Counted {
    all: usize,
    decided: usize,
    late: usize,
}

/// How long artefacts took that were made or found made, and how long they were expected to take.
/// What has been made before is found in no time, and it is not known beforehand which artefacts
/// these are.
#[derive(Default)]
struct Made {
    seconds: f64,
    expected: f64,
}

impl Made {
    /// For how many seconds it is taken for granted that artefacts have to be made: a few that are
    /// found say little of the others.
    const SURE: f64 = 600.0;

    /// How much of what they are expected to take other artefacts take, from 0 to 1.
    fn share(&self) -> f64 {
        ((self.seconds + Self::SURE) / (self.expected + Self::SURE)).min(1.0)
    }
}

/// A run that is under way.
struct Running<'a, 'h> {
    runner: &'h Runner<'h>,
    /// Why nothing begins any more, if the disk is full.
    full: Option<String>,
    /// The tasks that ended on a full disk: what fails then says nothing of a test, and is kept nowhere.
    on_full_disk: BTreeSet<usize>,
    schedule: Schedule,
    /// What each task does, until it begins.
    works: Vec<Option<Work<'a>>>,
    names: Vec<Option<String>>,
    /// For each task, whether it makes an artefact.
    is_artefact: Vec<bool>,
    /// How much of what artefacts were expected to take they have taken.
    made: Made,
    /// When the tasks began that are under way.
    begun: BTreeMap<usize, Instant>,
    /// What this run has seen.
    seen: &'h mut History,
    /// The rows of each task.
    rows: Vec<Vec<Row>>,
    /// The names of the artefacts that are not there, by their tasks.
    failed: BTreeMap<usize, String>,
    tests: Counted,
}

impl<'a> Running<'a, '_> {
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
        let mut after = self.schedule.after(place).iter();
        let missing = after.find_map(|first| self.failed.get(first)).cloned();
        let limit = self.runner.limit;
        let late = limit.and_then(|limit| limit.passed());
        let body: Box<dyn FnOnce() -> Outcome + Send + 'a> = match (work, missing) {
            (Work::End(at_end, tasks), _) => {
                let tasks = tasks.filter(|task| !self.on_full_disk.contains(task));
                let rows = tasks.flat_map(|task| &self.rows[task]);
                let rows: Vec<_> = rows.filter(|row| row.subject != RUN).cloned().collect();
                let is_partial = late.is_some() || self.full.is_some() || !self.failed.is_empty();
                match at_end(&rows, is_partial) {
                    Err(error) if error.is::<Interrupted>() => return Err(error),
                    Err(error) => self.rows[place] = failed("what is done at the end", error)?,
                    Ok(()) => {}
                }
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
            (Work::Make(_), None) if self.full.is_some() => {
                self.schedule.end(place);
                return Ok(());
            }
            (Work::Make(artefact), None) => Box::new(move || make(&artefact, limit)),
            (Work::Run(job), None) => {
                match self.full.clone().or(late).filter(|_| job.is_to_run()) {
                    Some(reason) => {
                        let rows = job.not_run(&reason)?;
                        if self.full.is_none() {
                            self.tests.late += rows.len();
                        }
                        self.decided(place, rows);
                        self.schedule.end(place);
                        return Ok(());
                    }
                    None => Box::new(move || run(*job)),
                }
            }
        };
        let ended = ended.clone();
        self.begun.insert(place, Instant::now());
        scope.spawn(move || {
            // A task that panicked has ended, too: the run waits for each.
            let outcome = body::call(|| Ok(body())).unwrap_or_else(Outcome::NotMade);
            // The receiver stops at the first interruption.
            let _ = ended.send(Ended { place, outcome });
        });
        Ok(())
    }

    fn decided(&mut self, place: usize, rows: Vec<Row>) {
        self.tests.decided += rows.len();
        if self.full.is_none() {
            self.seen.saw(&rows);
        } else {
            self.on_full_disk.insert(place);
        }
        self.rows[place] = rows;
    }

    fn end(&mut self, Ended { place, outcome }: Ended) -> Result<()> {
        let begun = self.begun.remove(&place);
        let seconds = begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        if let (true, Some(name)) = (outcome.is_typical(seconds), &self.names[place]) {
            self.seen.took(name.clone(), seconds);
        }
        if matches!(outcome, Outcome::Made) {
            self.made.seconds += seconds;
            self.made.expected += self.schedule.seconds(place);
        }
        if outcome.has_failed() && self.full.is_none() {
            self.full = self.runner.full();
        }
        match outcome {
            Outcome::Made | Outcome::Late => {}
            Outcome::Interrupted => return Err(Interrupted.into()),
            Outcome::Decided { rows, .. } => self.decided(place, rows),
            Outcome::NotMade(error) => {
                let name = self.names[place].clone().unwrap_or_default();
                self.rows[place] = failed(&name, error)?;
                self.failed.insert(place, name);
            }
        }
        self.schedule.end(place);
        Ok(())
    }

    /// Which task begins first: there may be no time for all.
    fn first(&self, at_once: usize) -> First {
        match self.runner.limit {
            Some(limit) if self.seconds_left(at_once) > limit.left().as_secs_f64() => {
                First::MostTests
            }
            _ => First::LongestAwaited,
        }
    }

    /// About how long the run still takes without a limit, in seconds.
    fn seconds_left(&self, at_once: usize) -> f64 {
        let share = self.made.share();
        let left = |place| {
            let seconds = self.schedule.seconds(place);
            match self.begun.get(&place) {
                Some(begun) => (seconds - begun.elapsed().as_secs_f64()).max(0.0),
                None if self.is_artefact[place] => seconds * share,
                None => seconds,
            }
        };
        self.schedule.seconds_left(at_once, left)
    }

    /// How far the run is, in a line.
    fn text(&self, at_once: usize) -> String {
        let Counted { all, decided, .. } = self.tests;
        let mut text = format!("{decided} of {all} tests");
        let running = self.schedule.running();
        for place in running.iter().filter(|place| self.is_artefact[**place]) {
            let waiting = self.schedule.waiting_for(*place);
            if let Some(name) = self.names[*place].as_deref() {
                text += &format!("; {waiting} tasks wait for {name}");
            }
        }
        let minutes = self.seconds_left(at_once) / 60.0;
        text + &format!("; about {:.0} min left", minutes.ceil())
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

fn run(job: Job<'_>) -> Outcome {
    let is_whole = job.is_whole();
    match job.run() {
        Ok(rows) => Outcome::Decided { rows, is_whole },
        // A job has no other error.
        Err(_) => Outcome::Interrupted,
    }
}

/// The row of what has failed that is no test.
fn failed(what: &str, error: Error) -> Result<Vec<Row>> {
    Job::new(RUN, what, || Err(error)).run()
}

#[cfg(test)]
mod tests;
