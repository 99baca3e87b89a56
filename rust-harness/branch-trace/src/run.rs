//! One run of the tracer, from attaching to showing what was recorded.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use branch_records::capture::{Capture, MAX_SNAPSHOTS};
use branch_records::report::NewestRecords;
use guest_support::kallsyms::{self, Kallsyms, NO_SNAPSHOTS};
use guest_support::perf::{CannotRecord, Recording};
use guest_support::{cpus, perf};
use libbpf_rs::ErrorKind;
use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process_group, waitid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::arguments::{Arguments, StackOf};
use crate::attach::{Attached, Missed};
use crate::branches::{self, Branches};
use crate::dry_run;
use crate::features;
use crate::generate;
use crate::interrupt;
use crate::jobs::Common;
use crate::machine;
use crate::mapped::Mapped;
use crate::names::Names;
use crate::output::{self, Output, Stream};
use crate::recorded::{Batch, Recorder};
use crate::screen::Screen;
use crate::target::Target;

/// The exit status for a machine or kernel that does not support snapshots.
const UNSUPPORTED: u8 = 77;
/// How long the run waits for events before it checks whether to stop.
const TURN: Duration = Duration::from_millis(100);
/// How many bytes of events are taken in at most before it checks whether to stop.
const AT_ONCE: usize = 1 << 20;
/// How many bytes of events are taken in at most when it is time to stop: as many as there is room
/// for, since more of them may follow without end.
const AT_THE_END: usize = 16 << 20;
/// How long the command may take to end when it is told to.
const ENDING: Duration = Duration::from_secs(2);
/// How often it is looked whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Does what the command line says.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.show.color.apply();
    if let Some(what) = arguments.generate {
        generate::print(what)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.features {
        let can_trace = features::print(arguments.show.json)?;
        let status = if can_trace { 0 } else { UNSUPPORTED };
        return Ok(ExitCode::from(status));
    }
    if let Some(path) = &arguments.input {
        let capture = output::show_file(path, arguments.vmlinux.as_deref(), &arguments.show)?;
        return Ok(status(capture.snapshots.len()));
    }
    trace(arguments)
}

/// The exit status: 0 if any snapshots were taken, else 1.
fn status(snapshots: usize) -> ExitCode {
    match snapshots {
        0 => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    }
}

