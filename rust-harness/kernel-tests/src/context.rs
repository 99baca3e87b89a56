//! What a test runs on: a kernel, and the guests that it is booted in.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, anyhow};

use host::arch::Arch;
use host::cargo;
use host::paths::Paths;
use kernels::firmware;
use kernels::given::GivenKernel;
use kernels::kernel::Kernel;
use kernels::subject::{Configuration, Subject};
use kernels::variant::Variant;
use machines::backend::Run;
use machines::guest::{self, Guest, Task};
use machines::machine_spec::MachineSpec;
use machines::share::Share;
use report::Artefact;

/// Why something cannot be done that needs more of a kernel than its files.
pub(crate) const NO_SOURCE: &str =
    "it needs the kernel's source, and the kernel was built elsewhere";

/// Where a kernel comes from.
#[derive(Clone, Debug)]
enum Origin<'a> {
    /// It is built.
    Commit(Revision<'a>),
    /// It was built elsewhere.
    Given(&'a GivenKernel),
}

/// The commit that a kernel is built from: of a series, or one with a mutant on top.
#[derive(Clone, Debug)]
pub struct Revision<'a> {
    /// The base and the series that the commit belongs to.
    pub subject: &'a Subject,
    /// The commit.
    pub commit: String,
}

/// A kernel, and the guests that it is booted in.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Where files are.
    pub paths: &'a Paths,
    /// Boots kernels.
    pub guest: &'a Guest,
    origin: Origin<'a>,
    /// The kernel, where it is another one than [`Context::origin`] says.
    other: Option<Kernel>,
    /// The name of the kernel in messages and logs: `7.3.4 patched`.
    pub title: String,
    /// The address of the function that takes snapshots, once the kernel has told it.
    pub(crate) told_entry: Arc<Mutex<Option<u64>>>,
}

impl<'a> Context<'a> {
    /// The kernel with all patches of `subject`.
    pub fn patched(paths: &'a Paths, guest: &'a Guest, subject: &'a Subject) -> Self {
        let title = subject.title(true);
        Self::at(paths, guest, subject, subject.patched(), title)
    }

    /// The kernel of any commit, which is called `title`.
    pub fn at(
        paths: &'a Paths,
        guest: &'a Guest,
        subject: &'a Subject,
        commit: &str,
        title: String,
    ) -> Self {
        Self {
            paths,
            guest,
            origin: Origin::Commit(Revision {
                subject,
                commit: commit.to_owned(),
            }),
            other: None,
            title,
            told_entry: Arc::default(),
        }
    }

    /// A kernel that was built elsewhere.
    pub fn given(paths: &'a Paths, guest: &'a Guest, given: &'a GivenKernel) -> Self {
        Self {
            paths,
            guest,
            origin: Origin::Given(given),
            other: None,
            title: given.title.clone(),
            told_entry: Arc::default(),
        }
    }

    /// This context with another kernel in its place, which is called `title`: its drivers are a
    /// module, or not those of the series.
    #[must_use]
    pub fn with_kernel(&self, kernel: Kernel, title: String) -> Self {
        Self {
            other: Some(kernel),
            title,
            told_entry: Arc::default(),
            ..self.clone()
        }
    }

