//! The kernel's own test of branch stacks, `perf test "branch stack sampling"`.
//!
//! The test looks for functions of perf itself in what it records. Debian's perf has no
//! symbols, and with it the test skips itself. So perf is built from the kernel's source,
//! with the little that the test needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use host::cache;
use host::git::Git;
use host::logs::Log;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use kernels::kernel::Builder;
use machines::share::Share;
use report::Verdict;

/// The name by which `perf test` finds the test, and which it prints.
const TEST: &str = "Check branch stack sampling";

/// The directory where perf looks for its shell tests, relative to where perf is.
const SHELL_TESTS: &str = "tests/shell";

/// The command that runs the test in the guest. The test runs `perf` by this name, so the
/// PATH has it.
pub const COMMAND: &str = "export HOME=/tmp PATH=$PWD:$PATH; perf test -vv 'branch stack sampling'";

/// Options of perf's build that leave out libraries, which perf would otherwise look for on
/// the host.
const WITHOUT: [&str; 10] = [
    "NO_LIBBPF=1",
    "NO_LIBDW=1",
    "NO_LIBPYTHON=1",
    "NO_LIBPERL=1",
    "NO_LIBTRACEEVENT=1",
    "NO_LIBNUMA=1",
    "NO_SLANG=1",
    "NO_JEVENTS=1",
    "NO_DEMANGLE=1",
    "NO_LIBCRYPTO=1",
];

/// The directory in the cache that has `perf` and its shell tests, from the source at
/// `commit`, which is called `what` on the screen.
pub fn build(paths: &Paths, builder: &Builder, commit: &str, what: &str) -> Result<PathBuf> {
    let key = builder.key("perf 1", commit)?;
    cache::entry(paths, "perf", &key, |into| {
        let log = Log::fresh(paths.log(&format!("perf-{}", builder.tree().id)))?;
        let step = Step::start(format!("build perf of {what}"));
        let (source, out) = (into.join("source"), into.join("out"));
        export(&builder.tree().git(), commit, &source, &log)?;
        fs::create_dir(&out).with_context(|| format!("creating {}", out.display()))?;
        process::logged("build of perf", &log, &mut make(&source, &out))?;
        for (from, name) in [
            (out.join("perf"), "perf"),
            (source.join("tools/perf").join(SHELL_TESTS), "tests"),
        ] {
            fs::rename(&from, into.join(name))
                .with_context(|| format!("moving {}", from.display()))?;
        }
        cache::remove(&source)?;
        cache::remove(&out)?;
        step.done();
        Ok(())
    })
}

/// Puts the part of the tree that perf is built from into the directory `into`: what perf
/// itself lists in its MANIFEST. The tree's own work tree may be at another commit, and a
/// kernel be built in it.
fn export(git: &Git, commit: &str, into: &Path, log: &Path) -> Result<()> {
    let list = git.read(&["show", &format!("{commit}:tools/perf/MANIFEST")])?;
    fs::create_dir(into).with_context(|| format!("creating {}", into.display()))?;
    let archive = into.join("archive.tar");
    let output = format!("--output={}", archive.display());
    let mut args = vec!["archive", "--format=tar", &output, commit, "--"];
    args.extend(list.split_ascii_whitespace());
    git.log(log, &args)?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--directory").arg(into);
    tar.arg("--file").arg(&archive);
    process::logged("unpacking perf's source", log, &mut tar)?;
    fs::remove_file(&archive).context("removing the archive")
}

fn make(source: &Path, out: &Path) -> Command {
    let jobs = thread::available_parallelism().map_or(1, usize::from) + 1;
    let mut make = Command::new("make");
    make.arg("--directory").arg(source.join("tools/perf"));
    make.arg(format!("O={}", out.display()));
    make.args(["ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-", "WERROR=0"]);
    make.args(WITHOUT).arg("--jobs").arg(jobs.to_string());
    make.arg(out.join("perf"));
    make.env("PKG_CONFIG_LIBDIR", "/usr/lib/aarch64-linux-gnu/pkgconfig");
    make
}

