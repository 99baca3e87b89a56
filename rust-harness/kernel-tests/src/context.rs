//! What a test runs on: the kernel of a commit, and the guests that it is booted in.

use std::time::Duration;

use anyhow::Result;

use host::cargo;
use host::paths::Paths;
use kernels::kernel::Kernel;
use kernels::subject::{Configuration, Subject};
use machines::backend::Run;
use machines::guest::{self, Guest, Task};
use machines::machine_spec::MachineSpec;
use machines::share::Share;
use report::Artefact;

/// The kernel of a commit of a subject, and the guests that it is booted in.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Where files are.
    pub paths: &'a Paths,
    /// Boots kernels.
    pub guest: &'a Guest,
    /// The base and the series that the commit belongs to.
    pub subject: &'a Subject,
    /// The commit: of the series, or one with a mutant on top.
    pub commit: String,
    /// The name of the kernel in messages and logs: `7.3.4 patched`.
    pub title: String,
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
            subject,
            commit: commit.to_owned(),
            title,
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
    /// When the kernel cannot be built.
    pub fn kernel_as(&self, configuration: Configuration) -> Result<Kernel> {
        let builder = self.subject.builder_of(configuration);
        self.subject.kernel(builder, &self.commit, &self.title)
    }

    /// The kernel in a configuration, as an artefact.
    pub fn kernel_artefact(&self, configuration: Configuration) -> Artefact<'a> {
        let context = self.clone();
        let suffix = self.subject.builder_of(configuration).fragments_suffix();
        let name = format!("kernel {}{suffix}", self.title);
        let kernel = Artefact::new(name, move || context.kernel_as(configuration).map(|_| ()));
        kernel.holding(self.subject.tree.lock())
    }

    /// What a guest needs beside a kernel, as artefacts.
    pub fn guest_artefacts(&self) -> [Artefact<'a>; 2] {
        let guest = self.guest;
        let arch = guest.arch().kernel();
        let programs = Artefact::new(format!("plugin and guest's programs, {arch}"), || {
            guest.prepare_programs()
        });
        let root = Artefact::new(format!("guest's root, {arch}"), || guest.root().map(|_| ()));
        [programs.holding(cargo::TARGET), root]
    }

    /// What it takes to boot the kernel in a configuration, as artefacts.
    pub fn boot_artefacts(&self, configuration: Configuration) -> Vec<Artefact<'a>> {
        let kernel = self.kernel_artefact(configuration);
        self.guest_artefacts().into_iter().chain([kernel]).collect()
    }

    /// An empty directory to share with a guest.
    ///
    /// # Errors
    ///
    /// When the directory cannot be created.
    pub fn share(&self) -> Result<Share> {
        Share::new(self.paths)
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
