//! The machine that a test needs, whichever backend makes it, and what the machines of a
//! backend can be.

use serde::{Deserialize, Serialize};

use crate::brbe_cpus::BrbeCpus;
use host::arch::Arch;

/// A word for the kernel's command line that has Linux take the PMU's interrupts as
/// pseudo-NMIs.
pub const PSEUDO_NMI: &str = "irqchip.gicv3_pseudo_nmi=1";

/// What the machines of a backend can do, as far as tests need it. A program names its
/// capabilities in JSON; one that it does not name is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capabilities {
    /// Whether the machines are QEMU with this project's plugin. Then their CPUs have as many
    /// records as a test asks for, deterministic time is possible, and the plugin logs what
    /// it saw.
    pub plugin: bool,
    /// How many CPUs a machine can have at the most.
    pub cpus: u8,
    /// How many records each CPU with BRBE has.
    pub records: u8,
    /// Whether kernels can run at EL2.
    pub vhe: bool,
    /// Whether interrupts can be pseudo-NMIs.
    pub pseudo_nmi: bool,
    /// Whether a machine can have heterogeneous CPUs.
    pub heterogeneous: bool,
}

impl Capabilities {
    /// Why what needs the plugin cannot run on these machines; `None` if it can.
    pub fn without_plugin(&self) -> Option<String> {
        (!self.plugin).then(|| "it needs QEMU with the plugin".to_owned())
    }
}

/// The machine that a run needs. Tests with equal specifications can share a boot.
///
/// The fields that are serialised are part of what a backend that is a program reads
/// (`Documentation/lanes.md`). The others reach it as words of the kernel's command line or
/// arguments of QEMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSpec {
    /// The number of CPUs.
    pub cpus: u8,
    /// The size of the memory, in MiB.
    pub memory_mib: u32,
    /// Whether the kernel starts at EL2. It runs there (VHE), unless its command line says otherwise.
    #[serde(rename = "virtualization")]
    pub vhe: bool,
    /// Whether firmware at EL3 starts the kernel. Else it is QEMU that does.
    #[serde(default, rename = "has_firmware")]
    pub firmware: bool,
    /// Which CPUs have BRBE on a machine with heterogeneous CPUs. The other CPUs are of another
    /// kind, with another PMU. `None`: all CPUs are of one kind.
    pub brbe_cpus: Option<BrbeCpus>,
    /// Whether Linux has no PMU until the guest asks for it. All CPUs are of one kind then.
    #[serde(default)]
    pub late_pmu: bool,
    /// Whether CPUs idle by their firmware, in a state that loses what they hold, as far as Linux
    /// knows. For machines with firmware at EL3.
    #[serde(default)]
    pub idle_states: bool,
    /// Whether the PMU's interrupt is a pseudo-NMI.
    #[serde(default)]
    pub pseudo_nmi: bool,
    /// How many branch records a CPU has. `None`: as many as the machines of the backend
    /// have.
    #[serde(default)]
    pub records: Option<u8>,
    /// Deterministic time: an instruction takes `1 << icount` ns. `None`: the host's time.
    #[serde(default)]
    pub icount: Option<u8>,
    /// More options of the plugin, each `key=value`. `None`: QEMU runs without the plugin.
    #[serde(skip)]
    pub plugin: Option<Vec<String>>,
    /// More arguments for QEMU.
    #[serde(skip)]
    pub qemu_args: Vec<String>,
    /// More words for the kernel's command line.
    #[serde(skip)]
    pub kernel_args: Vec<String>,
}

impl Default for MachineSpec {
    /// An ordinary machine: two CPUs of one kind, the kernel at EL1, the host's time.
    fn default() -> Self {
        Self {
            cpus: 2,
            memory_mib: 1024,
            vhe: false,
            firmware: false,
            brbe_cpus: None,
            late_pmu: false,
            idle_states: false,
            pseudo_nmi: false,
            records: None,
            icount: None,
            plugin: Some(Vec::new()),
            qemu_args: Vec::new(),
            kernel_args: Vec::new(),
        }
    }
}

impl MachineSpec {
    /// A machine with four CPUs, of which the first two have BRBE.
    pub fn heterogeneous() -> Self {
        Self {
            cpus: 4,
            brbe_cpus: Some(BrbeCpus::first(2)),
            ..Self::default()
        }
    }

    /// A machine of one CPU in deterministic time, where an instruction takes `1 << icount`
    /// ns.
    pub fn deterministic(icount: u8) -> Self {
        Self {
            cpus: 1,
            icount: Some(icount),
            ..Self::default()
        }
    }

    /// Whether the machine is described to QEMU or to the plugin in their own words.
    fn needs_the_plugin(&self) -> bool {
        let has_options = self
            .plugin
            .as_ref()
            .is_none_or(|options| !options.is_empty());
        has_options || !self.qemu_args.is_empty()
    }

