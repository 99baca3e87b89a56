//! Mutants that nobody chose: every small change of what a series adds to the drivers, and which
//! test notices it.
//!
//! A mutant that no test notices has survived. Either a test is missing, or the mutant does what
//! the drivers do: such a mutant is explained, in [`EXPLAINED`] beside the mutants of the series.

mod drivers;
mod explanations;
mod kept;
mod outcome;
mod round;
mod table;
mod trial;

use std::iter;
use std::sync::Arc;

use anyhow::Result;

use crate::context::Context;
use crate::registry::Batch;
use drivers::Drivers;
pub use explanations::{EXPLAINED, Explanations};
use host::cache::Key;
use kernels::driver_module::{DriverMutant, DriverMutants};
use kernels::variant::Variant;
pub use outcome::Outcome;
use report::{Job, Verdict};
pub use table::Table;
use trial::{AS_THEY_ARE, Together, Trial, name};

/// How many mutants are compiled together. While their guests run, the next ones are compiled.
const TOGETHER: usize = 64;

/// What is done about mutants that are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    /// Explained mutants are not tried: all tests would run on each of them, to no effect.
    Believed,
    /// Explained mutants are tried, and have to survive.
    Tried,
}

/// Mutants of a series, to be tried.
pub struct Systematic<'a> {
    context: Context<'a>,
    trial: Arc<Trial<'a>>,
    mutants: DriverMutants,
    explained: Explained,
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
        let drivers = Drivers::of(context)?;
        let mutants = drivers.mutants()?;
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
        Ok(Self {
            context: context.clone(),
            trial: Arc::new(Trial::of(context, tests, drivers, explanations)?),
            explained,
            mutants,
            stale,
        })
    }

    /// The subject of the rows of a run.
    fn title_of_jobs(&self) -> String {
        format!("{}, drivers", self.context.title)
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
        let title = self.title_of_jobs();
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
        let title = self.title_of_jobs();
        Job::new(&title, "explanations of mutants", move || {
            Ok(Verdict::of_findings(stale, ""))
        })
    }

    /// The explanation of a mutant that is not tried, since it has one.
    fn believed(&self, mutant: &DriverMutant) -> Option<&str> {
        match self.explained {
            Explained::Believed => self.trial.explanations().of(mutant),
            Explained::Tried => None,
        }
    }

    /// The jobs: one that runs all tests on the drivers as they are, and one for each mutant.
    pub fn jobs(&self) -> Vec<Job<'a>> {
        let trial = &self.trial;
        let title = self.title_of_jobs();
        let unmet = self.context.guest.capabilities().without_plugin();
        let control = trial.clone();
        let control = Job::new(&title, AS_THEY_ARE, move || control.control());
        let control = control.needing([trial.kernel_artefact()]);
        let mut jobs = vec![control.or_skipped(unmet.clone())];
        let (mut believed, mut tried) = (Vec::new(), Vec::new());
        for mutant in &self.mutants.all {
            match self.believed(mutant) {
                Some(why) => believed.push((mutant.clone(), why.to_owned())),
                None => tried.push(mutant.clone()),
            }
        }
        for (nth, mutants) in tried.chunks(TOGETHER).enumerate() {
            let together = Arc::new(Together::of(mutants));
            let modules = trial.modules_artefact(nth, &together);
            for (place, mutant) in mutants.iter().enumerate() {
                let (trial, together) = (trial.clone(), together.clone());
                let job = Job::new(&title, name(mutant), move || {
                    trial.verdict(&together, place)
                });
                jobs.push(job.needing([modules.clone()]).or_skipped(unmet.clone()));
            }
        }
        jobs.extend(believed.into_iter().map(|(mutant, why)| {
            let (trial, name) = (trial.clone(), name(&mutant));
            Job::new(&title, name, move || Ok(trial.believe(&mutant, &why)))
        }));
        jobs
    }

    /// What came of the mutants whose jobs ran, as a table.
    pub fn table(&self) -> Table {
        let mut outcomes = self.trial.outcomes().clone();
        outcomes.sort_by_key(|(mutant, _)| (mutant.file(), mutant.line(), mutant.what()));
        Table {
            kernel: self.context.title.clone(),
            unknown: self.mutants.unknown.clone(),
            count: self.mutants.all.len(),
            explanations: self.trial.explanations().clone(),
            outcomes,
        }
    }
}
