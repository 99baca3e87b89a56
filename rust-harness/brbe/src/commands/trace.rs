//! `brbe trace`: branch-trace on a patched kernel, in a virtual machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use branch_records::capture::Capture;
use branch_records::files::Files;
use branch_records::show::Show;
use branch_records::vmlinux::{KernelSymbols, Vmlinux};
use clap::Args;

use super::{KernelArgs, Subject};
use crate::arch::Arch;
use crate::cache;
use crate::captures;
use crate::guest::{self, Guest, Share};
use crate::kernel::Kernel;
use crate::lane::{Lane, LaneArgs};
use crate::machine::ssh::Ssh;
use crate::machine::{Backend, Run};
use crate::places::Places;
use crate::remote;

/// Trace a patched kernel with BRBE and show the branches that were taken
///
/// Boots the kernel and runs branch-trace in it, with the arguments that follow this
/// command's own; a command behind `--` is run meanwhile, in the guest. The names and
/// lines are found here, in the kernel's debug information. With --on ssh://USER@HOST
/// nothing is booted: branch-trace runs on that machine.
///
/// `./brbe trace --errors array_map_alloc_check -- ./branch-guest provoke refused-map`
/// shows why a map is refused.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Trace {
    #[command(flatten)]
    kernel: KernelArgs,

    #[command(flatten)]
    lane: LaneArgs,

    /// Of the kernel of a machine that is reached by ssh: its debug information is here,
    /// and names are found here too; without it the machine finds them itself
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,

    #[command(flatten)]
    show: Show,

    /// Keep what was recorded in this file, too
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// For branch-trace: options, targets, and a command
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "BRANCH-TRACE ARGUMENTS"
    )]
    words: Vec<String>,
}

const HELP: &str = "\
branch-trace's arguments, after the options above:
  FUNCTION, fentry:, fexit:, kprobe:, kretprobe:, tracepoint:CATEGORY:NAME,
  rawtracepoint:NAME, fexit:bpf:PROGRAM, uprobe:FILE:SYMBOL, uretprobe:...
  --errors, --ret EXPR, --filter EXPR, --lbr FILTERS, -n N, --duration SECONDS
  -- COMMAND, run in the guest
Documentation/branch-trace.md explains them.";

impl Trace {
    /// Runs the command. Returns whether anything was recorded.
    pub fn run(&self, places: &Places) -> Result<bool> {
        match self.lane.open()? {
            Lane::Remote(ssh) => self.there(places, &ssh),
            Lane::Machines(backend) => self.here(places, backend),
        }
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// In a machine that boots a kernel of ours.
    fn here(&self, places: &Places, backend: Arc<dyn Backend>) -> Result<bool> {
        ensure!(self.vmlinux.is_none(), "--vmlinux is for --on ssh://…");
        let subject = Subject::prepare(places, &self.kernel)?;
        let title = subject.title(true);
        let kernel = subject.builder.kernel(subject.patched(), &title)?;
        let guest = Guest::on(places, Arch::Arm64, backend)?.for_kernels_of(&subject)?;
        let share = Share::new(places)?;
        let name = format!("trace on {title}");
        let (said, capture) = take(&guest, &kernel, &name, self.words(), &share)?;
        eprint!("{said}");
        let Some(capture) = capture else {
            return Ok(false);
        };
        self.keep(&capture)?;
        let files = |path: &str| guest.file(&share, path);
        let source = |file: &str| subject.source(file);
        show(&self.show, &kernel.vmlinux, &capture, &files, &source)?;
        Ok(true)
    }

    /// On a machine that is there already.
    fn there(&self, places: &Places, ssh: &Ssh) -> Result<bool> {
        let share = Share::new(places)?;
        let run = |command: &str| remote::run(places, ssh, &share, "trace", command, LONGEST);
        let Some(vmlinux) = &self.vmlinux else {
            ensure!(
                self.capture.is_none() && self.show.html.is_none(),
                "--capture and --html need --vmlinux with --on ssh://…"
            );
            let run = run(&captures::shown(self.words()))?;
            print!("{}", run.output);
            return Ok(taken(&run, "")?.is_some());
        };
        let run = run(&captures::command(self.words()))?;
        eprint!("{}", run.output);
        let Some(()) = taken(&run, &run.output)? else {
            return Ok(false);
        };
        let capture = captures::read(&share)?;
        self.keep(&capture)?;
        // Its files are not here, nor is the tree that its kernel was built from.
        show(&self.show, vmlinux, &capture, &|_| None, &|_| None)?;
        Ok(true)
    }

    fn keep(&self, capture: &Capture) -> Result<()> {
        let Some(path) = &self.capture else {
            return Ok(());
        };
        let mut text = Vec::new();
        capture
            .to_writer(&mut text)
            .context("writing the capture")?;
        cache::write_atomically(path, &text)
    }
}

/// How long a trace on a machine that is there already may take: as long as somebody
/// wants. It ends with this program.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Shows a capture of the kernel that `vmlinux` has the debug information of. `files`
/// knows those of the guest, `source` the text of the kernel's.
pub fn show(
    show: &Show,
    vmlinux: &Path,
    capture: &Capture,
    files: &dyn Fn(&str) -> Option<PathBuf>,
    source: &dyn Fn(&str) -> Option<String>,
) -> Result<()> {
    let vmlinux = Vmlinux::open(vmlinux).context("the kernel's debug information")?;
    let files = Files::new(&capture.processes, files);
    let symbols =
        KernelSymbols::new(&vmlinux, capture, files).context("putting names to the addresses")?;
    show.print(capture, &symbols, &mut anstream::stdout().lock())?;
    show.draw(capture, &symbols, source)?;
    if let Some(path) = &show.html {
        eprintln!("the path on the source: {}", path.display());
    }
    Ok(())
}

/// Runs branch-trace in the guest. What was printed there, and what was recorded, if
/// anything was.
pub fn take<'a>(
    guest: &Guest,
    kernel: &Kernel,
    name: &str,
    words: impl IntoIterator<Item = &'a str>,
    share: &Share,
) -> Result<(String, Option<Capture>)> {
    let run = guest.run(kernel, name, &captures::command(words), share)?;
    let capture = match taken(&run, &run.output)? {
        Some(()) => Some(captures::read(share)?),
        None => None,
    };
    Ok((run.output, capture))
}

/// Whether branch-trace has recorded anything. `said` is told if it could not try.
fn taken(run: &Run, said: &str) -> Result<Option<()>> {
    match guest::status(run)? {
        0 => Ok(Some(())),
        1 => Ok(None),
        status => bail!(
            "nothing could be traced (exit status {status}):\n{}",
            said.trim()
        ),
    }
}
