//! `brbe vm`: a shell or a command in a machine with branch records.

mod gdb;
mod machine_args;
mod shares;

use std::fs;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

use super::booted::BootedArgs;
use host::paths::{Paths, ensure_not_hidden};
use host::progress;
use kernels::guest_root::{self, PackageName};
use machine_args::MachineArgs;
use machines::guest::Guest;
use machines::share::Share;
use shares::ShareArg;
use vm::run::{END_KEY_NAME, Ended};
use vm::{HostDirectory, Machine};
use vm_session::PROGRAMS;
use vm_session::config::{SessionConfig, SharedDirectory};

/// A shell, or a command, in a machine with branch records
///
/// Boots the patched kernel in QEMU, whose CPUs have BRBE by this project's plugin, and starts a
/// shell there. The root can be written to, and nothing of it is kept. branch-guest, branch-trace
/// and perf are there. A command behind `--` is run instead: its standard streams are those of
/// this program, and so is its exit status.
///
/// `./brbe vm --records 16 -- perf record --branch-filter any -o /tmp/data true`
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Vm {
    #[command(flatten)]
    booted: BootedArgs,

    /// The modules of the kernel of --kernel: the directory that they were installed into
    /// (INSTALL_MOD_PATH), which the guest sees as /lib/modules
    #[arg(long, value_name = "DIR", requires = "image")]
    modules: Option<PathBuf>,

    #[command(flatten)]
    machine: MachineArgs,

    /// Show a directory to the guest, as /mnt/NAME: it can be written to, unless :ro follows. A command
    /// begins in the first one. More than once for more
    #[arg(long = "share", value_name = "DIR[:ro]")]
    shares: Vec<ShareArg>,

    /// Build the BPF selftests of the kernel's own tree that are about branch records and perf
    /// events, and show them to the guest as /mnt/selftests: `./test_progs -v` there runs them.
    /// Without --share the command begins there
    #[arg(long, conflicts_with = "image")]
    selftests: bool,

    /// Take this directory for the guest's root. The guest does not write to it
    #[arg(long, value_name = "DIR", conflicts_with = "packages")]
    root: Option<PathBuf>,

    /// More packages of Debian's for the guest's root, such as strace,bpftrace. They are
    /// extracted, and none of their scripts is run
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    packages: Vec<PackageName>,

    /// Boot nothing: write what QEMU needs into this directory, and print the command that boots the
    /// machine on a terminal, with a QEMU 11.1 or later, such as that of `./brbe shell`
    #[arg(long, value_name = "DIR")]
    dry_run: Option<PathBuf>,

    /// The command and its arguments. Without one: a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const HELP: &str = "\
In the shell, all keys go to the guest, Ctrl-C too; Ctrl-] ends the machine.

Exit status: that of the command or the shell; 0 if Ctrl-] ended the machine; 141 if nobody reads
what the command prints any more, as a shell says of a command that ended so; 255 if the guest's
kernel died. What keeps the machine from running is 2 or 3, as elsewhere.";

/// Path of a new log for a console. Several machines may run at once.
fn console(paths: &Paths) -> Result<PathBuf> {
    let dir = paths.home("logs");
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut name = tempfile::Builder::new();
    let file = name.prefix("console-vm-").suffix(".log").tempfile_in(&dir);
    let file = file.with_context(|| format!("creating a log in {}", dir.display()))?;
    file.into_temp_path().keep().context("keeping a log")
}

/// The exit status for a machine that was ended since nobody reads what its command prints any
/// more: shells have it for a command that SIGPIPE ended. The command may not have done its work.
const UNREAD: u8 = 128 + 13;

/// The exit status for a machine that died, which is also ssh's for a connection that did.
const DIED: u8 = 255;

/// The mount tag of these programs.
const PROGRAMS_TAG: &str = "programs";

