//! Mutants that nobody chose: every small change of what a series adds to the drivers, and which
//! test notices it.
//!
//! A mutant that no test notices has survived. Either a test is missing, or the mutant does what
//! the drivers do: such a mutant is explained, in [`EXPLAINED`] beside the mutants of the series.

mod explanations;
mod kept;
mod table;

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::guest_tests::Watch;
use crate::kunit;
use crate::registry::{self, Batch};
pub use explanations::{EXPLAINED, Explanations};
use host::cache::Key;
use host::made::Made;
use host::toolchain;
use kept::{KeptOutcome, KeptOutcomes};
use kernels::driver_module::{
    self, Compiled, DriverModules, DriverMutant, DriverMutants, DriverSource,
};
use kernels::guest_module;
use kernels::kernel::Kernel;
use kernels::subject::Configuration;
use kernels::variant::Variant;
use machines::guest::Dead;
use machines::machine_spec::MachineSpec;
use report::{Artefact, Job, Verdict};
pub use table::Table;

/// How many mutants are compiled together. While their guests run, the next ones are compiled.
const TOGETHER: usize = 64;
/// How often as long as on the drivers as they are tests may take on a mutant. One that hangs takes
/// all of that.
const PATIENCE: u32 = 3;
/// The least time for tests on a mutant: a boot on a machine that does something else beside it.
const LEAST: Duration = Duration::from_secs(30);
/// The limit for tests on the drivers as they are.
const UNCHANGED: Duration = Duration::from_secs(900);
/// The sweeps, which find what only an overflow at a certain instruction shows.
const SWEEPS: [&str; 2] = [
    "overflow at each instruction",
    "overflow at each instruction, pseudo-NMI, interrupts off",
];

/// What is done about mutants that are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    /// Explained mutants are not tried: all tests would run on each of them, to no effect.
    Believed,
    /// Explained mutants are tried, and have to survive.
    Tried,
}

/// What came of a mutant that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The compiler refuses it.
    Refused,
    /// The compiler makes the code of the drivers as they are.
    SameCode,
    /// A test notices it.
    Killed {
        /// The name of the test.
        by: String,
        /// The first line of what the test said.
        says: String,
    },
    /// No test notices it.
    Survived,
}

/// Tests that look at a mutant together.
#[derive(Clone, Debug)]
enum Round {
    /// Tests in one boot.
    Boot(Configuration, Watch),
    /// A test of the registry.
    Test(&'static str),
}

impl Round {
    /// All of them, those first that take the shortest time.
    fn all(source: &DriverSource) -> Vec<Self> {
        let kunit = if source.is_in_rust() {
            &kunit::READING[..]
        } else {
            &[]
        };
        let of = |configuration| {
            let watches = Watch::all(configuration).into_iter();
            watches.map(move |watch| Self::Boot(configuration, watch))
        };
        let kunit = kunit.iter().copied().map(Self::Test);
        kunit
            .chain(of(Configuration::Ordinary))
            .chain(of(Configuration::Debug))
            .chain(SWEEPS.map(Self::Test))
            .collect()
    }

    /// The test `name` of this round by itself, if it is one of them.
    fn alone(&self, name: &str) -> Option<Self> {
        match self {
            Self::Boot(configuration, watch) => {
                Some(Self::Boot(*configuration, watch.alone(name)?))
            }
            Self::Test(test) => (*test == name).then_some(Self::Test(test)),
        }
    }

    /// The tests of this round as far as the test `name`, if it is one of them.
    fn up_to(&self, name: &str) -> Option<Self> {
        match self {
            Self::Boot(configuration, watch) => {
                Some(Self::Boot(*configuration, watch.up_to(name)?))
            }
            Self::Test(_) => self.alone(name),
        }
    }

