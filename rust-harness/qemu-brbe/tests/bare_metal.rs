//! The plugin from the guest's side: a program without an operating system runs
//! on QEMU and prints what BRBE recorded of it, and what its registers say.
//!
//! `aarch64-linux-gnu-gcc` and `qemu-system-aarch64` are found on `PATH`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The plugin, beside this test's own program.
fn plugin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let library = deps.join("libqemu_brbe.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Assembles the guest, and finds its labels.
fn guest() -> (PathBuf, HashMap<String, u64>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest.S");
    let id = std::thread::current().name().unwrap().replace(':', "_");
    let elf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guest-{id}.elf"));
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    run(Command::new("aarch64-linux-gnu-gcc")
        .args([
            "-nostdlib",
            "-static",
            "-no-pie",
            "-Wl,--build-id=none",
            "-Wl,-N",
        ])
        .args(["-Wl,-Ttext=0x40080000", "-o"])
        .args([&elf, &source]));
    let symbols = run(Command::new("aarch64-linux-gnu-nm").arg(&elf));
    let symbol = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let name = rest.split_once(' ')?.1;
        Some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
    };
    (elf, symbols.lines().filter_map(symbol).collect())
}

fn qemu(elf: &Path, machine: &str, options: &str) -> Output {
    Command::new("timeout")
        .args([
            "60",
            "qemu-system-aarch64",
            "-cpu",
            "max",
            "-display",
            "none",
        ])
        .args(["-smp", "2", "-M"])
        .arg(format!("virt{machine}"))
        .args(["-semihosting-config", "enable=on,target=native", "-kernel"])
        .arg(elf)
        .arg("-plugin")
        .arg(format!("{}{options}", plugin().display()))
        .output()
        .unwrap()
}

/// What the guest printed, by case.
struct Run {
    labels: HashMap<String, u64>,
    cases: HashMap<String, Vec<Vec<u64>>>,
}

impl Run {
    fn new(machine: &str, options: &str) -> Self {
        let (elf, labels) = guest();
        let output = qemu(&elf, machine, options);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("= end"), "{text}");
        let (mut cases, mut name) = (HashMap::<_, Vec<_>>::new(), String::new());
        for line in text.lines() {
            if let Some(next) = line.strip_prefix("= ") {
                next.clone_into(&mut name);
                cases.entry(name.clone()).or_default();
            } else if let Some(words) = line.strip_prefix(['R', 'V']) {
                let words = words.split_whitespace();
                let values = words
                    .map(|word| u64::from_str_radix(word, 16).unwrap())
                    .collect();
                cases.get_mut(&name).unwrap().push(values);
            }
        }
        Self { labels, cases }
    }

    fn lines(&self, case: &str) -> &[Vec<u64>] {
        self.cases
            .get(case)
            .unwrap_or_else(|| panic!("no case {case}"))
    }

    fn values(&self, case: &str) -> Vec<u64> {
        let values = self.lines(case).iter();
        values
            .filter(|words| words.len() == 1)
            .map(|words| words[0])
            .collect()
    }

    fn records(&self, case: &str) -> Vec<[u64; 3]> {
        let lines = self.lines(case).iter();
        lines
            .filter_map(|words| words.as_slice().try_into().ok())
            .collect()
    }

    /// The records of `case`, oldest first, are these: type, EL, source, target.
    /// An empty label is an address that the record does not have; `None` is
    /// an EL that it does not have.
    #[track_caller]
    fn expect(&self, case: &str, expected: &[(u64, Option<u64>, &str, &str)]) {
        let label = |name: &str| match name {
            "" => 0,
            _ => self.labels[name],
        };
        let expected: Vec<_> = expected
            .iter()
            .map(|(kind, el, src, tgt)| {
                let valid = u64::from(!tgt.is_empty()) | u64::from(!src.is_empty()) << 1;
                (*kind, el.unwrap_or(0), valid, label(src), label(tgt))
            })
            .collect();
        let found: Vec<_> = self
            .records(case)
            .iter()
            .rev()
            .map(|[inf, src, tgt]| (inf >> 8 & 0x3f, inf >> 6 & 3, inf & 3, *src, *tgt))
            .collect();
        let name = |address: u64| self.labels.iter().find(|(_, a)| **a == address);
        let named: Vec<_> = found.iter().map(|f| (f, name(f.3), name(f.4))).collect();
        assert_eq!(found, expected, "{case}: {named:#x?}");
    }
}

const DIRECT: u64 = 0b000000;
const INDIRECT: u64 = 0b000001;
const DIRECT_LINK: u64 = 0b000010;
const INDIRECT_LINK: u64 = 0b000011;
const RETURN: u64 = 0b000101;
const ERET: u64 = 0b000111;
const CONDITIONAL: u64 = 0b001000;
const CALL: u64 = 0b100010;
const TRAP: u64 = 0b100011;
const DEBUG: u64 = 0b100110;
const ALIGNMENT: u64 = 0b101010;

