//! The model of a test: what it is called, what it needs, which kernels it is for, and how it
//! is decided.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use crate::context::{Context, NO_SOURCE};
use crate::one_boot;
use crate::properties::PropertyKind;
use host::process::Interrupted;
use host::retries;
use kernels::requirements::{self, MachineNeeds};
use kernels::subject::Configuration;
use kernels::variant::Variant;
use machines::machine_spec::{Capabilities, MachineSpec};
use report::{Artefact, Decided, Job, Tier, Verdict};

/// The series that have the snapshot.
const WITH_SNAPSHOT: &[Variant] = &[
    Variant::Snapshot,
    Variant::Cheaper,
    Variant::LowWaste,
    Variant::Rust,
];

/// Which kernels a test is for.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The series.
    pub series: &'static [Variant],
    /// Whether it is for the default base alone: it takes long, or what it is about does not
    /// depend on the base.
    pub is_of_default_base: bool,
    /// Whether it also runs where only what a series changes is tested.
    pub is_of_changes: bool,
}

/// How much of a series is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// What a series on top of the snapshot may change: the records, and what spends them.
    Changes,
}

impl Scope {
    /// Any test of the snapshot.
    pub const SNAPSHOT: Self = Self {
        series: WITH_SNAPSHOT,
        is_of_default_base: false,
        is_of_changes: true,
    };

    /// A test of the snapshot which runs once, on the default base.
    pub const ONCE: Self = Self {
        is_of_default_base: true,
        is_of_changes: false,
        ..Self::SNAPSHOT
    };

    /// A test which runs once in each language.
    pub const EACH_LANGUAGE: Self = Self {
        series: &[Variant::Snapshot, Variant::Rust],
        ..Self::ONCE
    };

    /// A test which depends neither on the base nor on the language.
    pub const DEFAULT: Self = Self {
        series: &[Variant::Snapshot],
        ..Self::ONCE
    };

    /// No kernel: the test is for mutants alone.
    pub const NONE: Self = Self {
        series: &[],
        ..Self::ONCE
    };

    /// Whether the test is for the kernel of `context`.
    fn takes(&self, context: &Context<'_>, extent: Extent) -> bool {
        self.series.contains(&context.variant())
            && (context.is_tested_first() || !self.is_of_default_base)
            && (self.is_of_changes || extent == Extent::Whole)
    }
}

/// What a test needs of its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelNeeds {
    /// The image alone.
    Image,
    /// Its symbols and its code too, from `vmlinux`.
    Symbols,
    /// The source that it is built from.
    Source,
    /// Figures of it that are kept in this repository: it is one of this project's.
    Figures,
}

/// A test, with what it needs of its kernel and machine.
#[derive(Clone, Debug)]
pub struct Test {
    /// The name of the test.
    pub name: &'static str,
    /// The machine that it runs on.
    pub machine: MachineSpec,
    /// The configuration of its kernel.
    pub configuration: Configuration,
    /// What it needs of its kernel.
    pub needs: KernelNeeds,
    /// The kernels that it is for.
    pub scope: Scope,
    /// What it decides.
    pub decides: PropertyKind,
    /// Whether it needs what only QEMU with the plugin has, whatever its machine.
    pub needs_plugin: bool,
    /// The first tier that has it, on the kernel that is tested first. On other kernels
    /// [`Tier::Full`] is the first.
    pub tier: Tier,
}

impl Test {
    /// A test of the tier [`Tier::Full`] on an ordinary machine and a kernel that is built for
    /// it.
    pub fn new(name: &'static str, scope: Scope) -> Self {
        Self {
            name,
            machine: MachineSpec::default(),
            configuration: Configuration::Ordinary,
            needs: KernelNeeds::Source,
            scope,
            decides: PropertyKind::Promise,
            needs_plugin: false,
            tier: Tier::Full,
        }
    }

    /// This test in another tier.
    #[must_use]
    pub fn in_tier(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }

    /// This test, which needs no more of its kernel than that.
    #[must_use]
    pub fn with(self, needs: KernelNeeds) -> Self {
        Self { needs, ..self }
    }

    /// What came of the test on the kernel of `context`, by what it decided.
    fn on(&self, context: &Context<'_>, decided: Decided) -> Decided {
        if context.is_ours() {
            decided
        } else {
            Decided {
                verdict: self.decides.of_others(decided.verdict),
                ..decided
            }
        }
    }

