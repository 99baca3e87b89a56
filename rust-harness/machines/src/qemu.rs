//! QEMU with a plugin that records branches, through the `vmtest` crate.

pub mod arguments;
mod cpu_state;
mod device_tree;
mod firmware;
pub mod vmtest_child;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::alone::Running;
use crate::backend::{Backend, Boot, End, Progress, Run};
use crate::machine_spec::Capabilities;
use crate::program;
use host::progress::say;
use host::{retries, toolchain};

/// The backend QEMU: an unmodified QEMU, whose CPUs have the branch records that the plugin
/// gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Qemu;

impl Backend for Qemu {
    fn name(&self) -> &str {
        "qemu"
    }

    fn description(&self) -> String {
        let version = toolchain::version("qemu-system-aarch64").unwrap_or_default();
        let number = version.split("version ").nth(1);
        let number = number.and_then(|rest| rest.split(char::is_whitespace).next());
        let number = number.unwrap_or("of an unknown version");
        format!("QEMU {number} with an emulation of FEAT_BRBE (a TCG plugin), not on hardware")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            plugin: true,
            cpus: 16,
            records: 64,
            vhe: true,
            pseudo_nmi: true,
            heterogeneous: true,
        }
    }

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Run> {
        until_begun(boot, progress, |boot, progress| {
            program::run_self(&["__vm".into()], boot, progress)
        })
    }
}

/// How often a machine is started that failed before its command began, after the first time.
const AGAIN: u32 = 2;

