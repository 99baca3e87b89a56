//! Checks that need no guest: of the Rust in this repository, and of the patches.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::uapi_copies;
use crate::undone;
use host::arch::Arch;
use host::cache;
use host::cargo::{self, cargo};
use host::logs::Log;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use kernels::kernel::Builder;
use kernels::series::{Change, Patch};
use kernels::subject::Subject;
use kernels::variant::Variant;
use report::{Job, Tier, Verdict};

/// The name of the test that a series applies. A series that does not apply cannot be tested
/// at all.
pub const APPLIES: &str = "the series applies with git am";

/// The jobs that check formatting, lints, documentation and unit tests of this workspace.
pub fn rust(paths: &Paths) -> impl Iterator<Item = Job<'_>> {
    let checks: [(&str, &[&str]); 4] = [
        ("cargo fmt", &["fmt", "--all", "--check"]),
        (
            "cargo clippy",
            &[
                "clippy",
                "--locked",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
        ),
        (
            "cargo doc",
            &[
                "doc",
                "--locked",
                "--workspace",
                "--no-deps",
                "--document-private-items",
            ],
        ),
        (
            "cargo test",
            &["test", "--locked", "--workspace", "--no-fail-fast"],
        ),
    ];
    checks.into_iter().map(move |(name, args)| {
        let job = Job::new("rust", name, move || {
            let log = Log::fresh(paths.log(&name.replace(' ', "-")))?;
            let mut command = cargo(paths);
            command.args(args).env("RUSTDOCFLAGS", "-D warnings");
            process::step(name, &log, &mut command)?;
            Ok(match name {
                "cargo test" => Verdict::Pass(count_tests(&log)?),
                _ => Verdict::pass(),
            })
        });
        // Lints and documentation are the least of what a change breaks, and each of the two
        // compiles all crates once more.
        let tier = match name {
            "cargo clippy" | "cargo doc" => Tier::Full,
            _ => Tier::Quick,
        };
        job.holding(cargo::TARGET).in_tier(tier)
    })
}

/// Adds up the `test result:` lines in the log of a `cargo test`.
fn count_tests(log: &Path) -> Result<String> {
    let text = fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    let passed = |line: &str| {
        let rest = line.strip_prefix("test result: ok. ")?;
        rest.split_once(" passed")?.0.parse::<u32>().ok()
    };
    let count: u32 = text.lines().filter_map(passed).sum();
    ensure!(count > 0, "no test has run: see {}", log.display());
    Ok(format!("{count} tests"))
}

/// The jobs that check how each patch of a series is written.
pub fn style<'a>(paths: &'a Paths, subject: &'a Subject) -> Vec<Job<'a>> {
    let job = |test: String, check: Box<dyn FnOnce() -> Result<Verdict> + Send + 'a>| {
        Job::new(subject.name(), test, check)
    };
    let checkpatch = subject.changes().into_iter().map(|Change { patch, .. }| {
        let test = format!("checkpatch --strict {}", patch.short());
        let job = job(test, Box::new(move || checkpatch(paths, subject, patch)));
        // The script is that of the commit.
        job.holding(subject.patch_tree.lock())
    });
    let undone = subject.changes().into_iter().map(|change| {
        let test = format!(
            "takes out nothing of earlier patches {}",
            change.patch.short()
        );
        job(test, Box::new(move || undone::check(subject, &change)))
    });
    let mut jobs: Vec<_> = checkpatch.chain(undone).collect();
    let copies = Box::new(|| uapi_copies::check(subject));
    jobs.push(job(uapi_copies::TEST.to_owned(), copies));
    if subject.variant == Variant::Rust {
        let rustfmt = Box::new(|| rustfmt(paths, subject));
        let rustfmt = job("make rustfmtcheck".to_owned(), rustfmt);
        jobs.push(rustfmt);
    }
    jobs
}

