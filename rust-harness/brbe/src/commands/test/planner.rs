//! The plan of `brbe test`: the tests of this repository, of each series of each base, and of
//! the documents.

use anyhow::{Result, ensure};

use super::bases::{Base, Bases};
use super::ready;
use crate::commands::Applied;
use crate::documents;
use ci_jobs::{github, gitlab, kernelci, lava, linters, schemas};
use harness_tests::{judge_tests, trace_tests};
use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::cost;
use kernel_tests::matrix::{self, Cell};
use kernel_tests::proofs;
use kernel_tests::registry::{Batch, Extent};
use kernel_tests::systematic::{Explained, Systematic};
use kernel_tests::unpatched;
use kernel_tests::x86;
use kernels::subject::{Configuration, Subject};
use kernels::variant::Variant;
use machines::guest::Guest;
use report::{Job, Plan, Row, Tier, Verdict};
use submit::patches;
use submit::test_history::Tested;

/// A check of jobs for CI engines.
type Check = fn(&Paths) -> Result<Verdict>;

/// How many systematic mutants are tried. All that are not explained take an hour.
const SYSTEMATIC: usize = 20;

/// What a plan is made by.
#[derive(Clone, Copy)]
pub(super) struct Planner<'a> {
    pub(super) paths: &'a Paths,
    /// All tests that there are.
    pub(super) tests: &'a [Batch],
    /// The series that is asked for. `None`: all.
    pub(super) asked_for: Option<Variant>,
    /// Whether mutants are tried in each tier. Otherwise only the tier `all` has them.
    pub(super) prove: bool,
    /// Whether verdicts are kept for the cover letters of `brbe submit`.
    pub(super) keeps: bool,
    /// Whether no test will be dropped from the plan.
    pub(super) is_whole: bool,
    /// Whether the base was named by the user.
    pub(super) is_named: bool,
}

