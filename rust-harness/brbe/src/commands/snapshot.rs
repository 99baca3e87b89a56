//! `brbe snapshot`: from nothing to a symbolised branch snapshot.

use anyhow::{Context, Result};
use branch_records::capture::Capture;
use branch_records::report::Report;
use branch_records::show::Show;
use branch_records::vmlinux;
use clap::Args;

use super::{KernelArgs, trace};
use host::paths::Paths;
use kernels::kernel::Kernel;
use kernels::subject::Subject;
use machines::captures;
use machines::guest::Guest;
use machines::share::Share;

/// Boot a patched kernel with BRBE and show why a call in it failed
///
/// In the guest, bpf(BPF_MAP_CREATE) is asked for an array without entries and
/// fails with EINVAL. A BPF program at the exit of array_map_alloc_check() takes
/// a branch snapshot, which is printed here with source lines, the newest branch
/// last: the last jump of the function itself is the check that failed.
#[derive(Args, Debug)]
pub struct Snapshot {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Leave the patches out, to see what happens without them
    #[arg(long)]
    unpatched: bool,

    #[command(flatten)]
    show: Show,
}

impl Snapshot {
    /// Runs the command.
    pub fn run(&self, paths: &Paths) -> Result<()> {
        let subject = Subject::prepare(paths, &self.kernel.choice())?;
        let commit = if self.unpatched {
            subject.unpatched()
        } else {
            subject.patched()
        };
        let title = subject.title(!self.unpatched);
        let kernel = subject.builder.kernel(commit, &title)?;
        let guest = Guest::prepare(paths)?;
        let (capture, _) = take(paths, &guest, &kernel, &format!("snapshot on {title}"))?;
        // The snapshot is of the kernel alone, and no file of the guest is needed.
        let source = |file: &str| subject.source(file);
        trace::show(&self.show, &kernel.vmlinux, &capture, &|_| None, &source)
    }
}

/// Takes snapshots in the guest, and puts names to them on this side. Returns one of them as
/// a capture and as a report: the first that shows how the function came to its end, or else
/// the first.
pub fn take(
    paths: &Paths,
    guest: &Guest,
    kernel: &Kernel,
    name: &str,
) -> Result<(Capture, Report)> {
    let share = Share::new(paths)?;
    let (_, capture) = trace::take(guest, kernel, name, captures::WORDS, &share)?;
    let mut capture = capture.context("the guest's kernel refused no map")?;
    let files = |path: &str| guest.file(&share, path);
    let mut report = vmlinux::report(&capture, &kernel.vmlinux, files)
        .context("putting names to the addresses")?;
    let mut snapshots = report.snapshots.iter();
    let shows = snapshots.position(|snapshot| snapshot.last_jump.is_some());
    let chosen = shows.unwrap_or(0);
    capture.snapshots = vec![capture.snapshots.swap_remove(chosen)];
    report.snapshots = vec![report.snapshots.swap_remove(chosen)];
    Ok((capture, report))
}