/// Runs `boot` by `start`. If the machine fails before its command begins, it is started again, up to
/// [`AGAIN`] times: vmtest waits two minutes for the guest's agent, whatever the host has to do
/// beside, and a kernel that checks itself takes longer on a busy host. Each of these later starts
/// waits until no other machine of this process runs, and other machines wait until its command
/// begins; nobody waits for more than five minutes. The later starts are
/// [retries] if the command begins at last.
fn until_begun(
    boot: &Boot,
    progress: &mut dyn FnMut(Progress<'_>),
    start: impl Fn(&Boot, &mut dyn FnMut(Progress<'_>)) -> Result<Run>,
) -> Result<Run> {
    let mut boot = boot.clone();
    let mut running = Running::beside_others();
    let mut again = 0;
    loop {
        let mut has_begun = false;
        progress(Progress::Starts);
        let run = start(&boot, &mut |seen| {
            if matches!(seen, Progress::CommandBegins) {
                has_begun = true;
                retries::note_all(again);
                running.let_others_begin();
            }
            progress(seen);
        })?;
        let why = match &run.end {
            End::Failed(why) if !has_begun && again < AGAIN => why,
            _ => return Ok(run),
        };
        drop(running);
        again += 1;
        let console = boot.console.display();
        say(&format!(
            "the machine failed before its command began, and is started again when no other runs: {why} (its console: {console})"
        ));
        boot.console.as_mut_os_string().push("-again");
        running = Running::alone();
    }
}

/// The backend QEMU, whose machines all start with the firmware in a directory.
#[derive(Clone, Debug)]
pub struct QemuWithFirmware {
    dir: PathBuf,
}

impl QemuWithFirmware {
    /// With the firmware in `dir`, a build of Trusted Firmware-A for QEMU.
    ///
    /// # Errors
    ///
    /// When there is no such directory.
    pub fn new(dir: &Path) -> Result<Self> {
        let dir = firmware_in(dir)?;
        Ok(Self { dir })
    }
}

/// The whole path of a directory with firmware.
///
/// # Errors
///
/// When there is no such directory.
pub fn firmware_in(dir: &Path) -> Result<PathBuf> {
    let found = dir.canonicalize();
    found.with_context(|| format!("looking for the firmware in {}", dir.display()))
}

impl Backend for QemuWithFirmware {
    fn name(&self) -> &str {
        Qemu.name()
    }

    fn description(&self) -> String {
        format!(
            "{}, started by firmware in {}",
            Qemu.description(),
            self.dir.display()
        )
    }

    fn capabilities(&self) -> Capabilities {
        Qemu.capabilities()
    }

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Run> {
        let boot = Boot {
            firmware: Some(self.dir.clone()),
            ..boot.clone()
        };
        Qemu.run(&boot, progress)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::{Mutex, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::machine_spec::MachineSpec;
    use host::arch::Arch;

    /// Held by a test: the machines of this process are all tests' own.
    static MACHINES: Mutex<()> = Mutex::new(());

    fn boot() -> Boot {
        Boot {
            arch: Arch::Arm64,
            kernel: PathBuf::new(),
            root: PathBuf::new(),
            kernel_args: Vec::new(),
            plugin: None,
            firmware: None,
            qemu_args: Vec::new(),
            device_tree: None,
            machine: MachineSpec::default(),
            share: PathBuf::new(),
            command: String::new(),
            timeout: Duration::ZERO,
            console: "console.log".into(),
        }
    }

    fn ended(boot: &Boot, end: End) -> Run {
        Run {
            end,
            output: String::new(),
            console: boot.console.clone(),
        }
    }

    /// The end of a run whose starts end so, one after the other, the command having begun or
    /// not; the consoles that the starts had; and the number of retries.
    fn started(ends: &[(bool, End)]) -> (End, Vec<PathBuf>, u32) {
        let _machines = MACHINES.lock().unwrap();
        let consoles = RefCell::new(Vec::new());
        retries::take();
        let run = until_begun(&boot(), &mut |_| {}, |boot, progress| {
            let mut consoles = consoles.borrow_mut();
            let (has_begun, end) = ends[consoles.len()].clone();
            consoles.push(boot.console.clone());
            if has_begun {
                progress(Progress::CommandBegins);
            }
            Ok(ended(boot, end))
        });
        (run.unwrap().end, consoles.into_inner(), retries::take())
    }

    #[test]
    fn a_machine_that_does_not_come_up_is_started_again() {
        let failed = || End::Failed("no agent".to_owned());
        let (end, consoles, retries) = started(&[(false, failed()), (true, End::Exited(3))]);
        assert_eq!((end, retries), (End::Exited(3), 1));
        let expected: [PathBuf; 2] = ["console.log", "console.log-again"].map(Into::into);
        assert_eq!(consoles, expected);
        let (end, consoles, retries) = started(&[false; 3].map(|begun| (begun, failed())));
        assert_eq!((end, retries), (failed(), 0));
        assert_eq!(
            consoles[1..],
            ["console.log-again", "console.log-again-again"].map(PathBuf::from)
        );
        // What the test or its kernel did is no matter of the machine.
        for only in [
            (true, failed()),
            (false, End::Panicked(Vec::new())),
            (false, End::TimedOut(Vec::new())),
            (true, End::Exited(1)),
        ] {
            let (end, consoles, retries) = started(std::slice::from_ref(&only));
            assert_eq!((end, consoles.len(), retries), (only.1, 1, 0));
        }
    }

    #[test]
    fn a_later_start_waits_for_other_machines_and_the_wait_is_no_part_of_it() {
        let _machines = MACHINES.lock().unwrap();
        let neighbour = Running::beside_others();
        let (first, has_failed) = mpsc::channel();
        let seen = Mutex::new(Vec::new());
        let see = |what| seen.lock().unwrap().push(what);
        thread::scope(|scope| {
            let see = &see;
            scope.spawn(move || {
                has_failed.recv().unwrap();
                // A later start that does not wait has begun by then.
                thread::sleep(Duration::from_millis(100));
                see("the neighbour ends");
                drop(neighbour);
            });
            let mut progress = |progress: Progress<'_>| {
                if matches!(progress, Progress::Starts) {
                    see("starts");
                }
            };
            let run = until_begun(&boot(), &mut progress, |boot, _| {
                // Nobody listens any more at a later start.
                let _ = first.send(());
                Ok(ended(boot, End::Failed("no agent".to_owned())))
            });
            run.unwrap();
        });
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen, ["starts", "the neighbour ends", "starts", "starts"]);
    }
}
