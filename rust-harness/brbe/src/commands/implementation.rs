//! The options that put another implementation of the snapshot in the place of this project's:
//! `--patches`, `--as-is`, and `--kernel`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::given::GivenArgs;
use super::{Applied, KernelArgs};
use host::arch::Arch;
use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::registry::Extent;
use kernels::requirements::MachineNeeds;
use kernels::subject::{Choice, Implementation, Subject};
use machines::backend::Backend;
use machines::guest::Guest;
use report::Plan;
use submit::patches;

/// Whose implementation is tested.
#[derive(Args, Clone, Debug)]
pub(super) struct ImplementationArgs {
    #[command(flatten)]
    given: GivenArgs,

    /// Somebody else's patches in place of the series: those in this mailbox, or in this directory
    #[arg(long, value_name = "MBOX|DIR", conflicts_with_all = ["series", "image"])]
    patches: Option<PathBuf>,

    /// The source tree as it is, without any patch: it has an implementation already
    #[arg(long, conflicts_with_all = ["series", "image", "patches"])]
    as_is: bool,
}

impl ImplementationArgs {
    /// Whether it is this project's.
    pub(super) fn is_ours(&self) -> bool {
        !self.given.is_named() && self.implementation() == Implementation::Ours
    }

    fn implementation(&self) -> Implementation {
        match (&self.patches, self.as_is) {
            (Some(patches), _) => Implementation::Patches(patches.clone()),
            (None, true) => Implementation::AsIs,
            (None, false) => Implementation::Ours,
        }
    }

    /// What is applied to the source, in words.
    fn applied(&self, kernel: &KernelArgs) -> String {
        match (&self.patches, self.as_is) {
            (Some(patches), _) => patches.display().to_string(),
            (None, true) => "the tree as it is".to_owned(),
            (None, false) => format!("series {}", kernel.series.unwrap_or_default().argument()),
        }
    }

    /// Calls `then` with the plan of all tests on one kernel with the implementation, and, where
    /// it is built, those that its patches apply and build.
    ///
    /// # Errors
    ///
    /// When a kernel that was built elsewhere cannot be read or lacks what the machines need, or
    /// the device tree cannot be built. Patches that do not apply are no error, but a test that
    /// fails.
    pub(super) fn with_plan<T>(
        &self,
        paths: &Paths,
        kernel: &KernelArgs,
        backend: Arc<dyn Backend>,
        then: impl FnOnce(Plan<'_>) -> Result<T>,
    ) -> Result<T> {
        let guest = Guest::on(paths, Arch::Arm64, backend);
        if let Some(given) = self.given.open(MachineNeeds::of_tests(Arch::Arm64))? {
            let guest = guest.for_kernels_built_elsewhere()?;
            let mut plan = Plan::default();
            add_tests(&mut plan, &Context::given(paths, &guest, &given));
            return then(plan);
        }
        let choice = Choice {
            implementation: self.implementation(),
            ..kernel.choice()
        };
        let prepared = Subject::prepare(paths, &choice);
        let applied = Applied::new(self.applied(kernel), prepared)?;
        let guest = match &applied.subject {
            Some(subject) => guest.for_kernels_of(subject)?,
            None => guest,
        };
        let mut plan = Plan::default();
        // To a tree that is taken as it is, nothing is applied.
        if !self.as_is || applied.subject.is_none() {
            plan.any([applied.job()]);
        }
        let Some(subject) = &applied.subject else {
            return then(plan);
        };
        plan.in_order(patches::builds(subject, None));
        add_tests(&mut plan, &Context::patched(paths, &guest, subject));
        then(plan)
    }
}

fn add_tests<'a>(plan: &mut Plan<'a>, context: &Context<'a>) {
    for batch in kernel_tests::tests() {
        plan.any(batch.jobs(context, Extent::Whole));
    }
}
