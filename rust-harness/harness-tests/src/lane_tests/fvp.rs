//! Test of the FVP lane, with a stand-in for Arm's model. The stand-in takes the model's
//! arguments and runs QEMU.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::as_user::brbe;
use host::arch::Arch;
use host::cargo;
use kernel_tests::context::Context;
use machines::alone::Running;
use machines::backend::End;
use machines::fvp::Fvp;
use machines::guest::{Guest, Task};
use machines::machine_spec::MachineSpec;
use machines::share::Share;
use report::Verdict;

/// How long a run on the stand-in may take: longer than it takes to boot.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn check(context: &Context<'_>) -> Result<Verdict> {
    let (paths, subject) = (context.paths, context.subject()?);
    let kernel = context.kernel()?;
    let dir = Share::new(paths)?;
    let model = cargo::stand_in(paths)?;
    let write = |name: &str, text: &str| -> Result<_> {
        let path = dir.path().join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    };
    write("bl31.bin", "no firmware")?;
    let model = format!("model = {:?}\n", model.display().to_string());
    let tf_a = format!("{model}[firmware.tf-a]\nbl31 = 'bl31.bin'\n");
    let good = write("fvp.toml", &tf_a)?;

    // The lane is used through the whole command `brbe test`, with a test that reads records.
    let on = format!("fvp:{}", good.display());
    let test = format!("{}: cpu-wide-event", context.title);
    let arguments = [
        "test",
        "--unrecorded",
        "--json",
        "--base",
        &subject.base.name,
        "--on",
        &on,
        &test,
    ];
    let machine = Running::beside_others();
    brbe(paths, "lane-fvp", &arguments)?.expect_passed("cpu-wide-event")?;
    drop(machine);

    // What can be said without booting: of this file, and of files with a mistake.
    let checked = |file: &Path| {
        let on = format!("fvp:{}", file.display());
        let base = &subject.base.name;
        let words = ["test", "--json", "--base", base, "--on", &on, "--check"];
        brbe(paths, "lane-fvp-check", &words)
    };
    const KNOWN: &str = "knows each parameter";
    const FITS: &str = "has a place for firmware and kernel";
    let all = checked(&good)?;
    for test in [KNOWN, FITS] {
        all.expect_passed(test)?;
    }
    for (mistake, test, said) in [
        (
            "[parameters]\n'cluster0.has_brbf' = 1\n",
            KNOWN,
            "the model does not know cluster0.has_brbf",
        ),
        (
            "kernel-at = 0x82000000\ndevice-tree-at = 0x82000000\n",
            FITS,
            "overlap",
        ),
    ] {
        let report = checked(&write("wrong.toml", &format!("{tf_a}{mistake}"))?)?.report()?;
        match report.verdict(test) {
            Some(Verdict::Fail(why)) if why.contains(said) => {}
            other => bail!("{mistake}: {test}: {other:?}"),
        }
    }

    // Each way in which a run can end.
    let run = |file: &Path, command: &str, timeout| {
        let guest = Guest::on(paths, Arch::Arm64, Arc::new(Fvp::load(file)?));
        let guest = guest.for_kernels_of(subject)?;
        let task = Task {
            name: &format!("stand-in, {command}"),
            command,
            share: &Share::new(paths)?,
            timeout,
        };
        let run = guest.run(&kernel, &MachineSpec::default(), &task)?;
        anyhow::Ok((run.end, run.output))
    };
    let wrapper = "make = ['sh', '-c', 'printf \"%s\\n\" \"$1\" \"$2\" >\"$3\"', 'wrapper', \
                   '{image}', '{cmdline}', '{elf}']";
    let licensed = "[environment]\nARMLMD_LICENSE_FILE = '8224@localhost'\n\
                    [parameters]\n'stand_in.unlicensed' = 1\n";
    let wrapped = write(
        "wrapped.toml",
        &format!("{model}[firmware.boot-wrapper]\n{wrapper}\n{licensed}"),
    )?;
    match run(&wrapped, "echo here; nproc; exit 7", PATIENCE)? {
        (End::Exited(7), output) if output == "here\n2\n" => {}
        other => bail!("{other:?} instead of status 7"),
    }
    match run(&good, "echo c > /proc/sysrq-trigger", PATIENCE)? {
        (End::Panicked(said), _) if said.join("\n").contains("sysrq triggered crash") => {}
        other => bail!("{other:?} instead of a panic"),
    }
    match run(
        &good,
        "echo here > /dev/kmsg; sleep 1000",
        Duration::from_secs(40),
    )? {
        (End::TimedOut(last), _) if last.iter().any(|line| line.contains("here")) => {}
        other => bail!("{other:?} instead of a time-out"),
    }
    for (parameter, expected) in [
        ("'stand_in.unlicensed' = 1", "it has no licence"),
        (
            "'cluster0.has_brbf' = 1",
            "a parameter that this version does not know",
        ),
    ] {
        let file = write("wrong.toml", &format!("{tf_a}[parameters]\n{parameter}\n"))?;
        match run(&file, "true", PATIENCE)? {
            (End::Failed(why), _) => ensure!(why.contains(expected), "{parameter}: {why}"),
            other => bail!("{parameter}: {other:?}"),
        }
    }
    Ok(Verdict::Pass(
        "TF-A and boot wrapper, five ends of a run".to_owned(),
    ))
}
