//! A kernel that starts another one while branches are recorded: the other one finds BRBE as it
//! was left, and has snapshots of its own.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use host::files::copy_into;
use host::process::ProcessGroup;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use kernels::kernel::Kernel;
use machines::alone::Running;
use machines::share;
use report::Verdict;
use vm_session::ROOT;

use super::vm;

/// The file that the other kernel's tests print into.
const SAID: &str = "said";
/// How much of that file is read, in bytes.
const MOST: u64 = 1 << 16;
/// The tests that the other kernel runs.
const TESTS: [&str; 2] = ["no-event", "twice"];

/// The test.
pub(super) fn test() -> Batch {
    let test = Test {
        needs_plugin: true,
        ..Test::new("kexec", Scope::ONCE)
    };
    Batch::of_one(test, |context: &Context<'_>, _| {
        let kernel = context.kernel()?;
        let _machine = Running::beside_others();
        check(&kernel)
    })
}

fn check(kernel: &Kernel) -> Result<Verdict> {
    let dir = tempfile::tempdir().context("a directory to share")?;
    copy_into(&kernel.image, dir.path())?;
    let image = kernel.image.file_name().context("a kernel has a name")?;
    let share = dir.path().display().to_string();
    // The other kernel's root is without the programs that the session has.
    let script = "cp \"$(command -v branch-guest)\" . && exec ./branch-guest kexec \"$@\"";
    // Without EFI the other kernel is not told where the ITS's tables are, which the GIC goes on
    // using, and puts itself there (Linux, drivers/irqchip/irq-gic-v3-its.c).
    let machine = ["--qemu-arg", "-machine", "--qemu-arg", "its=off"];
    let session = ["--share", &share, "--", "sh", "-c", script, "sh"];
    let mut command = vm(kernel, &[&machine[..], &session].concat());
    command.arg(image).args(["--append", &words_of_the_other()]);
    // The machine ends when the other kernel has run its tests, and the session that began in the
    // first one does not come back.
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = ProcessGroup::spawn(command.stdin(Stdio::null()))?.finish()?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.code() == Some(super::SKIPPED) {
        return Ok(Verdict::Skip(said(&output.stdout)));
    }
    Ok(match heard(dir.path()) {
        Ok(heard) => Verdict::Pass(heard),
        Err(error) => Verdict::Fail(format!(
            "{error:#}\nthe machine: {}: {} {}",
            output.status,
            said(&output.stdout),
            said(&output.stderr)
        )),
    })
}

/// Words for the other kernel's command line. It has no initramfs: its root is the host's
/// directory, and its first process runs the tests and ends the machine.
fn words_of_the_other() -> String {
    let tests = TESTS.map(|test| format!("./branch-guest {test}"));
    let session = [
        "mount -t proc proc /proc",
        "mount -t sysfs sysfs /sys",
        "mount -t tmpfs tmpfs /mnt",
        "mkdir /mnt/share",
        "mount -t 9p -o trans=virtio share0 /mnt/share",
        "cd /mnt/share",
        &format!("{{ {}; }} >{SAID} 2>&1", tests.join("; ")),
        "sync",
        "echo o >/proc/sysrq-trigger",
        "sleep 60",
    ];
    let session = session.join("; ");
    format!(
        "root={ROOT} rootfstype=9p rootflags=trans=virtio,cache=loose ro init=/usr/bin/bash -- -c \
         \"{session}\""
    )
}

/// What the other kernel's tests have said, where all have passed.
fn heard(share: &Path) -> Result<String> {
    let mut said = String::new();
    let file = share::open_from_guest(&share.join(SAID), MOST);
    let mut file = file.context("the other kernel did not run its tests")?;
    file.read_to_string(&mut said)
        .context("reading what the other kernel's tests said")?;
    for test in TESTS {
        let line = format!("PASS {test}");
        let passed = said.lines().any(|said| said.starts_with(&line));
        ensure!(passed, "on the other kernel, {test}: {}", said.trim());
    }
    let tests = TESTS.join(" and ");
    Ok(format!("on the kernel that was started, {tests} pass"))
}
