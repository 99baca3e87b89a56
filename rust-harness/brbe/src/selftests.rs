//! The kernel tree's own BPF selftest of the helper, from the tree at the
//! commit that is tested: `test_progs` with this test and those of perf events, and
//! `bpf_testmod`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache;
use crate::exec;
use crate::kernel::{Builder, Built};
use crate::places::Places;
use crate::progress::Step;
use crate::verdict::Verdict;

/// The tests that are built: of the helper, and of perf events with BPF programs. Each
/// is a file of that name, with a program of the other.
const TESTS: [(&str, &str); 6] = [
    ("get_branch_snapshot", "get_branch_snapshot"),
    ("perf_branches", "test_perf_branches"),
    ("perf_buffer", "test_perf_buffer"),
    ("perf_event_stackmap", "perf_event_stackmap"),
    ("perf_link", "test_perf_link"),
    ("perf_skip", "test_perf_skip"),
];
const SUITE: &str = "tools/testing/selftests/bpf";
const MODULE: &str = "bpf_testmod.ko";

/// A directory with `test_progs` and the module that it loads.
pub fn build(places: &Places, builder: &Builder, commit: &str, what: &str) -> Result<PathBuf> {
    let key = builder.key("selftests 3", commit)?;
    cache::entry(places, "selftests", &key, |into| {
        builder.at(commit, what, |built| {
            let step = Step::start(format!("build test_progs of {what}"));
            let work = places.home("build").join(format!(
                "{}-selftests-{}",
                builder.tree().id,
                builder.arch().kernel()
            ));
            let tree = work.join("tree");
            let out = work.join("out");
            fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
            mirror(built, &tree)?;
            module(built, &tree)?;
            test_progs(built, &tree, &out)?;
            for file in [
                out.join("test_progs"),
                tree.join(SUITE).join("test_kmods").join(MODULE),
            ] {
                let name = file.file_name().context("a file has a name")?;
                fs::copy(&file, into.join(name))
                    .with_context(|| format!("copying {}", file.display()))?;
            }
            step.done();
            Ok(())
        })
    })
}

/// A hard-linked copy of the tree without the other tests: the suite's makefile
/// builds whatever is there.
fn mirror(built: &Built<'_>, tree: &Path) -> Result<()> {
    let mut rsync = Command::new("rsync");
    rsync.args(["--archive", "--delete", "--exclude=/.git"]);
    for (test, program) in TESTS {
        rsync.arg(format!("--include=/{SUITE}/prog_tests/{test}.c"));
        rsync.arg(format!("--include=/{SUITE}/progs/{program}.c"));
    }
    for dir in ["prog_tests", "progs"] {
        rsync.arg(format!("--exclude=/{SUITE}/{dir}/*.c"));
    }
    // What the module build leaves there is newer than the tree, not wrong.
    rsync.arg(format!("--filter=protect /{SUITE}/test_kmods/*"));
    rsync.arg(format!("--link-dest={}", built.tree().display()));
    rsync.arg(built.tree().join("")).arg(tree);
    exec::logged("copying the tree", built.log, &mut rsync)
}

/// With the kernel's own compiler; the suite would take the cross compiler.
fn module(built: &Built<'_>, tree: &Path) -> Result<()> {
    let mut make = built.make();
    make.arg(format!(
        "M={}",
        tree.join(SUITE).join("test_kmods").display()
    ))
    .arg("modules");
    exec::logged("build of bpf_testmod", built.log, &mut make)
}

fn test_progs(built: &Built<'_>, tree: &Path, out: &Path) -> Result<()> {
    let mut make = Command::new("make");
    make.arg("--directory")
        .arg(tree.join(SUITE))
        .arg("--jobs=3");
    let arch = built.arch();
    make.arg(format!("ARCH={}", arch.kernel()));
    // For the machine that this runs on there is nothing to cross to.
    if arch.machine() != std::env::consts::ARCH {
        make.arg(format!("CROSS_COMPILE={}", arch.gnu()));
    }
    make.args(["LLVM=", "BPF_STRICT_BUILD=0"]);
    make.arg(format!("O={}", built.out.display()));
    make.arg(format!("OUTPUT={}", out.display()));
    make.arg(format!(
        "VMLINUX_BTF={}",
        built.out.join("vmlinux").display()
    ));
    make.args(["SKIP_DOCS=1", "SKIP_LLVM=1", "TEST_KMODS="]);
    make.args([
        "LINKED_SKELS=",
        "LSKELS=",
        "LSKELS_SIGNED=",
        "LSKELS_EXTRA=",
    ]);
    // libarena is compiled without -mcpu, and clang 19's default is too old for it.
    make.arg("BPF_TARGET_ENDIAN=--target=bpfel -mcpu=v4");
    make.arg(out.join("test_progs"));
    exec::logged("build of test_progs", built.log, &mut make)
}

/// What `test_progs -t get_branch_snapshot` says of its one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and all checks held.
    Pass,
    /// The test found that it cannot run here.
    Skip,
    /// A check failed.
    Fail,
}

