//! `brbe trace`: branch-trace on a patched kernel, in a virtual machine or on a machine that
//! is reached by ssh.

mod by_source;
mod stop;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use branch_records::capture::Capture;
use branch_records::files::Files;
use branch_records::modules::{ModuleFiles, Modules};
use branch_records::show::Show;
use branch_records::vmlinux::{KernelSymbols, Vmlinux};
use clap::{Args, Command};

use self::stop::{GRACE, stoppable};
use super::KernelArgs;
use super::given::GivenArgs;
use super::lane::LaneArgs;
use host::arch::Arch;
use host::cache;
use host::paths::{Paths, ensure_not_hidden};
use host::progress;
use kernels::kernel::Kernel;
use kernels::requirements::MachineNeeds;
use kernels::subject::Subject;
use machines::backend::{Backend, End, Run};
use machines::captures;
use machines::guest::{self, Guest, Task};
use machines::lane::Lane;
use machines::machine_spec::MachineSpec;
use machines::remote;
use machines::share::Share;
use machines::ssh::Ssh;

/// Trace a patched kernel with BRBE and show the branches that were taken
///
/// Boots the kernel and runs branch-trace in it, with the arguments that follow this
/// command's own; a command behind `--` is run meanwhile, in the guest. The names and
/// lines are found here, in the kernel's debug information. With --on ssh://USER@HOST
/// nothing is booted: branch-trace runs on that machine, and finds the names itself, unless
/// --vmlinux says where the debug information of its kernel is. Ctrl-C is for branch-trace, and
/// what it has recorded until then is shown; a second one ends everything.
///
/// Without --duration a trace ends after an hour at the latest, over ssh after a week. Exit status: 0
/// if something was recorded, 1 if nothing was.
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

    #[command(flatten)]
    given: GivenArgs,

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
  FUNCTION, :SOURCE-FILES, @FILE, fentry:, fexit:, kprobe:, kretprobe:,
  tracepoint:CATEGORY:NAME, rawtracepoint:NAME, fentry:bpf:PROGRAM, fexit:bpf:PROGRAM,
  uprobe:FILE:SYMBOL, uretprobe:...
  --errors, --ret EXPR, --filter EXPR, --lbr FILTERS, -n N, --duration SECONDS,
  --args[=DEPTH], --stack kernel,user, --dry-run
  -- COMMAND, run in the guest
Documentation/branch-trace.md explains them.";

impl Trace {
    /// Runs the command. Returns whether anything was recorded.
    pub fn run(&self, paths: &Paths) -> Result<bool> {
        self.check()?;
        self.show.color.apply();
        match self.lane.open()? {
            Lane::Remote(ssh) => self.there(paths, &ssh),
            Lane::Machines(backend) => self.here(paths, backend),
        }
    }

    /// The words for branch-trace, which has to know what snapshots will be compared by.
    fn words(&self) -> Vec<String> {
        let own = self.show.group_words().into_iter();
        own.chain(self.words.iter().cloned()).collect()
    }

    /// Whether branch-trace is asked what it would trace.
    fn is_dry(&self) -> bool {
        let mut words = self.words.iter().take_while(|word| *word != "--");
        words.any(|word| word == "--dry-run")
    }

    /// Whether branch-trace has the option of this name, too, and this command does what it says.
    fn is_own(&self, name: &str) -> bool {
        let shown = Show::augment_args(Command::new("trace"));
        let is_shown = shown
            .get_arguments()
            .any(|option| option.get_long() == Some(name));
        // Of a dry run branch-trace itself prints JSON.
        is_shown && !(name == "json" && self.is_dry())
    }

    /// Checks that what this command does itself is not asked of branch-trace.
    fn check(&self) -> Result<()> {
        self.show.groups()?;
        let mut files = self.capture.iter().chain(&self.show.html);
        files.try_for_each(|file| ensure_not_hidden(file))?;
        ensure!(
            !self.is_dry()
                || (self.capture.is_none() && self.show.html.is_none() && !self.show.summary),
            "--dry-run traces nothing: leave --capture, --html and --summary out"
        );
        let words = self.words.iter().take_while(|word| *word != "--");
        let mut options = words.map(|word| word.split_once('=').map_or(&**word, |(name, _)| name));
        let of_machine = ["--top", "--output", "-o", "--input", "-i"];
        if let Some(option) = options.clone().find(|option| of_machine.contains(option)) {
            bail!(
                "{option} is for branch-trace on the machine itself: ./brbe vm has a shell there, and \
                 --capture FILE of this command keeps what was recorded"
            );
        }
        let misplaced = options.find(|option| {
            option
                .strip_prefix("--")
                .is_some_and(|name| self.is_own(name))
        });
        if let (Some(misplaced), Some(first)) = (misplaced, self.words.first()) {
            bail!(
                "{misplaced} is an option of ./brbe trace itself: put it before {first:?}, where the \
                 options and targets of branch-trace begin"
            );
        }
        Ok(())
    }

