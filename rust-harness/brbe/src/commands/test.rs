//! `brbe test`: everything that can be decided here, in one table.

mod explained;
mod fixes;
mod patched;
mod ready;
mod unpatched;

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use super::{APPLIES, KernelArgs, Subject, Variant, prove};
use crate::arch::Arch;
use crate::bases;
use crate::checks;
use crate::ci;
use crate::cost;
use crate::documents;
use crate::guest::Guest;
use crate::guest_tests;
use crate::jobs::Limit;
use crate::lane::{Lane, LaneArgs};
use crate::machine::{Backend, Qemu};
use crate::matrix::{self, Cell, Kernels, Only};
use crate::places::Places;
use crate::selection::{Partition, Selection};
use crate::selftests;
use crate::tested::Tested;
use crate::verdict::{Report, Verdict};
use crate::x86;

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
    pub fn run(&self, places: &Places) -> Result<bool> {
        let selection = Selection::new(self.only.clone(), self.partition);
        let mut report = match self.list {
            true => Report::list_of(selection),
            false => Report::of(selection).within(self.within.map(Limit::of_minutes)),
        };
        match self.lane.open()? {
            Lane::Remote(ssh) => {
                report.run_together(guest_tests::on_remote(places, &ssh), || Ok(()))?;
            }
            Lane::Machines(backend) if self.matrix => {
                self.matrix(places, &backend, &mut report)?;
            }
            Lane::Machines(backend) => {
                let guest = self.guest(places, Arch::Arm64, &backend)?;
                self.all(places, &guest, &mut report)?;
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

    fn guest(&self, places: &Places, arch: Arch, backend: &Arc<dyn Backend>) -> Result<Guest> {
        match self.list {
            true => Ok(Guest::planned(places, arch, backend.clone())),
            false => Guest::on(places, arch, backend.clone()),
        }
    }

    /// All cells of the matrix that are wanted, those of one kernel together.
    fn matrix(
        &self,
        places: &Places,
        backend: &Arc<dyn Backend>,
        report: &mut Report,
    ) -> Result<()> {
        let cells = matrix::cells(places, &self.cells)?;
        for cells in cells.chunk_by(Cell::shares_a_kernel_with) {
            let guest = |arch| self.guest(places, arch, backend);
            let kernels = Kernels::prepare(places, &self.kernel, &cells[0], guest)?;
            let jobs = cells.iter().map(|cell| kernels.job(places, cell));
            report.run_together(jobs.collect(), || kernels.build().map(|_| ()))?;
        }
        Ok(())
    }

    /// Everything else.
    fn all(&self, places: &Places, guest: &Guest, report: &mut Report) -> Result<()> {
        let names: Vec<String> = match (&self.kernel.base, &self.kernel.kernel_src) {
            (None, None) => bases::load(places)?
                .into_iter()
                .map(|base| base.name)
                .collect(),
            (base, _) => vec![bases::choose(&bases::load(places)?, base.as_deref())?.name],
        };
        checks::rust(places, report)?;
        report.run(
            "scripts",
            "jobs for CI engines, by the engines' schemas",
            || ci::check(places),
        )?;
        let mut first = None;
        for name in names {
            let Some(fixes) = self.applied(places, &name, Variant::Fixes, report)? else {
                continue;
            };
            let guest = &guest.for_kernels_of(&fixes)?;
            if self.wants(Variant::Fixes) {
                self.fixes(places, guest, &fixes, report)?;
            }
            first.get_or_insert_with(|| fixes.tree.clone());
            if self.kernel.series == Some(Variant::Fixes) {
                continue;
            }
            let Some(subject) = self.applied(places, &name, Variant::Snapshot, report)? else {
                continue;
            };
            if self.wants(Variant::Snapshot) {
                self.snapshot(places, guest, [&fixes, &subject], report)?;
            }
            for variant in Variant::ON_SNAPSHOT {
                if self.wants(variant) {
                    self.on_top(places, guest, &subject, variant, report)?;
                }
            }
        }
        // By now the kernels are there that they want.
        match &first {
            Some(tree) if self.kernel.series.is_none() => {
                report.run_together(documents::jobs(places, &tree.path)?, || Ok(()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the tests of a series are wanted.
    fn wants(&self, variant: Variant) -> bool {
        self.kernel.series.is_none_or(|only| only == variant)
    }

    /// A series of a base, if it applies.
    fn applied(
        &self,
        places: &Places,
        base: &str,
        variant: Variant,
        report: &mut Report,
    ) -> Result<Option<Subject>> {
        let args = KernelArgs {
            base: Some(base.to_owned()),
            series: Some(variant),
            ..self.kernel.clone()
        };
        let base = bases::choose(&bases::load(places)?, Some(base))?;
        super::applied(places, &args, &variant.name(&base), report)
    }

    /// All tests of the fixes alone. Their kernel is only booted where that is asked for:
    /// with the snapshot on top more can be seen of them.
    fn fixes(
        &self,
        places: &Places,
        guest: &Guest,
        subject: &Subject,
        report: &mut Report,
    ) -> Result<()> {
        let is_asked_for = self.kernel.series.is_some();
        let before = report.rows().len();
        checks::style(places, subject, report)?;
        checks::builds(subject, None, report)?;
        if is_asked_for {
            fixes::check(places, guest, subject, self.prove, report)?;
        }
        self.keep(places, &guest.machine(), subject, report, before)?;
        ready::check(places, guest, subject, subject.is_default, report)?;
        match is_asked_for {
            true => ready::mails(places, subject, report),
            false => Ok(()),
        }
    }

    /// All tests of the snapshot: first without any patch, then patch by patch, then with
    /// all of them, so that the tree moves only once.
    fn snapshot(
        &self,
        places: &Places,
        guest: &Guest,
        [fixes, subject]: [&Subject; 2],
        report: &mut Report,
    ) -> Result<()> {
        let before = report.rows().len();
        unpatched::check(places, guest, subject, report)?;
        checks::style(places, subject, report)?;
        checks::builds(subject, None, report)?;
        patched::check(places, guest, subject, self.prove, report)?;
        self.keep(places, &guest.machine(), subject, report, before)?;
        self.keep_proofs(places, &guest.machine(), fixes, report, before)?;
        let before = report.rows().len();
        if subject.is_default && guest.capabilities().plugin {
            self.on_x86(places, subject, report)?;
        }
        self.keep(places, "QEMU's x86-64 machine", subject, report, before)?;
        // Of the other bases the kernel for x86-64 is not there: `brbe submit` does all.
        ready::check(places, guest, subject, subject.is_default, report)?;
        ready::mails(places, subject, report)
    }

    /// All tests of a series that goes on top of the snapshot.
    fn on_top(
        &self,
        places: &Places,
        guest: &Guest,
        snapshot: &Subject,
        variant: Variant,
        report: &mut Report,
    ) -> Result<()> {
        if !variant.exists(places, &snapshot.base) {
            return Ok(());
        }
        let mut found = None;
        report.run_always(&variant.name(&snapshot.base), APPLIES, || {
            let subject = snapshot.with(places, variant)?.context("it has gone")?;
            let count = subject.changes().len();
            found = Some(subject);
            Ok(Verdict::Pass(format!("{count} patches")))
        })?;
        let Some(subject) = &found else {
            return Ok(());
        };
        let (in_rust, is_asked_for) = (variant == Variant::Rust, self.kernel.series.is_some());
        let before = report.rows().len();
        checks::style(places, subject, report)?;
        // A kernel that is built from nothing takes ten minutes.
        if variant.own_tree().is_some() && !is_asked_for {
            return Ok(());
        }
        checks::builds(subject, in_rust.then_some(snapshot), report)?;
        // What leaves most of the driver as it is is tested as a whole where that is asked
        // for, and otherwise for what its patches change.
        match in_rust || is_asked_for {
            true => patched::check(places, guest, subject, self.prove, report)?,
            false => patched::check_changes(places, guest, subject, report)?,
        }
        let limit = match variant {
            Variant::Rust => Some(cost::LIMIT_IN_RUST),
            Variant::Cheaper => Some(cost::LIMIT_OF_CHEAPER),
            Variant::Fixes | Variant::Snapshot | Variant::LowWaste => None,
        };
        if let Some(limit) = limit {
            patched::compare_cost(places, guest, [snapshot, subject], limit, report)?;
        }
        self.keep(places, &guest.machine(), subject, report, before)?;
        let compiles = subject.is_default && is_asked_for && variant.own_tree().is_none();
        ready::check(places, guest, subject, compiles, report)?;
        ready::mails(places, subject, report)
    }

    /// What is asked of the series elsewhere.
    fn on_x86(&self, places: &Places, subject: &Subject, report: &mut Report) -> Result<()> {
        let subject = subject.on(places, Arch::X86_64)?;
        let title = subject.title(true);
        if !selftests::DECIDED
            .iter()
            .any(|test| report.wants(&title, test))
        {
            return Ok(());
        }
        let guest = self.guest(places, Arch::X86_64, &(Arc::new(Qemu) as Arc<dyn Backend>))?;
        report.run_together(x86::jobs(places, &guest, &subject), || Ok(()))
    }

    /// Keeps what has been seen of a series since there were `before` rows, on machines of
    /// this kind.
    fn keep(
        &self,
        places: &Places,
        machine: &str,
        subject: &Subject,
        report: &Report,
        before: usize,
    ) -> Result<()> {
        if self.unrecorded {
            return Ok(());
        }
        let rows = &report.rows()[before..];
        Tested::keep(places, subject, machine, rows, report.is_whole())
    }

    /// Keeps for the fixes what has been seen of their safeguards, with the snapshot on top.
    fn keep_proofs(
        &self,
        places: &Places,
        machine: &str,
        fixes: &Subject,
        report: &Report,
        before: usize,
    ) -> Result<()> {
        if self.unrecorded {
            return Ok(());
        }
        let proofs = prove::titles(places, fixes)?;
        let rows = report.rows()[before..].iter();
        let rows = rows.filter(|row| proofs.contains(&row.subject)).cloned();
        let rows: Vec<_> = rows.collect();
        Tested::keep(places, fixes, machine, &rows, false)
    }
}
