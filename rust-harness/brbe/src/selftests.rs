//! The kernel tree's own BPF selftest of the helper, from the tree at the
//! commit that is tested: `test_progs` with this one test, and `bpf_testmod`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache;
use crate::exec;
use crate::kernel::{Builder, Built};
use crate::places::Places;
use crate::progress::Step;

const TEST: &str = "get_branch_snapshot";
const SUITE: &str = "tools/testing/selftests/bpf";
const MODULE: &str = "bpf_testmod.ko";

/// A directory with `test_progs` and the module that it loads.
pub fn build(places: &Places, builder: &Builder, commit: &str, what: &str) -> Result<PathBuf> {
    let key = builder.key("selftests 2", commit)?;
    cache::entry(places, "selftests", &key, |into| {
        builder.at(commit, what, |built| {
            let step = Step::start(format!("build test_progs of {what}"));
            let work = places
                .home("build")
                .join(format!("{}-selftests", builder.tree().id));
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
    for dir in ["prog_tests", "progs"] {
        rsync.arg(format!("--include=/{SUITE}/{dir}/{TEST}.c"));
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
    make.args([
        "ARCH=arm64",
        "CROSS_COMPILE=aarch64-linux-gnu-",
        "LLVM=",
        "BPF_STRICT_BUILD=0",
    ]);
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
    fn no_summary_or_no_test_is_no_verdict() {
        assert_eq!(outcome("Loading bpf_testmod.ko...\n"), None);
        assert_eq!(
            outcome("Summary: 0/0 PASSED, 0 SKIPPED, 0/0 FAILED\n"),
            None
        );
    }
}