impl<'a> Planner<'a> {
    /// The plan of all tests of the bases.
    ///
    /// # Errors
    ///
    /// When what the plan is made by cannot be read: a list of mutants, `bisect.toml`, a
    /// configuration, a document.
    pub(super) fn plan(&self, bases: &'a Bases) -> Result<Plan<'a>> {
        let mut plan = Plan::default();
        plan.any(patches::rust(self.paths));
        let paths = self.paths;
        let checks: [(_, Check); 3] = [
            (
                "jobs for CI engines, by the engines' schemas",
                schemas::check,
            ),
            (
                "jobs for GitHub, by actionlint and shellcheck",
                linters::check,
            ),
            ("results for KernelCI, by kcidb-io", kernelci::check),
        ];
        let job = |(name, check): (_, Check)| Job::new("scripts", name, move || check(paths));
        plan.any(checks.map(|check| job(check).in_tier(Tier::Full)));
        for base in &bases.0 {
            let mut tests = Plan::default();
            self.base(base, &mut tests)?;
            let is_default = base.fixes.subject.as_ref().is_none_or(|it| it.is_default);
            if !is_default && !self.is_named {
                tests.at_least(Tier::Full);
            }
            plan.group(tests);
        }
        let first = bases.0.iter().find_map(|base| {
            let fixes = base.fixes.subject.as_ref()?;
            let snapshot = base.snapshot.as_ref()?.subject.as_ref()?;
            Some((&base.guest, fixes, snapshot))
        });
        if let (Some((guest, fixes, snapshot)), None) = (first, self.asked_for) {
            let context = Context::patched(self.paths, guest, snapshot);
            let needed = context.boot_artefacts(Configuration::Ordinary);
            plan.any(documents::jobs(self.paths, &fixes.tree, &needed)?);
            let engines: [(_, Check); 3] = [
                ("jobs for GitHub, by act", github::check),
                ("jobs for GitLab, by gitlab-ci-local", gitlab::check),
                ("jobs for LAVA, by lava-run", lava::check),
            ];
            let needing = |job: Job<'a>| job.needing(needed.iter().cloned());
            plan.any(engines.map(|check| needing(job(check)).in_tier(Tier::All)));
        }
        if self.asked_for.is_none() {
            let jobs = self.rest_of_matrix(bases)?.into_iter();
            plan.any(jobs.map(|job| job.in_tier(Tier::All)));
        }
        Ok(plan)
    }

    /// The plan of what can be checked of the machines of the first base without booting.
    pub(super) fn checks(&self, bases: &'a Bases) -> Plan<'a> {
        const MODEL: &str = "model";
        let mut plan = Plan::default();
        let Some(base) = bases.0.first() else {
            return plan;
        };
        let guest = &base.guest;
        plan.any([Job::new(MODEL, "knows each parameter", || {
            guest.check_program().map(Verdict::Pass)
        })]);
        for applied in [Some(&base.fixes), base.snapshot.as_ref()]
            .into_iter()
            .flatten()
        {
            plan.any([applied.job()]);
        }
        let snapshot = base.snapshot.as_ref();
        if let Some(subject) = snapshot.and_then(|applied| applied.subject.as_ref()) {
            let context = Context::patched(self.paths, guest, subject);
            let needed = context.boot_artefacts(Configuration::Ordinary);
            let check = move || guest.check_memory(&context.kernel()?).map(Verdict::Pass);
            let fits = Job::new(MODEL, "has a place for firmware and kernel", check);
            plan.any([fits.needing(needed)]);
        }
        plan
    }

    /// The plan of those of the cells whose base is among these.
    ///
    /// # Errors
    ///
    /// When there is no such cell.
    pub(super) fn matrix(&self, bases: &'a Bases, cells: &[Cell]) -> Result<Plan<'a>> {
        let jobs = self.cells(bases, cells);
        ensure!(
            !jobs.is_empty(),
            "no cell of the matrix is of the base of --base, or with --kernel-src alone of the \
             default one, and has the values of --only: name others; ./brbe test --matrix --list \
             prints all cells"
        );
        let mut plan = Plan::default();
        plan.any(jobs);
        Ok(plan)
    }

    /// The jobs of those of the cells whose base is among these.
    fn cells(&self, bases: &'a Bases, cells: &[Cell]) -> Vec<Job<'a>> {
        let job = |cell: &Cell| {
            Some(match bases.kernel_of(cell)? {
                Ok((guest, subject)) => cell.job(Context::patched(self.paths, guest, subject)),
                Err(error) => Job::new(cell.to_string(), matrix::ALL, || Err(error)),
            })
        };
        cells.iter().filter_map(job).collect()
    }

    /// The jobs of the cells that a run has beside the tests of their kernels.
    fn rest_of_matrix(&self, bases: &'a Bases) -> Result<Vec<Job<'a>>> {
        let Some(first) = bases.0.first() else {
            return Ok(Vec::new());
        };
        let mut cells = matrix::cells(self.paths, &[])?;
        cells.retain(|cell| bases.kernel_of(cell).is_some());
        let machines = first.guest.capabilities();
        Ok(self.cells(bases, &matrix::beside_tests(&cells, &machines)))
    }

    /// Whether the tests of a series are wanted.
    fn wants(&self, variant: Variant) -> bool {
        self.asked_for.is_none_or(|only| only == variant)
    }

    fn base(&self, base: &'a Base, plan: &mut Plan<'a>) -> Result<()> {
        plan.any([base.fixes.job()]);
        let Some(fixes) = &base.fixes.subject else {
            return Ok(());
        };
        if self.wants(Variant::Fixes) {
            self.fixes(base, fixes, plan)?;
        }
        if self.asked_for == Some(Variant::Fixes) {
            return Ok(());
        }
        let Some(applied) = &base.snapshot else {
            return Ok(());
        };
        plan.any([applied.job()]);
        let Some(snapshot) = &applied.subject else {
            return Ok(());
        };
        if self.wants(Variant::Snapshot) {
            self.snapshot(base, [fixes, snapshot], plan)?;
        }
        for applied in &base.others {
            let mut tests = Plan::default();
            self.on_top(base, snapshot, applied, &mut tests)?;
            if self.asked_for.is_none() {
                tests.at_least(Tier::Full);
            }
            plan.group(tests);
        }
        // Their letters report figures of the snapshot, too.
        let tested = base.others.iter().filter_map(|it| it.subject.as_ref());
        for subject in tested.filter(|subject| self.tests_kernel(subject)) {
            plan.last(ready::mails(self.paths, subject));
        }
        Ok(())
    }

    /// Whether the kernel of a series on top of the snapshot is tested. One with a source tree of
    /// its own is built from nothing, which takes ten minutes.
    fn tests_kernel(&self, subject: &Subject) -> bool {
        subject.variant.own_tree().is_none() || self.asked_for.is_some()
    }

    /// The tests of the series `fixes` alone. Its kernel is only tested where that series is
    /// asked for: with the snapshot on top more can be seen of the fixes. To bisect the series,
    /// its kernels are booted in the tier `all`, too.
    fn fixes(&self, base: &'a Base, subject: &'a Subject, plan: &mut Plan<'a>) -> Result<()> {
        let is_asked_for = self.asked_for.is_some();
        let context = Context::patched(self.paths, &base.guest, subject);
        let mut tested = Plan::default();
        tested.any(patches::style(self.paths, subject));
        self.patch_by_patch(subject, &mut tested)?;
        if is_asked_for {
            self.tests(&context, Extent::Whole, Vec::new(), &mut tested);
            // The mutants go on top of the snapshot: the tests that fail without a fix take
            // snapshots.
            if let Some(applied) = &base.snapshot {
                match &applied.subject {
                    Some(with) => {
                        let context = Context::patched(self.paths, &base.guest, with);
                        tested.any(self.mutants(Variant::Fixes, &context)?);
                    }
                    None => tested.any([applied.job()]),
                }
            }
        }
        let mut all = Plan::default();
        all.part(tested, self.keep(&base.guest, subject));
        let applied = base.snapshot.as_ref().filter(|_| !is_asked_for);
        let linked = applied.and_then(|applied| applied.subject.as_ref());
        let linked = subject.is_default.then(|| linked.unwrap_or(subject));
        self.sent(&context, linked, is_asked_for, &mut all)?;
        plan.group(all);
        Ok(())
    }

    /// The tests of the series `snapshot`: without any patch, patch by patch, and with all of
    /// them.
    fn snapshot(
        &self,
        base: &'a Base,
        [fixes, subject]: [&'a Subject; 2],
        plan: &mut Plan<'a>,
    ) -> Result<()> {
        let (paths, guest) = (self.paths, &base.guest);
        let context = Context::patched(paths, guest, subject);
        let title = subject.title(false);
        let without = Context::at(paths, guest, subject, subject.unpatched(), title);
        let mut tested = Plan::default();
        tested.any(unpatched::jobs(&without)?);
        tested.any(patches::style(paths, subject));
        tested.any(self.applying(subject)?);
        self.patch_by_patch(subject, &mut tested)?;
        let mutants = self.mutants(subject.variant, &context)?;
        self.tests(&context, Extent::Whole, mutants, &mut tested);
        let keep = self.keep(guest, subject);
        let keep_proofs = self.keep_proofs(guest, fixes);
        let mut all = Plan::default();
        all.part(tested, move |rows, is_late| {
            keep(rows, is_late)?;
            keep_proofs(rows)
        });
        // In a tree of the user's own the drivers may be others than those that are explained.
        if subject.is_default && subject.is_ours() && !subject.is_user_tree {
            let mut mutants = Systematic::of(&context, self.tests, Explained::Believed)?;
            all.any([mutants.explanations().in_tier(Tier::Full)]);
            mutants.sample(SYSTEMATIC);
            let jobs = mutants.jobs().into_iter();
            all.any(jobs.map(|job| job.in_tier(Tier::All)));
        }
        if let Some((guest, subject)) = &base.x86 {
            let context = Context::patched(paths, guest, subject);
            let mut tested = Plan::default();
            tested.any(x86::tests().jobs(&context, Extent::Whole));
            for batch in trace_tests::depths::x86_tests() {
                tested.any(batch.jobs(&context, Extent::Whole));
            }
            tested.at_least(Tier::Full);
            let machine = "QEMU's x86-64 machine".to_owned();
            all.part(tested, self.keep_as(machine, subject));
        }
        // For other bases the kernel for x86-64 is not there: `brbe submit` checks all of
        // them.
        self.sent(
            &context,
            subject.is_default.then_some(subject),
            true,
            &mut all,
        )?;
        plan.group(all);
        Ok(())
    }

    /// The tests of a series that goes on top of the snapshot.
    fn on_top(
        &self,
        base: &'a Base,
        snapshot: &'a Subject,
        applied: &'a Applied,
        plan: &mut Plan<'a>,
    ) -> Result<()> {
        plan.any([applied.job()]);
        let Some(subject) = &applied.subject else {
            return Ok(());
        };
        let (variant, is_asked_for) = (subject.variant, self.asked_for.is_some());
        let in_rust = variant == Variant::Rust;
        let mut tested = Plan::default();
        tested.any(patches::style(self.paths, subject));
        tested.any(self.applying(subject)?);
        if !self.tests_kernel(subject) {
            plan.group(tested);
            return Ok(());
        }
        let builds = patches::builds(subject, in_rust.then_some(snapshot)).into_iter();
        let tier = Self::tier_of_builds(is_asked_for);
        tested.in_order(builds.map(|job| job.in_tier(tier)));
        let context = Context::patched(self.paths, &base.guest, subject);
        // A series that leaves most of the driver as it is is tested as a whole where it is
        // asked for. Otherwise only what its patches change is tested.
        if in_rust || is_asked_for {
            let mutants = self.mutants(variant, &context)?;
            self.tests(&context, Extent::Whole, mutants, &mut tested);
        } else {
            self.tests(&context, Extent::Changes, Vec::new(), &mut tested);
        }
        let below = Context::patched(self.paths, &base.guest, snapshot);
        tested.any(cost::beside(below, context.clone()));
        let mut all = Plan::default();
        all.part(tested, self.keep(&base.guest, subject));
        let compiles = subject.is_default && is_asked_for && variant.own_tree().is_none();
        self.sent(&context, compiles.then_some(subject), false, &mut all)?;
        plan.group(all);
        Ok(())
    }

    /// Plans that the tree compiles, and that it builds, with each patch and those before it. The
    /// first patch of the snapshot and a later one change headers that nearly all files include: to
    /// build the patches before these two takes a kernel from nothing each, in each configuration.
    /// Such builds find only what breaks files which no patch touches: they are of the tier `all`.
    fn patch_by_patch(&self, subject: &'a Subject, plan: &mut Plan<'a>) -> Result<()> {
        let build = patches::builds(subject, None).into_iter();
        let tier = Self::tier_of_builds(self.asked_for == Some(subject.variant));
        let build = build.map(|job| job.in_tier(tier));
        // What has been built compiles.
        plan.in_order(build.chain(patches::compiles(subject)?));
        Ok(())
    }

    /// The tier of the builds of a series that is asked for, or is not.
    fn tier_of_builds(is_asked_for: bool) -> Tier {
        if is_asked_for { Tier::Quick } else { Tier::All }
    }

    /// Plans the tests of a kernel, and those of its mutants.
    fn tests(
        &self,
        context: &Context<'a>,
        extent: Extent,
        mutants: Vec<Job<'a>>,
        plan: &mut Plan<'a>,
    ) {
        let jobs = self.tests.iter();
        plan.any(jobs.flat_map(|batch| batch.jobs(context, extent)));
        plan.any(mutants);
    }

    /// The jobs that check that what goes on top of a series applies: its mutants and, for the
    /// tests of `brbe judge`, other implementations. Both are of the bases and of the series in
    /// this repository.
    fn applying(&self, subject: &'a Subject) -> Result<Vec<Job<'a>>> {
        let mut jobs = Vec::new();
        if subject.is_ours() && !subject.is_user_tree {
            jobs.extend(proofs::applying(self.paths, subject)?);
            if subject.is_default && subject.variant == Variant::Snapshot {
                jobs.push(judge_tests::applying(self.paths, subject));
            }
        }
        Ok(jobs)
    }

    /// The jobs that try the mutants of a series on top of the kernel of `context`.
    fn mutants(&self, variant: Variant, context: &Context<'a>) -> Result<Vec<Job<'a>>> {
        let mutants = proofs::load(self.paths, variant, &context.subject()?.base)?;
        let tier = if self.prove { Tier::Quick } else { Tier::All };
        let job = |mutant| Ok(proofs::job(self.tests, context, mutant)?.in_tier(tier));
        mutants.into_iter().map(job).collect()
    }

    /// Plans the checks that only a series to be sent has to pass, those of warnings with the
    /// kernels of `linked`: see [`ready::checks`]. Its mails are written if `has_mails`.
    fn sent(
        &self,
        context: &Context<'a>,
        linked: Option<&'a Subject>,
        has_mails: bool,
        plan: &mut Plan<'a>,
    ) -> Result<()> {
        plan.group(ready::checks(self.tests, context, linked)?);
        if has_mails {
            plan.last(ready::mails(self.paths, context.subject()?));
        }
        Ok(())
    }

    /// What keeps the rows of a part of the plan for the subject's series, as seen on the
    /// machines of `guest`.
    fn keep(
        &self,
        guest: &Guest,
        subject: &'a Subject,
    ) -> impl FnOnce(&[Row], bool) -> Result<()> + use<'a> {
        self.keep_as(guest.machine(), subject)
    }

    /// As [`Planner::keep`], on machines of the kind `machine`.
    fn keep_as(
        &self,
        machine: String,
        subject: &'a Subject,
    ) -> impl FnOnce(&[Row], bool) -> Result<()> + use<'a> {
        let Self {
            paths,
            keeps,
            is_whole,
            ..
        } = *self;
        move |rows, is_late| {
            if !keeps {
                return Ok(());
            }
            Tested::keep(paths, subject, &machine, rows, is_whole && !is_late)
        }
    }

    /// What keeps the proofs among rows for the series `fixes`: its safeguards are taken out
    /// with the snapshot on top.
    fn keep_proofs(
        &self,
        guest: &Guest,
        fixes: &'a Subject,
    ) -> impl FnOnce(&[Row]) -> Result<()> + use<'a> {
        let (paths, keeps, machine) = (self.paths, self.keeps, guest.machine());
        move |rows| {
            if !keeps {
                return Ok(());
            }
            let proofs = proofs::titles(paths, fixes)?;
            let rows = rows.iter().filter(|row| proofs.contains(&row.subject));
            let rows: Vec<_> = rows.cloned().collect();
            Tested::keep(paths, fixes, &machine, &rows, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_matrix_without_a_cell_is_refused() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let paths = Paths::at(root, root);
        let planner = Planner {
            paths: &paths,
            tests: &[],
            asked_for: None,
            prove: false,
            keeps: false,
            is_whole: false,
            is_named: true,
        };
        let cells = matrix::cells(&paths, &[]).unwrap();
        let refused = planner.matrix(&Bases(Vec::new()), &cells).err().unwrap();
        for option in ["--base", "--kernel-src", "--only"] {
            assert!(refused.to_string().contains(option), "{refused}");
        }
    }
}
