//! Guests: machines that boot a kernel and run the guest's programs on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::backend::{Backend, Boot, Capabilities, End, Plugin, Run, SHARE};
use crate::qemu::Qemu;
use crate::share::Share;
use host::arch::Arch;
use host::cargo;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use kernels::guest_root;
use kernels::kernel::Kernel;
use kernels::subject::Subject;

/// How long a run may take by default, from power-on to power-off. A boot takes 10 to 20 s on
/// the machine that this was written on; a slower one needs more.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A word for the kernel's command line that has Linux take the PMU's interrupts as
/// pseudo-NMIs.
pub const PSEUDO_NMI: &str = "irqchip.gicv3_pseudo_nmi=1";

/// The settings of a machine that may differ from one run to another.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How long the run may take, from power-on to power-off.
    pub timeout: Duration,
    /// The number of CPUs.
    pub cpus: u8,
    /// Whether the kernel starts at EL2, and runs there (VHE).
    pub virtualization: bool,
    /// How many CPUs, the first ones, have BRBE on a machine with heterogeneous CPUs. The
    /// other CPUs are of another kind. `None`: all CPUs are of one kind.
    pub brbe_cpus: Option<u8>,
    /// Whether Linux has no PMU until the guest asks for it.
    pub late_pmu: bool,
    /// Options of the plugin, each `key=value`. `None`: QEMU runs without the plugin.
    pub plugin: Option<Vec<String>>,
    /// More arguments for QEMU, where the machine is QEMU.
    pub qemu: Vec<String>,
    /// More words for the kernel's command line.
    pub kernel_args: Vec<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT,
            cpus: 2,
            virtualization: false,
            brbe_cpus: None,
            late_pmu: false,
            plugin: Some(Vec::new()),
            qemu: Vec::new(),
            kernel_args: Vec::new(),
        }
    }
}

/// A machine that is ready to boot any kernel: a backend, and what its guests need beside the
/// kernel.
#[derive(Clone, Debug)]
pub struct Guest {
    paths: Paths,
    backend: Arc<dyn Backend>,
    arch: Arch,
    root: PathBuf,
    /// Path of the plugin that gives branch records to QEMU's CPUs. Empty for other backends.
    plugin: PathBuf,
    programs: [PathBuf; 2],
    device_tree: Option<PathBuf>,
}

impl Guest {
    /// A description of the machines, for people who did not see the run.
    pub fn machine(&self) -> String {
        self.backend.description()
    }

    /// A guest in QEMU for arm64. Builds the plugin, the guest's programs and its root, as
    /// far as needed.
    pub fn prepare(paths: &Paths) -> Result<Self> {
        Self::on(paths, Arch::Arm64, Arc::new(Qemu))
    }

    /// A guest on the machines of a backend, for an architecture. Builds the plugin if the
    /// backend takes it, the guest's programs and its root, as far as needed.
    pub fn on(paths: &Paths, arch: Arch, backend: Arc<dyn Backend>) -> Result<Self> {
        let plugin = match backend.capabilities().plugin {
            true => cargo::plugin(paths, arch)?,
            false => PathBuf::new(),
        };
        let programs = cargo::guest(paths, arch)?;
        Ok(Self {
            paths: paths.clone(),
            backend,
            arch,
            root: guest_root::root(paths, arch)?,
            plugin,
            programs,
            device_tree: None,
        })
    }

    /// A guest for lists of tests. Nothing of it is built, and nothing may be run in it.
    pub fn planned(paths: &Paths, arch: Arch, backend: Arc<dyn Backend>) -> Self {
        Self {
            paths: paths.clone(),
            backend,
            arch,
            root: PathBuf::new(),
            plugin: PathBuf::new(),
            programs: Default::default(),
            device_tree: None,
        }
    }

    /// This guest with the device tree that its machines need, from the tree of a subject.
    /// Machines that have their own device tree need none.
    pub fn for_kernels_of(&self, subject: &Subject) -> Result<Self> {
        let name = self.backend.device_tree();
        let build = |name| subject.builder.device_tree(subject.unpatched(), name);
        Ok(Self {
            device_tree: name.map(build).transpose()?,
            ..self.clone()
        })
    }

