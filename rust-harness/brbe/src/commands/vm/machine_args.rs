//! The options that describe the machine.

use std::path::{self, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use host::arch::Arch;
use host::paths::ensure_not_hidden;
use kernel_tests::x86;
use kernels::requirements::MachineNeeds;
use machines::brbe_cpus::BrbeCpus;
use machines::machine_spec::MachineSpec;
use machines::qemu;

/// How much memory a machine with firmware needs, in MiB: the kernel is behind the first 512.
const MEMORY_BEHIND_FIRMWARE: u32 = 768;

/// The machine.
#[derive(Args, Debug)]
pub(super) struct MachineArgs {
    /// How many CPUs the machine has, from 1 to 16; without this 2, and 4 with --brbe-cpus
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    cpus: Option<u8>,

    /// The machine's memory, in MiB: 128 or more, and 768 or more with --firmware; without this 1024
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(128..))]
    memory: Option<u32>,

    /// How many branch records each CPU has: 8, 16, 32 or 64, without this 64; on x86_64 8, 16 or 32,
    /// without this 32
    #[arg(long, value_name = "N", value_parser = records())]
    records: Option<u8>,

    /// Which CPUs have BRBE, such as 0,2-3. The others, at least one, are of another kind, with a PMU
    /// of their own
    #[arg(long, value_name = "LIST", conflicts_with = "no_brbe")]
    brbe_cpus: Option<BrbeCpus>,

    /// No CPU has branch records
    #[arg(long, conflicts_with = "records")]
    no_brbe: bool,

    /// Start the kernel at EL2, where it stays (VHE)
    #[arg(long)]
    vhe: bool,

    /// Start with firmware at EL3, which starts the kernel: a build of Trusted Firmware-A for QEMU,
    /// by the path of its directory. Documentation/firmware.md says how it has to be built
    #[arg(long, value_name = "DIR")]
    firmware: Option<PathBuf>,

    /// CPUs idle by their firmware, in a state that loses what they hold, as far as the kernel knows
    #[arg(long, requires = "firmware")]
    idle_states: bool,

    /// Interrupts of the PMU are pseudo-NMIs
    #[arg(long)]
    pseudo_nmi: bool,

    /// The architecture: arm64, with BRBE, or x86_64, with LBRs
    #[arg(long, value_name = "ARCH", default_value = "arm64", value_parser = arch())]
    arch: Arch,

    /// Words for the kernel's command line. On arm64 they follow kpti=off, and kpti=on undoes that
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    append: Vec<String>,

    /// An argument for QEMU; given several times, one after the other
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    qemu_arg: Vec<String>,

    /// Give the machine a network, by which it reaches what this host reaches
    #[arg(long)]
    net: bool,

    /// Have QEMU listen for gdb on a port of this host, and print the command that starts gdb there.
    /// The machine does not wait for gdb: with --qemu-arg -S it does, before its first instruction.
    /// The kernel has nokaslr on its command line, so its addresses are those in vmlinux
    #[arg(long)]
    gdb: bool,

    /// Have the plugin write a line for each record, freeze, reset and access to BRBE into this file
    /// (arm64 alone)
    #[arg(long, value_name = "FILE", conflicts_with = "no_brbe")]
    brbe_log: Option<PathBuf>,

    /// Have the plugin write what it has counted into this file, as JSON, when the machine ends (arm64
    /// alone)
    #[arg(long, value_name = "FILE", conflicts_with = "no_brbe")]
    stats: Option<PathBuf>,
}

impl MachineArgs {
    /// The architecture of its CPUs.
    pub(super) fn arch(&self) -> Arch {
        self.arch
    }

    /// What it needs of its kernel.
    pub(super) fn needs(&self) -> MachineNeeds {
        MachineNeeds {
            has_session: true,
            has_network: self.net,
            has_pseudo_nmi: self.pseudo_nmi,
            ..MachineNeeds::of_tests(self.arch)
        }
    }