/// Traces the targets, and shows or writes the snapshots.
fn trace(arguments: &Arguments) -> Result<ExitCode> {
    let filter = arguments.filter()?;
    // Nothing is traced in vain.
    let groups = arguments.show.groups()?;
    let mut groups = groups.iter().flatten();
    let by_arguments = groups.any(|group| !group.filter().arguments().is_empty());
    ensure!(
        !by_arguments || arguments.args.is_some(),
        "groups are compared by arguments: give --args, so that these are taken"
    );
    if !arguments.verbose {
        libbpf_rs::set_print(None);
    }
    machine::check_privilege()?;
    if !kallsyms::kernel_has_snapshot_function()? {
        return Ok(unsupported(NO_SNAPSHOTS));
    }
    let possible = libbpf_rs::num_possible_cpus().context("cannot count the CPUs")?;
    let common = Common {
        filter: &filter,
        show: &arguments.show,
        stacks: &arguments.stack,
        arguments: arguments.args.map(usize::from),
        vmlinux: arguments.vmlinux.as_deref(),
        slots: possible.next_power_of_two(),
    };
    if arguments.dry_run {
        let is_whole = dry_run::print(&arguments.targets, &common, arguments.show.json)?;
        return Ok(ExitCode::from(u8::from(!is_whole)));
    }
    let of_user = |target: &Target| matches!(target, Target::User { .. });
    let level = if arguments.targets.iter().all(of_user) {
        branches::USER
    } else {
        branches::KERNEL
    };
    let branches = Branches::of(&arguments.lbr, level);
    // Branches are recorded on every CPU: it is not known which one will take the
    // snapshot.
    let recording = Recording::of_branches(branches.sample_type());
    let online = cpus::online()?;
    let events = match perf::open_everywhere(&online, recording) {
        Ok(events) => events,
        Err(error) => match CannotRecord::from(error) {
            why if why.is_unsupported() => {
                let filters = features::filters(&online)?;
                ensure!(
                    filters.is_empty(),
                    "the CPU or the kernel has no branch filter {}: give --lbr filters of {}",
                    branches.names().join(","),
                    filters.join(", ")
                );
                let advice =
                    machine::advice().map_or(String::new(), |advice| format!("; {advice}"));
                return Ok(unsupported(&format!("{why}{advice}")));
            }
            why => return Err(why.into()),
        },
    };
    interrupt::catch()?;
    let show = &arguments.show;
    let names = || Names::of_this_kernel(arguments.vmlinux.as_deref(), &show.modules);
    let output = match &arguments.output {
        Some(path) => Output::File(path),
        None if arguments.top => Output::Top {
            show,
            names: names()?,
            screen: Screen::new(),
            problems: Vec::new(),
        },
        None => Output::Shown {
            show,
            names: names()?,
            newest: NewestRecords::default(),
        },
    };
    let attached = Attached::to(&arguments.targets, &common)?;
    let stream = Stream::to(output);
    let limit = arguments.count.map(|count| count as usize);
    let limit = if stream.keeps() && stream.renews().is_none() {
        limit.or(Some(MAX_SNAPSHOTS))
    } else {
        limit
    };
    let wants_user =
        branches.sample_type() & branches::USER != 0 || arguments.stack.contains(&StackOf::User);
    // Without it, /proc has the files of the processes that still exist.
    let mapped = wants_user.then(|| Mapped::watch().ok()).flatten();
    let mut recorder = Recorder::up_to(limit, mapped).keeping(stream.renews());
    if arguments.output.is_some() {
        recorder = recorder.for_a_document();
    }
    let mut session = Session {
        arguments,
        attached: &attached,
        branches,
        limit,
        recorder: RefCell::new(recorder),
        missed: Missed::default(),
        stream,
        kept: Batch::default(),
    };
    session.follow()?;
    let ended = session.end()?;
    // Nothing is traced while people read.
    drop(attached);
    drop(events);
    ended.show()
}

fn unsupported(why: &str) -> ExitCode {
    eprintln!("branch-trace: {why}");
    ExitCode::from(UNSUPPORTED)
}

/// A tracing run: what is traced, and what was recorded so far.
struct Session<'t, 'a> {
    arguments: &'a Arguments,
    attached: &'t Attached,
    branches: Branches,
    /// The number of snapshots after which it ends.
    limit: Option<usize>,
    recorder: RefCell<Recorder>,
    /// What the BPF programs missed until the trace ended.
    missed: Missed,
    stream: Stream<'a>,
    /// The snapshots that are shown or written at the end.
    kept: Batch,
}

