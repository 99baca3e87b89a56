//! Guests: machines that boot a kernel and run the guest's programs on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::backend::{Backend, Boot, Checks, End, PluginFile, Progress, Run};
use crate::machine_spec::{Capabilities, MachineSpec};
use crate::qemu::Qemu;
use crate::share::Share;
use crate::speed;
use guest_runner::{COMMAND, SHARE};
use host::arch::Arch;
use host::cargo::{self, GuestPrograms};
use host::files::{self, Scratch};
use host::logs::Log;
use host::made::Made;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use kernels::firmware;
use kernels::guest_root;
use kernels::kernel::Kernel;
use kernels::subject::Subject;

/// How long a run may take by default, from power-on to power-off. A boot takes 10 to 20 s on
/// the machine that this was written on; a slower one needs more.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// What is done in one boot.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The name of the run, which is in the names of its logs.
    pub name: &'a str,
    /// The command: in the shared directory, for bash, or over ssh for sh.
    pub command: &'a str,
    /// The shared directory. That of [`Guest::share`] holds `branch-guest` and `branch-trace`, and
    /// over ssh each does.
    pub share: &'a Share,
    /// How long the run may take, from power-on to power-off. A machine that boots slower than
    /// the one that the limits were chosen on has more time.
    pub timeout: Duration,
}

/// What is built for a guest once it is needed.
#[derive(Debug, Default)]
struct Parts {
    /// Path of the directory that is the guest's root file system.
    root: Made<PathBuf>,
    /// Path of the plugin that gives branch records to QEMU's CPUs, as cargo has built it. `None`
    /// for other backends.
    plugin: Made<Option<PathBuf>>,
    /// Copies of the plugin and of the guest's programs, for as long as there is this guest: what
    /// somebody builds meanwhile in the same checkout is for other guests.
    copies: Made<Arc<Scratch>>,
    plugin_copy: Made<Option<PathBuf>>,
    runner: Made<PathBuf>,
    programs: Made<GuestPrograms>,
}

/// Machines that boot any kernel: a backend, and what its guests need beside the kernel.
#[derive(Clone, Debug)]
pub struct Guest {
    paths: Paths,
    backend: Arc<dyn Backend>,
    arch: Arch,
    parts: Arc<Parts>,
    device_tree: Option<PathBuf>,
}

impl Guest {
    /// A guest in QEMU for arm64.
    pub fn in_qemu(paths: &Paths) -> Self {
        Self::of_arch(paths, Arch::Arm64)
    }

    /// A guest in QEMU for an architecture.
    pub fn of_arch(paths: &Paths, arch: Arch) -> Self {
        Self::on(paths, arch, Arc::new(Qemu))
    }

    /// A guest on the machines of a backend, for an architecture. Nothing is built until
    /// something is run.
    pub fn on(paths: &Paths, arch: Arch, backend: Arc<dyn Backend>) -> Self {
        Self {
            paths: paths.clone(),
            backend,
            arch,
            parts: Arc::default(),
            device_tree: None,
        }
    }

    /// Builds what boots, the guest's programs and its root, as far as needed. [`Guest::run`] and
    /// [`Guest::share`] do so too.
    ///
    /// # Errors
    ///
    /// When one of them cannot be built.
    pub fn prepare(&self) -> Result<()> {
        self.root()?;
        self.prepare_programs()
    }