    /// The configuration of the kernel.
    fn configuration(&self) -> Configuration {
        match self {
            Self::Boot(configuration, _) => *configuration,
            Self::Test(_) => Configuration::Ordinary,
        }
    }
}

/// All that is needed to try mutants of a series.
struct Trial<'a> {
    context: Context<'a>,
    tests: &'a [Batch],
    source: DriverSource,
    /// The commit of the kernel without drivers.
    commit: Made<String>,
    rounds: Vec<Round>,
    /// How long each round takes on the drivers as they are, or which test fails there.
    durations: Vec<Made<Result<Duration, String>>>,
    /// The key for all that an outcome depends on, beside the mutant and the tests.
    key: Made<Key>,
    kept: KeptOutcomes<'a>,
    /// The tests that have noticed a mutant before, each by itself: see [`Trial::alone`].
    alone: Mutex<BTreeMap<String, Option<(usize, Round)>>>,
    /// For each function, the test of a later round that noticed a mutant of it last.
    killers: Mutex<BTreeMap<String, String>>,
    explanations: Explanations,
    explained: Explained,
    /// What came of each mutant; `None`: it is explained, and was not tried.
    outcomes: Mutex<Vec<(DriverMutant, Option<Outcome>)>>,
}

/// Mutants that are compiled together.
struct Together {
    mutants: Vec<DriverMutant>,
    modules: Made<DriverModules>,
}

/// Mutants of a series, to be tried.
pub struct Systematic<'a> {
    trial: Arc<Trial<'a>>,
    mutants: DriverMutants,
    /// The explanations of mutants that are not there, a sentence each.
    stale: Vec<String>,
}

impl<'a> Systematic<'a> {
    /// All mutants of the series of `context`. Those that `tests` do not notice have to be
    /// explained. `explained` says whether these are tried.
    ///
    /// # Errors
    ///
    /// When the kernel was built elsewhere, its source lacks the drivers, or the explanations
    /// cannot be read.
    pub fn of(context: &Context<'a>, tests: &'a [Batch], explained: Explained) -> Result<Self> {
        let subject = context.subject()?;
        let source = DriverSource::of(subject)?;
        let mutants = source.mutants(subject)?;
        let load = |series: Variant| match series.dir(context.paths, &subject.base) {
            Some(dir) => Explanations::load(&dir),
            None => Ok(Explanations::default()),
        };
        let mut explanations = load(subject.variant)?;
        let stale = explanations.stale(&mutants.all);
        // What is left of a series below is explained there, and what is gone need not be.
        for below in iter::successors(subject.variant.keeps(), |series| series.keeps()) {
            explanations.add(load(below)?);
        }
        let rounds = Round::all(&source);
        Ok(Self {
            trial: Arc::new(Trial {
                context: context.clone(),
                tests,
                commit: Made::default(),
                source,
                durations: rounds.iter().map(|_| Made::default()).collect(),
                rounds,
                key: Made::default(),
                kept: KeptOutcomes::of(context.paths, subject.name()),
                alone: Mutex::default(),
                killers: Mutex::default(),
                explanations,
                explained,
                outcomes: Mutex::default(),
            }),
            mutants,
            stale,
        })
    }

    /// Leaves out all but `count` of the mutants. Which ones are left does not depend on their
    /// order, and does not change with code beside them.
    pub fn sample(&mut self, count: usize) {
        self.mutants.all.sort_by_cached_key(|mutant| {
            let key = Key::new("sample").with(mutant.function());
            key.with(mutant.text()).with(mutant.what()).name()
        });
        self.mutants.all.truncate(count);
    }

    /// Leaves out the mutants without `text` in their lines: the kernel, a colon and the name.
    pub fn only(&mut self, text: &str) {
        let title = self.trial.title_of_jobs();
        let line = |mutant: &DriverMutant| format!("{title}: {}", name(mutant));
        self.mutants
            .all
            .retain(|mutant| line(mutant).contains(text));
    }

    /// Whether there is no mutant to try.
    pub fn is_empty(&self) -> bool {
        self.mutants.all.is_empty()
    }

