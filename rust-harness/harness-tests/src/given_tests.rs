//! Tests of the commands that take a kernel which was built elsewhere.

use anyhow::{Result, ensure};

use crate::as_user::brbe;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use report::Verdict;

/// The tests.
pub fn tests() -> Vec<Batch> {
    let test = Test {
        needs_plugin: true,
        ..Test::new(
            "--kernel: a kernel that was built elsewhere",
            Scope::DEFAULT,
        )
    };
    vec![Batch::of_one(test, |context, _| check(context)).about("machine")]
}

/// Tests a kernel, and takes a snapshot on it, by its files alone.
fn check(context: &Context<'_>) -> Result<Verdict> {
    let (paths, kernel) = (context.paths, context.kernel()?);
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
