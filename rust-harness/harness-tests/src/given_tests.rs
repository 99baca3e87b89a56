//! Tests of the commands that take a kernel which was built elsewhere, or somebody else's patches.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::as_user::brbe;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use kernels::series::Patch;
use machines::alone::Running;
use report::Verdict;

/// The tests.
pub fn tests() -> Vec<Batch> {
    let of = |name, check: fn(&Context<'_>) -> Result<Verdict>| {
        let test = Test {
            needs_plugin: true,
            ..Test::new(name, Scope::DEFAULT)
        };
        Batch::of_one(test, move |context, _| check(context)).about("machine")
    };
    vec![
        of("--kernel: a kernel that was built elsewhere", kernel),
        of("--patches: patches of somebody else", patches),
    ]
}

/// Tests a kernel, and takes a snapshot on it, by its files alone.
fn kernel(context: &Context<'_>) -> Result<Verdict> {
    let (paths, kernel) = (context.paths, context.kernel()?);
    let _machine = Running::beside_others();
    let image = kernel.image.display().to_string();
    let vmlinux = kernel.vmlinux()?.display().to_string();

    let tested = ["test", "--json", "--kernel", &image, ": twice"];
    brbe(paths, "given-test", &tested)?.expect_passed("twice")?;

    let all = ["test", "--list", "--kernel", &image];
    let listed = brbe(paths, "given-list", &all)?;
    let is_of_it = |line: &str| line.starts_with("Linux ");
    ensure!(
        listed.stdout.lines().count() > 10 && listed.stdout.lines().all(is_of_it),
        "{all:?} lists other kernels' tests:\n{}",
        listed.stdout
    );

    let shown = ["snapshot", "--kernel", &image, "--vmlinux", &vmlinux];
    let shown = brbe(paths, "given-snapshot", &shown)?;
    ensure!(
        shown.status == Some(0) && shown.stdout.contains("kernel/bpf/arraymap.c:"),
        "no snapshot with lines: {}\n{}",
        shown.stdout,
        shown.stderr
    );

    let unnamed = brbe(paths, "given-without", &["snapshot", "--kernel", &image])?;
    ensure!(
        unnamed.status == Some(3) && unnamed.stderr.contains("--vmlinux FILE"),
        "without vmlinux: {}",
        unnamed.stderr
    );
    Ok(Verdict::Pass(
        "tested, and a snapshot with lines".to_owned(),
    ))
}

/// Tests the patches of the series as somebody else's, in one mailbox. The kernel is that of the
/// series, and so it is there.
fn patches(context: &Context<'_>) -> Result<Verdict> {
    let (paths, subject) = (context.paths, context.subject()?);
    let dir = tempfile::tempdir().context("a directory for a mailbox")?;
    let read = |patch: &Patch| {
        let text = fs::read_to_string(&patch.path);
        text.with_context(|| format!("reading {}", patch.path.display()))
    };
    let mails = subject.series.patches.iter().map(read);
    let mails = mails.collect::<Result<Vec<_>>>()?;
    let test = |name: &str, mails: &[String], only: &str| {
        let mailbox = dir.path().join(name);
        fs::write(&mailbox, mails.concat()).context("writing a mailbox")?;
        let mailbox = mailbox.display().to_string();
        let base = ["--base", &subject.base.name];
        let words = ["test", "--json", "--patches", &mailbox, only];
        brbe(paths, "given-patches", &[&words[..], &base].concat())
    };
    let _machine = Running::beside_others();
    test("all.mbox", &mails, "with all.mbox: twice")?.expect_passed("twice")?;

    // Some patches of a series apply by themselves. All of them backwards never do: each of two
    // patches of one place needs that the first is there.
    let backwards: Vec<_> = mails.iter().rev().cloned().collect();
    let backwards = test("backwards.mbox", &backwards, "twice")?;
    let said = backwards.report()?.table().to_string();
    ensure!(
        backwards.status == Some(1) && said.contains(" does not apply"),
        "the patches from the last to the first: {:?}\n{said}\n{}",
        backwards.status,
        backwards.stderr
    );
    Ok(Verdict::Pass(format!(
        "{} patches, and not from the last to the first",
        mails.len()
    )))
}
