//! One virtual machine, in a process of its own.
//!
//! `vmtest` blocks, cannot be cancelled, and waits up to two minutes for a guest that is
//! dead. In a process of its own it can be ended at any time, and QEMU with it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use vmtest::output::Output;
use vmtest::{Config, Target, VMConfig, Vmtest};

use super::arguments::{Described, StartingFirmware};
use super::cpu_state::{self, Monitor};
use crate::backend::Boot;
use crate::program::report_event;
use guest_runner::event::RunEvent;
use guest_runner::{IN_VM, LAST_LINE, PROGRAM, SHARE, WITH_AGENT};
use host::arch::Arch;
use kernels::guest_root::AGENT_PATH;

/// How long the guest's kernel may take to print [`LAST_LINE`]. A kernel with `quiet` on its
/// command line does not print it.
const PRINTING: Duration = Duration::from_secs(2);

/// The kernel's arguments for the guest's root. All guests share the root, so a guest gets it
/// read-only. As nobody changes the root, the guest may believe what it has read of it
/// (`cache=loose`), which vmtest's own `rootflags` before these do not let it. That saves a
/// question to the host for each file that is looked up once more, and some 0.7 of 3.1 s of
/// the boot (`./brbe bench warm`, two cores). A kernel without block devices mounts no root that
/// has no name: vmtest calls it `/dev/root` and does not tell the kernel.
const ROOT: &str = "root=/dev/root ro rootflags=trans=virtio,cache=loose,msize=512000";

/// The kernel's arguments for its first process, which are to be the last ones, and that process's
/// `PATH`. Otherwise it would be the script that vmtest writes: for a dozen mounts it has bash start
/// some thirty programs, which takes 0.5 of the 1.9 s that a guest takes to be ready.
fn first_process() -> String {
    format!("PATH={AGENT_PATH} init=/{TMP}/{PROGRAM} -- {WITH_AGENT}")
}

/// The directory of the guest's root that the machine has for itself.
const TMP: &str = "tmp";

/// A word for each arm64 kernel here. A kernel that signs return addresses has QEMU call a function
/// of its own for each signature and each check, which is a tenth of what a guest costs the host
/// (`./brbe vm`, and `./brbe vm --append arm64.nopauth`). No branch, record or trap of BRBE depends
/// on a signature, and the instructions are the ones they were: without a key they do nothing.
/// Machines of `brbe vm` sign.
const UNSIGNED: &str = "arm64.nopauth";

/// Reads a [`Boot`] from standard input and runs it. Reports what happens as events on
/// standard output.
pub fn main() -> Result<()> {
    let started = Instant::now();
    let mut boot: Boot =
        serde_json::from_reader(io::stdin().lock()).context("reading what to boot")?;
    private_tmp(&boot).context("a /tmp of the machine's own")?;
    // QEMU reads the device tree's file when it starts. The file is there as long as this
    // variable.
    let firmware = boot.firmware.as_deref().map(|dir| StartingFirmware {
        dir,
        kernel: &boot.kernel,
        initramfs: None,
    });
    let described = Described::of(boot.arch, &boot.machine, boot.plugin.as_ref(), firmware)?;
    let unsigned = (boot.arch == Arch::Arm64).then(|| UNSIGNED.to_owned());
    let first = described.kernel_words.iter().cloned().chain(unsigned);
    // What a test asks for comes later, and counts.
    boot.kernel_args = first.chain(boot.kernel_args).collect();
    let monitor = Monitor::new(&boot.share);
    boot.qemu_args.extend(monitor.args());
    let config = Config {
        target: vec![target(&boot, &described)],
    };
    let machine = Vmtest::new(&boot.share, config).context("describing the machine")?;
    let (sender, receiver) = mpsc::channel();
    let running = thread::spawn(move || machine.run_one(0, sender));
    let last_chance = started + boot.timeout.saturating_sub(cpu_state::ASKING);
    let ending = report(&receiver, last_chance, || monitor.cpu_state(), report_event)?;
    match ending {
        // The parent process ends what is left of the machine.
        Ending::ByGuest => Ok(()),
        Ending::ByVmtest => running
            .join()
            .map_err(|_| anyhow::anyhow!("vmtest panicked")),
    }
}

/// What reported the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The guest, with an event. That is sooner than vmtest, which asks whether the command has
    /// ended at intervals that grow to seconds.
    ByGuest,
    /// The crate vmtest.
    ByVmtest,
}

/// Calls `emit` with each event of the run. If the run has not ended at `last_chance`, the
/// lines of `cpu_state`, which say where the machine's CPUs are, are reported as well: the
/// parent process is about to end the run.
fn report(
    outputs: &Receiver<Output>,
    last_chance: Instant,
    cpu_state: impl Fn() -> Vec<String>,
    mut emit: impl FnMut(&RunEvent) -> Result<()>,
) -> Result<Ending> {
    let mut asked = false;
    let mut has_ended = false;
    let mut console = Console::default();
    loop {
        let patience = if asked {
            Duration::MAX
        } else {
            last_chance.saturating_duration_since(Instant::now())
        };
        match outputs.recv_timeout(patience) {
            // The last event may be on its way still, by another thread of vmtest. Both threads
            // have ended where there is no more to receive.
            Ok(Output::CommandEnd(Ok(_))) => has_ended = true,
            Err(RecvTimeoutError::Disconnected) if has_ended => {
                let why = format!("{PROGRAM} ended without an exit status");
                emit(&RunEvent::Failed(why))?;
                return Ok(Ending::ByVmtest);
            }
            Ok(Output::Command(line)) => {
                let event = RunEvent::parse(&line);
                if event.is_last() {
                    console.catch_up(outputs, &mut emit)?;
                    emit(&event)?;
                    return Ok(Ending::ByGuest);
                }
                emit(&event)?;
            }
            Ok(output) => console.pass(output, &mut emit)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(Ending::ByVmtest),
            Err(RecvTimeoutError::Timeout) => {
                asked = true;
                for line in cpu_state() {
                    emit(&RunEvent::Console(format!("brbe: {line}")))?;
                }
            }
        }
    }
}