    /// What the machines of the guest can do.
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// Path on this machine of the directory that is the guest's root file system.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Path on this machine of the file that the guest knows as `path`, which is part of its
    /// root or of what is shared with it. `None` if there is no such file.
    pub fn file(&self, share: &Share, path: &str) -> Option<PathBuf> {
        // The guest may have made links to anywhere.
        let within = |dir: &Path, path: &str| {
            let dir = dir.canonicalize().ok()?;
            let file = dir.join(path).canonicalize().ok()?;
            (file.starts_with(&dir) && file.is_file()).then_some(file)
        };
        match path.strip_prefix(SHARE) {
            Some(shared) => within(share.path(), shared.strip_prefix('/')?),
            None => within(&self.root, path.strip_prefix('/')?),
        }
    }

    /// Boots `kernel`, runs `command` in the shared directory, which holds `branch-guest` and
    /// `branch-trace` too, and powers off. `name` is in the names of the logs.
    pub fn run(&self, kernel: &Kernel, name: &str, command: &str, share: &Share) -> Result<Run> {
        self.run_as(&Setup::default(), kernel, name, command, share)
    }

    /// Boots `kernel` on a machine with the settings `setup`, runs `command` in the shared
    /// directory, which holds `branch-guest` and `branch-trace` too, and powers off. `name`
    /// is in the names of the logs.
    pub fn run_as(
        &self,
        setup: &Setup,
        kernel: &Kernel,
        name: &str,
        command: &str,
        share: &Share,
    ) -> Result<Run> {
        for program in &self.programs {
            share.put(program)?;
        }
        let step = Step::start(format!("boot, {name}"));
        let console = self.console(name)?;
        let boot = Boot {
            arch: self.arch,
            kernel: kernel.image.clone(),
            device_tree: self.device_tree.clone(),
            root: self.root.clone(),
            cpus: setup.cpus,
            memory_mib: 1024,
            kernel_args: ["panic=-1", "oops=panic"]
                .map(str::to_owned)
                .into_iter()
                .chain(setup.kernel_args.iter().cloned())
                .collect(),
            virtualization: setup.virtualization,
            brbe_cpus: setup.brbe_cpus,
            late_pmu: setup.late_pmu,
            plugin: setup
                .plugin
                .as_ref()
                .filter(|_| self.capabilities().plugin)
                .map(|options| Plugin {
                    path: self.plugin.clone(),
                    options: options.clone(),
                }),
            qemu_args: setup.qemu.clone(),
            share: share.path().to_owned(),
            command: command.to_owned(),
            timeout: setup.timeout,
            console,
        };
        let run = self.backend.run(&boot, &mut |line| step.note(line))?;
        if process::interrupted() {
            return Err(process::Interrupted.into());
        }
        fs::write(self.paths.log(&log_name(name)), &run.output)
            .context("keeping the guest's output")?;
        step.done();
        Ok(run)
    }

    /// Creates the log of a console. The console of each boot has a log of its own.
    fn console(&self, name: &str) -> Result<PathBuf> {
        static BOOT: AtomicU32 = AtomicU32::new(0);
        let boot = BOOT.fetch_add(1, Ordering::Relaxed);
        process::fresh(
            self.paths
                .log(&format!("console-{boot:02}-{}", log_name(name))),
        )
    }
}

/// The error for a guest that did not come to its end: its kernel died, or it took too long.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Dead(String);

/// The exit status of the command of a run, if the command came to its end.
///
/// # Errors
///
/// [`Dead`], when the kernel died or the time was up. Another error when the machine failed.
pub fn status(run: &Run) -> Result<i32> {
    let console = run.console.display();
    match &run.end {
        End::Exited(status) => Ok(*status),
        End::Panicked(message) => Err(Dead(format!(
            "the guest's kernel died:\n    {}\nthe whole console: {console}",
            message.join("\n    ")
        ))
        .into()),
        End::TimedOut(last) => Err(Dead(format!(
            "the guest did not end in time and was stopped. Its console ends with:\n    {}\nthe whole console: {console}",
            last.join("\n    ")
        ))
        .into()),
        End::Failed(why) => bail!("the machine failed: {why}\nits console: {console}"),
    }
}

fn log_name(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect()
}
