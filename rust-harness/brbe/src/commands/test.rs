//! `brbe test`: runs all tests that can be decided here, and prints one table.

mod explained;
mod fixes;
mod patched;
mod ready;
mod unpatched;

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use super::KernelArgs;
use super::lane::LaneArgs;
use crate::ci;
use crate::documents;
use host::arch::Arch;
use host::paths::Paths;
use kernel_tests::cost;
use kernel_tests::guest_tests;
use kernel_tests::matrix::{self, Cell, Kernels, Only};
use kernel_tests::proofs;
use kernel_tests::selftests;
use kernel_tests::x86;
use kernels::bases;
use kernels::subject::Subject;
use kernels::variant::Variant;
use machines::backend::Backend;
use machines::guest::Guest;
use machines::lane::Lane;
use machines::qemu::Qemu;
use report::Limit;
use report::{Partition, Selection};
use report::{Report, Verdict};
use submit::patches;
use submit::patches::APPLIES;
use submit::test_history::Tested;

/// Run all tests and print one table of verdicts
///
/// The Rust here, each patch of each base, and in the guest: the kernel's own
/// selftest of the helper, the programs in selftests/guest, perf, and the same
/// on the unpatched kernels, which have to fail in the way that the patches mend.
#[derive(Args, Debug)]
pub struct Test {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Only tests whose line contains this, such as `7.3.4 patched: twice`; what they
    /// need is prepared
    #[arg(value_name = "TEXT")]
    only: Option<String>,

    #[command(flatten)]
    lane: LaneArgs,

    /// Run the matrix instead: the guest tests on each combination of kernel and
    /// machine in scripts/matrix.toml
    #[arg(long, conflicts_with_all = ["prove", "series"])]
    matrix: bool,

    /// Of the matrix only what is like this, such as records=16,level=VHE; given
    /// several times, what is like one of them
    #[arg(long = "only", value_name = "AXIS=VALUE,...", requires = "matrix")]
    cells: Vec<Only>,

    /// Prove each safeguard by its absence too, as `brbe prove` does
    #[arg(long)]
    prove: bool,

    /// Only this part of the tests, such as 2/8, the second of eight: for several
    /// machines, whose reports `brbe report` puts together
    #[arg(long, value_name = "K/N")]
    partition: Option<Partition>,

    /// Begin no test after so many minutes: what is left is SKIP. A cold run builds
    /// kernels for an hour, and CI engines have a limit; the next run goes on from what
    /// this one has built
    #[arg(long, value_name = "MINUTES")]
    within: Option<u32>,

    /// Run nothing: print the lines of the tests that would be
    #[arg(long)]
    list: bool,

    /// Keep none of the verdicts for the cover letters of `brbe submit`
    #[arg(long)]
    unrecorded: bool,

    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

impl Test {
    /// Runs the command. Returns whether all is well.
    pub fn run(&self, paths: &Paths) -> Result<bool> {
        let selection = Selection::new(self.only.clone(), self.partition);
        let mut report = match self.list {
            true => Report::list_of(selection),
            false => Report::of(selection).within(self.within.map(Limit::of_minutes)),
        };
        match self.lane.open()? {
            Lane::Remote(ssh) => {
                report.run_together(guest_tests::on_remote(paths, &ssh), || Ok(()))?;
            }
            Lane::Machines(backend) if self.matrix => {
                self.matrix(paths, &backend, &mut report)?;
            }
            Lane::Machines(backend) => {
                let guest = self.guest(paths, Arch::Arm64, &backend)?;
                self.all(paths, &guest, &mut report)?;
            }
        }
        let (_, failed, _) = report.counts();
        if let (Some(text), None, 0) = (&self.only, &self.partition, failed) {
            ensure!(
                report.has(text),
                "no test has {text:?} in its line: --list in its place prints the lines"
            );
        }
        super::print_outcome(self.json, &report)
    }

    fn guest(&self, paths: &Paths, arch: Arch, backend: &Arc<dyn Backend>) -> Result<Guest> {
        match self.list {
            true => Ok(Guest::planned(paths, arch, backend.clone())),
            false => Guest::on(paths, arch, backend.clone()),
        }
    }