/// What is known of the guest's console. Its lines come by another way than the command's
/// output, and later: the kernel has a thread print them.
#[derive(Debug, Default)]
struct Console {
    /// Whether [`LAST_LINE`] has been seen.
    is_complete: bool,
}

impl Console {
    fn pass(
        &mut self,
        output: Output,
        emit: &mut impl FnMut(&RunEvent) -> Result<()>,
    ) -> Result<()> {
        self.is_complete |= matches!(&output, Output::Boot(line) if line.contains(LAST_LINE));
        event(output).map_or(Ok(()), |event| emit(&event))
    }

    /// Waits until the console has shown what the guest has logged so far, no longer than
    /// [`PRINTING`], and reports it.
    fn catch_up(
        mut self,
        outputs: &Receiver<Output>,
        emit: &mut impl FnMut(&RunEvent) -> Result<()>,
    ) -> Result<()> {
        let until = Instant::now() + PRINTING;
        while !self.is_complete {
            let left = until.saturating_duration_since(Instant::now());
            match outputs.recv_timeout(left) {
                // vmtest has found the end as well. The end is reported after this.
                Ok(Output::CommandEnd(_)) => {}
                Ok(output) => self.pass(output, emit)?,
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// Gives this process a /tmp of its own, and another one in the guest's root. vmtest puts
/// sockets into the former and its init into the latter, and leaves them there when it is
/// ended. The guest's first process is put beside that init. As both directories are this process's
/// own, they go with it. The host's /tmp stays if something that is to be booted is below it.
fn private_tmp(boot: &Boot) -> Result<()> {
    let needed = [&boot.kernel, &boot.root, &boot.share];
    let plugin = boot.plugin.iter().map(|plugin| &plugin.path);
    let plugin = plugin.chain(&boot.firmware);
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let tmpfs = |on: &Path| mount(none, on, Some("tmpfs"), MsFlags::empty(), none);
    let tmp = boot.root.join(TMP);
    tmpfs(&tmp)?;
    let program = |dir: &Path| dir.join(PROGRAM);
    fs::copy(program(&boot.share), program(&tmp)).context("copying the first process")?;
    if !needed
        .into_iter()
        .chain(plugin)
        .any(|path| path.starts_with("/tmp"))
    {
        tmpfs(Path::new("/tmp"))?;
    }
    Ok(())
}

fn event(output: Output) -> Option<RunEvent> {
    match output {
        Output::Boot(line) => Some(RunEvent::Console(line)),
        Output::Setup(line) => Some(RunEvent::Console(format!("vmtest: {line}"))),
        Output::Command(line) => Some(RunEvent::parse(&line)),
        Output::BootEnd(Err(error))
        | Output::SetupEnd(Err(error))
        | Output::CommandEnd(Err(error)) => Some(RunEvent::Failed(format!("{error:#}"))),
        Output::BootStart
        | Output::BootEnd(Ok(()))
        | Output::SetupStart
        | Output::SetupEnd(Ok(()))
        | Output::CommandStart
        // Its status is 0, too, if a signal ended guest-runner.
        | Output::CommandEnd(Ok(_)) => None,
    }
}

/// The machine as vmtest takes it, with the arguments for QEMU that vmtest does not give itself.
/// QEMU merges machine options.
fn target(boot: &Boot, described: &Described) -> Target {
    let kernel_args = [ROOT, &boot.kernel_args.join(" "), &first_process()].join(" ");
    Target {
        name: "guest".to_owned(),
        kernel: Some(boot.kernel.clone()),
        kernel_args: Some(kernel_args),
        rootfs: boot.root.clone(),
        arch: architecture(boot.arch).to_owned(),
        qemu_command: Some(format!("qemu-system-{}", boot.arch.machine())),
        command: format!("exec {SHARE}/{PROGRAM} {IN_VM}"),
        vm: VMConfig {
            num_cpus: boot.machine.cpus,
            memory: format!("{}M", boot.machine.memory_mib),
            extra_args: [described.arguments(), boot.qemu_args.clone()].concat(),
            ..VMConfig::default()
        },
        ..Target::default()
    }
}

/// The architecture's name for vmtest. x86-64 has another name there, because for the
/// architecture of this machine vmtest takes KVM wherever there is a /dev/kvm, and in a
/// virtual machine that may come to nothing.
fn architecture(arch: Arch) -> &'static str {
    match arch {
        Arch::Arm64 => "aarch64",
        Arch::X86_64 => "amd64",
    }
}

#[cfg(test)]
mod tests;