    /// The job that checks that each explanation is of a mutant, wherever the mutant is tried.
    pub fn explanations(&self) -> Job<'a> {
        let stale = self.stale.clone();
        let title = self.trial.title_of_jobs();
        Job::new(&title, "explanations of mutants", move || {
            Ok(Verdict::of_findings(stale, ""))
        })
    }

    /// The jobs: one that runs all tests on the drivers as they are, and one for each mutant.
    pub fn jobs(&self) -> Vec<Job<'a>> {
        let trial = &self.trial;
        let title = trial.title_of_jobs();
        let unmet = trial.context.guest.capabilities().without_plugin();
        let control = trial.clone();
        let control = Job::new(&title, "as they are", move || control.control());
        let control = control.needing([trial.kernel_artefact()]);
        let mut jobs = vec![control.or_skipped(unmet.clone())];
        let mutants = self.mutants.all.iter().cloned();
        let (believed, tried): (Vec<_>, Vec<_>) =
            mutants.partition(|mutant| trial.is_believed(mutant));
        for (nth, mutants) in tried.chunks(TOGETHER).enumerate() {
            let together = Arc::new(Together {
                mutants: mutants.to_vec(),
                modules: Made::default(),
            });
            let modules = trial.modules_artefact(nth, &together);
            for (place, mutant) in mutants.iter().enumerate() {
                let (trial, together) = (trial.clone(), together.clone());
                let job = Job::new(&title, name(mutant), move || {
                    trial.verdict(&together, place)
                });
                jobs.push(job.needing([modules.clone()]).or_skipped(unmet.clone()));
            }
        }
        for mutant in believed {
            let (trial, name) = (trial.clone(), name(&mutant));
            let job = Job::new(&title, name, move || Ok(trial.decide(&mutant, None)));
            jobs.push(job);
        }
        jobs
    }

    /// What came of the mutants whose jobs ran, as a table.
    pub fn table(&self) -> Table {
        let outcomes = self.trial.outcomes.lock();
        let mut outcomes = outcomes.unwrap_or_else(PoisonError::into_inner).clone();
        outcomes.sort_by_key(|(mutant, _)| (mutant.file(), mutant.line(), mutant.what()));
        Table {
            kernel: self.trial.context.title.clone(),
            unknown: self.mutants.unknown.clone(),
            count: self.mutants.all.len(),
            explanations: self.trial.explanations.clone(),
            outcomes,
        }
    }
}

/// The name of the test of a mutant.
fn name(mutant: &DriverMutant) -> String {
    let path = mutant.file().path();
    let file = path.rsplit('/').next().unwrap_or(path);
    let what: String = mutant.what().chars().take(100).collect();
    let (function, line) = (mutant.function(), mutant.line());
    format!("{file}:{line} {function}: {what}")
}

