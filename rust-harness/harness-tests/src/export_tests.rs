//! Test of `brbe export`: the copy boots where there is nothing of this project.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::as_user::brbe;
use crate::processes::{Process, WORDY, children_of, ensure_whole_though_late, wait_for_the_end};
use host::paths::Paths;
use host::process::ProcessGroup;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use machines::alone::Running;
use machines::speed;
use nix::sys::signal::Signal;
use report::Verdict;

/// The test.
pub fn tests() -> Vec<Batch> {
    let test = Test {
        needs_plugin: true,
        ..Test::new("export: a copy boots by itself", Scope::DEFAULT)
    };
    vec![Batch::of_one(test, |context, _| check(context)).about("machine")]
}

/// A script that hides the checkout and the caches, its first two arguments, and runs the rest in
/// an empty environment, all in one group of processes.
const ALONE: &str = "mount -t tmpfs none \"$1\" && mount -t tmpfs none \"$2\" && shift 2 && \
                     exec env -i PATH=/usr/bin timeout --foreground --kill-after=5 \"$@\"";
/// How long the copy may take, on a fast host.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs the copy in `dir`, where nothing of this project is seen.
fn run(paths: &Paths, dir: &Path, arguments: &[&str]) -> Result<Output> {
    let mut alone = Command::new("unshare");
    alone.args(["--mount", "sh", "-c", ALONE, "sh"]);
    alone.arg(paths.repo("")).arg(paths.home(""));
    alone.arg(speed::scaled(LIMIT).as_secs().to_string());
    alone.arg(dir.join("run")).args(arguments).current_dir("/");
    alone.stdin(Stdio::null()).stdout(Stdio::piped());
    ProcessGroup::spawn(alone.stderr(Stdio::piped()))?.finish()
}

fn check(context: &Context<'_>) -> Result<Verdict> {
    let (paths, kernel) = (context.paths, context.kernel()?);
    let _machine = Running::beside_others();
    let scratch = tempfile::tempdir().context("a directory for the copy")?;
    let dir = scratch.path().join("copy");
    let [image, vmlinux, into] =
        [&kernel.image, kernel.vmlinux()?, &*dir].map(|path: &Path| path.display().to_string());
    let export = ["export", "--kernel", &image, "--vmlinux", &vmlinux, &into];
    let exported = brbe(paths, "export", &export)?;
    ensure!(
        exported.status == Some(0),
        "{export:?}: {}",
        exported.stderr
    );
    for file in ["Image", "vmlinux.zst", "root.cpio.gz"] {
        ensure!(dir.join(file).is_file(), "the copy has no {file}");
    }
    let again = brbe(paths, "export-again", &export)?;
    ensure!(
        again.status == Some(3) && again.stderr.contains("is there: remove it"),
        "a second copy: {}",
        again.stderr
    );

    let twice = run(paths, &dir, &["--", "./branch-guest", "twice"])?;
    ensure!(
        twice.status.success() && twice.stdout.starts_with(b"PASS"),
        "twice: {twice:?}"
    );
    let script = "echo out; echo err >&2; nproc; exit 3";
    let arguments = ["--cpus", "1", "--records", "8", "--", "sh", "-c", script];
    let streams = run(paths, &dir, &arguments)?;
    ensure!(
        streams.status.code() == Some(3)
            && streams.stdout == b"out\n1\n"
            && streams.stderr == b"err\n",
        "{arguments:?}: {streams:?}"
    );
    let crash = ["--", "sh", "-c", "echo c >/proc/sysrq-trigger; sleep 100"];
    let crashed = run(paths, &dir, &crash)?;
    ensure!(
        crashed.status.code() == Some(255)
            && String::from_utf8_lossy(&crashed.stderr).contains("sysrq triggered crash"),
        "a kernel that dies: {crashed:?}"
    );
    ends_when_told(&dir)?;
    slowly_read(&dir)?;
    unread(&dir)?;
    on_full_disks(&dir)?;
    let plugin = scratch.path().join("plugin");
    let words = ["export", "--plugin", &plugin.display().to_string()];
    brbe(paths, "export-plugin", &words)?;
    for file in ["libqemu_brbe.so", "libqemu_brbe.7"] {
        ensure!(plugin.join(file).is_file(), "{words:?} makes no {file}");
    }
    let mut lines = exported.stdout.lines();
    let sum = lines.find(|line| line.contains(" all "));
    let size = sum.and_then(|line| line.split_whitespace().rev().nth(1));
    Ok(Verdict::Pass(format!(
        "{} MB, without the checkout and the caches",
        size.unwrap_or("?")
    )))
}

