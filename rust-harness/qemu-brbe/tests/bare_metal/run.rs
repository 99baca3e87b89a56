//! Runs a guest and reads what it prints.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The path of the plugin, which is beside this test's own program.
pub(crate) fn plugin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let library = deps.join("libqemu_brbe.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Assembles the guest of that name. Returns the path of the program and the addresses of
/// its labels.
pub(crate) fn guest(name: &str) -> (PathBuf, HashMap<String, u64>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/guest")
        .join(name);
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

/// Runs `elf` on a machine with these options, and with those of the plugin.
pub(crate) fn qemu(elf: &Path, machine: &str, options: &str) -> Output {
    qemu_with(elf, machine, options, &["-smp", "2"])
}

/// Runs `elf` on a machine with these options, with those of the plugin, and with more
/// arguments for QEMU.
pub(crate) fn qemu_with(elf: &Path, machine: &str, options: &str, more: &[&str]) -> Output {
    Command::new("timeout")
        .args([
            "60",
            "qemu-system-aarch64",
            "-cpu",
            "max",
            "-display",
            "none",
        ])
        .args(more)
        .arg("-M")
        .arg(format!("virt{machine}"))
        .args(["-semihosting-config", "enable=on,target=native", "-kernel"])
        .arg(elf)
        .arg("-plugin")
        .arg(format!("{}{options}", plugin().display()))
        .output()
        .unwrap()
}

/// The guest's labels, and what it printed, by case.
pub(crate) struct Run {
    pub(crate) labels: HashMap<String, u64>,
    cases: HashMap<String, Vec<Vec<u64>>>,
}

impl Run {
    /// Runs the guest of that name to its end.
    pub(crate) fn new(source: &str, machine: &str, options: &str) -> Self {
        Self::with(source, machine, options, &["-smp", "2"])
    }

    /// Runs the guest of that name to its end, with more arguments for QEMU.
    pub(crate) fn with(source: &str, machine: &str, options: &str, more: &[&str]) -> Self {
        let (elf, labels) = guest(source);
        let output = qemu_with(&elf, machine, options, more);
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

    pub(crate) fn lines(&self, case: &str) -> &[Vec<u64>] {
        self.cases
            .get(case)
            .unwrap_or_else(|| panic!("no case {case}"))
    }

    pub(crate) fn values(&self, case: &str) -> Vec<u64> {
        let values = self.lines(case).iter();
        values
            .filter(|words| words.len() == 1)
            .map(|words| words[0])
            .collect()
    }

    pub(crate) fn records(&self, case: &str) -> Vec<[u64; 3]> {
        let lines = self.lines(case).iter();
        lines
            .filter_map(|words| words.as_slice().try_into().ok())
            .collect()
    }

    /// Checks that the records of `case`, oldest first, are as expected: type, EL,
    /// source, target. An empty label is an address that the record does not have; `None`
    /// is an EL that it does not have.
    #[track_caller]
    pub(crate) fn expect(&self, case: &str, expected: &[(u64, Option<u64>, &str, &str)]) {
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

pub(crate) const DIRECT: u64 = 0b000000;
pub(crate) const INDIRECT: u64 = 0b000001;
pub(crate) const DIRECT_LINK: u64 = 0b000010;
pub(crate) const INDIRECT_LINK: u64 = 0b000011;
pub(crate) const RETURN: u64 = 0b000101;
pub(crate) const ERET: u64 = 0b000111;
pub(crate) const CONDITIONAL: u64 = 0b001000;
pub(crate) const CALL: u64 = 0b100010;
pub(crate) const TRAP: u64 = 0b100011;
pub(crate) const DEBUG: u64 = 0b100110;
pub(crate) const FAULT: u64 = 0b101011;
pub(crate) const IRQ: u64 = 0b101110;
pub(crate) const ALIGNMENT: u64 = 0b101010;

pub(crate) const PAUSED: u64 = 1 << 7;
pub(crate) const ALL_TYPES: u64 = 0x7e << 16;