/// Runs the tests of perf events with BPF programs. One of them may skip itself: where no
/// hardware counts.
///
/// `perf_branches` counts cycles of a short loop and wants one sample with branches of
/// user space. In an emulated machine with little time there are few samples, and all
/// may be of the kernel with nothing of the loop in the buffer: what is wrong for
/// another reason stays wrong.
pub const OF_PERF_EVENTS: &str = "for attempt in $(seq 20); do \
     ./test_progs -t perf_branches,perf_buffer,perf_event_stackmap,perf_link,perf_skip && break; \
     done";

/// What became of those, the last time.
pub fn of_perf_events(output: &str) -> Verdict {
    let tests = each(output).into_iter();
    let tests: BTreeMap<_, _> = tests
        .filter(|(name, _)| name.starts_with("perf_"))
        .collect();
    let failed = tests.values().any(|outcome| *outcome == Outcome::Fail);
    if failed || tests.len() != TESTS.len() - 1 {
        return Verdict::Fail(output.to_owned());
    }
    let words = tests.iter().map(|(name, outcome)| match outcome {
        Outcome::Skip => format!("{name} skips itself"),
        _ => (*name).to_owned(),
    });
    Verdict::Pass(words.collect::<Vec<_>>().join(", "))
}

/// What became of each test, by name: `#12  perf_link:OK`, subtests left out. Of one
/// that was run several times each time is told.
pub fn each(output: &str) -> Vec<(&str, Outcome)> {
    let outcome = |word: &str| match word {
        "OK" => Some(Outcome::Pass),
        "SKIP" => Some(Outcome::Skip),
        "FAIL" => Some(Outcome::Fail),
        _ => None,
    };
    let mut tests = Vec::new();
    for line in output.lines() {
        let Some((number, rest)) = line
            .trim()
            .strip_prefix('#')
            .and_then(|rest| rest.split_once(char::is_whitespace))
        else {
            continue;
        };
        let is_test = number.bytes().all(|byte| byte.is_ascii_digit());
        // `OK (SKIP: 1/2)`, where a part of it was left out.
        if let Some((name, words)) = rest.trim().split_once(':')
            && let Some(word) = words.split(' ').next()
            && let Some(outcome) = outcome(word).filter(|_| is_test)
        {
            tests.push((name, outcome));
        }
    }
    tests
}

/// Reads the summary line, `Summary: 1/0 PASSED, 0 SKIPPED, 0/0 FAILED`.
pub fn outcome(output: &str) -> Option<Outcome> {
    let summary = output
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("Summary: "))?;
    let mut counts = summary.split(", ").map(|part| {
        let number = part.split(['/', ' ']).next()?;
        number.parse::<u32>().ok()
    });
    let (passed, skipped, failed) = (counts.next()??, counts.next()??, counts.next()??);
    match (passed, skipped, failed) {
        (_, _, 1..) => Some(Outcome::Fail),
        (_, 1.., 0) => Some(Outcome::Skip),
        (1.., 0, 0) => Some(Outcome::Pass),
        (0, 0, 0) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_decides() {
        let say = |line: &str| outcome(&format!("#1 get_branch_snapshot:OK\n{line}\ndone\n"));
        assert_eq!(
            say("Summary: 1/0 PASSED, 0 SKIPPED, 0/0 FAILED"),
            Some(Outcome::Pass)
        );
        assert_eq!(
            say("Summary: 1/0 PASSED, 1 SKIPPED, 0/0 FAILED"),
            Some(Outcome::Skip)
        );
        assert_eq!(
            say("Summary: 0/0 PASSED, 0 SKIPPED, 1/0 FAILED"),
            Some(Outcome::Fail)
        );
    }

    #[test]
    fn each_test_is_told() {
        let output = "#7/1     perf_branches/perf_branches_hw:SKIP\n#7       perf_branches:OK (SKIP: 1/2)\n\
                      #9       perf_link:FAIL\ncheck_good:PASS:x\nSummary: 1/1 PASSED\n";
        let expected = [
            ("perf_branches", Outcome::Pass),
            ("perf_link", Outcome::Fail),
        ];
        assert_eq!(each(output), expected);
    }

    #[test]
    fn tests_of_perf_events_are_all_there() {
        let line = |name: &str, word: &str| format!("#1 {name}:{word}\n");
        let names = TESTS.map(|(name, _)| name);
        let all: String = names.iter().map(|name| line(name, "OK")).collect();
        assert!(matches!(of_perf_events(&all), Verdict::Pass(_)));
        let skipped = all.replace("perf_link:OK", "perf_link:SKIP");
        let Verdict::Pass(words) = of_perf_events(&skipped) else {
            panic!("{skipped}")
        };
        assert!(words.contains("perf_link skips itself"), "{words}");
        let failed = all.replace("perf_link:OK", "perf_link:FAIL");
        assert!(matches!(of_perf_events(&failed), Verdict::Fail(_)));
        // At the second attempt.
        assert!(matches!(of_perf_events(&(failed + &all)), Verdict::Pass(_)));
        let missing = all.replace("#1 perf_link", "perf_link");
        assert!(matches!(of_perf_events(&missing), Verdict::Fail(_)));
    }

    #[test]
    fn no_summary_or_no_test_is_no_verdict() {
        assert_eq!(outcome("Loading bpf_testmod.ko...\n"), None);
        assert_eq!(
            outcome("Summary: 0/0 PASSED, 0 SKIPPED, 0/0 FAILED\n"),
            None
        );
    }
}
