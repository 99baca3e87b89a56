//! Trying mutants: what is compiled for them, the rounds of tests on each, and what is kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};

use super::drivers::Drivers;
use super::explanations::Explanations;
use super::kept::{KeptOutcome, KeptOutcomes};
use super::outcome::Outcome;
use super::round::Round;
use crate::context::Context;
use crate::guest_tests::Noticed;
use crate::registry::{self, Batch};
use host::cache::Key;
use host::made::Made;
use host::{retries, toolchain};
use kernels::driver_module::{self, Compiled, DriverModules, DriverMutant};
use kernels::guest_module;
use kernels::kernel::Kernel;
use kernels::subject::Configuration;
use machines::guest::Dead;
use machines::machine_spec::MachineSpec;
use machines::speed;
use report::{Artefact, Verdict};

/// How often as long as on the drivers as they are tests may take on a mutant. One that hangs takes
/// all of that.
const PATIENCE: u32 = 3;
/// What decides on the host, beside `branch-guest`, whether a mutant was noticed: how tests run that
/// are known by their names alone, and what their output means.
const JUDGES: [&str; 11] = [
    "rust-harness/branch-records/src/path/cycles.rs",
    "rust-harness/branch-records/src/path/findings.rs",
    "rust-harness/branch-records/src/path/flow.rs",
    "rust-harness/branch-records/src/path/mod.rs",
    "rust-harness/branch-records/src/sweep.rs",
    "rust-harness/kernel-tests/src/branch_guest.rs",
    "rust-harness/kernel-tests/src/kunit.rs",
    "rust-harness/kernel-tests/src/one_boot.rs",
    "rust-harness/kernel-tests/src/overflow.rs",
    "rust-harness/kernel-tests/src/overflow/judge.rs",
    "rust-harness/kernel-tests/src/watch.rs",
];
/// The least time for tests on a mutant: a boot on a machine that does something else beside it.
const LEAST: Duration = Duration::from_secs(30);
/// What the drivers as they are are called, in rows and among the outcomes of mutants.
pub(super) const AS_THEY_ARE: &str = "as they are";
/// The limit for tests on the drivers as they are.
const UNCHANGED: Duration = Duration::from_secs(900);

/// All that is needed to try mutants of a series.
pub(super) struct Trial<'a> {
    context: Context<'a>,
    tests: &'a [Batch],
    drivers: Drivers<'a>,
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
    /// What came of each mutant; `None`: it is explained, and was not tried.
    outcomes: Mutex<Vec<(DriverMutant, Option<Outcome>)>>,
}

/// Mutants that are compiled together.
pub(super) struct Together {
    mutants: Vec<DriverMutant>,
    modules: Made<DriverModules>,
}

impl Together {
    /// These mutants, of which nothing is compiled yet.
    pub(super) fn of(mutants: &[DriverMutant]) -> Self {
        Self {
            mutants: mutants.to_vec(),
            modules: Made::default(),
        }
    }
}

/// The name of the test of a mutant.
pub(super) fn name(mutant: &DriverMutant) -> String {
    let path = mutant.file().path();
    let file = path.rsplit('/').next().unwrap_or(path);
    let what: String = mutant.what().chars().take(100).collect();
    let (function, line) = (mutant.function(), mutant.line());
    format!("{file}:{line} {function}: {what}")
}

impl<'a> Trial<'a> {
    /// Prepares to try mutants of `drivers`, those of the kernel of `context`, by `tests`. Nothing is
    /// built yet.
    pub(super) fn of(
        context: &Context<'a>,
        tests: &'a [Batch],
        drivers: Drivers<'a>,
        explanations: Explanations,
    ) -> Result<Self> {
        let rounds = Round::all(&drivers);
        Ok(Self {
            context: context.clone(),
            tests,
            drivers,
            durations: rounds.iter().map(|_| Made::default()).collect(),
            rounds,
            key: Made::default(),
            kept: KeptOutcomes::of(context.paths, context.subject()?.name()),
            alone: Mutex::default(),
            killers: Mutex::default(),
            explanations,
            outcomes: Mutex::default(),
        })
    }