    /// Does [`Guest::prepare`] while `work` is done, such as building a kernel. Returns what
    /// `work` returns.
    ///
    /// # Errors
    ///
    /// That of `work`, and otherwise that of [`Guest::prepare`].
    pub fn prepare_beside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        thread::scope(|scope| {
            let prepared = scope.spawn(|| self.prepare());
            let done = work()?;
            prepared
                .join()
                .map_err(|_| anyhow!("preparing the guest panicked"))??;
            Ok(done)
        })
    }

    /// Builds what it takes to boot and run somebody else's program, beside a kernel and a root:
    /// the plugin if the backend takes it, and `guest-runner`.
    ///
    /// # Errors
    ///
    /// When one of them cannot be built.
    pub fn prepare_runner(&self) -> Result<()> {
        self.plugin_copy()?;
        self.runner().map(|_| ())
    }

    /// Builds what of [`Guest::prepare`] is a program: that of [`Guest::prepare_runner`], and the
    /// guest's programs.
    ///
    /// # Errors
    ///
    /// When one of them cannot be built.
    pub fn prepare_programs(&self) -> Result<()> {
        self.prepare_runner()?;
        self.programs().map(|_| ())
    }

    fn plugin(&self) -> Result<Option<PathBuf>> {
        let has_plugin = self.capabilities().plugin;
        self.parts.plugin.get(|| {
            let build = || cargo::plugin(&self.paths, self.arch);
            has_plugin.then(build).transpose()
        })
    }

    /// The plugin as it was built last, with its options for `machine`. `None` if the machine or the
    /// backend has none.
    ///
    /// # Errors
    ///
    /// When the plugin cannot be built.
    pub fn plugin_file(&self, machine: &MachineSpec) -> Result<Option<PluginFile>> {
        Ok(self.with_options(self.plugin()?, machine))
    }

    /// The plugin that every machine of this guest has, with its options for `machine`. `None` if
    /// the machine or the backend has none.
    ///
    /// # Errors
    ///
    /// When the plugin cannot be built or copied.
    pub fn own_plugin_file(&self, machine: &MachineSpec) -> Result<Option<PluginFile>> {
        Ok(self.with_options(self.plugin_copy()?, machine))
    }

    fn plugin_copy(&self) -> Result<Option<PathBuf>> {
        self.parts.plugin_copy.get(|| {
            let built = self.plugin()?;
            built.map(|built| self.own_copy(&built)).transpose()
        })
    }

    fn with_options(&self, plugin: Option<PathBuf>, machine: &MachineSpec) -> Option<PluginFile> {
        let plugin = plugin.zip(machine.plugin_options(self.arch));
        plugin.map(|(path, options)| PluginFile { path, options })
    }

    /// Path of a copy of a file, which is there for as long as this guest.
    fn own_copy(&self, file: &Path) -> Result<PathBuf> {
        let create = || Ok(Arc::new(files::scratch(&self.paths, "programs-")?));
        let dir = self.parts.copies.get(create)?;
        files::copy_into(file, dir.path())?;
        Ok(dir.path().join(file.file_name().unwrap_or_default()))
    }

    /// Path of the program `vm-session`.
    ///
    /// # Errors
    ///
    /// When the guest's programs cannot be built.
    pub fn session_program(&self) -> Result<PathBuf> {
        Ok(self.programs()?.session)
    }

    /// Paths of the programs for people: `branch-guest` and `branch-trace`.
    ///
    /// # Errors
    ///
    /// When they cannot be built.
    pub fn programs_for_people(&self) -> Result<[PathBuf; 2]> {
        let GuestPrograms { tests, tracer, .. } = self.programs()?;
        Ok([tests, tracer])
    }

    /// Copies the programs for people into a directory.
    ///
    /// # Errors
    ///
    /// When they cannot be built or copied.
    pub fn put_programs(&self, into: &Path) -> Result<()> {
        for program in self.programs_for_people()? {
            let name = program.file_name().context("a file has a name")?;
            fs::copy(&program, into.join(name))
                .with_context(|| format!("copying {}", program.display()))?;
        }
        Ok(())
    }

    /// A new directory to share with the guest, which has the programs for people in it.
    ///
    /// # Errors
    ///
    /// When the programs cannot be built, or the directory not be written.
    pub fn share(&self) -> Result<Share> {
        let share = Share::new(&self.paths)?;
        self.put_programs(share.path())?;
        Ok(share)
    }

    fn runner(&self) -> Result<PathBuf> {
        let build = || self.own_copy(&cargo::guest_runner(&self.paths, self.arch)?);
        self.parts.runner.get(build)
    }

    fn programs(&self) -> Result<GuestPrograms> {
        self.parts.programs.get(|| {
            let built = cargo::guest(&self.paths, self.arch)?;
            Ok(GuestPrograms {
                tests: self.own_copy(&built.tests)?,
                tracer: self.own_copy(&built.tracer)?,
                session: self.own_copy(&built.session)?,
            })
        })
    }

    /// The architecture of the guest.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// A description of the machines, for people who did not see the run.
    pub fn machine(&self) -> String {
        self.backend.description()
    }

    /// This guest with the device tree that its machines need, from the tree of a subject.
    /// Machines that have their own device tree need none.
    pub fn for_kernels_of(&self, subject: &Subject) -> Result<Self> {
        let name = self.backend.device_tree();
        let made = name.map(|name| subject.device_tree(name));
        Ok(Self {
            device_tree: made.transpose()?,
            ..self.clone()
        })
    }

    /// This guest, for kernels whose source is not here.
    ///
    /// # Errors
    ///
    /// When its machines need a device tree, which is built from a kernel's source.
    pub fn for_kernels_built_elsewhere(&self) -> Result<Self> {
        if let Some(name) = self.backend.device_tree() {
            bail!(
                "the machines of this lane need the device tree {name} from the kernel's source: \
                 --kernel does not have it, --kernel-src DIR does"
            );
        }
        Ok(self.clone())
    }

    /// Checks that the machine's program starts, and takes the options that it will be given.
    /// Returns what was seen.
    ///
    /// # Errors
    ///
    /// Those of [`Checks::program`], and when there is nothing to check on these machines.
    pub fn check_program(&self) -> Result<String> {
        self.checks()?.program()
    }

    /// Checks that the machine has a place for `kernel`. Returns what was seen.
    ///
    /// # Errors
    ///
    /// Those of [`Checks::memory`], and when there is nothing to check on these machines.
    pub fn check_memory(&self, kernel: &Kernel) -> Result<String> {
        let tree = self
            .device_tree
            .as_ref()
            .context("there is no device tree")?;
        self.checks()?.memory(&kernel.image, tree)
    }

    fn checks(&self) -> Result<&dyn Checks> {
        let name = self.backend.name();
        self.backend
            .checks()
            .with_context(|| format!("there is nothing to check on the lane {name}"))
    }

    /// What the machines of the guest can do.
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// Path on this machine of the directory that is the guest's root file system.
    ///
    /// # Errors
    ///
    /// When the root cannot be made.
    pub fn root(&self) -> Result<PathBuf> {
        let make = || guest_root::root(&self.paths, self.arch);
        self.parts.root.get(make)
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
            None => within(&self.root().ok()?, path.strip_prefix('/')?),
        }
    }

    /// Boots `kernel` on the machine, does the task and powers off.
    ///
    /// # Errors
    ///
    /// When the machine cannot be started, a log cannot be written, or the run is
    /// interrupted. How the task ended is in the [`Run`]: see [`status`].
    pub fn run(&self, kernel: &Kernel, machine: &MachineSpec, task: &Task<'_>) -> Result<Run> {
        task.share.put(&self.runner()?)?;
        let command = match &kernel.drivers {
            Some(drivers) => {
                task.share.put(drivers)?;
                let name = drivers.file_name().context("a file has a name")?;
                format!("insmod ./{}; {}", name.display(), task.command)
            }
            None => task.command.to_owned(),
        };
        task.share.write(COMMAND, &command)?;
        let mut step = Step::start(format!("boot, {}", task.name));
        let mut kernel_args = ["panic=-1", "oops=panic"].map(str::to_owned).to_vec();
        kernel_args.extend(speed::watchdogs());
        if kernel.has_checks {
            kernel_args.extend(speed::hung_tasks());
        }
        kernel_args.extend(machine.command_line());
        let plugin = self.own_plugin_file(machine)?;
        let firmware = machine.firmware.then(|| firmware::build(&self.paths));
        static BOOTS: AtomicU32 = AtomicU32::new(0);
        let console = console_log(&self.paths, task.name, &BOOTS)?;
        let boot = Boot {
            arch: self.arch,
            kernel: kernel.image.clone(),
            device_tree: self.device_tree.clone(),
            root: self.root()?,
            kernel_args,
            plugin,
            firmware: firmware.transpose()?,
            qemu_args: machine.all_qemu_args(),
            machine: machine.clone(),
            share: task.share.path().to_owned(),
            command,
            timeout: speed::scaled(task.timeout),
            console: console.to_owned(),
        };
        // The boot of an ordinary kernel by the host's time says how fast this machine is.
        let is_known = !kernel.has_checks && machine.icount.is_none();
        let is_known = is_known && self.capabilities().plugin && self.arch == Arch::Arm64;
        let mut power_on = Instant::now();
        let run = self.backend.run(&boot, &mut |progress| match progress {
            Progress::Line(line) => step.note(line),
            Progress::Starts => power_on = Instant::now(),
            Progress::CommandBegins => {
                if is_known {
                    speed::note(power_on.elapsed());
                }
                let run = Step::start(format!("run, {}", task.name));
                std::mem::replace(&mut step, run).done();
            }
        })?;
        if process::interrupted() {
            return Err(process::Interrupted.into());
        }
        fs::write(self.paths.log(&log_name(task.name)), &run.output)
            .context("keeping the guest's output")?;
        step.done();
        Ok(run)
    }
}