/// Puts what [`build`] has made into the directory shared with the guest.
pub fn share(built: &Path, share: &Share) -> Result<()> {
    share.put(&built.join("perf"))?;
    let tests = share.path().join(SHELL_TESTS);
    let parent = tests.parent().context("a directory has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    copy(&built.join("tests"), &tests)
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry.context("reading a directory")?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().context("reading a directory")?.is_dir() {
            copy(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("copying {}", path.display()))?;
        }
    }
    Ok(())
}

/// The verdict on the test, by the output of `perf test -vv`: by perf's line about the test,
/// and by the parts that the test's script names as it goes.
pub fn verdict(output: &str) -> Verdict {
    let whole = |why: &str| format!("{why}\n{output}");
    let lines = || output.lines().map(str::trim);
    let parts = |what: &str| {
        let parts = lines().filter(|line| line.starts_with("Testing ") && line.contains(what));
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    let (failed, skipped) = (parts("[Failed"), parts("[Skipped"));
    let started = parts("").len() - parts("[").len();
    let said = lines()
        .filter(|line| line.contains(TEST))
        .filter_map(|line| line.rsplit(':').next())
        .map(str::trim)
        .rfind(|said| {
            ["Ok", "Skip", "FAILED"]
                .iter()
                .any(|word| said.starts_with(word))
        });
    match said {
        None => Verdict::Fail(whole("perf printed no result:")),
        Some(said) if said.starts_with("Skip") => Verdict::Skip(
            lines()
                .find(|line| line.contains("skip"))
                .unwrap_or("it skips itself")
                .to_owned(),
        ),
        Some("Ok") if started == 0 => Verdict::Fail(whole("it passes without a part:")),
        Some("Ok") if failed.is_empty() && skipped.is_empty() => {
            Verdict::Pass(format!("{started} parts"))
        }
        Some("Ok") if failed.is_empty() => Verdict::Fail(whole(&skipped.join("; "))),
        Some(_) => Verdict::Fail(whole(&failed.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "\
125: Check branch stack sampling                          : Running (1 active)
125: Check branch stack sampling:
---- start ----
perf does have symbol 'brstack_bench'
Testing user branch stack sampling
Testing user branch stack sampling [Passed]
Testing branch stack filtering permutation (call,CALL|SYSCALL)
Testing branch stack filtering [Passed]
---- end(0) ----
125: Check branch stack sampling                          : Ok
";

    fn fails(output: &str) -> String {
        match verdict(output) {
            Verdict::Fail(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_parts_have_to_pass() {
        assert_eq!(verdict(PASSED), Verdict::Pass("2 parts".to_owned()));
        let failed = PASSED
            .replace("filtering [Passed]", "filtering [Failed unexpected]")
            .replace(": Ok", ": FAILED!");
        let why = fails(&failed);
        assert!(
            why.starts_with("Testing branch stack filtering [Failed unexpected]\n125: "),
            "{why}"
        );
        let skipped = PASSED.replace("user branch stack sampling [Passed]", "x [Skipped not y]");
        assert!(fails(&skipped).starts_with("Testing x [Skipped not y]\n"));
    }

    #[test]
    fn a_test_that_skips_itself_says_why() {
        let skipped = "\
131: Check branch stack sampling:
perf is missing symbols - skipping test
131: Check branch stack sampling      : Skip
";
        let why = "perf is missing symbols - skipping test".to_owned();
        assert_eq!(verdict(skipped), Verdict::Skip(why));
    }

    #[test]
    fn no_result_is_a_failure() {
        assert!(fails("perf: command not found\n").starts_with("perf printed no result"));
        let nothing = "125: Check branch stack sampling : Ok\n";
        assert!(fails(nothing).starts_with("it passes without a part"));
        let died = PASSED.replace(": Ok", ": Running (1 active)");
        assert!(fails(&died).starts_with("perf printed no result"));
    }
}
