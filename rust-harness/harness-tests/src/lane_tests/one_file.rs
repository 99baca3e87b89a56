//! Test of a lane that a user adds: a program of one file, `scripts/lanes/example`.

use anyhow::{Context as _, Result, bail, ensure};

use crate::as_user::brbe;
use host::arch::Arch;
use host::cargo;
use host::process;
use kernel_tests::context::Context;
use machines::alone::Running;
use report::Verdict;

pub(super) fn check(context: &Context<'_>) -> Result<Verdict> {
    let (paths, subject) = (context.paths, context.subject()?);
    let lane = paths.repo("scripts/lanes/example");
    // The lane knows nothing of this checkout: it has to be given the paths of brbe and of
    // the plugin.
    let plugin = cargo::plugin(paths, Arch::Arm64)?;
    let program = process::this_program();
    let dir = tempfile::tempdir().context("a directory for the lane")?;
    let mine = dir.path().join("mine");
    let text = std::fs::read_to_string(&lane).with_context(|| lane.display().to_string())?;
    let text = text
        .replace("/path/to/brbe", &program.display().to_string())
        .replace("/path/to/libqemu_brbe.so", &plugin.display().to_string());
    std::fs::write(&mine, text).context("writing the lane")?;
    std::fs::set_permissions(&mine, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .context("making it a program")?;

    let mine = mine.display().to_string();
    let _machine = Running::beside_others();
    let run = |test: &str| {
        let test = format!("{}: {test}", context.title);
        let base = &subject.base.name;
        brbe(
            paths,
            "lane-mine",
            &[
                "test",
                "--unrecorded",
                "--json",
                "--base",
                base,
                "--on",
                &mine,
                &test,
            ],
        )
    };
    run("cpu-wide-event")?.expect_passed("cpu-wide-event")?;
    // A test that needs what the lane says that it cannot do is not run on it.
    let beyond = "privileges, kernel at EL2 (VHE)";
    let report = run(beyond)?.report()?;
    let reason = match report.verdict(beyond) {
        Some(Verdict::Skip(reason)) => reason,
        other => bail!("{beyond}: {other:?} instead of skipped"),
    };
    ensure!(
        reason == "it needs a kernel at EL2",
        "skipped since {reason}"
    );
    Ok(Verdict::Pass(
        "a test run, and one skipped for what the lane lacks".to_owned(),
    ))
}
