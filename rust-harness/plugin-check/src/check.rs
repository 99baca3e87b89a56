//! The check: a workload in the guest, recorded by the plugin and logged by QEMU.

use std::fs::{self, File};
use std::io::{BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::compare::{LogComparison, compare};
use crate::qemu_log::Reader;
use crate::reconstruct::Follower;
use host::progress::Step;
use kernels::kernel::Kernel;
use machines::guest::{self, Guest, Task};
use machines::machine_spec::MachineSpec;
use machines::share;
use machines::speed;

/// How long a run may take: the guest comes up, does its work at a small part of its speed,
/// and ends.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long QEMU's monitor may take to answer, on a fast host.
const ANSWER: Duration = Duration::from_secs(30);

/// A workload: what runs in the guest while its branches are recorded.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The words that follow `branch-guest record` on the command line.
    pub command: &'static str,
    /// Deterministic time: an instruction takes `1 << icount` ns. `None`: the host's time.
    pub icount: Option<u8>,
    /// Whether QEMU makes a block of each instruction: interrupts come between blocks, so
    /// they can come between any two instructions then.
    pub single: bool,
}

/// Runs `workload` in the guest with all its branches recorded, and compares the plugin's log
/// with QEMU's.
///
/// QEMU writes its log only while the workload runs: the guest reports that it is `ready` and
/// that it is `done`, by files in the shared directory, and waits for the answer.
pub fn run(
    guest: &Guest,
    kernel: &Kernel,
    name: &str,
    workload: &Workload,
) -> Result<LogComparison> {
    let share = guest.share()?;
    let at = |name: &str| share.path().join(name);
    let files = Files {
        monitor: at("monitor"),
        qemu_log: at("qemu.log"),
        plugin_log: at("plugin.log"),
        share: share.path().to_owned(),
    };
    // struct sockaddr_un has room for 108 bytes.
    let monitor = files.monitor.display().to_string();
    ensure!(
        monitor.len() < 108,
        "{monitor} is too long for the name of a socket: set BRBE_HOME to a shorter path"
    );
    let qemu_log = files.qemu_log.display().to_string();
    let socket = format!("unix:{monitor},server=on,wait=off");
    let machine = MachineSpec {
        cpus: 1,
        icount: workload.icount,
        plugin: Some(vec![format!("log={}", files.plugin_log.display())]),
        qemu_args: ["-D", &qemu_log, "-monitor", &socket]
            .map(str::to_owned)
            .into(),
        ..MachineSpec::default()
    };
    let command = format!(
        "meet() {{ touch $1; while [ ! -e $2 ]; do sleep 0.1; done; }}\n\
         meet ready go\n./branch-guest record {}\nstatus=$?\nmeet done end\nexit $status",
        workload.command
    );
    let task = Task {
        name,
        command: &command,
        share: &share,
        timeout: TIMEOUT,
    };
    let over = AtomicBool::new(false);
    let (run, window) = thread::scope(|scope| {
        let switch = scope.spawn(|| switch_log(&files, workload.single, &over));
        let run = guest.run(kernel, &machine, &task);
        over.store(true, Ordering::Relaxed);
        (run, switch.join())
    });
    let run = run?;
    let status = guest::status(&run)?;
    ensure!(
        status == 0,
        "the workload ended with {status}:\n{}",
        run.output
    );
    let Ok(window) = window else {
        bail!("the thread that switches QEMU's log panicked")
    };
    let (start, end) = window.context("switching QEMU's log on and off")?;
    let step = Step::start(format!("compare, {name}"));
    let result = compare_logs(&files, start, end)?;
    step.done();
    Ok(result)
}

struct Files {
    monitor: PathBuf,
    qemu_log: PathBuf,
    plugin_log: PathBuf,
    share: PathBuf,
}

