//! From attaching to what was recorded.

use std::cell::RefCell;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use branch_records::capture::{Anchor, Capture, Kernel, MAX_SNAPSHOTS, Snapshot};
use guest::kallsyms::{Kallsyms, NO_SNAPSHOTS};
use guest::kcore::{Around, Kcore};
use guest::perf::{CannotRecord, Recording};
use guest::{cpus, perf};

use crate::arguments::Arguments;
use crate::attach::{Attached, Common};
use crate::branches::{self, Branches};
use crate::event;
use crate::processes::Processes;
use crate::programs;
use crate::target::Target;

/// Not supported here.
const UNSUPPORTED: u8 = 77;
/// How long there is nothing to do before it is asked whether to stop.
const TURN: Duration = Duration::from_millis(100);

static STOP: AtomicBool = AtomicBool::new(false);

/// Traces, and writes what was seen.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let filter = arguments.filter()?;
    let symbols = Kallsyms::read()?;
    if !symbols.has_snapshot_function() {
        return Ok(unsupported(NO_SNAPSHOTS));
    }
    let of_user = |target: &Target| matches!(target, Target::User { .. });
    let level = match arguments.targets.iter().all(of_user) {
        true => branches::USER,
        false => branches::KERNEL,
    };
    let branches = Branches::of(&arguments.lbr, level);
    // On every CPU: which one it will be is not known.
    let recording = Recording::of_branches(branches.sample_type());
    let events = match perf::open_everywhere(&cpus::online()?, recording) {
        Ok(events) => events,
        Err(error) => match CannotRecord::from(error) {
            why if why.is_unsupported() => return Ok(unsupported(&why.to_string())),
            why => return Err(why.into()),
        },
    };
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed)).context("cannot catch Ctrl-C")?;
    let possible = libbpf_rs::num_possible_cpus().context("cannot count the CPUs")?;
    let common = Common {
        filter: &filter,
        slots: possible.next_power_of_two(),
    };
    let attached = Attached::to(&arguments.targets, &common)?;
    let seen = RefCell::new(Seen {
        room: arguments
            .count
            .map_or(MAX_SNAPSHOTS, |count| count as usize),
        ..Seen::default()
    });
    let ring = attached.ring(|bytes| {
        seen.borrow_mut().event(bytes, &attached);
        0
    })?;
    let mut child = start(&arguments.command)?;
    let end = arguments
        .duration
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        ring.poll(TURN)
            .context("cannot read from the BPF programs")?;
        if let Some(problem) = seen.borrow_mut().problem.take() {
            return Err(problem);
        }
        let ended = match &mut child {
            Some(child) => child
                .try_wait()
                .context("cannot wait for the command")?
                .is_some(),
            None => false,
        };
        let late = end.is_some_and(|end| Instant::now() >= end);
        let full = seen.borrow().is_full();
        if ended || late || full || STOP.load(Ordering::Relaxed) {
            break;
        }
    }
    ring.consume()
        .context("cannot read from the BPF programs")?;
    drop(ring);
    let seen = seen.into_inner();
    if let Some(problem) = seen.problem {
        return Err(problem);
    }
    // With the programs still there: their code and their names are asked for.
    let mut capture = capture(branches, seen)?;
    capture.dropped = attached.dropped();
    drop(attached);
    drop(events);
    if let Some(mut child) = child {
        // It may have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
    let lost = match capture.dropped {
        0 => String::new(),
        lost => format!(", {lost} more are lost: there was no room for them"),
    };
    let taken = match capture.snapshots.len() {
        1 => "1 snapshot".to_owned(),
        several => format!("{several} snapshots"),
    };
    eprintln!("branch-trace: {taken}{lost}");
    write(&capture, &arguments.output)?;
    Ok(match capture.snapshots.is_empty() {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

/// What the programs have handed over.
#[derive(Default)]
struct Seen {
    snapshots: Vec<Snapshot>,
    processes: Processes,
    /// How many there may be. More are not looked at.
    room: usize,
    problem: Option<anyhow::Error>,
}

impl Seen {
    fn is_full(&self) -> bool {
        self.snapshots.len() == self.room
    }

    fn event(&mut self, bytes: &[u8], attached: &Attached) {
        match event::parse(bytes, &attached.places) {
            Ok(_) if self.is_full() => {}
            Ok(snapshot) => {
                self.processes.see(&snapshot);
                self.snapshots.push(snapshot);
            }
            Err(error) => self.problem = self.problem.take().or(Some(error)),
        }
    }
}

fn unsupported(why: &str) -> ExitCode {
    eprintln!("branch-trace: {why}");
    ExitCode::from(UNSUPPORTED)
}

/// Starts the command that is traced, in a process group of its own: Ctrl-C is for
/// this program, which then ends it.
fn start(command: &[std::ffi::OsString]) -> Result<Option<Child>> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(None);
    };
    let child = Command::new(program)
        .args(arguments)
        .process_group(0)
        .spawn();
    let child = child.with_context(|| format!("cannot start {}", program.display()))?;
    Ok(Some(child))
}

fn capture(branches: Branches, seen: Seen) -> Result<Capture> {
    let symbols = Kallsyms::read()?;
    let system = rustix::system::uname();
    let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let visible = |c: char| if c.is_control() { '?' } else { c };
    let scenario: String = words.chars().map(visible).take(200).collect();
    let anchor: Anchor = symbols.anchor()?;
    let kernel = Kernel {
        release: system.release().to_string_lossy().into_owned(),
        machine: system.machine().to_string_lossy().into_owned(),
        anchor,
    };
    let mut capture = Capture::new(scenario, kernel);
    capture.branches = branches.names();
    let ends = seen.snapshots.iter().flat_map(|snapshot| &snapshot.records);
    capture.symbols = symbols.outside_the_image(ends.flat_map(|record| [record.from, record.to]));
    programs::add_lines(&mut capture.symbols);
    let lists = seen.snapshots.iter().map(|snapshot| &snapshot.records[..]);
    let code = match Kcore::open() {
        Ok(kcore) => kcore.around(lists),
        Err(error) => Around::without(error),
    };
    capture.code = code.code;
    capture.code_missing = code.missing.map(|error| format!("{error:#}"));
    capture.processes = seen.processes.into_all();
    capture.snapshots = seen.snapshots;
    Ok(capture)
}

/// Writes the capture: whole or not at all.
fn write(capture: &Capture, path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let problem = || format!("cannot write {}", path.display());
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)
        .with_context(problem)?;
    capture
        .to_writer(io::BufWriter::new(&mut file))
        .with_context(problem)?;
    file.persist(path).with_context(problem)?;
    Ok(())
}
