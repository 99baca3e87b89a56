//! The options that say which kernel a machine boots: one of a series, or one that was built
//! elsewhere.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use super::KernelArgs;
use super::given::GivenArgs;
use host::arch::Arch;
use host::paths::Paths;
use kernel_tests::selftests;
use kernels::gdb_scripts::GDB_SCRIPTS;
use kernels::kernel::Kernel;
use kernels::requirements::MachineNeeds;
use kernels::subject::Subject;

/// Which kernel a machine boots.
#[derive(Args, Debug)]
pub(super) struct BootedArgs {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Leave the patches out
    #[arg(long, conflicts_with = "image")]
    unpatched: bool,

    #[command(flatten)]
    given: GivenArgs,
}

/// The kernel that a machine boots.
pub(super) struct Booted {
    pub(super) kernel: Kernel,
    /// The kernel's name in messages.
    pub(super) title: String,
    /// What it was built from. `None`: it was built elsewhere.
    source: Option<Subject>,
    is_patched: bool,
}

impl BootedArgs {
    /// Whether no kernel is asked for.
    pub(super) fn is_default(&self) -> bool {
        let Self {
            kernel,
            unpatched,
            given,
        } = self;
        kernel.is_default() && !unpatched && !given.is_named()
    }

    /// The kernel, which is built unless the cache has it. The machine has these needs.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, or one that was built elsewhere cannot be read, or lacks
    /// what the machine needs.
    pub(super) fn kernel(&self, paths: &Paths, needs: MachineNeeds) -> Result<Booted> {
        let is_patched = !self.unpatched;
        if let Some(given) = self.given.open(needs)? {
            return Ok(Booted {
                kernel: given.kernel,
                title: given.title,
                source: None,
                is_patched,
            });
        }
        let subject = Subject::prepare(paths, &self.kernel.choice())?;
        let subject = match needs.arch {
            Arch::Arm64 => subject,
            other => subject.on(paths, other)?,
        };
        let title = subject.title(is_patched);
        let kernel = subject.kernel(subject.builder(), subject.commit(is_patched), &title)?;
        Ok(Booted {
            kernel,
            title,
            source: Some(subject),
            is_patched,
        })
    }
}

impl Booted {
    /// Path of the file that gives gdb the kernel's own commands, such as `lx-ps`. `None`: the
    /// kernel was built elsewhere, and its build directory does not have it beside vmlinux.
    pub(super) fn gdb_scripts(&self) -> Result<Option<PathBuf>> {
        let Some(subject) = &self.source else {
            let beside = |vmlinux: &PathBuf| vmlinux.with_file_name(GDB_SCRIPTS);
            let file = self.kernel.vmlinux.as_ref().map(beside);
            return Ok(file.filter(|file| file.is_file()));
        };
        let commit = subject.commit(self.is_patched);
        subject.builder().gdb_scripts(commit).map(Some)
    }

    /// Path of a directory that has the BPF selftests of the kernel's own tree, built for it.
    ///
    /// # Errors
    ///
    /// When the kernel was built elsewhere, or they cannot be built.
    pub(super) fn selftests(&self, paths: &Paths) -> Result<PathBuf> {
        let Self { source, title, .. } = self;
        let subject = source
            .as_ref()
            .context("the selftests are built from the kernel's source, and there is none")?;
        selftests::build(
            paths,
            subject.builder(),
            subject.commit(self.is_patched),
            title,
        )
    }
}