    /// Why the kernel of `context` does not do for the test; `None` if it does. A kernel that is
    /// built for the tests does for all.
    fn unmet_by_kernel(&self, context: &Context<'_>) -> Option<String> {
        if self.needs == KernelNeeds::Figures && !context.is_ours() {
            return Some("no figures are kept of kernels that are not this project's".to_owned());
        }
        let given = context.built_elsewhere()?;
        let needs = match self.configuration {
            Configuration::Ordinary => self.needs,
            _ => KernelNeeds::Source,
        };
        match needs {
            KernelNeeds::Source | KernelNeeds::Figures => return Some(NO_SOURCE.to_owned()),
            KernelNeeds::Symbols if given.kernel.vmlinux.is_none() => {
                return Some("it needs the kernel's vmlinux: --vmlinux FILE".to_owned());
            }
            KernelNeeds::Symbols | KernelNeeds::Image => {}
        }
        let (config, arch) = (given.config.as_ref()?, context.guest.arch());
        let machine = MachineNeeds {
            has_pseudo_nmi: self.machine.pseudo_nmi,
            ..MachineNeeds::of_tests(arch)
        };
        let lacking = machine.lacking(config);
        let lacking = lacking.or_else(|| requirements::lacking_for_snapshots(config, arch));
        lacking.map(|lacking| format!("the kernel: {lacking}"))
    }

    /// Why the test cannot run on `machines`; `None` if it can.
    pub fn unmet(&self, machines: &Capabilities) -> Option<String> {
        let plugin = machines.without_plugin().filter(|_| self.needs_plugin);
        plugin.or_else(|| self.machine.unmet(machines))
    }
}

/// Decides those of a batch's tests whose places are given. Returns what came of each, in the
/// same order.
type Decide = dyn Fn(&Context<'_>, &[usize]) -> Result<Vec<Decided>> + Send + Sync;

/// What those of a batch's tests need whose places are given, beside kernels and what every
/// guest needs.
type Needs = dyn for<'a> Fn(&Context<'a>, &[usize]) -> Vec<Artefact<'a>> + Send + Sync;

/// Tests that are decided together, most of them in one boot.
#[derive(Clone)]
pub struct Batch {
    /// What the tests are about, where that is not the kernel: `plugin`, `machine`.
    about: Option<&'static str>,
    /// The tests.
    pub tests: Vec<Test>,
    needs: Arc<Needs>,
    decide: Arc<Decide>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batch").field(&self.tests).finish()
    }
}

impl Batch {
    /// A batch of tests. `decide` is given the places of those that are wanted, and returns
    /// what came of each.
    pub fn of<V: Into<Decided>>(
        tests: Vec<Test>,
        decide: impl Fn(&Context<'_>, &[usize]) -> Result<Vec<V>> + Send + Sync + 'static,
    ) -> Self {
        let decide = move |context: &Context<'_>, wanted: &[usize]| {
            let decided = decide(context, wanted)?;
            Ok(decided.into_iter().map(Into::into).collect())
        };
        Self {
            about: None,
            tests,
            needs: Arc::new(|_, _| Vec::new()),
            decide: Arc::new(decide),
        }
    }

