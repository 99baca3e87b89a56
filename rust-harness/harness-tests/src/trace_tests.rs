//! Tests of branch-trace, the tracer, in the guest.

use std::time::Duration;

use anyhow::{Context, Result};
use branch_records::vmlinux::Vmlinux;

use host::paths::Paths;
use kernels::kernel::Kernel;
use kernels::subject::Subject;
use machines::guest::{self, Guest, Setup};
use machines::share::Share;
use report::Job;
use report::Verdict;

mod addr2line;
mod captured;
mod local;
mod many;
mod stopped;

/// How long the boot with some thirty runs of branch-trace may take. It takes 90 s beside
/// another guest, and 450 s on a slow machine beside a compiler.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// The jobs that test branch-trace on the patched `kernel` of `subject`, on machines with and
/// without BRBE.
pub fn jobs<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    kernel: &'a Kernel,
    subject: &'a Subject,
) -> Vec<Job<'a>> {
    let title = subject.title(true);
    let tests = [
        "branch-trace, targets and filters",
        "branch-trace, on the machine itself",
        "branch-trace, 1,000 snapshots",
        "branch-trace, stopped",
    ];
    let name = format!("branch-trace on {title}");
    let none = format!("branch-trace without BRBE on {title}");
    vec![
        Job::several(title.clone(), tests.map(str::to_owned).into(), move || {
            in_one_boot(paths, guest, kernel, subject, &name)
        }),
        Job::new(title, "branch-trace, without BRBE", move || {
            without_brbe(paths, guest, kernel, &none)
        }),
    ]
}

fn in_one_boot(
    paths: &Paths,
    guest: &Guest,
    kernel: &Kernel,
    subject: &Subject,
    name: &str,
) -> Result<Vec<Verdict>> {
    let share = Share::new(paths)?;
    share.put(&kernel.vmlinux)?;
    let script = [
        many::script(),
        captured::script(),
        stopped::script(),
        local::script(),
    ];
    let setup = Setup {
        timeout: TIMEOUT,
        ..Setup::default()
    };
    let run = guest.run_as(&setup, kernel, name, &script.concat(), &share)?;
    guest::status(&run)?;
    let vmlinux = Vmlinux::open(&kernel.vmlinux).context("the kernel's debug information")?;
    let source = |file: &str| subject.source(file);
    Ok(vec![
        captured::verdict(guest, &share, &vmlinux, &source, &run.output)?,
        local::verdict(&share, &run.output)?,
        many::verdict(&share, &kernel.vmlinux)?,
        stopped::verdict(&share, &run.output)?,
    ])
}

/// Checks that branch-trace, on a machine as QEMU alone makes it, says that there is no BRBE
/// and what to do.
fn without_brbe(paths: &Paths, guest: &Guest, kernel: &Kernel, name: &str) -> Result<Verdict> {
    let setup = Setup {
        plugin: None,
        ..Setup::default()
    };
    let share = Share::new(paths)?;
    let script = "./branch-trace vfs_read 2>&1";
    let run = guest.run_as(&setup, kernel, name, script, &share)?;
    let status = guest::status(&run)?;
    let said = run.output.trim();
    let expected = ["no BRBE or LBR", "this is a virtual machine (QEMU)"];
    let missing = expected.iter().find(|words| !said.contains(**words));
    Ok(match missing {
        None if status == 77 => Verdict::Pass("status 77, and what to do".to_owned()),
        _ => Verdict::Fail(format!("status {status}: {said}")),
    })
}
