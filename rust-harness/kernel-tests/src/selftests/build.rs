//! Builds the BPF selftests, `test_progs` and `bpf_testmod`, from the tree at the commit that
//! is tested.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use host::cache;
use host::files::copy_into;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use kernels::build_dir;
use kernels::kernel::{Builder, Built};

use super::SUITE;

/// The tests that are built: of the helper, and of perf events with BPF programs. Each is a
/// pair of names: that of the test's file in `prog_tests`, and that of its BPF program's file
/// in `progs`.
pub(super) const TESTS: [(&str, &str); 6] = [
    ("get_branch_snapshot", "get_branch_snapshot"),
    ("perf_branches", "test_perf_branches"),
    ("perf_buffer", "test_perf_buffer"),
    ("perf_event_stackmap", "perf_event_stackmap"),
    ("perf_link", "test_perf_link"),
    ("perf_skip", "test_perf_skip"),
];
/// The files that are built: the program that runs the tests, and the module that it loads.
pub(super) const BUILT: [&str; 2] = ["test_progs", "bpf_testmod.ko"];

/// The directory in the cache that has `test_progs` and `bpf_testmod.ko` of `commit`, which is
/// called `what` on the screen. `test_progs` has the tests that are built here alone.
///
/// # Errors
///
/// When they cannot be built.
pub fn build(paths: &Paths, builder: &Builder, commit: &str, what: &str) -> Result<PathBuf> {
    let key = builder.key("selftests 3", commit)?;
    let key = key.with(builder.tree().content(commit)?);
    cache::entry(paths, "selftests", &key, |into| {
        builder.at(commit, what, |built| {
            let step = Step::start(format!("build test_progs of {what}"));
            in_work(&work(paths, builder, ""), |work| {
                let tree = work.join("tree");
                let out = work.join("out");
                fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
                mirror(built, &tree)?;
                module(built, &tree)?;
                test_progs(built, &tree, &out)?;
                copy_into(&out.join(BUILT[0]), into)?;
                copy_into(&tree.join(SUITE).join("test_kmods").join(BUILT[1]), into)
            })?;
            step.done();
            Ok(())
        })
    })
}

/// The directory in the cache that has the module alone, for a kernel of another
/// configuration. A module fits one kernel, and the program fits any.
pub(super) fn build_module(
    paths: &Paths,
    builder: &Builder,
    commit: &str,
    what: &str,
) -> Result<PathBuf> {
    let key = builder.key("selftests module 1", commit)?;
    let key = key.with(builder.tree().content(commit)?);
    cache::entry(paths, "selftests-module", &key, |into| {
        builder.at(commit, what, |built| {
            let step = Step::start(format!(
                "build bpf_testmod of {what}{}",
                builder.fragments_suffix()
            ));
            let mark = builder.fragments_suffix().replace(", ", "-");
            in_work(&work(paths, builder, &mark), |work| {
                let tree = work.join("tree");
                mirror(built, &tree)?;
                module(built, &tree)?;
                copy_into(&tree.join(SUITE).join("test_kmods").join(BUILT[1]), into)
            })?;
            step.done();
            Ok(())
        })
    })
}

/// The directory in which the selftests for kernels of `builder` are built. `mark` sets it
/// apart from others.
fn work(paths: &Paths, builder: &Builder, mark: &str) -> PathBuf {
    let (tree, arch) = (&builder.tree().id, builder.arch().kernel());
    paths
        .home("build")
        .join(format!("{tree}-selftests-{arch}{mark}"))
}

/// Calls `build` with the directory `work`, which is empty where an earlier build there did not
/// succeed: the suite's makefiles do not say which files are finished.
fn in_work(work: &Path, build: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let empty = |work: &Path| {
        fs::remove_dir_all(work).with_context(|| format!("removing {}", work.display()))
    };
    build_dir::kept_whole(work, empty, || build(work))
}

/// Makes `tree` a hard-linked copy of the source tree that has none of the suite's tests but
/// [`TESTS`]. The suite's makefile builds whatever is there.
fn mirror(built: &Built<'_>, tree: &Path) -> Result<()> {
    let mut rsync = Command::new("rsync");
    rsync.args(["--archive", "--delete", "--exclude=/.git"]);
    for (test, program) in TESTS {
        rsync.arg(format!("--include=/{SUITE}prog_tests/{test}.c"));
        rsync.arg(format!("--include=/{SUITE}progs/{program}.c"));
    }
    for dir in ["prog_tests", "progs"] {
        rsync.arg(format!("--exclude=/{SUITE}{dir}/*.c"));
    }
    // What the module build leaves in `test_kmods` is newer than the tree, not wrong.
    rsync.arg(format!("--filter=protect /{SUITE}test_kmods/*"));
    rsync.arg(format!("--link-dest={}", built.tree().display()));
    rsync.arg(built.tree().join("")).arg(tree);
    process::logged("copying the tree", built.log, &mut rsync)
}

/// Builds `bpf_testmod` with the kernel's own compiler. The suite would take the cross
/// compiler.
fn module(built: &Built<'_>, tree: &Path) -> Result<()> {
    let mut make = built.make();
    make.arg(format!(
        "M={}",
        tree.join(SUITE).join("test_kmods").display()
    ))
    .arg("modules");
    process::logged("build of bpf_testmod", built.log, &mut make)
}

fn test_progs(built: &Built<'_>, tree: &Path, out: &Path) -> Result<()> {
    let mut make = Command::new("make");
    make.arg("--directory")
        .arg(tree.join(SUITE))
        .arg("--jobs=3");
    let arch = built.arch();
    make.arg(format!("ARCH={}", arch.kernel()));
    // No cross compiler is needed for the architecture that this runs on.
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
    process::logged("build of test_progs", built.log, &mut make)
}
