//! `brbe snapshot`: from nothing to a symbolised branch snapshot.

use std::fs::File;

use anyhow::{Context, Result, bail};
use branch_records::capture::Capture;
use branch_records::{text, vmlinux};
use clap::Args;

use super::{KernelArgs, Subject};
use crate::guest::{self, Guest, Share};
use crate::kernel::Kernel;
use crate::places::Places;

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

    /// Print the snapshot as JSON
    #[arg(long)]
    json: bool,
}

impl Snapshot {
    /// Runs the command.
    pub fn run(&self, places: &Places) -> Result<()> {
        let subject = Subject::prepare(places, &self.kernel)?;
        let commit = if self.unpatched {
            subject.unpatched()
        } else {
            subject.patched()
        };
        let title = subject.title(!self.unpatched);
        let kernel = subject.builder.kernel(commit, &title)?;
        let guest = Guest::prepare(places)?;
        let report = take(places, &guest, &kernel, &format!("snapshot on {title}"))?;
        super::print(self.json, &report, |mut out| text::write(&report, &mut out))
    }
}

/// Takes the snapshot in the guest and puts names to it here.
pub fn take(
    places: &Places,
    guest: &Guest,
    kernel: &Kernel,
    name: &str,
) -> Result<branch_records::report::Report> {
    let share = Share::new(places)?;
    let run = guest.run(
        kernel,
        name,
        "./branch-guest snapshot --output capture.json",
        &share,
    )?;
    let status = guest::status(&run)?;
    if status != 0 {
        bail!(
            "no snapshot was taken (exit status {status}):\n{}",
            run.output.trim()
        );
    }
    let path = share.path().join("capture.json");
    let file = File::open(&path).context("the guest wrote no capture")?;
    let capture = Capture::from_reader(file).context("the guest's capture")?;
    vmlinux::report(&capture, &kernel.vmlinux).context("putting names to the addresses")
}