impl<'a> Trial<'a> {
    /// The kernel without drivers in the ordinary configuration, as an artefact.
    fn kernel_artefact(self: &Arc<Self>) -> Artefact<'a> {
        let (trial, ordinary) = (self.clone(), Configuration::Ordinary);
        let made = self
            .context
            .made_of_source("kernel without drivers of", ordinary, move |_| {
                trial.modules(ordinary, &[]).map(|_| ())
            });
        made.needing(self.context.guest_artefacts())
    }

    /// The modules of some mutants in the ordinary configuration, as an artefact.
    fn modules_artefact(self: &Arc<Self>, nth: usize, together: &Arc<Together>) -> Artefact<'a> {
        let (trial, together) = (self.clone(), together.clone());
        let what = format!("mutants {} of", 1 + nth);
        let made = self
            .context
            .made_of_source(&what, Configuration::Ordinary, move |_| {
                trial.together(&together).map(|_| ())
            });
        made.needing([self.kernel_artefact()])
    }

    /// The modules of mutants that are compiled together, in the ordinary configuration.
    fn together(&self, together: &Together) -> Result<DriverModules> {
        let make = || self.modules(Configuration::Ordinary, &together.mutants);
        together.modules.get(make)
    }

    /// The commit of the kernel without drivers.
    fn commit(&self) -> Result<String> {
        let make = || {
            let Context { paths, .. } = self.context;
            driver_module::kernel_commit(paths, self.context.subject()?, &self.source)
        };
        self.commit.get(make)
    }

    /// The subject of the rows of a run.
    fn title_of_jobs(&self) -> String {
        format!("{}, drivers", self.context.title)
    }

    /// The name of the kernel without drivers in messages.
    fn title(&self) -> String {
        format!("{} without drivers", self.context.title)
    }

    /// The modules of some mutants.
    fn modules(
        &self,
        configuration: Configuration,
        mutants: &[DriverMutant],
    ) -> Result<DriverModules> {
        let builder = self.context.subject()?.builder_of(configuration);
        DriverModules::build(
            builder,
            &self.commit()?,
            &self.title(),
            &self.source,
            mutants,
        )
    }

    /// The files of the modules that tests load on the kernel without drivers.
    fn guest_modules(&self, configuration: Configuration) -> Result<Vec<PathBuf>> {
        let builder = self.context.subject()?.builder_of(configuration);
        let built =
            guest_module::build(self.context.paths, builder, &self.commit()?, &self.title())?;
        Ok(built.into())
    }

    /// The kernel without drivers, and the file with a module of them.
    fn kernel(&self, configuration: Configuration, drivers: PathBuf) -> Result<Kernel> {
        let subject = self.context.subject()?;
        let builder = subject.builder_of(configuration);
        let kernel = subject.kernel(builder, &self.commit()?, &self.title())?;
        Ok(Kernel {
            drivers: Some(drivers),
            ..kernel
        })
    }

    /// Runs all rounds on the drivers as they are.
    fn control(&self) -> Result<Verdict> {
        for place in 0..self.rounds.len() {
            self.duration(place)?;
        }
        Ok(Verdict::Pass(format!("{} boots", self.rounds.len())))
    }

    /// How long a round takes on the drivers as they are, where it has to pass.
    fn duration(&self, place: usize) -> Result<Duration> {
        let result = self.durations[place].get(|| {
            let round = &self.rounds[place];
            let modules = self.modules(round.configuration(), &[])?;
            let kernel = self.kernel(round.configuration(), modules.unchanged())?;
            // What is built is no part of how long the tests take.
            if let Round::Boot(configuration, _) = round {
                self.guest_modules(*configuration)?;
            }
            let start = Instant::now();
            let noticed = self.run(round, &kernel, "drivers as they are", UNCHANGED)?;
            Ok(match noticed {
                Some((by, says)) => Err(format!("{by} fails on the drivers as they are: {says}")),
                None => Ok(start.elapsed()),
            })
        });
        result?.map_err(Error::msg)
    }

    /// The test `name` by itself, with the place of its round. `None` if there is no such test, or if
    /// it needs those before it: then it fails on the drivers as they are.
    fn alone(&self, name: &str) -> Result<Option<(usize, Round)>> {
        let mut known = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(name) {
            return Ok(known.clone());
        }
        let mut rounds = self.rounds.iter().enumerate();
        let found = rounds.find_map(|(place, round)| Some((place, round.alone(name)?)));
        let found = match found {
            Some((place, round @ Round::Boot(..))) => {
                let modules = self.modules(round.configuration(), &[])?;
                let kernel = self.kernel(round.configuration(), modules.unchanged())?;
                let noticed = self.run(&round, &kernel, "drivers as they are", UNCHANGED)?;
                noticed.is_none().then_some((place, round))
            }
            // The control has run it by itself.
            found => found,
        };
        known.insert(name.to_owned(), found.clone());
        Ok(found)
    }

    /// Which test of a round notices something about the drivers, and what it says.
    fn run(
        &self,
        round: &Round,
        kernel: &Kernel,
        what: &str,
        timeout: Duration,
    ) -> Result<Option<(String, String)>> {
        let guest = self.context.guest;
        let noticed = match round {
            Round::Boot(configuration, watch) => {
                let modules = self.guest_modules(*configuration)?;
                watch.first_failure(guest, kernel, what, &modules, timeout)?
            }
            Round::Test(name) => {
                let context = self.context.with_kernel(kernel.clone(), what.to_owned());
                match registry::named(self.tests, name)?.run(&context) {
                    Ok(Verdict::Pass(_)) => None,
                    Ok(Verdict::Fail(says) | Verdict::Skip(says)) => Some((*name, says)),
                    Err(error) if error.is::<Dead>() => Some((*name, format!("{error:#}"))),
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(noticed.map(|(by, says)| (by.to_owned(), says)))
    }

    /// Tries the mutant at `place` of those that are compiled together.
    fn verdict(&self, together: &Together, place: usize) -> Result<Verdict> {
        let mutant = &together.mutants[place];
        let modules = self.together(together)?;
        let made = modules
            .made
            .get(place)
            .context("a mutant without a module")?;
        let outcome = match made {
            Compiled::Refused => Outcome::Refused,
            Compiled::SameCode => self.kept_outcome(mutant, None)?,
            Compiled::Module(file) => self.kept_outcome(mutant, Some(&modules.module(file)))?,
        };
        Ok(self.decide(mutant, Some(outcome)))
    }

    /// Whether a mutant is explained, and is not tried.
    fn is_believed(&self, mutant: &DriverMutant) -> bool {
        self.explained == Explained::Believed && self.explanations.of(mutant).is_some()
    }

    /// The verdict on a mutant by what came of it; `None`: it was not tried.
    fn decide(&self, mutant: &DriverMutant, outcome: Option<Outcome>) -> Verdict {
        let outcomes = self.outcomes.lock();
        let mut outcomes = outcomes.unwrap_or_else(PoisonError::into_inner);
        outcomes.push((mutant.clone(), outcome.clone()));
        drop(outcomes);
        let why = self.explanations.of(mutant);
        match (outcome, why) {
            (None, why) => Verdict::Pass(format!(
                "not tried, as it makes no difference: {}",
                why.unwrap_or(EXPLAINED)
            )),
            (Some(Outcome::Refused), _) => Verdict::Pass("does not compile".to_owned()),
            (Some(Outcome::SameCode), _) => {
                Verdict::Pass("the compiler makes the same code".to_owned())
            }
            (Some(Outcome::Killed { by, says }), None) => {
                Verdict::Pass(format!("killed by {by}: {says}"))
            }
            (Some(Outcome::Killed { by, .. }), Some(_)) => Verdict::Fail(format!(
                "killed by {by}, but {EXPLAINED} explains why it survives"
            )),
            (Some(Outcome::Survived), Some(why)) => Verdict::Pass(format!("survives: {why}")),
            (Some(Outcome::Survived), None) => {
                Verdict::Fail("SURVIVED: every test passes".to_owned())
            }
        }
    }

    /// The key for all that an outcome depends on, beside the mutant.
    fn key(&self) -> Result<Key> {
        let Context { paths, guest, .. } = self.context;
        let subject = self.context.subject()?;
        let mut key = Key::new("mutant outcome 5");
        key = key.with(toolchain::version("qemu-system-aarch64")?);
        key = key.with(guest.root()?.display().to_string());
        let headers = driver_module::headers(paths).into_iter();
        for source in headers.chain(guest_module::sources(paths)) {
            key = key.with_file(&source)?;
        }
        for configuration in [Configuration::Ordinary, Configuration::Debug] {
            let builder = subject.builder_of(configuration);
            key = key.with(builder.key("mutant", &self.commit()?)?.name());
        }
        let plugin = guest.own_plugin_file(&MachineSpec::default())?;
        let plugin = plugin.map(|plugin| plugin.path);
        let [tests, _] = guest.programs_for_people()?;
        for program in [tests].into_iter().chain(plugin) {
            key = key.with_file(&program)?;
        }
        Ok(key)
    }

    /// The name of the key for all that the outcome of a mutant depends on. Of the harness's tests, a
    /// mutant that was killed depends on the one that noticed it, and those before it in the boot.
    /// Code that stays the same depends on none of them, but on the configurations of their kernels.
    fn key_of(&self, mutant: &DriverMutant, outcome: &Outcome) -> Result<String> {
        let key = self.key.get(|| self.key())?.with(mutant.line().to_string());
        let tests = match outcome {
            Outcome::Refused | Outcome::SameCode => {
                let mut all: Vec<_> = self.rounds.iter().map(Round::configuration).collect();
                all.dedup();
                format!("{}, {all:?}", driver_module::COMPILED)
            }
            Outcome::Killed { by, .. } => {
                format!("{:?}", self.rounds.iter().find_map(|round| round.up_to(by)))
            }
            Outcome::Survived => format!("{:?}", self.rounds),
        };
        Ok(key.with(tests).name())
    }

    /// What came of a mutant: what is kept of an earlier run, if that had these kernels and these
    /// tests. `module` is that of the ordinary configuration, where its code is another one.
    fn kept_outcome(&self, mutant: &DriverMutant, module: Option<&Path>) -> Result<Outcome> {
        let killer = match self.kept.get(&mutant.id())? {
            Some(kept) if kept.key == self.key_of(mutant, &kept.outcome)? => {
                return Ok(kept.outcome);
            }
            Some(KeptOutcome {
                outcome: Outcome::Killed { by, .. },
                ..
            }) => Some(by),
            _ => self.killers().get(mutant.function()).cloned(),
        };
        let outcome = self.outcome(mutant, module, killer.as_deref())?;
        // Tests of the first round come first anyway.
        let is_late = |name: &str| {
            self.rounds
                .first()
                .is_none_or(|it| it.alone(name).is_none())
        };
        if let Outcome::Killed { by, .. } = &outcome
            && is_late(by)
        {
            let function = mutant.function().to_owned();
            self.killers().insert(function, by.clone());
        }
        let kept = KeptOutcome {
            key: self.key_of(mutant, &outcome)?,
            outcome: outcome.clone(),
        };
        self.kept.put(mutant.id(), kept)?;
        Ok(outcome)
    }

    /// [`Trial::killers`], locked.
    fn killers(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.killers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs round after round on a mutant, until one notices it. Rounds are left out where the code
    /// is that of the drivers as they are: what only lockdep hears of is in the debug kernel alone.
    ///
    /// The test `killer` comes first, by itself. It has noticed the mutant in an earlier run, or
    /// another mutant of the function, and most of the time it does so again.
    fn outcome(
        &self,
        mutant: &DriverMutant,
        module: Option<&Path>,
        killer: Option<&str>,
    ) -> Result<Outcome> {
        let alone = match killer {
            Some(name) => self.alone(name)?,
            None => None,
        };
        let is_done = |round: &Round| {
            let tried = alone.as_ref().map(|(_, round)| round);
            matches!((round, tried), (Round::Test(name), Some(Round::Test(tried))) if name == tried)
        };
        let all = self.rounds.iter().enumerate();
        let all = all.filter(|(_, round)| !is_done(round));
        let all = all.map(|(place, round)| (place, round.clone()));
        let mut outcome = Outcome::SameCode;
        for (place, round) in alone.clone().into_iter().chain(all) {
            let configuration = round.configuration();
            let module = match configuration {
                Configuration::Ordinary => module.map(Path::to_owned),
                other => {
                    let modules = self.modules(other, std::slice::from_ref(mutant))?;
                    match modules.made.first() {
                        Some(Compiled::Module(file)) => Some(modules.module(file)),
                        _ => None,
                    }
                }
            };
            let Some(module) = module else {
                continue;
            };
            outcome = Outcome::Survived;
            let taken = self.duration(place)?;
            let kernel = self.kernel(configuration, module)?;
            let timeout = LEAST + PATIENCE * taken;
            if let Some((by, says)) = self.run(&round, &kernel, &name(mutant), timeout)? {
                let says = says.lines().next().unwrap_or_default().to_owned();
                return Ok(Outcome::Killed { by, says });
            }
        }
        Ok(outcome)
    }
}