impl<'a> Session<'_, 'a> {
    /// Traces until the command has ended, the time is over, enough snapshots are taken,
    /// or the user presses Ctrl-C.
    fn follow(&mut self) -> Result<()> {
        let attached = self.attached;
        let arguments = self.arguments;
        // The ring buffer calls this while it is polled, and nothing else uses the
        // recorder then. An error ends the poll.
        let recorder = std::mem::take(&mut self.recorder);
        let (left, has_to_go_on) = (Cell::new(AT_ONCE), Cell::new(false));
        let ring = attached.ring(|bytes| {
            let mut recorder = recorder.borrow_mut();
            recorder.event(bytes, &attached.places);
            left.set(left.get().saturating_sub(bytes.len()));
            let is_over = recorder.is_full() || interrupt::has_come();
            if left.get() == 0 || is_over && !has_to_go_on.get() {
                -Errno::INTR.raw_os_error()
            } else {
                0
            }
        })?;
        // Interrupted by Ctrl-C, after which there is still something to show, or by the above.
        let unless_interrupted = |taken: libbpf_rs::Result<()>| match taken {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            taken => taken
                .map(|()| true)
                .context("cannot read from the BPF programs"),
        };
        if let Some(missing) = self.stream.missing() {
            eprintln!("branch-trace: {missing}");
        }
        let output = || match self.stream.renews() {
            // The screen is for the summary.
            Some(_) => Stdio::null(),
            None => Stdio::inherit(),
        };
        let command = Traced::start(&arguments.command, &output)?;
        eprintln!(
            "branch-trace: tracing {}, until {}",
            self.what(),
            self.until()
        );
        let end = arguments
            .duration
            .map(|seconds| Instant::now() + Duration::from_secs(seconds));
        loop {
            left.set(AT_ONCE);
            unless_interrupted(ring.poll(TURN))?;
            recorder.borrow_mut().watch()?;
            if self.stream.is_ready() {
                let batch = recorder.borrow_mut().take()?;
                self.show(batch)?;
            }
            let late = end.is_some_and(|end| Instant::now() >= end);
            let full = recorder.borrow().is_full();
            if command.has_ended()? || late || full || interrupt::has_come() {
                break;
            }
        }
        if recorder.borrow().is_out_of_room() {
            eprintln!("branch-trace: no more is traced: a capture has no room for more");
        }
        has_to_go_on.set(true);
        left.set(AT_THE_END);
        while left.get() > 0 && !unless_interrupted(ring.consume())? {}
        drop(ring);
        self.recorder = recorder;
        self.missed = attached.missed();
        drop(command);
        let batch = self.recorder.get_mut().take()?;
        self.show(batch)
    }

    /// Shows a batch of snapshots now, or keeps it for the end.
    fn show(&mut self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let shown = if let Some(newest) = self.stream.renews() {
            self.kept.append(batch);
            self.kept.keep_newest(newest);
            self.kept.clone()
        } else if self.stream.is_live() {
            if self.stream.keeps() {
                self.kept.append(batch.clone());
            }
            batch
        } else {
            self.kept.append(batch);
            return Ok(());
        };
        // The BPF programs are still loaded here: their code and their names can be read.
        let symbols = Kallsyms::read()?;
        let capture = shown.capture(self.branches, &symbols)?;
        self.stream.some(&capture, &symbols)
    }

    /// Takes what is left to be shown or written at the end.
    fn end(mut self) -> Result<Ended<'a>> {
        let kept = if self.stream.keeps() {
            let symbols = Kallsyms::read()?;
            let mut capture = self.kept.capture(self.branches, &symbols)?;
            capture.dropped = self.missed.dropped;
            Some((capture, symbols))
        } else {
            None
        };
        Ok(Ended {
            taken: self.recorder.get_mut().taken(),
            missed: self.missed,
            kept,
            stream: self.stream,
        })
    }

    fn what(&self) -> String {
        match &self.attached.places[..] {
            [place] => place.name.clone(),
            places => format!("{} functions", places.len()),
        }
    }

    fn until(&self) -> String {
        let Arguments {
            duration, command, ..
        } = self.arguments;
        let count = self
            .limit
            .map(|count| format!("{count} snapshots are taken"));
        let duration = duration.map(|seconds| format!("{seconds} s are over"));
        let command = command
            .first()
            .map(|command| format!("{} ends", command.display()));
        let ends = [command, count, duration, Some("Ctrl-C".to_owned())];
        ends.into_iter().flatten().collect::<Vec<_>>().join(" or ")
    }
}

/// A tracing run that has ended.
struct Ended<'a> {
    /// How many snapshots were taken.
    taken: usize,
    missed: Missed,
    /// The snapshots that were kept for the end, and the symbols of that moment.
    kept: Option<(Capture, Kallsyms)>,
    stream: Stream<'a>,
}

