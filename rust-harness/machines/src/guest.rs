//! Programs run in the guest, on one kernel.

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

/// From power-on to power-off. A boot takes 10 to 20 s here; a machine with
/// less to offer gets its share.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Has Linux take the PMU's interrupts as pseudo-NMIs.
pub const PSEUDO_NMI: &str = "irqchip.gicv3_pseudo_nmi=1";

/// What may differ from one run to another.
#[derive(Clone, Debug)]
pub struct Setup {
    /// From power-on to power-off.
    pub timeout: Duration,
    /// Processors.
    pub cpus: u8,
    /// The kernel starts at EL2, and runs there (VHE).
    pub virtualization: bool,
    /// So many processors have BRBE, and the others are another sort; `None` is
    /// one sort.
    pub brbe_cpus: Option<u8>,
    /// There is no PMU until the guest asks for it.
    pub late_pmu: bool,
    /// Options of the plugin, each `key=value`; `None` is QEMU without it.
    pub plugin: Option<Vec<String>>,
    /// More arguments for QEMU.
    pub qemu: Vec<String>,
    /// More arguments for the kernel.
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

/// A machine that is ready to boot any kernel.
#[derive(Clone, Debug)]
pub struct Guest {
    paths: Paths,
    backend: Arc<dyn Backend>,
    arch: Arch,
    root: PathBuf,
    /// What gives QEMU's processors branch records.
    plugin: PathBuf,
    programs: [PathBuf; 2],
    device_tree: Option<PathBuf>,
}

impl Guest {
    /// What its machines are, for those who were not there.
    pub fn machine(&self) -> String {
        self.backend.told()
    }

    /// Builds the plugin, the guest's programs and its root, as far as needed.
    pub fn prepare(paths: &Paths) -> Result<Self> {
        Self::on(paths, Arch::Arm64, Arc::new(Qemu))
    }

    /// The same for machines of another kind.
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

    /// One that is not there yet, and that nothing may be run in: for lists.
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

    /// The same with the device tree that its machines need, if they do, from a
    /// subject's tree.
    pub fn for_kernels_of(&self, subject: &Subject) -> Result<Self> {
        let name = self.backend.device_tree();
        let build = |name| subject.builder.device_tree(subject.unpatched(), name);
        Ok(Self {
            device_tree: name.map(build).transpose()?,
            ..self.clone()
        })
    }

    /// What its machines can do.
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// The guest's root file system, in a directory here.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What is here of a file by its name in the guest: part of its root, or of
    /// what is shared with it.
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

    /// Boots `kernel`, runs `command` in the shared directory, which holds
    /// `branch-guest` and `branch-trace` too, and powers off.
    pub fn run(&self, kernel: &Kernel, name: &str, command: &str, share: &Share) -> Result<Run> {
        self.run_as(&Setup::default(), kernel, name, command, share)
    }

    /// The same, on a machine of its own kind.
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

    /// The console of each boot has a log of its own.
    fn console(&self, name: &str) -> Result<PathBuf> {
        static BOOT: AtomicU32 = AtomicU32::new(0);
        let boot = BOOT.fetch_add(1, Ordering::Relaxed);
        process::fresh(
            self.paths
                .log(&format!("console-{boot:02}-{}", log_name(name))),
        )
    }
}

/// The guest did not come to its end: its kernel died, or went on for too long.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Dead(String);

/// What a run's exit status is, where the command came to its end.
///
/// # Errors
///
/// [`Dead`], or what else is wrong with the machine.
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