    /// Runs the cells of the matrix that are wanted, those of one kernel together.
    fn matrix(&self, paths: &Paths, backend: &Arc<dyn Backend>, report: &mut Report) -> Result<()> {
        let cells = matrix::cells(paths, &self.cells)?;
        for cells in cells.chunk_by(Cell::shares_a_kernel_with) {
            let guest = |arch| self.guest(paths, arch, backend);
            let kernels = Kernels::prepare(paths, &self.kernel.choice(), &cells[0], guest)?;
            let jobs = cells.iter().map(|cell| kernels.job(paths, cell));
            report.run_together(jobs.collect(), || kernels.build().map(|_| ()))?;
        }
        Ok(())
    }

    /// Runs everything but the matrix: the tests of this repository, of each series of each
    /// base, and of the documents.
    fn all(&self, paths: &Paths, guest: &Guest, report: &mut Report) -> Result<()> {
        let names: Vec<String> = match (&self.kernel.base, &self.kernel.kernel_src) {
            (None, None) => bases::load(paths)?
                .into_iter()
                .map(|base| base.name)
                .collect(),
            (base, _) => vec![bases::choose(&bases::load(paths)?, base.as_deref())?.name],
        };
        patches::rust(paths, report)?;
        report.run(
            "scripts",
            "jobs for CI engines, by the engines' schemas",
            || ci::check(paths),
        )?;
        let mut first = None;
        for name in names {
            let Some(fixes) = self.applied(paths, &name, Variant::Fixes, report)? else {
                continue;
            };
            let guest = &guest.for_kernels_of(&fixes)?;
            if self.wants(Variant::Fixes) {
                self.fixes(paths, guest, &fixes, report)?;
            }
            first.get_or_insert_with(|| fixes.tree.clone());
            if self.kernel.series == Some(Variant::Fixes) {
                continue;
            }
            let Some(subject) = self.applied(paths, &name, Variant::Snapshot, report)? else {
                continue;
            };
            if self.wants(Variant::Snapshot) {
                self.snapshot(paths, guest, [&fixes, &subject], report)?;
            }
            for variant in Variant::ON_SNAPSHOT {
                if self.wants(variant) {
                    self.on_top(paths, guest, &subject, variant, report)?;
                }
            }
        }
        // The commands of the documents come last: by now the kernels that they want are
        // there.
        match &first {
            Some(tree) if self.kernel.series.is_none() => {
                report.run_together(documents::jobs(paths, &tree.path)?, || Ok(()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the tests of a series are wanted.
    fn wants(&self, variant: Variant) -> bool {
        self.kernel.series.is_none_or(|only| only == variant)
    }

    /// Prepares a series of a base, as a test that others need. `None` if the series does not
    /// apply.
    fn applied(
        &self,
        paths: &Paths,
        base: &str,
        variant: Variant,
        report: &mut Report,
    ) -> Result<Option<Subject>> {
        let args = KernelArgs {
            base: Some(base.to_owned()),
            series: Some(variant),
            ..self.kernel.clone()
        };
        let base = bases::choose(&bases::load(paths)?, Some(base))?;
        super::applied(paths, &args, &variant.name(&base), report)
    }

    /// Runs all tests of the series `fixes` alone. Its kernel is only booted where that
    /// series is asked for: with the snapshot on top more can be seen of the fixes.
    fn fixes(
        &self,
        paths: &Paths,
        guest: &Guest,
        subject: &Subject,
        report: &mut Report,
    ) -> Result<()> {
        let is_asked_for = self.kernel.series.is_some();
        let before = report.rows().len();
        patches::style(paths, subject, report)?;
        patches::builds(subject, None, report)?;
        if is_asked_for {
            fixes::check(paths, guest, subject, self.prove, report)?;
        }
        self.keep(paths, &guest.machine(), subject, report, before)?;
        ready::check(paths, guest, subject, subject.is_default, report)?;
        match is_asked_for {
            true => ready::mails(paths, subject, report),
            false => Ok(()),
        }
    }

    /// Runs all tests of the series `snapshot`: first without any patch, then patch by patch,
    /// then with all of them, so that the tree moves only once.
    fn snapshot(
        &self,
        paths: &Paths,
        guest: &Guest,
        [fixes, subject]: [&Subject; 2],
        report: &mut Report,
    ) -> Result<()> {
        let before = report.rows().len();
        unpatched::check(paths, guest, subject, report)?;
        patches::style(paths, subject, report)?;
        patches::builds(subject, None, report)?;
        patched::check(paths, guest, subject, self.prove, report)?;
        self.keep(paths, &guest.machine(), subject, report, before)?;
        self.keep_proofs(paths, &guest.machine(), fixes, report, before)?;
        let before = report.rows().len();
        if subject.is_default && guest.capabilities().plugin {
            self.on_x86(paths, subject, report)?;
        }
        self.keep(paths, "QEMU's x86-64 machine", subject, report, before)?;
        // For other bases the kernel for x86-64 is not there: `brbe submit` checks all of
        // them.
        ready::check(paths, guest, subject, subject.is_default, report)?;
        ready::mails(paths, subject, report)
    }

    /// Runs all tests of `variant`, a series that goes on top of the snapshot, if the base
    /// has it.
    fn on_top(
        &self,
        paths: &Paths,
        guest: &Guest,
        snapshot: &Subject,
        variant: Variant,
        report: &mut Report,
    ) -> Result<()> {
        if !variant.exists(paths, &snapshot.base) {
            return Ok(());
        }
        let mut found = None;
        report.run_always(&variant.name(&snapshot.base), APPLIES, || {
            let subject = snapshot.with(paths, variant)?.context("it has gone")?;
            let count = subject.changes().len();
            found = Some(subject);
            Ok(Verdict::Pass(format!("{count} patches")))
        })?;
        let Some(subject) = &found else {
            return Ok(());
        };
        let (in_rust, is_asked_for) = (variant == Variant::Rust, self.kernel.series.is_some());
        let before = report.rows().len();
        patches::style(paths, subject, report)?;
        // A series with a source tree of its own has a kernel that is built from nothing,
        // which takes ten minutes.
        if variant.own_tree().is_some() && !is_asked_for {
            return Ok(());
        }
        patches::builds(subject, in_rust.then_some(snapshot), report)?;
        // A series that leaves most of the driver as it is is tested as a whole where it is
        // asked for. Otherwise only what its patches change is tested.
        match in_rust || is_asked_for {
            true => patched::check(paths, guest, subject, self.prove, report)?,
            false => patched::check_changes(paths, guest, subject, report)?,
        }
        let limit = match variant {
            Variant::Rust => Some(cost::LIMIT_IN_RUST),
            Variant::Cheaper => Some(cost::LIMIT_OF_CHEAPER),
            Variant::Fixes | Variant::Snapshot | Variant::LowWaste => None,
        };
        if let Some(limit) = limit {
            patched::compare_cost(paths, guest, [snapshot, subject], limit, report)?;
        }
        self.keep(paths, &guest.machine(), subject, report, before)?;
        let compiles = subject.is_default && is_asked_for && variant.own_tree().is_none();
        ready::check(paths, guest, subject, compiles, report)?;
        ready::mails(paths, subject, report)
    }

    /// Runs the tests of the series on x86-64.
    fn on_x86(&self, paths: &Paths, subject: &Subject, report: &mut Report) -> Result<()> {
        let subject = subject.on(paths, Arch::X86_64)?;
        let title = subject.title(true);
        if !selftests::DECIDED
            .iter()
            .any(|test| report.wants(&title, test))
        {
            return Ok(());
        }
        let guest = self.guest(paths, Arch::X86_64, &(Arc::new(Qemu) as Arc<dyn Backend>))?;
        report.run_together(x86::jobs(paths, &guest, &subject), || Ok(()))
    }

    /// Keeps the rows of `report` from index `before` on for the subject's series, as seen on
    /// machines of this kind. With `--unrecorded` nothing is kept.
    fn keep(
        &self,
        paths: &Paths,
        machine: &str,
        subject: &Subject,
        report: &Report,
        before: usize,
    ) -> Result<()> {
        if self.unrecorded {
            return Ok(());
        }
        let rows = &report.rows()[before..];
        Tested::keep(paths, subject, machine, rows, report.is_whole())
    }

    /// Keeps the proofs among the rows of `report` from index `before` on for the series
    /// `fixes`. Its safeguards were taken out with the snapshot on top. With `--unrecorded`
    /// nothing is kept.
    fn keep_proofs(
        &self,
        paths: &Paths,
        machine: &str,
        fixes: &Subject,
        report: &Report,
        before: usize,
    ) -> Result<()> {
        if self.unrecorded {
            return Ok(());
        }
        let proofs = proofs::titles(paths, fixes)?;
        let rows = report.rows()[before..].iter();
        let rows = rows.filter(|row| proofs.contains(&row.subject)).cloned();
        let rows: Vec<_> = rows.collect();
        Tested::keep(paths, fixes, machine, &rows, false)
    }
}
