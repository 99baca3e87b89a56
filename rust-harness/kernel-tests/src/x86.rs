//! Tests of a series on x86-64.
//!
//! x86-64 shares the helper `bpf_get_branch_snapshot()` and its selftest with arm64. What is
//! added for one architecture must not break the other.
//!
//! On x86-64 the helper reads LBRs. They are those of the plugin, or those of this machine's
//! own CPUs where KVM passes them on to the guest.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::registry::Batch;
use crate::selftests;
use host::arch::Arch;
use machines::machine_spec::MachineSpec;

/// The tests: the BPF selftests. They are for a kernel for x86-64.
pub fn tests() -> Batch {
    selftests::on_machine(|_| match Lbr::of_this_machine() {
        Some(lbr) => MachineSpec {
            plugin: None,
            qemu_args: lbr.arguments(),
            ..MachineSpec::default()
        },
        None => emulated(),
    })
}

/// A machine to whose CPUs the plugin adds LBRs.
pub fn emulated() -> MachineSpec {
    MachineSpec {
        qemu_args: ["-cpu", EMULATED].map(str::to_owned).into(),
        ..MachineSpec::default()
    }
}

/// The value of QEMU's option `-cpu` for [`emulated`]. Linux looks for LBRs on such a CPU,
/// which has CPUID's leaf that describes them (28; see `qemu-lbr`). The helper's selftest
/// skips itself where the CPU says that there is a hypervisor.
const EMULATED: &str = "max,vendor=GenuineIntel,min-level=28,-hypervisor";

/// The LBRs of this machine's own CPUs. KVM passes them on to a guest that is given the same
/// format.
struct Lbr {
    format: u64,
}

/// The number of the MSR `IA32_PERF_CAPABILITIES`. Its bits 5:0 are the format of the LBR
/// records (Intel SDM 3B, 19.4.8.1).
const PERF_CAPABILITIES: u64 = 0x345;
const FORMAT: u64 = 0x3f;

impl Lbr {
    fn of_this_machine() -> Option<Self> {
        let is_ours = std::env::consts::ARCH == Arch::X86_64.machine();
        if !is_ours || File::open("/dev/kvm").is_err() {
            return None;
        }
        let mut word = [0; 8];
        let msr = File::open("/dev/cpu/0/msr").ok()?;
        msr.read_exact_at(&mut word, PERF_CAPABILITIES).ok()?;
        let format = u64::from_le_bytes(word) & FORMAT;
        (format != 0).then_some(Self { format })
    }

    fn arguments(&self) -> Vec<String> {
        let cpu = format!(
            "host,-hypervisor,migratable=no,pmu=on,lbr-fmt={:#x}",
            self.format
        );
        ["-enable-kvm", "-cpu", &cpu].map(str::to_owned).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_gets_the_hosts_format() {
        let expected = [
            "-enable-kvm",
            "-cpu",
            "host,-hypervisor,migratable=no,pmu=on,lbr-fmt=0x5",
        ];
        assert_eq!(Lbr { format: 5 }.arguments(), expected);
    }
}