    /// Traces in a machine that boots a kernel of this project. Returns whether anything was
    /// recorded.
    fn here(&self, paths: &Paths, backend: Arc<dyn Backend>) -> Result<bool> {
        let guest = Guest::on(paths, Arch::Arm64, backend);
        if let Some(given) = self.given.open(MachineNeeds::of_tests(Arch::Arm64))? {
            given.kernel.vmlinux()?;
            let guest = guest.for_kernels_built_elsewhere()?;
            guest.prepare()?;
            return self.on(&guest, &given.kernel, &given.title, &|_| None);
        }
        let subject = Subject::prepare(paths, &self.kernel.choice())?;
        let title = subject.title(true);
        let guest = guest.for_kernels_of(&subject)?;
        let build = || subject.builder().kernel(subject.patched(), &title);
        let kernel = guest.prepare_beside(build)?;
        let source = |file: &str| subject.source(file);
        self.on(&guest, &kernel, &title, &source)
    }

    /// Traces on a kernel, which is called `title`. Returns whether anything was recorded.
    /// `source` has the text of the files that the kernel was built from.
    fn on(
        &self,
        guest: &Guest,
        kernel: &Kernel,
        title: &str,
        source: &dyn Fn(&str) -> Option<String>,
    ) -> Result<bool> {
        let share = guest.share()?;
        let name = format!("trace on {title}");
        let words = by_source::listed(self.words(), kernel.vmlinux()?, &share)?;
        let words = || words.iter().map(String::as_str);
        let limit = limit(words(), LONGEST_IN_MACHINES);
        let command = if self.is_dry() {
            let form = self.show.json.then_some("--json");
            captures::branch_trace(form.into_iter().chain(words()))
        } else {
            captures::until_stopped(words())
        };
        let task = Task {
            name: &name,
            command: &command,
            share: &share,
            timeout: limit + GRACE,
        };
        let run = stoppable(&share, limit, || {
            guest.run(kernel, &MachineSpec::default(), &task)
        })?;
        if self.is_dry() {
            super::print_text(run.output.trim_end())?;
            let status = guest::status(&run)?;
            ensure!(
                status <= 1,
                "nothing can be traced: branch-trace says above why (exit status {status})"
            );
            return Ok(status == 0);
        }
        said_there(&run);
        if !has_recorded(&run, limit)? {
            return Ok(false);
        }
        let capture = captures::read(&share)?;
        self.keep(&capture)?;
        let files = |path: &str| guest.file(&share, path);
        show(&self.show, kernel.vmlinux()?, &capture, &files, source)?;
        Ok(true)
    }

