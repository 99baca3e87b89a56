//! What machines and tests need of a kernel, by the names of its options.

use std::fmt;

use crate::finished_config::{FinishedConfig, Setting};
use host::arch::Arch;

/// Options that a kernel needs for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// What they are for.
    pub what: &'static str,
    /// The options, without `CONFIG_`. All of them are needed, and none as a module: nobody loads
    /// modules before there is a root.
    pub options: &'static [&'static str],
}

const fn needed(what: &'static str, options: &'static [&'static str]) -> Requirement {
    Requirement { what, options }
}

/// What every machine boots from, and how it talks to the harness.
const MACHINE: &[Requirement] = &[
    needed("programs", &["BINFMT_ELF", "MULTIUSER"]),
    needed(
        "its file systems",
        &["PROC_FS", "SYSFS", "DEVTMPFS", "TMPFS"],
    ),
    needed(
        "the root, which the host shows by 9p",
        &["VIRTIO_PCI", "NET_9P_VIRTIO", "9P_FS"],
    ),
    needed("the host's port", &["VIRTIO_CONSOLE"]),
];

/// The buses and consoles of QEMU's machines.
const ARM64: &[Requirement] = &[
    needed("QEMU's machine virt", &["PCI_HOST_GENERIC"]),
    needed("the console", &["SERIAL_AMBA_PL011_CONSOLE"]),
];
const X86_64: &[Requirement] = &[needed("the console", &["SERIAL_8250_CONSOLE"])];

/// What a machine of a test needs more: vmtest's first process, a script, mounts a cgroup2.
const TESTED: &[Requirement] = &[needed(
    "the first process of a guest of tests",
    &["BINFMT_SCRIPT", "CGROUPS"],
)];

/// What a machine that somebody sits at needs more.
const SESSION: &[Requirement] = &[
    needed("the initramfs", &["BLK_DEV_INITRD"]),
    needed("the root, which is written to in memory", &["OVERLAY_FS"]),
    needed("terminals", &["UNIX98_PTYS"]),
];

/// What a machine with a network needs more.
const NETWORK: &[Requirement] = &[needed("the network", &["INET", "VIRTIO_NET"])];

/// What a machine whose PMU interrupts by pseudo-NMIs needs more.
const PSEUDO_NMI: &[Requirement] = &[needed("pseudo-NMIs", &["ARM64_PSEUDO_NMI"])];

/// What programs that take branch snapshots need.
const SNAPSHOTS: &[Requirement] = &[
    needed(
        "programs that take snapshots",
        &["BPF_SYSCALL", "BPF_JIT", "BPF_EVENTS", "PERF_EVENTS"],
    ),
    needed("types of the kernel", &["DEBUG_INFO_BTF"]),
    needed("programs on functions", &["DYNAMIC_FTRACE", "KPROBES"]),
    needed("names and code of the kernel", &["KALLSYMS", "PROC_KCORE"]),
];

/// What branch records need on arm64.
const BRBE: &[Requirement] = &[needed("branch records", &["ARM_PMUV3", "ARM64_BRBE"])];

/// What a machine needs of its kernel.
#[derive(Clone, Copy, Debug)]
pub struct MachineNeeds {
    /// The architecture.
    pub arch: Arch,
    /// Somebody sits at it, by `brbe vm`.
    pub has_session: bool,
    /// It has a network.
    pub has_network: bool,
    /// Its PMU interrupts by pseudo-NMIs.
    pub has_pseudo_nmi: bool,
}

impl MachineNeeds {
    /// The machine of a test.
    pub fn of_tests(arch: Arch) -> Self {
        Self {
            arch,
            has_session: false,
            has_network: false,
            has_pseudo_nmi: false,
        }
    }

    fn requirements(self) -> impl Iterator<Item = Requirement> {
        let of_arch = match self.arch {
            Arch::Arm64 => ARM64,
            Arch::X86_64 => X86_64,
        };
        let all = [
            (MACHINE, true),
            (of_arch, true),
            (TESTED, !self.has_session),
            (SESSION, self.has_session),
            (NETWORK, self.has_network),
            (PSEUDO_NMI, self.has_pseudo_nmi),
        ];
        let wanted = all.into_iter().filter(|(_, is_wanted)| *is_wanted);
        wanted.flat_map(|(requirements, _)| requirements.iter().copied())
    }

    /// What a kernel of this configuration lacks for the machine. `None`: nothing.
    pub fn lacking(self, config: &FinishedConfig) -> Option<Lacking> {
        Lacking::of(config, self.requirements())
    }
}

/// What a kernel of this configuration lacks for branch snapshots. `None`: nothing.
pub fn lacking_for_snapshots(config: &FinishedConfig, arch: Arch) -> Option<Lacking> {
    let of_arch = match arch {
        Arch::Arm64 => BRBE,
        Arch::X86_64 => &[],
    };
    Lacking::of(config, [SNAPSHOTS, of_arch].concat())
}

/// What a kernel lacks for something: one requirement or more, and of each the options that are
/// not there. It prints as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Lacking(Vec<(&'static str, Vec<String>)>);

impl Lacking {
    fn of(
        config: &FinishedConfig,
        requirements: impl IntoIterator<Item = Requirement>,
    ) -> Option<Self> {
        let missing = |option: &&str| match config.setting(option) {
            Setting::In => None,
            Setting::AsModule => Some(format!("{option} (a module; it has to be =y)")),
            Setting::Out => Some((*option).to_owned()),
        };
        let lacking = requirements.into_iter().filter_map(|requirement| {
            let missing: Vec<_> = requirement.options.iter().filter_map(missing).collect();
            (!missing.is_empty()).then_some((requirement.what, missing))
        });
        let lacking: Vec<_> = lacking.collect();
        (!lacking.is_empty()).then_some(Self(lacking))
    }
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it lacks ")?;
        for (number, (what, options)) in self.0.iter().enumerate() {
            let comma = if number > 0 { "; " } else { "" };
            write!(f, "{comma}{} for {what}", options.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration that all these requirements ask for.
    fn all() -> String {
        let each = [
            MACHINE, ARM64, X86_64, TESTED, SESSION, NETWORK, PSEUDO_NMI, SNAPSHOTS, BRBE,
        ];
        let options = each.concat().into_iter().flat_map(|one| one.options.iter());
        options
            .map(|option| format!("CONFIG_{option}=y\n"))
            .collect()
    }

    fn session(arch: Arch) -> MachineNeeds {
        MachineNeeds {
            has_session: true,
            has_network: true,
            has_pseudo_nmi: true,
            ..MachineNeeds::of_tests(arch)
        }
    }

    #[test]
    fn what_is_missing_is_named_in_one_line() {
        let text = all()
            .replace("CONFIG_9P_FS=y\n", "")
            .replace("CONFIG_VIRTIO_NET=y", "CONFIG_VIRTIO_NET=m");
        let config = FinishedConfig::of_text(&text);
        let lacking = session(Arch::Arm64).lacking(&config).unwrap();
        assert_eq!(
            lacking.to_string(),
            "it lacks 9P_FS for the root, which the host shows by 9p; VIRTIO_NET (a module; it has \
             to be =y) for the network"
        );
        let without = MachineNeeds {
            has_network: false,
            ..session(Arch::Arm64)
        };
        assert!(
            !without
                .lacking(&config)
                .unwrap()
                .to_string()
                .contains("NET (")
        );
        assert_eq!(lacking_for_snapshots(&config, Arch::Arm64), None);
    }

    #[test]
    fn each_option_is_asked_for_where_it_is_needed() {
        let config = FinishedConfig::of_text(&all());
        for arch in [Arch::Arm64, Arch::X86_64] {
            assert_eq!(session(arch).lacking(&config), None);
            assert_eq!(MachineNeeds::of_tests(arch).lacking(&config), None);
            assert_eq!(lacking_for_snapshots(&config, arch), None);
        }
        // What sets up a guest of tests is not what sets up a session's.
        let plain = FinishedConfig::of_text(&all().replace("CONFIG_CGROUPS=y\n", ""));
        let tests = MachineNeeds::of_tests(Arch::Arm64);
        assert!(tests.lacking(&plain).is_some());
        assert_eq!(session(Arch::Arm64).lacking(&plain), None);
        let without = FinishedConfig::of_text(&all().replace("CONFIG_ARM64_BRBE=y\n", ""));
        assert!(lacking_for_snapshots(&without, Arch::Arm64).is_some());
        assert_eq!(lacking_for_snapshots(&without, Arch::X86_64), None);
        assert_eq!(session(Arch::Arm64).lacking(&without), None);
    }

    #[test]
    fn the_document_has_them_all() {
        let document = include_str!("../../../Documentation/vm.md");
        for line in all().lines() {
            let option = line.trim_start_matches("CONFIG_").trim_end_matches("=y");
            assert!(document.contains(&format!("`{option}`")), "{option}");
        }
    }

    #[test]
    fn the_kernels_of_this_project_have_them_all() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let paths = host::paths::Paths::at(root, root);
        let names = ["base", "arm64"];
        let config = crate::config::KernelConfig::load(&paths, &names).unwrap();
        // What other options bring along is not in the fragments.
        let implied = "CONFIG_SHMEM=y\nCONFIG_KALLSYMS=y\n";
        let config = FinishedConfig::of_text(&(config.text + implied));
        assert_eq!(session(Arch::Arm64).lacking(&config), None);
        let tests = MachineNeeds::of_tests(Arch::Arm64);
        assert_eq!(tests.lacking(&config), None);
        assert_eq!(lacking_for_snapshots(&config, Arch::Arm64), None);
    }
}