const PAUSED: u64 = 1 << 7;
const ALL_TYPES: u64 = 0x7e << 16;

/// All cases, at the Exception level that the machine starts at.
fn check(run: &Run, el: u64) {
    assert_eq!(run.values("id"), [2, 0x5040]);
    assert_eq!(
        run.values("masks"),
        [0x00c0_017b, 0x307f_0080, 0x7fff_0000_3fe3]
    );
    let here = Some(el);
    run.expect(
        "branches",
        &[
            (DIRECT, here, "B_SRC", "B_TGT"),
            (DIRECT_LINK, here, "BL_SRC", "FUNCTION"),
            (RETURN, here, "RET_SRC", "BL_NEXT"),
            (INDIRECT, here, "BR_SRC", "BR_TGT"),
            (INDIRECT_LINK, here, "BLR_SRC", "FUNCTION"),
            (RETURN, here, "RET_SRC", "BLR_NEXT"),
            (CONDITIONAL, here, "BEQ_SRC", "BEQ_TGT"),
            (CONDITIONAL, here, "CBNZ_SRC", "CBNZ_TGT"),
            (CONDITIONAL, here, "TBNZ_SRC", "TBNZ_TGT"),
        ],
    );
    run.expect(
        "next",
        &[
            (DIRECT, here, "NEXT_SRC", "NEXT_TGT"),
            (CONDITIONAL, here, "NEXT_TGT", "NEXT_TGT2"),
            (CONDITIONAL, here, "NEXT_TGT2", "NEXT_TGT3"),
        ],
    );
    run.expect(
        "pages",
        &[
            (DIRECT, here, "PAGES_SRC", "PAGE_SRC"),
            (DIRECT, here, "PAGE_SRC", "PAGE_TGT"),
            (DIRECT, here, "LONG_SRC", "LONG_TGT"),
            (DIRECT, here, "LONG_TGT", "pages_done"),
        ],
    );
    run.expect(
        "conditional",
        &[
            (CONDITIONAL, here, "LOOP_SRC", "LOOP"),
            (CONDITIONAL, here, "LOOP_SRC", "LOOP"),
        ],
    );
    run.expect(
        "but-conditional",
        &[(DIRECT, here, "NOTCOND_SRC", "NOTCOND_TGT")],
    );
    run.expect(
        "authenticated",
        &[
            (INDIRECT_LINK, here, "BLRAAZ_SRC", "AUTH"),
            (RETURN, here, "RETAA_SRC", "BLRAAZ_NEXT"),
        ],
    );
    run.expect(
        "svc",
        &[
            (CALL, here, "SVC_NEXT", "VECTOR_SAME"),
            (ERET, here, "HANDLER_ERET", "SVC_NEXT"),
        ],
    );
    run.expect(
        "svc-without-exception",
        &[(ERET, here, "HANDLER_ERET", "SVC2_NEXT")],
    );
    run.expect(
        "undefined",
        &[
            (TRAP, here, "UNDEF_SRC", "VECTOR_SAME"),
            (DEBUG, here, "BRK_SRC", "VECTOR_SAME"),
        ],
    );
    check_abort(run, el);
    check_user(run, el);
    check_buffer(run, el);
    check_freeze(run);
}

/// The branch and the exception at its target are two records; the address of
/// the second is no label.
fn check_abort(run: &Run, el: u64) {
    let records = run.records("abort");
    let [.., exception, branch] = records.as_slice() else {
        panic!("{records:x?}")
    };
    let kind = |inf: u64| (inf >> 8 & 0x3f, inf >> 6 & 3, inf & 3);
    assert_eq!((kind(branch[0]), branch[2]), ((INDIRECT, el, 3), 2));
    assert_eq!(branch[1], run.labels["ABORT_SRC"]);
    assert_eq!((kind(exception[0]), exception[1]), ((ALIGNMENT, el, 3), 2));
    assert_eq!(exception[2], run.labels["VECTOR_SAME"]);
}