    /// Whether it has a network.
    pub(super) fn has_network(&self) -> bool {
        self.net
    }

    /// Path of the directory with its firmware, if it has any.
    ///
    /// # Errors
    ///
    /// When there is no such directory.
    pub(super) fn firmware(&self) -> Result<Option<PathBuf>> {
        self.firmware.as_deref().map(qemu::firmware_in).transpose()
    }

    /// Whether gdb is to reach its CPUs.
    pub(super) fn has_gdb(&self) -> bool {
        self.gdb
    }

    /// The machine.
    ///
    /// # Errors
    ///
    /// When an option is of another architecture, the plugin cannot be told a file's name, or the
    /// tools hide that file.
    pub(super) fn spec(&self) -> Result<MachineSpec> {
        let of_arm = [
            ("--brbe-cpus", self.brbe_cpus.is_some()),
            ("--vhe", self.vhe),
            ("--firmware", self.firmware.is_some()),
            ("--idle-states", self.idle_states),
            ("--pseudo-nmi", self.pseudo_nmi),
            ("--brbe-log", self.brbe_log.is_some()),
            ("--stats", self.stats.is_some()),
            ("--records 64", self.records == Some(64)),
        ];
        let other = of_arm.iter().find(|(_, is_given)| *is_given);
        if let (Arch::X86_64, Some((option, _))) = (self.arch, other) {
            bail!("{option} is for arm64 alone");
        }
        let ordinary = match (self.arch, &self.brbe_cpus) {
            (Arch::X86_64, _) => x86::emulated(),
            (Arch::Arm64, Some(_)) => MachineSpec::heterogeneous(),
            (Arch::Arm64, None) => MachineSpec::default(),
        };
        let memory_mib = self.memory.unwrap_or(ordinary.memory_mib);
        ensure!(
            self.firmware.is_none() || memory_mib >= MEMORY_BEHIND_FIRMWARE,
            "the firmware starts the kernel in the middle of a machine's first GiB: --memory \
             {MEMORY_BEHIND_FIRMWARE} or more"
        );
        let mut kernel_args = self.append.clone();
        let mut qemu_args = ordinary.qemu_args.clone();
        if self.gdb {
            kernel_args.push("nokaslr".to_owned());
        }
        if self.net {
            let device = "virtio-net-pci,netdev=net,romfile=";
            let words = ["-netdev", "user,id=net", "-device", device];
            qemu_args.extend(words.map(str::to_owned));
        }
        qemu_args.extend(self.qemu_arg.clone());
        let mut options = Vec::new();
        for (option, file) in [("log", &self.brbe_log), ("stats", &self.stats)] {
            let Some(file) = file else { continue };
            ensure_not_hidden(file)?;
            let file = path::absolute(file).context("the path of a file")?;
            let file = file.display().to_string();
            ensure!(
                !file.contains(','),
                "{file}: QEMU takes no comma in the name of a plugin's file"
            );
            options.push(format!("{option}={file}"));
        }
        Ok(MachineSpec {
            cpus: self.cpus.unwrap_or(ordinary.cpus),
            memory_mib,
            vhe: self.vhe,
            brbe_cpus: self.brbe_cpus.clone(),
            pseudo_nmi: self.pseudo_nmi,
            idle_states: self.idle_states,
            records: self.records,
            plugin: (!self.no_brbe).then_some(options),
            qemu_args,
            kernel_args,
            ..ordinary
        })
    }
}

fn records() -> impl TypedValueParser<Value = u8> {
    let names = PossibleValuesParser::new(["8", "16", "32", "64"]);
    names.try_map(|name| name.parse::<u8>())
}

fn arch() -> impl TypedValueParser<Value = Arch> {
    let names = [Arch::Arm64, Arch::X86_64].map(Arch::kernel);
    PossibleValuesParser::new(names).map(|name| {
        if name == Arch::X86_64.kernel() {
            Arch::X86_64
        } else {
            Arch::Arm64
        }
    })
}