    /// Traces on a machine that already runs, over ssh. Returns whether anything was
    /// recorded.
    fn there(&self, paths: &Paths, ssh: &Ssh) -> Result<bool> {
        let share = Share::new(paths)?;
        let words = self.words();
        let limit = limit(words.iter().map(String::as_str), LONGEST);
        let timeout = limit + GRACE;
        let run = |command: &str| {
            let task = Task {
                name: "trace",
                command,
                share: &share,
                timeout,
            };
            stoppable(&share, limit, || remote::run(paths, ssh, &task))
        };
        ensure!(
            !self.given.is_given() && self.kernel.is_default(),
            "--kernel, --kernel-src, --base and --series are for machines that boot: over ssh the \
             kernel is there"
        );
        let words = match self.given.vmlinux() {
            Some(vmlinux) => by_source::listed(words, vmlinux, &share)?,
            None => words,
        };
        let Some(vmlinux) = self.given.vmlinux().filter(|_| !self.is_dry()) else {
            ensure!(
                self.capture.is_none()
                    && self.show.html.is_none()
                    && self.show.source.is_none()
                    && self.show.modules.is_empty(),
                "--capture, --html, --source and --modules need --vmlinux with --on ssh://…"
            );
            let shown = self.show.words();
            let words = shown.iter().chain(&words).map(String::as_str);
            let run = run(&captures::branch_trace(words))?;
            let mut out = io::stdout().lock();
            out.write_all(run.output.as_bytes())
                .and_then(|()| out.flush())
                .context("writing what was recorded")?;
            return has_recorded(&run, limit);
        };
        let run = run(&captures::command(words.iter().map(String::as_str)))?;
        said_there(&run);
        if !has_recorded(&run, limit)? {
            return Ok(false);
        }
        let capture = captures::read(&share)?;
        self.keep(&capture)?;
        // The files of that machine are not here, nor is the tree that its kernel was built
        // from.
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

/// Shows on standard error what the tracer and the command printed on the machine.
fn said_there(run: &Run) {
    if !run.output.is_empty() {
        progress::say(run.output.trim_end());
    }
}

/// How long a trace without `--duration` may take on a machine that already runs: as long as
/// anybody wants. It ends with this program.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a trace without `--duration` may take in a machine that is booted for it, from
/// power-on. With this limit, a machine that hangs is reported at some time.
const LONGEST_IN_MACHINES: Duration = Duration::from_secs(3600);
/// The time that a trace may take in addition to its `--duration`: for the boot, or for
/// copying the guest's programs there, and for attaching BPF programs. It is enough for a
/// slow machine beside a compiler.
const BESIDES: Duration = Duration::from_secs(600);
/// The most seconds that branch-trace takes for `--duration`.
const MOST_SECONDS: u64 = 86_400;

/// How long a trace may take: the `--duration` among branch-trace's words and [`BESIDES`], or
/// `longest` if there is none.
fn limit<'a>(words: impl IntoIterator<Item = &'a str>, longest: Duration) -> Duration {
    asked(words).map_or(longest, |asked| asked + BESIDES)
}

fn asked<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<Duration> {
    // What follows `--` is the command's.
    let mut words = words.into_iter().take_while(|word| *word != "--");
    let given = words.find_map(|word| {
        let given = word.strip_prefix("--duration")?;
        (given.is_empty() || given.starts_with('=')).then_some(given)
    })?;
    let seconds = match given.strip_prefix('=') {
        Some(seconds) => seconds,
        None => words.next()?,
    };
    let seconds = seconds.parse().ok()?;
    // branch-trace refuses all else itself.
    (seconds <= MOST_SECONDS).then(|| Duration::from_secs(seconds))
}

/// Shows a capture. `vmlinux` has the debug information of the kernel that was traced.
/// `files` finds files of the guest by their names there. `source` has the text of the files
/// of the kernel's source.
pub fn show(
    show: &Show,
    vmlinux: &Path,
    capture: &Capture,
    files: &dyn Fn(&str) -> Option<PathBuf>,
    source: &dyn Fn(&str) -> Option<String>,
) -> Result<()> {
    let vmlinux = Vmlinux::open(vmlinux).context("the kernel's debug information")?;
    let files = Files::new(&capture.processes, files);
    let modules = Modules::new(ModuleFiles::below(show.modules.iter().cloned()));
    for problem in modules.open(&capture.modules) {
        progress::say(&problem.to_string());
    }
    let symbols = KernelSymbols::new(&vmlinux, capture, files)
        .context("putting names to the addresses")?
        .with_modules(&modules, capture);
    show.draw(capture, &symbols, source)?;
    if let Some(path) = &show.html {
        progress::say(&format!("the path on the source: {}", path.display()));
    }
    show.print_paged(capture, &symbols, source)?;
    Ok(())
}

/// Whether branch-trace has recorded anything, in a run that had this limit, and whose output
/// has been shown. If the run was too long, the error says so and what to do.
fn has_recorded(run: &Run, limit: Duration) -> Result<bool> {
    let taken = captures::has_recorded(run, "branch-trace says why, above");
    match run.end {
        End::TimedOut(_) => taken.with_context(|| {
            format!(
                "branch-trace was asked to stop after {} and has handed over nothing: with --duration \
                 SECONDS it stops by itself, which has to be sooner",
                humantime::format_duration(limit)
            )
        }),
        _ => taken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_may_take_as_long_as_its_words_say() {
        let limit = |words: &[&str]| limit(words.iter().copied(), LONGEST);
        let of = |seconds| Duration::from_secs(seconds) + BESIDES;
        assert_eq!(limit(&["--duration", "300", "vfs_read"]), of(300));
        assert_eq!(
            limit(&["vfs_read", "-n", "3", "--duration=86400"]),
            of(86_400)
        );
        for words in [
            &["-n", "3", "vfs_read"][..],
            &["--filter", "duration > 10ms", "vfs_*"],
            &["vfs_read", "--", "x", "--duration", "3"],
            &["vfs_read", "--duration"],
            &["vfs_read", "--duration", "--", "3"],
            &["vfs_read", "--duration", "3m"],
            &["vfs_read", "--duration=86401"],
            &["vfs_read", "--duration", "18446744073709551615"],
        ] {
            assert_eq!(limit(words), LONGEST, "{words:?}");
        }
    }

    #[test]
    fn a_trace_that_does_not_end_says_what_to_do() {
        let run = |end| Run {
            end,
            output: String::new(),
            console: "/console".into(),
        };
        let late = run(End::TimedOut(vec!["[ 9.9] hung".to_owned()]));
        let said = format!(
            "{:#}",
            has_recorded(&late, Duration::from_secs(3600)).unwrap_err()
        );
        for words in ["after 1h", "--duration SECONDS", "[ 9.9] hung", "/console"] {
            assert!(said.contains(words), "{said}");
        }
        assert!(has_recorded(&run(End::Exited(0)), LONGEST).unwrap());
        assert!(!has_recorded(&run(End::Exited(1)), LONGEST).unwrap());
        let refused = has_recorded(&run(End::Exited(2)), LONGEST).unwrap_err();
        assert!(refused.to_string().contains("exit status 2"), "{refused}");
    }
}