/// Switches QEMU's log on while the workload runs. Returns which part of the plugin's log
/// belongs to that time: where it starts and ends, in bytes.
fn switch_log(files: &Files, single: bool, over: &AtomicBool) -> Result<(u64, u64)> {
    let wait_for = |name: &str| {
        let path = files.share.join(name);
        while !path.exists() {
            ensure!(
                !over.load(Ordering::Relaxed),
                "the guest never said '{name}'"
            );
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    // A new file: the guest may have left a link to anywhere.
    let answer =
        |name: &str| File::create_new(files.share.join(name)).context("answering the guest");
    // While the vCPU is stopped, all that it did is in the plugin's log.
    let switch = |monitor: &mut Monitor, commands: &[&str]| {
        monitor.command("stop")?;
        for command in commands {
            monitor.command(command)?;
        }
        let data = fs::metadata(&files.plugin_log).context("the plugin's log")?;
        monitor.command("cont")?;
        anyhow::Ok(data.len())
    };
    wait_for("ready")?;
    let mut monitor = Monitor::connect(&files.monitor)?;
    let start = switch(
        &mut monitor,
        &[
            "log exec,nochain,int,in_asm",
            if single {
                "one-insn-per-tb on"
            } else {
                "one-insn-per-tb off"
            },
        ],
    )?;
    answer("go")?;
    wait_for("done")?;
    let end = switch(&mut monitor, &["log none", "one-insn-per-tb off"])?;
    answer("end")?;
    Ok((start, end))
}

/// A connection to QEMU's monitor for humans (HMP).
struct Monitor(UnixStream);

const PROMPT: &[u8] = b"(qemu) ";

impl Monitor {
    fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).context("connecting to QEMU's monitor")?;
        stream
            .set_read_timeout(Some(speed::scaled(ANSWER)))
            .context("setting a limit")?;
        let mut monitor = Self(stream);
        monitor.prompt()?;
        Ok(monitor)
    }

    fn command(&mut self, command: &str) -> Result<()> {
        writeln!(self.0, "{command}").context("writing to QEMU's monitor")?;
        self.prompt()
    }

    /// Reads until QEMU's monitor waits for a command.
    fn prompt(&mut self) -> Result<()> {
        let (mut said, since) = (Vec::new(), Instant::now());
        let mut buffer = [0; 4096];
        while !said.ends_with(PROMPT) {
            ensure!(
                since.elapsed() < speed::scaled(ANSWER),
                "QEMU's monitor does not end its answer"
            );
            let count = self.0.read(&mut buffer).context("reading QEMU's monitor")?;
            ensure!(count > 0, "QEMU closed its monitor");
            said.extend_from_slice(buffer.get(..count).unwrap_or_default());
        }
        Ok(())
    }
}

/// How many bytes a log may have.
const MAX_LOG: u64 = 16 << 30;
/// The most bytes of the plugin's log that are of the workload.
const MAX_WINDOW: u64 = 1 << 30;

fn compare_logs(files: &Files, start: u64, end: u64) -> Result<LogComparison> {
    let log = share::open_from_guest(&files.qemu_log, MAX_LOG).context("opening QEMU's log")?;
    let mut reader = Reader::new(BufReader::with_capacity(1 << 20, log));
    let (mut follower, mut events) = (Follower::default(), Vec::new());
    while let Some(entry) = reader.next_entry().context("reading QEMU's log")? {
        follower.take(entry, |event| events.push(event));
    }
    let log =
        share::open_from_guest(&files.plugin_log, MAX_LOG).context("opening the plugin's log")?;
    let mut log = log.into_inner();
    log.seek(SeekFrom::Start(start)).context("seeking")?;
    let mut text = String::new();
    let window = end.saturating_sub(start);
    ensure!(
        window <= MAX_WINDOW,
        "the plugin's log has {window} bytes of the workload, and {MAX_WINDOW} are read"
    );
    log.take(window)
        .read_to_string(&mut text)
        .context("reading the plugin's log")?;
    Ok(compare(&events, text.lines()))
}