/// The log of a console. The console of each boot has a log of its own: `boots` counts them, and
/// those of another run of the same test are left alone.
fn console_log(paths: &Paths, name: &str, boots: &AtomicU32) -> Result<Log> {
    loop {
        let boot = boots.fetch_add(1, Ordering::Relaxed);
        let log = paths.log(&format!("console-{boot:02}-{}", log_name(name)));
        if let Some(log) = Log::if_free(log)? {
            return Ok(log);
        }
    }
}

/// The error for a guest that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Dead {
    /// Its kernel died.
    #[error("{0}")]
    Panicked(String),
    /// It took too long.
    #[error("{0}")]
    TimedOut(String),
}

/// The exit status of the command of a run, if the command came to its end.
///
/// # Errors
///
/// [`Dead`], when the kernel died or the time was up. Another error when the machine failed.
pub fn status(run: &Run) -> Result<i32> {
    let console = run.console.display();
    match &run.end {
        End::Exited(status) => Ok(*status),
        End::Panicked(message) => Err(Dead::Panicked(format!(
            "the guest's kernel died:\n    {}\nthe whole console: {console}",
            message.join("\n    ")
        ))
        .into()),
        End::TimedOut(last) => Err(Dead::TimedOut(format!(
            "the guest did not end in time and was stopped. The last lines of its console, or over ssh \
             of the command:\n    {}\nthe whole log: {console}",
            last.join("\n    ")
        ))
        .into()),
        End::Failed(why) => bail!("the machine failed: {why}\nthe log of its console, or of ssh: {console}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_write_two_logs_of_a_console() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::at(dir.path(), dir.path());
        // Each run counts its own boots.
        let log = || console_log(&paths, "twice", &AtomicU32::new(0)).unwrap();
        let (one, other) = (log(), log());
        assert_ne!(*one, *other);
    }
}