    /// The commit that the kernel is built from.
    ///
    /// # Errors
    ///
    /// When the kernel was built elsewhere.
    pub fn revision(&self) -> Result<&Revision<'a>> {
        match &self.origin {
            Origin::Commit(revision) => Ok(revision),
            Origin::Given(_) => Err(anyhow!("{}: {NO_SOURCE}", self.title)),
        }
    }

    /// The base and the series that the kernel is built from.
    ///
    /// # Errors
    ///
    /// When the kernel was built elsewhere.
    pub fn subject(&self) -> Result<&'a Subject> {
        Ok(self.revision()?.subject)
    }

    /// The series that the kernel is tested as. A kernel that was built elsewhere has, or should
    /// have, the snapshot.
    pub fn variant(&self) -> Variant {
        match &self.origin {
            Origin::Commit(revision) => revision.subject.variant,
            Origin::Given(_) => Variant::Snapshot,
        }
    }

    /// Whether the kernel has the tests that run once, for one base.
    pub fn is_tested_first(&self) -> bool {
        match &self.origin {
            Origin::Commit(revision) => revision.subject.is_default,
            Origin::Given(_) => true,
        }
    }

    /// Whether the implementation of the snapshot is that of a series of this project.
    pub fn is_ours(&self) -> bool {
        match &self.origin {
            Origin::Commit(revision) => revision.subject.is_ours(),
            Origin::Given(_) => false,
        }
    }

    /// The kernel, if it was built elsewhere.
    pub fn built_elsewhere(&self) -> Option<&'a GivenKernel> {
        match &self.origin {
            Origin::Commit(_) => None,
            Origin::Given(given) => Some(given),
        }
    }

    /// The kernel in the ordinary configuration, built unless the cache has it.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built.
    pub fn kernel(&self) -> Result<Kernel> {
        self.kernel_as(Configuration::Ordinary)
    }

    /// The kernel in a configuration, built unless the cache has it.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, or was built elsewhere in another configuration.
    pub fn kernel_as(&self, configuration: Configuration) -> Result<Kernel> {
        if let (Some(other), Configuration::Ordinary) = (&self.other, configuration) {
            return Ok(other.clone());
        }
        if let (Origin::Given(given), Configuration::Ordinary) = (&self.origin, configuration) {
            return Ok(given.kernel.clone());
        }
        let Revision { subject, commit } = self.revision()?;
        subject.kernel(subject.builder_of(configuration), commit, &self.title)
    }

    /// The kernel in a configuration, as an artefact.
    pub fn kernel_artefact(&self, configuration: Configuration) -> Artefact<'a> {
        self.made_of_source("kernel", configuration, move |context| {
            context.kernel_as(configuration).map(|_| ())
        })
    }

    /// What `make` makes of the kernel's source tree in a configuration, as an artefact. `what`
    /// it is stands before the kernel's title.
    pub fn made_of_source(
        &self,
        what: &str,
        configuration: Configuration,
        make: impl Fn(&Self) -> Result<()> + Send + Sync + 'a,
    ) -> Artefact<'a> {
        let (context, title) = (self.clone(), &self.title);
        let make = move || make(&context);
        match &self.origin {
            Origin::Given(_) => Artefact::new(format!("{what} {title}"), make),
            Origin::Commit(Revision { subject, .. }) => {
                let suffix = subject.builder_of(configuration).fragments_suffix();
                let made = Artefact::new(format!("{what} {title}{suffix}"), make);
                made.holding(subject.tree.lock())
            }
        }
    }

    /// What a guest needs beside a kernel, as artefacts.
    pub fn guest_artefacts(&self) -> [Artefact<'a>; 2] {
        let guest = self.guest;
        let arch = guest.arch().kernel();
        let programs = match guest.arch() {
            Arch::Arm64 => Artefact::new(format!("plugin and guest's programs, {arch}"), || {
                guest.prepare_programs()
            }),
            // What is tested there are the kernel's own selftests.
            Arch::X86_64 => Artefact::new(format!("plugin and guest-runner, {arch}"), || {
                guest.prepare_runner()
            }),
        };
        let root = Artefact::new(format!("guest's root, {arch}"), || guest.root().map(|_| ()));
        [programs.holding(cargo::TARGET), root]
    }

    /// Firmware that starts kernels in QEMU, as an artefact.
    pub fn firmware_artefact(&self) -> Artefact<'a> {
        let paths = self.paths;
        Artefact::new("firmware for QEMU", || firmware::build(paths).map(|_| ()))
    }

    /// What it takes to boot the kernel in a configuration, as artefacts.
    pub fn boot_artefacts(&self, configuration: Configuration) -> Vec<Artefact<'a>> {
        let kernel = self.kernel_artefact(configuration);
        self.guest_artefacts().into_iter().chain([kernel]).collect()
    }

    /// A directory to share with the guest: see [`Guest::share`].
    ///
    /// # Errors
    ///
    /// Those of [`Guest::share`].
    pub fn share(&self) -> Result<Share> {
        self.guest.share()
    }

    /// Boots the kernel in the ordinary configuration on `machine`, runs `command` beside
    /// what is in `share`, and powers off. `what` is done there: it is in the names of the
    /// logs, before the kernel's title. The run has the default limit.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, the machine cannot be started, or the run is
    /// interrupted.
    pub fn run(
        &self,
        machine: &MachineSpec,
        what: &str,
        command: &str,
        share: &Share,
    ) -> Result<Run> {
        self.run_within(guest::TIMEOUT, machine, what, command, share)
    }

    /// As [`Context::run`], with a limit for the time from power-on to power-off.
    ///
    /// # Errors
    ///
    /// Those of [`Context::run`].
    pub fn run_within(
        &self,
        timeout: Duration,
        machine: &MachineSpec,
        what: &str,
        command: &str,
        share: &Share,
    ) -> Result<Run> {
        let name = format!("{what} on {}", self.title);
        let task = Task {
            name: &name,
            command,
            share,
            timeout,
        };
        self.guest.run(&self.kernel()?, machine, &task)
    }
}