/// Source-only and target-only records at prohibited regions.
fn check_user(run: &Run, el: u64) {
    let (user, here) = (Some(0), Some(el));
    let all = run.records("user-all");
    let sources: Vec<_> = all.iter().map(|record| record[1]).collect();
    for label in ["USER_ERET", "USER_ALL", "USER_ALL_NEXT"] {
        assert!(sources.contains(&run.labels[label]), "{label}: {all:x?}");
    }
    assert!(all.iter().all(|record| record[0] & 3 == 3));
    run.expect(
        "user-only",
        &[
            (ERET, user, "", "USER_ONLY"),
            (DIRECT_LINK, user, "USER_ONLY", "USER_ONLY2"),
            (CALL, None, "USER_ONLY_NEXT", ""),
        ],
    );
    run.expect(
        "kernel-only",
        &[
            (ERET, None, "USER_ERET", ""),
            (CALL, here, "", "VECTOR_LOWER"),
        ],
    );
    run.expect("user-undefined", &[]);
}

fn check_buffer(run: &Run, el: u64) {
    for case in ["buffer", "bank1"] {
        let records = run.records(case);
        assert_eq!(records.len(), 32, "{case}");
        assert!(
            records
                .iter()
                .all(|[inf, ..]| inf & 0x3fff == CONDITIONAL << 8 | el << 6 | 3)
        );
    }
    run.expect("iall", &[]);
    let injected = [
        [0x23 << 8 | 2, 0x1234, 0],
        [0x105 << 32 | 5 << 8 | 1 << 6 | 3, 0x1234, 0x5678],
    ];
    assert_eq!(run.records("inject"), injected);
    let cycles: Vec<_> = run
        .records("cycles")
        .iter()
        .rev()
        .map(|r| r[0] >> 32)
        .collect();
    // 601 cycles are 256 + 44, times two, and a bit lost.
    assert_eq!(cycles, [1 << 14, 3, 2 << 8 | 44]);
}

fn check_freeze(run: &Run) {
    let one = run.records("freeze");
    assert_eq!(one.len(), 1);
    assert_eq!(
        (one[0][1], one[0][2]),
        (run.labels["FREEZE_SRC"], run.labels["FREEZE_TGT"])
    );
    // Frozen, with a time stamp; frozen again; and not any more.
    assert_eq!(
        run.values("freeze"),
        [ALL_TYPES | PAUSED, 1, ALL_TYPES | PAUSED, 0]
    );
    assert_eq!(run.values("freeze-between"), [ALL_TYPES | PAUSED]);
    assert_eq!(run.values("no-freeze"), [ALL_TYPES]);
    assert_eq!(run.records("no-freeze").len(), 1);
}

#[test]
fn at_el1() {
    let run = Run::new("", "");
    check(&run, 1);
    // BRBCR_EL2 and BRBCR_EL12 are UNDEFINED: the destination keeps its value.
    assert_eq!(run.values("names"), [u64::MAX, u64::MAX, 2]);
    assert_eq!(run.values("none"), [0x5040]);
}

#[test]
fn at_el2_as_a_vhe_host() {
    let run = Run::new(",virtualization=on", "");
    check(&run, 2);
    // BRBCR_EL1 is BRBCR_EL2; BRBCR_EL12 was left zero.
    assert_eq!(run.values("names"), [2, 0, 2]);
}

#[test]
fn with_options() {
    let stats = Path::new(env!("CARGO_TARGET_TMPDIR")).join("options.json");
    let options = format!(
        ",records=16,version=1.0,cc=off,cpus=0,stats={}",
        stats.display()
    );
    let run = Run::new("", &options);
    assert_eq!(run.values("id"), [1, 0x5010]);
    assert_eq!(run.records("buffer").len(), 16);
    assert_eq!(run.records("bank1").len(), 0);
    assert!(
        run.records("cycles")
            .iter()
            .all(|[inf, ..]| inf >> 32 == 1 << 14)
    );
    let stats = std::fs::read_to_string(stats).unwrap();
    assert!(
        stats.starts_with("{\"vcpus\": [\n  {\"vcpu\": 0, \"records\": 1"),
        "{stats}"
    );
    assert!(stats.contains("\"freezes\": 3"), "{stats}");
}

/// The guest runs on vCPU 0; only the other one has BRBE.
#[test]
fn on_a_vcpu_without_brbe() {
    let run = Run::new("", ",cpus=1");
    assert_eq!(run.values("id"), [0]);
    // BRBIDR0_EL1 is UNDEFINED: the destination keeps its value.
    assert_eq!(run.values("none"), [u64::MAX]);
}

#[test]
fn bad_options_end_qemu_with_a_message() {
    for (option, message) in [
        (
            ",records=24",
            "qemu-brbe: option 'records=24': expected 8, 16, 32 or 64",
        ),
        (
            ",cpus=2",
            "qemu-brbe: option 'cpus=': there is no vCPU 2, this machine has 2",
        ),
        (
            ",stats=/nowhere/s",
            "qemu-brbe: option 'stats=/nowhere/s': No such file or directory",
        ),
    ] {
        let output = qemu(Path::new("/dev/null"), "", option);
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(message), "{text}");
    }
}
