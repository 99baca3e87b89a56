//! The bases and series that are tested, ready to be built.

use std::panic;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result, ensure};

use crate::commands::{Applied, KernelArgs};
use host::arch::Arch;
use host::paths::Paths;
use kernel_tests::matrix::Cell;
use kernels::bases;
use kernels::subject::Subject;
use kernels::variant::Variant;
use machines::backend::Backend;
use machines::guest::Guest;

/// The bases that are tested.
pub(super) struct Bases(pub(super) Vec<Base>);

/// Which bases are prepared where none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// All of them.
    All,
    /// The default base: the others are not tested, and fetching their sources takes time.
    Default,
}

/// A base with its series. A series is there if it is wanted, or another one that is wanted
/// needs it.
pub(super) struct Base {
    base: bases::Base,
    /// Boots its kernels.
    pub(super) guest: Guest,
    pub(super) fixes: Applied,
    pub(super) snapshot: Option<Applied>,
    /// The series on top of the snapshot.
    pub(super) others: Vec<Applied>,
    /// The series `snapshot` for x86-64, and what boots its kernels.
    pub(super) x86: Option<(Guest, Subject)>,
}

impl Bases {
    /// Applies the series of the bases that the options ask for, or of those that `which` names.
    /// The series `fixes` needs the snapshot: its mutants go on top of it.
    ///
    /// # Errors
    ///
    /// When there is no such base, or preparing it is interrupted. A series that does not
    /// apply is no error: see [`Applied`].
    pub(super) fn prepare(
        paths: &Paths,
        kernel: &KernelArgs,
        backend: &Arc<dyn Backend>,
        which: Which,
    ) -> Result<Self> {
        let all = bases::load(paths)?;
        let chosen = match (&kernel.base, &kernel.kernel_src) {
            (None, None) if which == Which::All => all,
            (base, _) => vec![bases::choose(&all, base.as_deref())?],
        };
        let guest = Guest::on(paths, Arch::Arm64, backend.clone());
        let prepare = |base| Base::prepare(paths, kernel, &guest, base);
        // On a new machine each takes minutes, on one CPU: its source is fetched and unpacked.
        thread::scope(|scope| {
            let prepare = &prepare;
            let begin = |base| scope.spawn(move || prepare(base));
            let begun: Vec<_> = chosen.into_iter().map(begin).collect();
            let ended = begun.into_iter().map(|base| {
                base.join()
                    .unwrap_or_else(|payload| panic::resume_unwind(payload))
            });
            ended.collect::<Result<_>>().map(Self)
        })
    }

    /// What boots the kernel of a cell of the matrix, and the series with that kernel. `None` if
    /// the cell's base is not among these.
    ///
    /// # Errors
    ///
    /// When the series does not apply.
    pub(super) fn kernel_of(&self, cell: &Cell) -> Option<Result<(&Guest, &Subject)>> {
        let Self(bases) = self;
        let base = bases.iter().find(|one| one.base.name == cell.base)?;
        Some(base.kernel_of(cell))
    }
}

impl Base {
    /// See [`Bases::kernel_of`].
    fn kernel_of(&self, cell: &Cell) -> Result<(&Guest, &Subject)> {
        let on_x86 = self.x86.as_ref();
        if let (Arch::X86_64, Some((guest, subject))) = (cell.arch(), on_x86) {
            return Ok((guest, subject));
        }
        let name = cell.variant().name(&self.base);
        let mut all = [&self.fixes]
            .into_iter()
            .chain(&self.snapshot)
            .chain(&self.others);
        let series = all.find(|applied| applied.name == name);
        let series = series.with_context(|| format!("there is no series {name}"))?;
        let why = || format!("{name} does not apply: {}", series.verdict.reason());
        Ok((&self.guest, series.subject.as_ref().with_context(why)?))
    }

    fn prepare(
        paths: &Paths,
        kernel: &KernelArgs,
        guest: &Guest,
        base: bases::Base,
    ) -> Result<Self> {
        if let (Some(_), Some(only)) = (&kernel.base, kernel.series) {
            ensure!(
                only.exists(paths, &base),
                "the base {} has no series {}: kernel-patches/{} has those that there are",
                base.name,
                only.argument(),
                base.name
            );
        }
        let applied = |variant: Variant| {
            let args = KernelArgs {
                base: Some(base.name.clone()),
                series: Some(variant),
                ..kernel.clone()
            };
            let prepared = Subject::prepare(paths, &args.choice());
            Applied::new(variant.name(&base), prepared)
        };
        let fixes = applied(Variant::Fixes)?;
        let Some(subject) = &fixes.subject else {
            return Ok(Self {
                base,
                guest: guest.clone(),
                fixes,
                snapshot: None,
                others: Vec::new(),
                x86: None,
            });
        };
        let guest = guest.for_kernels_of(subject)?;
        let snapshot = applied(Variant::Snapshot)?;
        let has_snapshot = snapshot.subject.is_some();
        let wanted = |variant: &Variant| {
            let is_asked_for = kernel.series.is_none_or(|only| only == *variant);
            is_asked_for && has_snapshot && variant.exists(paths, &base)
        };
        let others = Variant::ON_SNAPSHOT.into_iter().filter(wanted);
        let others = others.map(applied).collect::<Result<_>>()?;
        let x86 = snapshot.subject.as_ref();
        let x86 = x86.filter(|subject| subject.is_default && guest.capabilities().plugin);
        let x86 = x86.map(|subject| {
            let guest = Guest::of_arch(paths, Arch::X86_64);
            anyhow::Ok((guest, subject.on(paths, Arch::X86_64)?))
        });
        Ok(Self {
            base,
            guest,
            fixes,
            snapshot: Some(snapshot),
            others,
            x86: x86.transpose()?,
        })
    }
}