/// The jobs that check that the C files of the kernel which a series touches compile with each
/// patch and those before it, in the configuration of the subject. That takes a minute where
/// [`builds`] takes a kernel from nothing: a series changes headers that nearly all files include.
/// A patch that touches nothing of the kernel has no job.
///
/// # Errors
///
/// When git cannot list the files that a patch touches.
pub fn compiles<'a>(subject: &'a Subject) -> Result<Vec<Job<'a>>> {
    let changes = changes(subject)?;
    let files = touched(subject, &changes)?.into_iter().flatten();
    let sources: BTreeSet<_> = files.filter(|file| is_source(file)).collect();
    let job = |change: Change<'a>| {
        let test = format!("compiles up to {}", change.patch.short());
        let builder = subject.builder().in_tree(&subject.patch_tree);
        let sources = sources.clone();
        with_each_before(
            subject,
            change,
            test,
            builder,
            move |builder, commit, what| builder.compiles(commit, what, &sources),
        )
    };
    Ok(changes.into_iter().map(job).collect())
}

/// The job that checks what a builder makes of the tree with a patch and those before it, by the
/// commit and by what messages call it.
fn with_each_before<'a>(
    subject: &'a Subject,
    Change { patch, commit, .. }: Change<'a>,
    test: String,
    builder: Builder,
    check: impl FnOnce(&Builder, &str, &str) -> Result<()> + Send + 'a,
) -> Job<'a> {
    let tree = builder.tree().lock();
    let job = Job::new(subject.name(), test, move || {
        let what = format!("{} with {}", subject.base.version, patch.short());
        check(&builder, commit, &what)?;
        Ok(Verdict::pass())
    });
    job.holding(tree)
}

/// The patches of a series to what a kernel is compiled from.
pub(crate) fn changes(subject: &Subject) -> Result<Vec<Change<'_>>> {
    touching(subject, |file| !is_aside(file))
}

/// The patches of a series that touch a file which `is_wanted` takes.
pub(crate) fn touching(
    subject: &Subject,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Change<'_>>> {
    let git = subject.tree.git();
    let mut found = Vec::new();
    for change in subject.changes() {
        if change.files(&git)?.iter().any(|file| is_wanted(file)) {
            found.push(change);
        }
    }
    Ok(found)
}

/// The files that each patch touches.
pub(crate) fn touched(subject: &Subject, changes: &[Change<'_>]) -> Result<Vec<Vec<String>>> {
    let git = subject.tree.git();
    changes.iter().map(|change| change.files(&git)).collect()
}

/// Whether a file of the tree is a C file of the kernel.
fn is_source(file: &str) -> bool {
    file.ends_with(".c") && !is_aside(file)
}

/// Whether a file of the tree is no part of the kernel: a document, or a program.
fn is_aside(file: &str) -> bool {
    let dirs = ["Documentation/", "tools/"];
    dirs.iter().any(|dir| file.starts_with(dir))
}

/// The jobs that check that the tree builds with each patch and those before it, in the
/// configuration of the subject, and in that of another subject if there is one. That each
/// patch applies has been seen when the subject was prepared.
pub fn builds<'a>(subject: &'a Subject, other: Option<&'a Subject>) -> Vec<Job<'a>> {
    // All builds of one configuration come one after the other: changing the configuration
    // takes time.
    let subjects = other.into_iter().chain([subject]);
    subjects
        .flat_map(|other| builds_by(subject, other.builder()))
        .collect()
}

/// The jobs that check that the tree builds with each patch and those before it, in the
/// configuration of `builder`.
pub fn builds_by<'a>(subject: &'a Subject, builder: &Builder) -> Vec<Job<'a>> {
    let job = |change: Change<'a>| {
        let test = format!(
            "builds up to {}{}",
            change.patch.short(),
            configuration(builder)
        );
        with_each_before(subject, change, test, builder.clone(), Builder::builds)
    };
    subject.changes().into_iter().map(job).collect()
}

