//! Programs run in the guest, on one kernel.

use std::fs::{self, File};
use std::io::{self, Read as _, Take};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::OFlag;

use crate::arch::Arch;
use crate::cache::{self, Key};
use crate::cargo;
use crate::commands::Subject;
use crate::image;
use crate::kernel::Kernel;
use crate::machine::{Backend, Boot, Capabilities, End, Plugin, Qemu, Run, SHARE};
use crate::places::Places;
use crate::progress::Step;

/// From power-on to power-off. A boot takes 10 to 20 s here; a machine with
/// less to offer gets its share.
const TIMEOUT: Duration = Duration::from_secs(180);

/// An empty file in a shared directory: whoever runs there is to come to an end, and to
/// tell what there is until then.
pub const STOP: &str = ".brbe-stop";

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
    places: Places,
    backend: Arc<dyn Backend>,
    arch: Arch,
    root: PathBuf,
    /// What gives QEMU's processors branch records.
    plugin: PathBuf,
    programs: [PathBuf; 2],
    device_tree: Option<PathBuf>,
}

/// The directory that one run shares with the guest, removed afterwards.
#[derive(Debug)]
pub struct Share(tempfile::TempDir);

impl Share {
    /// An empty one, below the caches.
    pub fn new(places: &Places) -> Result<Self> {
        let dir = places.home("run");
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let share = tempfile::Builder::new().prefix("share-").tempdir_in(&dir);
        Ok(Self(share.with_context(|| {
            format!("creating a directory in {}", dir.display())
        })?))
    }

    /// Where it is on this side.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Copies a file into it, by its own name.
    pub fn put(&self, file: &Path) -> Result<()> {
        let name = file.file_name().context("a file has a name")?;
        fs::copy(file, self.path().join(name))
            .with_context(|| format!("copying {}", file.display()))?;
        Ok(())
    }

    /// Opens what a guest has left there, by its name: see [`left`].
    ///
    /// # Errors
    ///
    /// As [`left`].
    pub fn open(&self, name: &str, most: u64) -> Result<Take<File>> {
        left(&self.path().join(name), most)
    }

    /// Asks what runs there to stop, as Ctrl-C would: see [`STOP`].
    ///
    /// # Errors
    ///
    /// When the directory cannot be written to.
    pub fn stop(&self) -> Result<()> {
        // Nothing that a guest has put there is written to.
        match File::create_new(self.path().join(STOP)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(error).with_context(|| format!("creating {STOP}"))
            }
            _ => Ok(()),
        }
    }
}

/// Opens a file that a guest has left in a [`Share`]. The guest is not trusted: a link could
/// lead anywhere, a FIFO or a device never end, and a file fill the memory.
///
/// # Errors
///
/// When there is none, or it is no file of at most so many bytes.
pub fn left(path: &Path, most: u64) -> Result<Take<File>> {
    let name = path.file_name().unwrap_or_default().display();
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .with_context(|| format!("the guest left no file {name}"))?;
    let data = file
        .metadata()
        .with_context(|| format!("looking at the guest's {name}"))?;
    ensure!(data.is_file(), "the guest's {name} is no regular file");
    ensure!(
        data.len() <= most,
        "the guest's {name} has {} bytes, and {most} are read",
        data.len()
    );
    Ok(file.take(most))
}

impl Guest {
    /// What its machines are, for those who were not there.
    pub fn machine(&self) -> String {
        self.backend.told()
    }

    /// Builds the plugin, the guest's programs and its root, as far as needed.
    pub fn prepare(places: &Places) -> Result<Self> {
        Self::on(places, Arch::Arm64, Arc::new(Qemu))
    }

    /// The same for machines of another kind.
    pub fn on(places: &Places, arch: Arch, backend: Arc<dyn Backend>) -> Result<Self> {
        let plugin = match backend.capabilities().plugin {
            true => cargo::plugin(places, arch)?,
            false => PathBuf::new(),
        };
        let programs = cargo::guest(places, arch)?;
        Ok(Self {
            places: places.clone(),
            backend,
            arch,
            root: root(places, arch)?,
            plugin,
            programs,
            device_tree: None,
        })
    }

    /// One that is not there yet, and that nothing may be run in: for lists.
    pub fn planned(places: &Places, arch: Arch, backend: Arc<dyn Backend>) -> Self {
        Self {
            places: places.clone(),
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
        if crate::exec::interrupted() {
            return Err(crate::exec::Interrupted.into());
        }
        fs::write(self.places.log(&log_name(name)), &run.output)
            .context("keeping the guest's output")?;
        step.done();
        Ok(run)
    }

    /// The console of each boot has a log of its own.
    fn console(&self, name: &str) -> Result<PathBuf> {
        static BOOT: AtomicU32 = AtomicU32::new(0);
        let boot = BOOT.fetch_add(1, Ordering::Relaxed);
        crate::exec::fresh(
            self.places
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

/// The guest's root file system.
fn root(places: &Places, arch: Arch) -> Result<PathBuf> {
    let list = places.repo("vm-images/guest/packages");
    let text = fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let packages = image::packages(&text);
    let preferences = places.repo("vm-images/guest/preferences.pref");
    let key = Key::new("guest root 5")
        .with(arch.debian())
        .with(packages.join(" "))
        .with_file(&preferences)?;
    cache::entry(places, "guest-root", &key, |into| {
        let mirror = std::env::var("BRBE_MIRROR").context(
            "BRBE_MIRROR is not set: start this program with ./brbe, which finds apt's mirror",
        )?;
        let log = crate::exec::fresh(places.log("guest-root"))?;
        let step = Step::start(format!("make the guest's root, {}", arch.debian()));
        image::make_root(arch, &packages, &preferences, &mirror, into, &log)?;
        step.done();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    fn share() -> (tempfile::TempDir, Share) {
        let home = tempfile::tempdir().unwrap();
        let share = Share::new(&Places::at(home.path(), home.path())).unwrap();
        (home, share)
    }

    #[test]
    fn only_a_file_that_is_not_too_large_is_read() {
        let (_home, share) = share();
        let at = |name: &str| share.path().join(name);
        fs::write(at("file"), "four").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let read = |name: &str, most| io::read_to_string(share.open(name, most).unwrap());
        let said = |name: &str, most| {
            let opened = share.open(name, most);
            format!("{:#}", opened.unwrap_err())
        };
        assert_eq!(read("file", 4).unwrap(), "four");
        assert!(said("file", 3).contains("has 4 bytes, and 3 are read"));
        for name in ["link", "device", "nothing"] {
            let said = said(name, 4);
            assert!(said.contains(&format!("no file {name}: ")), "{said}");
        }
        for name in ["fifo", "directory"] {
            let said = said(name, 4);
            assert!(
                said.contains(&format!("{name} is no regular file")),
                "{said}"
            );
        }
    }

    #[test]
    fn to_stop_is_asked_for_once_and_writes_to_nothing() {
        let (home, share) = share();
        share.stop().unwrap();
        share.stop().unwrap();
        assert!(share.path().join(STOP).is_file());
        fs::remove_file(share.path().join(STOP)).unwrap();
        let other = home.path().join("other");
        std::os::unix::fs::symlink(&other, share.path().join(STOP)).unwrap();
        share.stop().unwrap();
        assert!(!other.exists());
    }
}