    /// Why `machines` cannot be such a machine; `None` if they can.
    pub fn unmet(&self, machines: &Capabilities) -> Option<String> {
        let other_records = self
            .records
            .is_some_and(|records| records != machines.records);
        let needs = [
            (self.cpus > machines.cpus, "more CPUs"),
            (self.vhe && !machines.vhe, "a kernel at EL2"),
            (
                self.firmware && !machines.plugin,
                "firmware that is built for QEMU",
            ),
            (self.pseudo_nmi && !machines.pseudo_nmi, "pseudo-NMIs"),
            (
                self.brbe_cpus.is_some() && !machines.heterogeneous,
                "heterogeneous CPUs",
            ),
            (
                (self.late_pmu || self.idle_states) && !machines.plugin,
                "a device tree for it, which QEMU takes",
            ),
            (
                self.icount.is_some() && !machines.plugin,
                "deterministic time, which QEMU has",
            ),
            (
                other_records && !machines.plugin,
                "another number of records",
            ),
        ];
        let missing = needs.into_iter().find(|(is_missing, _)| *is_missing);
        let plugin = machines.without_plugin();
        missing
            .map(|(_, what)| format!("it needs {what}"))
            .or(plugin.filter(|_| self.needs_the_plugin()))
    }

    /// All words for the kernel's command line that the machine is described by.
    pub fn command_line(&self) -> Vec<String> {
        let nmi = self.pseudo_nmi.then_some(PSEUDO_NMI).map(str::to_owned);
        nmi.into_iter().chain(self.kernel_args.clone()).collect()
    }

    /// All arguments for QEMU that the machine is described by.
    pub fn all_qemu_args(&self) -> Vec<String> {
        let icount = self.icount.map(|shift| format!("shift={shift}"));
        let icount = icount.map(|shift| ["-icount".to_owned(), shift]);
        let icount = icount.into_iter().flatten();
        icount.chain(self.qemu_args.clone()).collect()
    }

    /// All options of the plugin for CPUs of `arch`. `None`: there is no plugin.
    pub fn plugin_options(&self, arch: Arch) -> Option<Vec<String>> {
        let option = match arch {
            Arch::Arm64 => "records",
            Arch::X86_64 => "depth",
        };
        let records = self.records.map(|records| format!("{option}={records}"));
        let more = self.plugin.clone()?;
        Some(records.into_iter().chain(more).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend as _;
    use crate::qemu::Qemu;

    fn each() -> Vec<(MachineSpec, &'static str)> {
        let ordinary = MachineSpec::default;
        vec![
            (
                MachineSpec {
                    cpus: 3,
                    ..ordinary()
                },
                "more CPUs",
            ),
            (
                MachineSpec {
                    vhe: true,
                    ..ordinary()
                },
                "EL2",
            ),
            (
                MachineSpec {
                    firmware: true,
                    ..ordinary()
                },
                "firmware",
            ),
            (
                MachineSpec {
                    pseudo_nmi: true,
                    ..ordinary()
                },
                "pseudo-NMIs",
            ),
            (
                MachineSpec {
                    brbe_cpus: Some(BrbeCpus::first(1)),
                    ..ordinary()
                },
                "heterogeneous",
            ),
            (
                MachineSpec {
                    late_pmu: true,
                    ..ordinary()
                },
                "device tree",
            ),
            (
                MachineSpec {
                    idle_states: true,
                    ..ordinary()
                },
                "device tree",
            ),
            (
                MachineSpec {
                    icount: Some(1),
                    ..ordinary()
                },
                "deterministic",
            ),
            (
                MachineSpec {
                    records: Some(8),
                    ..ordinary()
                },
                "records",
            ),
            (
                MachineSpec {
                    plugin: None,
                    ..ordinary()
                },
                "plugin",
            ),
        ]
    }

    #[test]
    fn qemu_is_any_machine_and_others_say_what_they_lack() {
        let plain = Capabilities {
            cpus: 2,
            records: 64,
            ..Capabilities::default()
        };
        assert_eq!(MachineSpec::default().unmet(&plain), None);
        for (spec, lacks) in each() {
            assert_eq!(spec.unmet(&Qemu.capabilities()), None);
            let why = spec.unmet(&plain).unwrap();
            assert!(why.contains(lacks), "{why}: not {lacks}");
        }
    }

    #[test]
    fn it_becomes_words_and_arguments() {
        let spec = MachineSpec {
            pseudo_nmi: true,
            records: Some(16),
            plugin: Some(vec!["cc=off".to_owned()]),
            kernel_args: vec!["nokaslr".to_owned()],
            ..MachineSpec::deterministic(1)
        };
        assert_eq!(spec.command_line(), [PSEUDO_NMI, "nokaslr"]);
        assert_eq!(spec.all_qemu_args(), ["-icount", "shift=1"]);
        let options = |arch| spec.plugin_options(arch).unwrap();
        assert_eq!(options(Arch::Arm64), ["records=16", "cc=off"]);
        assert_eq!(options(Arch::X86_64), ["depth=16", "cc=off"]);
    }

    #[test]
    fn a_program_that_reads_it_needs_the_fields_of_old_alone() {
        let text = r#"{"cpus":1,"memory_mib":512,"virtualization":true,"brbe_cpus":null}"#;
        let spec: MachineSpec = serde_json::from_str(text).unwrap();
        assert!(spec.vhe && spec.records.is_none());
    }
}