impl Vm {
    /// Runs the command. Returns its exit status.
    ///
    /// # Errors
    ///
    /// When the kernel or the guest cannot be built, or the machine cannot be started.
    pub fn run(&self, paths: &Paths) -> Result<ExitCode> {
        self.directories_of_user().try_for_each(ensure_not_hidden)?;
        // Standard error is the command's.
        progress::hide_short_steps();
        let arch = self.machine.arch();
        let mut spec = self.machine.spec()?;
        let guest = Guest::of_arch(paths, arch);
        let booted = guest.prepare_beside(|| self.booted.kernel(paths, self.machine.needs()))?;
        let selftests = self
            .selftests
            .then(|| booted.selftests(paths))
            .transpose()?;
        if self.machine.has_gdb() {
            let scripts = booted.gdb_scripts()?;
            let stub = gdb::Stub::on_free_port()?;
            spec.qemu_args.extend(stub.qemu_args());
            let vmlinux = booted.kernel.vmlinux.as_deref();
            progress::say(&stub.invitation(vmlinux, scripts.as_deref()).to_string());
        }
        let share = Share::new(paths)?;
        let programs = match &self.dry_run {
            Some(dir) => &dir.join("programs"),
            None => share.path(),
        };
        fs::create_dir_all(programs).with_context(|| format!("creating {}", programs.display()))?;
        guest.put_programs(programs)?;
        let machine = Machine {
            arch,
            kernel: booted.kernel.image,
            root: self.root(paths, &guest)?,
            program: guest.session_program()?,
            firmware: self.machine.firmware()?,
            plugin: guest.plugin_file(&spec)?,
            directories: self.directories(programs, selftests)?,
            spec,
        };
        let session = self.session(&machine.directories);
        if let Some(dir) = &self.dry_run {
            super::print_text(&vm::dry_run(&machine, &session, dir)?.to_string())?;
            return Ok(ExitCode::SUCCESS);
        }
        let console = console(paths)?;
        let ended = vm::run::run(&machine, &session, &booted.title, &console)?;
        Ok(match ended {
            Ended::Exited(status) => ExitCode::from(status),
            Ended::ByKey => {
                progress::say(&format!(
                    "\r\nbrbe: the machine was ended by {END_KEY_NAME}"
                ));
                ExitCode::SUCCESS
            }
            Ended::Unread => ExitCode::from(UNREAD),
            Ended::Died(report) => {
                progress::say(&format!(
                    "brbe: the guest's kernel died:\n    {}",
                    report.join("\n    ")
                ));
                progress::say(&format!("the whole console: {}", console.display()));
                ExitCode::from(DIED)
            }
        })
    }

    /// The directories that the user names for the guest to see, or to be written to.
    fn directories_of_user(&self) -> impl Iterator<Item = &Path> {
        let shares = self.shares.iter().map(ShareArg::path);
        shares
            .chain(self.root.as_deref())
            .chain(self.dry_run.as_deref())
    }

    /// Path of the guest's root: the user's own, or this project's.
    fn root(&self, paths: &Paths, guest: &Guest) -> Result<PathBuf> {
        match &self.root {
            Some(root) => root
                .canonicalize()
                .with_context(|| format!("looking for {}", root.display())),
            None if self.packages.is_empty() => guest.root(),
            None => guest_root::root_with(paths, guest.arch(), &self.packages),
        }
    }

    /// The directories that the guest sees: those that the user names, this project's programs,
    /// which are in the directory `programs`, the selftests, and the kernel's modules.
    fn directories(
        &self,
        programs: &Path,
        selftests: Option<PathBuf>,
    ) -> Result<Vec<HostDirectory>> {
        let programs = HostDirectory {
            path: path::absolute(programs).context("the path of a directory")?,
            seen_as: SharedDirectory {
                tag: PROGRAMS_TAG.to_owned(),
                path: PROGRAMS.to_owned(),
                is_read_only: true,
            },
        };
        let mut all = shares::of_user(&self.shares)?;
        all.extend(selftests.map(shares::of_selftests));
        all.push(programs);
        all.extend(
            self.modules
                .as_deref()
                .map(shares::of_modules)
                .transpose()?,
        );
        shares::ensure_apart(&all)?;
        Ok(all)
    }

    /// The session. It begins in the first of the directories that the user asks for, which come
    /// before the one with the programs.
    fn session(&self, directories: &[HostDirectory]) -> SessionConfig {
        let terminal = std::env::var("TERM").unwrap_or_else(|_| "linux".to_owned());
        let first = directories
            .first()
            .filter(|one| one.seen_as.tag != PROGRAMS_TAG);
        SessionConfig {
            command: self.command.clone(),
            environment: vm::environment(&terminal),
            directory: first.map_or("/root", |one| &one.seen_as.path).to_owned(),
            shares: Vec::new(),
            has_network: self.machine.has_network(),
            streams: vm::run::streams(self.command.is_empty()),
            ..SessionConfig::default()
        }
    }
}
