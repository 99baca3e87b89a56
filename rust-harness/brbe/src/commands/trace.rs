//! `brbe trace`: branch-trace on a patched kernel, in a virtual machine.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use branch_records::capture::Capture;
use branch_records::files::Files;
use branch_records::show::Show;
use branch_records::vmlinux::{KernelSymbols, Vmlinux};
use clap::Args;

use super::{KernelArgs, Subject};
use crate::captures;
use crate::guest::{self, Guest, Share};
use crate::kernel::Kernel;
use crate::places::Places;

/// Trace a patched kernel with BRBE and show the branches that were taken
///
/// Boots the kernel and runs branch-trace in it, with the arguments that follow this
/// command's own; a command behind `--` is run meanwhile, in the guest. The names and
/// lines are found here, in the kernel's debug information.
///
/// `./brbe trace --errors array_map_alloc_check -- ./branch-guest provoke refused-map`
/// shows why a map is refused.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Trace {
    #[command(flatten)]
    kernel: KernelArgs,

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
        let subject = Subject::prepare(places, &self.kernel)?;
        let title = subject.title(true);
        let kernel = subject.builder.kernel(subject.patched(), &title)?;
        let guest = Guest::prepare(places)?;
        let share = Share::new(places)?;
        let name = format!("trace on {title}");
        let words = self.words.iter().map(String::as_str);
        let (said, capture) = take(&guest, &kernel, &name, words, &share)?;
        eprint!("{said}");
        let Some(capture) = capture else {
            return Ok(false);
        };
        if let Some(path) = &self.capture {
            let file =
                File::create(path).with_context(|| format!("creating {}", path.display()))?;
            capture
                .to_writer(file)
                .with_context(|| format!("writing {}", path.display()))?;
        }
        let files = |path: &str| guest.file(&share, path);
        show(&self.show, &subject, &kernel, &capture, &files)?;
        Ok(true)
    }
}

/// Shows a capture of a subject's patched kernel. `files` knows those of the guest.
pub fn show(
    show: &Show,
    subject: &Subject,
    kernel: &Kernel,
    capture: &Capture,
    files: &dyn Fn(&str) -> Option<PathBuf>,
) -> Result<()> {
    let vmlinux = Vmlinux::open(&kernel.vmlinux).context("the kernel's debug information")?;
    let files = Files::new(&capture.processes, files);
    let symbols =
        KernelSymbols::new(&vmlinux, capture, files).context("putting names to the addresses")?;
    show.print(capture, &symbols, &mut anstream::stdout().lock())?;
    // As it was compiled: the tree itself may be at another commit by now.
    let git = subject.tree.git();
    let source = |file: &str| {
        let file = format!("{}:{file}", subject.patched());
        git.read(&["show", &file]).ok()
    };
    show.draw(capture, &symbols, &source)?;
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
    let capture = match guest::status(&run)? {
        0 => Some(captures::read(share)?),
        1 => None,
        status => bail!(
            "nothing could be traced (exit status {status}):\n{}",
            run.output.trim()
        ),
    };
    Ok((run.output, capture))
}