/// Checks that SIGTERM ends the copy in `dir` with all that it has started, while a command runs in
/// the machine.
fn ends_when_told(dir: &Path) -> Result<()> {
    let mut copy = Command::new(dir.join("run"));
    copy.args(["--", "sh", "-c", "echo up; sleep 1000"]);
    copy.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut copy = ProcessGroup::spawn(copy.stderr(Stdio::null()))?;
    let mut out = copy.child().stdout.take().context("a pipe")?;
    out.read_exact(&mut [0; 3])
        .context("waiting for the copy")?;
    let started = children_of(copy.child().id())?;
    ensure!(!started.is_empty(), "the copy has started nothing");
    Process::of(copy.child()).signal(Signal::SIGTERM)?;
    wait_for_the_end(&started)?;
    let status = copy.wait()?;
    ensure!(status.code() == Some(143), "after SIGTERM: {status}");
    Ok(())
}

/// The copy in `dir` with these arguments, which is ended where it takes too long.
fn limited(dir: &Path, arguments: &[&str]) -> Command {
    let mut copy = Command::new("timeout");
    let limit = speed::scaled(LIMIT).as_secs().to_string();
    copy.args(["--foreground", "--kill-after=5", &limit]);
    copy.arg(dir.join("run")).args(arguments);
    copy.stdin(Stdio::null());
    copy
}

/// Checks that what is printed comes whole, also to who begins to read when the command has long
/// ended.
fn slowly_read(dir: &Path) -> Result<()> {
    ensure_whole_though_late(&mut limited(dir, &WORDY))
}

/// Checks that the copy ends, with all that it has started, once nobody reads what its command
/// prints.
fn unread(dir: &Path) -> Result<()> {
    for (script, on_errors) in [("yes", false), ("yes >&2", true)] {
        let (mut printed, to) = io::pipe().context("a pipe")?;
        let mut command = limited(dir, &["--", "sh", "-c", script]);
        if on_errors {
            command.stdout(Stdio::null()).stderr(to);
        } else {
            command.stdout(to).stderr(Stdio::null());
        }
        let mut group = ProcessGroup::spawn(&mut command)?;
        // It has the pipe's other end.
        drop(command);
        printed
            .read_exact(&mut [0])
            .context("waiting for the copy")?;
        let copy = children_of(group.child().id())?.pop();
        let started = children_of(copy.context("no copy was found")?.id())?;
        ensure!(!started.is_empty(), "the copy has started nothing");
        drop(printed);
        let status = group.wait()?;
        ensure!(status.code() == Some(141), "{script}: {status}");
        wait_for_the_end(&started)?;
    }
    Ok(())
}

/// A script that runs the rest of its arguments with a small file system, which is mounted on the
/// first one, for temporary files.
const SMALL: &str = "mount -t tmpfs -o size=64k none \"$1\" && TMPDIR=$1 && export TMPDIR && \
                     shift && exec \"$@\"";

/// Checks what is said where the copy cannot write what its command prints, or files of its own.
fn on_full_disks(dir: &Path) -> Result<()> {
    let mut printing = limited(dir, &["--", "echo", "x"]);
    let device = File::options().write(true).open("/dev/full");
    printing.stdout(device.context("/dev/full")?);
    let mut without_room = limited(dir, &["--", "true"]);
    without_room.env("TMPDIR", "/proc");
    let small = tempfile::tempdir().context("a place to mount on")?;
    let mut with_little = Command::new("unshare");
    with_little.args(["--mount", "sh", "-c", SMALL, "sh"]);
    with_little.arg(small.path()).arg(dir.join("run"));
    with_little.args(["--", "true"]).stdin(Stdio::null());
    for (mut copy, said) in [
        (printing, "could not be written"),
        (without_room, "set TMPDIR"),
        (with_little, "set TMPDIR"),
    ] {
        let output = ProcessGroup::spawn(copy.stderr(Stdio::piped()))?.finish()?;
        ensure!(
            output.status.code() == Some(255)
                && String::from_utf8_lossy(&output.stderr).contains(said),
            "{copy:?}: {output:?}"
        );
    }
    Ok(())
}
