//! The same series on x86-64, which shares the helper and its selftest with arm64: what
//! was added for one may not break the other.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::Result;

use crate::arch::Arch;
use crate::commands::Subject;
use crate::guest::{self, Guest, Setup, Share};
use crate::jobs::Job;
use crate::places::Places;
use crate::selftests::{self, Outcome};
use crate::verdict::Verdict;

/// What they decide.
pub const TESTS: [&str; 2] = [
    "get_branch_snapshot selftest",
    "BPF selftests of perf events",
];

/// On the patched kernel.
pub fn jobs<'a>(places: &'a Places, guest: &'a Guest, subject: &'a Subject) -> Vec<Job<'a>> {
    let title = subject.title(true);
    let tests = TESTS.map(str::to_owned).into();
    vec![Job::several(title.clone(), tests, move || {
        run(places, guest, subject, &title)
    })]
}

fn run(places: &Places, guest: &Guest, subject: &Subject, title: &str) -> Result<Vec<Verdict>> {
    let kernel = subject.builder.kernel(subject.patched(), title)?;
    let built = selftests::build(places, &subject.builder, subject.patched(), title)?;
    let share = Share::new(places)?;
    share.put(&built.join("test_progs"))?;
    share.put(&built.join("bpf_testmod.ko"))?;
    let lbr = Lbr::of_this_machine();
    let setup = Setup {
        qemu: match &lbr {
            Some(lbr) => lbr.arguments(),
            None => ["-cpu", "max"].map(str::to_owned).into(),
        },
        ..Setup::default()
    };
    let name = format!("selftests on {title}");
    let others = selftests::OF_PERF_EVENTS;
    let command = format!("./test_progs -t get_branch_snapshot; {others}");
    let run = guest.run_as(&setup, &kernel, &name, &command, &share)?;
    guest::status(&run)?;
    let tests = selftests::each(&run.output);
    let of = |name: &str| tests.iter().find(|(test, _)| *test == name);
    let snapshot = match of("get_branch_snapshot") {
        Some((_, Outcome::Pass)) => Verdict::Pass(String::new()),
        Some((_, Outcome::Skip)) if lbr.is_none() => Verdict::Skip(
            "the CPU that QEMU emulates has no LBR; under KVM on an Intel CPU it may".to_owned(),
        ),
        _ => Verdict::Fail(run.output.clone()),
    };
    Ok(vec![snapshot, selftests::of_perf_events(&run.output)])
}

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
        let cpu = format!("host,migratable=no,pmu=on,lbr-fmt={:#x}", self.format);
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
            "host,migratable=no,pmu=on,lbr-fmt=0x5",
        ];
        assert_eq!(Lbr { format: 5 }.arguments(), expected);
    }
}
