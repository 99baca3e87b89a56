//! `brbe snapshot`: from nothing to a symbolised branch snapshot.

use anyhow::Result;
use branch_records::show::Show;
use clap::Args;

use super::given::GivenArgs;
use super::{KernelArgs, trace};
use host::arch::Arch;
use host::paths::Paths;
use kernels::kernel::Kernel;
use kernels::requirements::MachineNeeds;
use kernels::subject::Subject;
use machines::captures;
use machines::guest::Guest;

/// Boot a patched kernel with BRBE and show why a call in it failed
///
/// In the guest, bpf(BPF_MAP_CREATE) is asked for an array without entries and
/// fails with EINVAL. A BPF program at the exit of array_map_alloc_check() takes
/// a branch snapshot, which is printed here with source lines, the newest branch
/// last: the last jump of the function itself is the check that failed.
#[derive(Args, Debug)]
pub struct SnapshotCommand {
    #[command(flatten)]
    kernel: KernelArgs,

    #[command(flatten)]
    given: GivenArgs,

    /// Leave the patches out, to see what happens without them
    #[arg(long, conflicts_with = "image")]
    unpatched: bool,

    #[command(flatten)]
    show: Show,
}

impl SnapshotCommand {
    /// Runs the command.
    pub fn run(&self, paths: &Paths) -> Result<()> {
        if let Some(given) = self.given.open(MachineNeeds::of_tests(Arch::Arm64))? {
            // Without it no address has a name.
            given.kernel.vmlinux()?;
            let guest = Guest::in_qemu(paths);
            guest.prepare()?;
            return self.show(&guest, &given.kernel, &given.title, &|_| None);
        }
        let subject = Subject::prepare(paths, &self.kernel.choice())?;
        let commit = subject.commit(!self.unpatched);
        let title = subject.title(!self.unpatched);
        let guest = Guest::in_qemu(paths);
        let kernel = guest.prepare_beside(|| subject.builder().kernel(commit, &title))?;
        let source = |file: &str| subject.source(file);
        self.show(&guest, &kernel, &title, &source)
    }

    /// Takes the snapshot on a kernel, which is called `title`, and shows it. `source` has the
    /// text of the files that the kernel was built from.
    fn show(
        &self,
        guest: &Guest,
        kernel: &Kernel,
        title: &str,
        source: &dyn Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let name = format!("snapshot on {title}");
        let (capture, _) = captures::of_refused_map(guest, kernel, &name)?;
        // The snapshot is of the kernel alone, and no file of the guest is needed.
        trace::show(&self.show, kernel.vmlinux()?, &capture, &|_| None, source)
    }
}