/// The end of a test's name that sets the configuration of `builder` apart from others.
pub fn configuration(builder: &Builder) -> String {
    match builder.arch() {
        Arch::Arm64 => builder.fragments_suffix(),
        other => format!(", {}{}", other.kernel(), builder.fragments_suffix()),
    }
}

/// Runs the kernel's own check of how its Rust is formatted. It needs neither a configuration nor a
/// kernel.
fn rustfmt(paths: &Paths, subject: &Subject) -> Result<Verdict> {
    let (tree, commit) = (&subject.patch_tree, subject.patched());
    let key = subject.builder().key("rustfmt 2", commit)?;
    cache::entry(paths, "rustfmt", &key, |_| {
        tree.at(paths, commit, |log| {
            let out = tempfile::tempdir().context("creating a directory for make")?;
            let mut make = tree.make(out.path());
            process::logged("make rustfmtcheck", log, make.arg("rustfmtcheck"))
        })
    })?;
    Ok(Verdict::pass())
}

/// Types of messages that checkpatch ignores in patches: sign-off and author are the
/// submitter's.
const IGNORED_IN_PATCHES: [&str; 2] = ["MISSING_SIGN_OFF", "NO_AUTHOR_SIGN_OFF"];

/// Types of messages that checkpatch always ignores. Commits that a `Fixes:` tag names can
/// only be looked up in a tree with history. Constants of registers have the names of the
/// generated sysreg-defs.h, in mixed case: `BRBINFx_EL1_TYPE`.
const IGNORED: [&str; 2] = ["UNKNOWN_COMMIT_ID", "CAMELCASE"];

/// The type of messages that checkpatch ignores in patches in Rust: Rust is in new files, and
/// MAINTAINERS has their folders.
const IGNORED_IN_RUST: &str = "FILE_PATH_CHANGES";

fn checkpatch(paths: &Paths, subject: &Subject, patch: &Patch) -> Result<Verdict> {
    let step = Step::start(format!("checkpatch {}", patch.name));
    let verdict = checkpatch_of(
        paths,
        subject,
        &patch.path,
        &[IGNORED, IGNORED_IN_PATCHES].concat(),
    )?;
    step.done();
    Ok(verdict)
}

/// Runs checkpatch on a mail. Unlike a patch file, a mail has to be signed off.
pub fn checkpatch_of_mail(paths: &Paths, subject: &Subject, mail: &Path) -> Result<Verdict> {
    checkpatch_of(paths, subject, mail, &IGNORED)
}

fn checkpatch_of(
    paths: &Paths,
    subject: &Subject,
    patch: &Path,
    ignored: &[&str],
) -> Result<Verdict> {
    let file = patch.file_name().unwrap_or_default().to_string_lossy();
    let name = subject.name().replace(' ', "-");
    let log = Log::fresh(paths.log(&format!("checkpatch-{name}-{file:.32}")))?;
    let mut ignored = ignored.to_vec();
    if subject.variant == Variant::Rust {
        ignored.push(IGNORED_IN_RUST);
    }
    let mut checkpatch = Command::new("perl");
    checkpatch.current_dir(&subject.patch_tree.path);
    checkpatch.args([
        "scripts/checkpatch.pl",
        "--strict",
        "--show-types",
        "--ignore",
        &ignored.join(","),
    ]);
    checkpatch.arg(patch);
    let status = subject.patch_tree.at(paths, subject.patched(), |_| {
        process::run_to_status(&log, &mut checkpatch)
    })?;
    if status.success() {
        return Ok(Verdict::pass());
    }
    let said = fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))?;
    Ok(Verdict::Fail(said.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_all_crates_are_added_up() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(
            &log,
            "test result: ok. 12 passed; 0 failed; 0 ignored\nx\ntest result: ok. 30 passed; 0 failed\n",
        )
        .unwrap();
        assert_eq!(count_tests(&log).unwrap(), "42 tests");
    }
}
