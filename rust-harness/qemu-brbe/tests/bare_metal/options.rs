//! What the plugin refuses, and how.

use std::collections::HashMap;
use std::path::Path;

use crate::run::*;

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
            ",log=/nowhere/l",
            "qemu-brbe: option 'log=/nowhere/l': No such file or directory",
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

/// QEMU 11.1 writes the number of one vCPU into code that all vCPUs of a thread execute.
#[test]
fn vcpus_that_share_a_thread_are_refused() {
    let (elf, _) = guest("branches.S");
    for more in [
        ["-smp", "2", "-icount", "shift=0"],
        ["-smp", "2", "-accel", "tcg,thread=single"],
    ] {
        let output = qemu_with(&elf, "", "", &more);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("vCPUs 0 and 1 share a thread"), "{text}");
    }
    for more in [
        ["-smp", "1", "-icount", "shift=0"],
        ["-smp", "8", "-accel", "tcg,thread=multi"],
    ] {
        let output = qemu_with(&elf, "", "", &more);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn the_log_shows_what_happened() {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("branches.log");
    let options = format!(",log={}", log.display());
    let run = Run::new("branches.S", "", &options);
    let text = std::fs::read_to_string(log).unwrap();
    let line = |kind: &str, src: &str, tgt: &str| {
        let (src, tgt) = (run.labels[src], run.labels[tgt]);
        format!("0 record {kind} EL1 {src:#x} -> {tgt:#x} cc=?\n")
    };
    let branches = [
        line("DIRECT", "B_SRC", "B_TGT"),
        line("DIRECT_LINK", "BL_SRC", "FUNCTION"),
        line("RET", "RET_SRC", "BL_NEXT"),
    ];
    assert!(text.contains(&branches.concat()), "{text}");
    for part in [
        "0 read BRBIDR0_EL1 0x5040 at 0x",
        "0 write BRBCR_EL1 0x2 at 0x",
        "0 execute BRB IALL at 0x",
        "0 execute BRB INJ at 0x",
        "0 freeze\n",
        "0 undefined 0xd5118000 at 0x",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.starts_with("0 ")));
}

/// The last branches are in the log, although nothing after them is an exception: PSCI is
/// QEMU's own. With deterministic time, QEMU does not report that the vCPU goes idle either.
#[test]
fn the_log_is_whole_when_psci_switches_the_machine_off() {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("off.log");
    let (elf, labels) = guest("off.S");
    let more = ["-smp", "1", "-icount", "shift=0"];
    let output = qemu_with(&elf, "", &format!(",log={}", log.display()), &more);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(log).unwrap();
    let records: Vec<_> = text
        .lines()
        .filter(|line| line.contains("record"))
        .collect();
    let line = |kind: &str, src: &str, tgt: &str| {
        let (src, tgt) = (labels[src], labels[tgt]);
        format!("0 record {kind} EL1 {src:#x} -> {tgt:#x} cc=?")
    };
    assert_eq!(
        records,
        [
            line("DIRECT", "OFF_SRC", "OFF_CALL"),
            line("DIRECT_LINK", "OFF_CALL", "OFF_FUNCTION"),
            line("RET", "OFF_FUNCTION", "OFF_NEXT"),
        ]
    );
}

/// Runs a guest while the function at one of its labels is watched. Returns the addresses of all
/// labels, and the watch's log.
fn watched(source: &str, machine: &str, function: &str) -> (HashMap<String, u64>, String) {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}.watch"));
    let (_, labels) = guest(source);
    let options = format!(",watch={:#x},watch-log={}", labels[function], log.display());
    Run::with(source, machine, &options, &["-icount", "shift=0"]);
    (labels, std::fs::read_to_string(log).unwrap())
}

#[test]
fn each_call_of_the_watched_function_is_logged() {
    let (labels, text) = watched("branches.S", "", "FUNCTION");
    let called = |next: &str| {
        let (function, next) = (labels["FUNCTION"], labels[next]);
        format!("0 call {function:#x}\n0 block {function:#x} 1\n0 return {next:#x}\n")
    };
    let expected = called("BL_NEXT") + &called("BLR_NEXT");
    assert!(text.starts_with(&expected), "{text}");
}

/// An interrupt names the instruction that it came before, and its handler is not followed.
#[test]
fn an_interrupt_of_a_watched_call_is_logged() {
    let (labels, text) = watched("interrupts.S", ",gic-version=3", "CALLED");
    let [called, interrupted, returned] =
        ["CALLED", "INTERRUPTED", "RETURNED"].map(|label| labels[label]);
    assert!(text.starts_with(&format!("0 call {called:#x}\n")), "{text}");
    let handled = format!(
        "0 interrupt {interrupted:#x} 0x0\n0 block {interrupted:#x} 2\n\
         0 block {:#x} 1\n0 return {returned:#x}\n",
        interrupted + 8
    );
    assert!(text.ends_with(&handled), "{text}");
}

/// The first fields of `qemu_info_t`.
#[repr(C)]
struct Info {
    target_name: *const std::ffi::c_char,
    min_version: i32,
    cur_version: i32,
    system_emulation: bool,
    smp_vcpus: i32,
    max_vcpus: i32,
}

/// The process of this test does not have QEMU's functions: the version is checked before
/// they are looked up.
#[test]
fn another_version_of_the_api_is_refused() {
    for (min, cur) in [(1, 5), (8, 9)] {
        let info = Info {
            target_name: c"aarch64".as_ptr(),
            min_version: min,
            cur_version: cur,
            system_emulation: true,
            smp_vcpus: 1,
            max_vcpus: 1,
        };
        // SAFETY: `info` is laid out as QEMU's and lives during the call; there
        // are no arguments.
        let refused = unsafe {
            qemu_brbe::qemu_plugin_install(1, (&raw const info).cast(), 0, std::ptr::null())
        };
        assert_ne!(refused, 0);
    }
    assert_eq!(qemu_brbe::qemu_plugin_version, 7);
}