    /// This batch, which needs more than its kernels and what every guest needs. `needs` is given
    /// the places of those tests that are wanted.
    #[must_use]
    pub fn needing(
        self,
        needs: impl for<'a> Fn(&Context<'a>, &[usize]) -> Vec<Artefact<'a>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            needs: Arc::new(needs),
            ..self
        }
    }

    /// What has to be there before the tests at these places run on the kernel of `context`.
    fn needed<'a>(&self, context: &Context<'a>, places: &[usize]) -> Vec<Artefact<'a>> {
        let mut all = (self.needs)(context, places);
        all.extend(context.guest_artefacts());
        let mut tests = places.iter().map(|place| &self.tests[*place]);
        if tests.any(|test| test.machine.firmware) {
            all.push(context.firmware_artefact());
        }
        for configuration in Configuration::ALL {
            let mut tests = places.iter().map(|place| &self.tests[*place]);
            if tests.any(|test| test.configuration == configuration) {
                all.push(context.kernel_artefact(configuration));
            }
        }
        all
    }

    /// A batch of tests of which none is decided without the others. `decide` returns a
    /// verdict for each.
    pub fn inseparable(
        tests: Vec<Test>,
        decide: impl Fn(&Context<'_>) -> Result<Vec<Verdict>> + Send + Sync + 'static,
    ) -> Self {
        let count = tests.len();
        Self::of(tests, move |context, wanted| {
            report::wanted_of(&decide(context)?, count, wanted)
        })
    }

    /// A batch of one test.
    pub fn of_one<V: Into<Decided>>(
        test: Test,
        decide: impl Fn(&Context<'_>, &MachineSpec) -> Result<V> + Send + Sync + 'static,
    ) -> Self {
        let machine = test.machine.clone();
        Self::of(vec![test], move |context, _| {
            Ok(vec![decide(context, &machine)?])
        })
    }

    /// This batch, whose tests are about something else than the kernel.
    pub fn about(self, what: &'static str) -> Self {
        Self {
            about: Some(what),
            ..self
        }
    }

    /// The jobs for those tests of the batch that are for the kernel of `context`: one for
    /// all that can run on the guest's machines, and one for each that is skipped.
    pub fn jobs<'a>(&self, context: &Context<'a>, extent: Extent) -> Vec<Job<'a>> {
        let subject = self
            .about
            .map_or_else(|| context.title.clone(), str::to_owned);
        let machines = context.guest.capabilities();
        let (mut jobs, mut places) = (Vec::new(), Vec::new());
        for (place, test) in self.tests.iter().enumerate() {
            if !test.scope.takes(context, extent) {
                continue;
            }
            match test
                .unmet(&machines)
                .or_else(|| test.unmet_by_kernel(context))
            {
                Some(reason) => {
                    let job = Job::skipped(&subject, test.name, reason);
                    jobs.push(job.in_tier(test.tier));
                }
                None => places.push(place),
            }
        }
        if places.is_empty() {
            return jobs;
        }
        let tests = || places.iter().map(|place| &self.tests[*place]);
        let names = tests().map(|test| test.name.to_owned()).collect();
        let tiers: Vec<_> = tests().map(|test| test.tier).collect();
        let needed = self.needed(context, &places);
        let (batch, context) = (self.clone(), context.clone());
        let job = Job::partial(subject, names, move |wanted: &[usize]| {
            let wanted: Vec<_> = wanted.iter().map(|index| places[*index]).collect();
            let decided = (batch.decide)(&context, &wanted).or_else(|error| match error {
                error if error.is::<Interrupted>() => Err(error),
                error => Ok(vec![one_boot::failed(&error).into(); wanted.len()]),
            })?;
            let tests = wanted.iter().map(|place| &batch.tests[*place]);
            let decided = tests.zip(decided);
            Ok(decided
                .map(|(test, decided)| test.on(&context, decided))
                .collect())
        });
        jobs.push(job.in_tiers(&tiers).needing(needed));
        jobs
    }
}

/// One test of a batch, which can be decided without the others.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    batch: &'a Batch,
    place: usize,
}

/// The test of this name among `batches`.
///
/// # Errors
///
/// When there is no test of this name.
pub fn named<'a>(batches: &'a [Batch], name: &str) -> Result<Named<'a>> {
    for batch in batches {
        if let Some(place) = batch.tests.iter().position(|test| test.name == name) {
            return Ok(Named { batch, place });
        }
    }
    bail!("there is no test {name:?}")
}

impl Named<'_> {
    /// What has to be there before the test runs on the kernel of `context`.
    pub fn needed<'a>(&self, context: &Context<'a>) -> Vec<Artefact<'a>> {
        self.batch.needed(context, &[self.place])
    }

    /// Runs the test alone on the kernel of `context`.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, or the guest dies or does not end in time.
    pub fn run(&self, context: &Context<'_>) -> Result<Verdict> {
        let decided = (self.batch.decide)(context, &[self.place])?
            .into_iter()
            .next();
        let Decided { verdict, retries } = decided.context("a test without a verdict")?;
        // A mutant fails each attempt of a test that has several: nothing is put right by them.
        if matches!(verdict, Verdict::Pass(_)) {
            retries::note_all(retries);
        }
        Ok(verdict)
    }
}