    /// The kernel without drivers in the ordinary configuration, as an artefact.
    pub(super) fn kernel_artefact(self: &Arc<Self>) -> Artefact<'a> {
        let (trial, ordinary) = (self.clone(), Configuration::Ordinary);
        let made = self
            .context
            .made_of_source("kernel without drivers of", ordinary, move |_| {
                trial.drivers.modules(ordinary, &[]).map(|_| ())
            });
        made.needing(self.context.guest_artefacts())
    }

    /// The modules of some mutants in the ordinary configuration, as an artefact.
    pub(super) fn modules_artefact(
        self: &Arc<Self>,
        nth: usize,
        together: &Arc<Together>,
    ) -> Artefact<'a> {
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
        let make = || {
            self.drivers
                .modules(Configuration::Ordinary, &together.mutants)
        };
        together.modules.get(make)
    }

    /// Runs all rounds on the drivers as they are, unless an earlier run did so with these kernels
    /// and these tests. Where a mutant is tried, its rounds run on the drivers as they are anyway: see
    /// [`Trial::duration`].
    pub(super) fn control(&self) -> Result<Verdict> {
        let passed = KeptOutcome {
            key: self.key()?.with(self.tests_of(&Outcome::Survived)).name(),
            outcome: Outcome::Survived,
        };
        let boots = self.rounds.len();
        if self.kept.get(AS_THEY_ARE)?.as_ref() == Some(&passed) {
            return Ok(Verdict::Pass(format!("{boots} boots, in an earlier run")));
        }
        for place in 0..boots {
            self.duration(place)?;
        }
        self.kept.put(AS_THEY_ARE.to_owned(), passed)?;
        Ok(Verdict::Pass(format!("{boots} boots")))
    }

    /// How long a round takes on the drivers as they are, where it has to pass: by the machine that
    /// limits were chosen on, as a limit made of it follows the machine.
    fn duration(&self, place: usize) -> Result<Duration> {
        let result = self.durations[place].get(|| {
            let round = &self.rounds[place];
            let modules = self.drivers.modules(round.configuration(), &[])?;
            let kernel = self
                .drivers
                .kernel(round.configuration(), modules.unchanged())?;
            // What is built is no part of how long the tests take.
            if let Round::Boot(configuration, _) = round {
                self.drivers.guest_modules(*configuration)?;
            }
            let start = Instant::now();
            let noticed = self.run(round, &kernel, "drivers as they are", UNCHANGED)?;
            Ok(match noticed {
                Some(Noticed { by, says, .. }) => {
                    Err(format!("{by} fails on the drivers as they are: {says}"))
                }
                None => Ok(speed::as_chosen(start.elapsed())),
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
                let modules = self.drivers.modules(round.configuration(), &[])?;
                let kernel = self
                    .drivers
                    .kernel(round.configuration(), modules.unchanged())?;
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
    ) -> Result<Option<Noticed>> {
        let guest = self.context.guest;
        match round {
            Round::Boot(configuration, watch) => {
                let modules = self.drivers.guest_modules(*configuration)?;
                watch.first_failure(guest, kernel, what, &modules, timeout)
            }
            Round::Test(name) => {
                let context = self.context.with_kernel(kernel.clone(), what.to_owned());
                let (says, in_time) = match registry::named(self.tests, name)?.run(&context) {
                    Ok(Verdict::Pass(_)) => return Ok(None),
                    Ok(Verdict::Fail(says) | Verdict::Skip(says)) => (says, true),
                    Err(error) => match error.downcast_ref() {
                        Some(Dead::Panicked(_)) => (format!("{error:#}"), true),
                        Some(Dead::TimedOut(_)) => (format!("{error:#}"), false),
                        None => return Err(error),
                    },
                };
                Ok(Some(Noticed {
                    by: name,
                    says,
                    in_time,
                }))
            }
        }
    }

    /// Tries the mutant at `place` of those that are compiled together.
    pub(super) fn verdict(&self, together: &Together, place: usize) -> Result<Verdict> {
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
        self.note(mutant, Some(outcome.clone()));
        Ok(outcome.verdict(self.explanations.of(mutant)))
    }

    /// The verdict on a mutant that is not tried, by its explanation.
    pub(super) fn believe(&self, mutant: &DriverMutant, why: &str) -> Verdict {
        self.note(mutant, None);
        Verdict::Pass(format!("not tried, as it makes no difference: {why}"))
    }

    /// Keeps for the table what came of a mutant; `None`: it was not tried.
    fn note(&self, mutant: &DriverMutant, outcome: Option<Outcome>) {
        self.outcomes().push((mutant.clone(), outcome));
    }

    /// The explanations of mutants.
    pub(super) fn explanations(&self) -> &Explanations {
        &self.explanations
    }

    /// What came of each mutant whose job ran, in the order in which they ended.
    pub(super) fn outcomes(&self) -> MutexGuard<'_, Vec<(DriverMutant, Option<Outcome>)>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`Trial::key`], which is made once.
    fn key(&self) -> Result<Key> {
        self.key.get(|| self.make_key())
    }

    /// The key for all that an outcome depends on, beside the mutant and the tests.
    fn make_key(&self) -> Result<Key> {
        let Context { paths, guest, .. } = self.context;
        let mut key = Key::new("mutant outcome 5");
        key = key.with(toolchain::version("qemu-system-aarch64")?);
        key = key.with(guest.root()?.display().to_string());
        let headers = driver_module::headers(paths).into_iter();
        let judges = JUDGES.iter().map(|source| paths.repo(source));
        for source in headers.chain(guest_module::sources(paths)).chain(judges) {
            key = key.with_file(&source)?;
        }
        for configuration in [Configuration::Ordinary, Configuration::Debug] {
            key = key.with(self.drivers.key(configuration)?.name());
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
        let key = self.key()?.with(mutant.line().to_string());
        Ok(key.with(self.tests_of(outcome)).name())
    }

    /// The tests that an outcome depends on, for a key.
    fn tests_of(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Refused | Outcome::SameCode => {
                let mut all: Vec<_> = self.rounds.iter().map(Round::configuration).collect();
                all.dedup();
                format!("{}, {all:?}", driver_module::COMPILED)
            }
            Outcome::Killed { by, .. } => {
                format!("{:?}", self.rounds.iter().find_map(|round| round.up_to(by)))
            }
            Outcome::Survived => format!("{:?}", self.rounds),
        }
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
                    let modules = self.drivers.modules(other, std::slice::from_ref(mutant))?;
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
            let kernel = self.drivers.kernel(configuration, module)?;
            let timeout = LEAST + PATIENCE * taken;
            let run = || self.run(&round, &kernel, &name(mutant), timeout);
            let mut noticed = run()?;
            // The host may have stood still. What came of a mutant is kept for later runs.
            if noticed.as_ref().is_some_and(|noticed| !noticed.in_time) {
                noticed = run()?;
                if noticed.as_ref().is_none_or(|noticed| noticed.in_time) {
                    retries::note();
                }
            }
            if let Some(Noticed { by, says, .. }) = noticed {
                let says = says.lines().next().unwrap_or_default().to_owned();
                return Ok(Outcome::Killed {
                    by: by.to_owned(),
                    says,
                });
            }
        }
        Ok(outcome)
    }
}
