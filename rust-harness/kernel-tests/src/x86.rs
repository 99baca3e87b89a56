//! The same series on x86-64, which shares the helper and its selftest with arm64: what
//! was added for one may not break the other.
//!
//! The helper reads LBRs there. They are the plugin's, or those of this machine's own
//! processors where KVM hands them on.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::selftests;
use host::arch::Arch;
use host::paths::Paths;
use kernels::subject::Subject;
use machines::guest::{Guest, Setup};
use report::Job;

/// On the patched kernel.
pub fn jobs<'a>(paths: &'a Paths, guest: &'a Guest, subject: &'a Subject) -> Vec<Job<'a>> {
    vec![selftests::job(paths, guest, subject, setup)]
}

/// A machine whose processors have LBRs.
fn setup() -> Setup {
    match Lbr::of_this_machine() {
        Some(lbr) => Setup {
            plugin: None,
            qemu: lbr.arguments(),
            ..Setup::default()
        },
        None => Setup {
            qemu: emulated(),
            ..Setup::default()
        },
    }
}

/// QEMU's arguments for processors that the plugin gives LBRs to.
pub fn emulated() -> Vec<String> {
    ["-cpu", EMULATED].map(str::to_owned).into()
}

/// What Linux looks for LBRs on, with CPUID's leaf of them (`qemu-lbr`). The helper's
/// selftest skips itself where the CPU says that there is a hypervisor.
const EMULATED: &str = "max,vendor=GenuineIntel,min-level=28,-hypervisor";

/// The branch records of this machine's processors, which KVM hands on to a guest that
/// is given the same format.
struct Lbr {
    format: u64,
}

/// `IA32_PERF_CAPABILITIES`: bits 5:0 are the format of the records (Intel SDM 3B,
/// 19.4.8.1).
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
