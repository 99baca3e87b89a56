//! The options that say which kernel a machine boots: one of a series, or one that was built
//! elsewhere.

use anyhow::Result;
use clap::Args;

use super::KernelArgs;
use super::given::GivenArgs;
use host::arch::Arch;
use host::paths::Paths;
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

impl BootedArgs {
    /// The kernel, which is built unless the cache has it, and its name in messages. The machine
    /// has these needs.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, or one that was built elsewhere cannot be read, or lacks
    /// what the machine needs.
    pub(super) fn kernel(&self, paths: &Paths, needs: MachineNeeds) -> Result<(Kernel, String)> {
        if let Some(given) = self.given.open(needs)? {
            return Ok((given.kernel, given.title));
        }
        let subject = Subject::prepare(paths, &self.kernel.choice())?;
        let subject = match needs.arch {
            Arch::Arm64 => subject,
            other => subject.on(paths, other)?,
        };
        let commit = subject.commit(!self.unpatched);
        let title = subject.title(!self.unpatched);
        let kernel = subject.kernel(&subject.builder, commit, &title)?;
        Ok((kernel, title))
    }
}