impl Ended<'_> {
    /// Shows or writes the snapshots that were kept for the end.
    fn show(self) -> Result<ExitCode> {
        if let Some((capture, symbols)) = self.kept {
            self.stream.all(&capture, &symbols)?;
        }
        let lost = match self.missed.dropped {
            0 => String::new(),
            lost => format!(", {lost} more are lost: there was no room for them"),
        };
        let snapshots = match self.taken {
            1 => "1 snapshot".to_owned(),
            several => format!("{several} snapshots"),
        };
        eprintln!("branch-trace: {snapshots}{lost}");
        let Missed {
            untimed,
            passed_over,
            ..
        } = self.missed;
        if untimed > 0 {
            eprintln!(
                "branch-trace: {untimed} calls have no duration: there was no room for when they began"
            );
        }
        if passed_over > 0 {
            eprintln!(
                "branch-trace: {passed_over} calls are passed over: a snapshot was being taken on the \
                 CPU, or another BPF program was running there"
            );
        }
        Ok(status(self.taken))
    }
}

/// The command that runs while tracing goes on, if there is one. When this is dropped and the command
/// has not ended, it is told to end, with what it has started, and killed if it does not.
struct Traced(Option<Running>);

/// A command that was started.
struct Running {
    child: Child,
    name: String,
    /// Whether it has the terminal.
    has_terminal: bool,
}

impl Traced {
    /// Starts the command in a process group of its own, which can be ended. The group gets the
    /// terminal, if this program has one: the command may read from it. Then Ctrl-C is for the
    /// command. Where this program prints into a pipe, who reads that may need the terminal. What
    /// the command prints goes to `output`.
    fn start(command: &[OsString], output: &dyn Fn() -> Stdio) -> Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            return Ok(Self(None));
        };
        let child = Command::new(program)
            .args(arguments)
            .stdout(output())
            .stderr(output())
            .process_group(0)
            .spawn();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let terminal = io::stdin();
        let is_ours = io::stdout().is_terminal()
            && tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp());
        let group = Pid::from_child(&child);
        let has_terminal = is_ours && tcsetpgrp(&terminal, group).is_ok();
        if has_terminal {
            // It may have read before that, which has stopped it.
            let _ = kill_process_group(group, Signal::CONT);
        }
        Ok(Self(Some(Running {
            child,
            name: program.display().to_string(),
            has_terminal,
        })))
    }

    fn has_ended(&self) -> Result<bool> {
        let running = self.0.as_ref();
        running.map_or(Ok(false), Running::has_ended)
    }
}

impl Running {
    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether the command has ended. It is not waited for: until then, no other process group has
    /// its number.
    fn has_ended(&self) -> Result<bool> {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group()), how);
        Ok(status.context("cannot wait for the command")?.is_some())
    }

    /// Has the command end.
    fn end(&self) {
        if !matches!(self.has_ended(), Ok(false)) {
            return;
        }
        // Nobody need read it.
        let _ = writeln!(
            io::stderr(),
            "branch-trace: {} still runs, and is told to end",
            self.name
        );
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = kill_process_group(self.group(), signal);
        }
        let until = Instant::now() + ENDING;
        while matches!(self.has_ended(), Ok(false)) && Instant::now() < until {
            thread::sleep(LOOK);
        }
        let _ = kill_process_group(self.group(), Signal::KILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        let _ = self.child.wait();
        if self.has_terminal {
            take_terminal();
        }
    }
}

/// Makes this program the one that the terminal is for.
fn take_terminal() {
    let mut stops = SigSet::empty();
    // It stops who is not, unless it is blocked.
    stops.add(NixSignal::SIGTTOU);
    if stops.thread_block().is_ok() {
        // There is nobody to tell if the terminal is gone.
        let _ = tcsetpgrp(io::stdin(), getpgrp());
        let _ = stops.thread_unblock();
    }
}
