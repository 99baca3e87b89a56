//! CPUs that idle in a state that loses what they hold, and a machine that is suspended: each CPU
//! has snapshots afterwards.

use std::path::Path;
use std::process::Stdio;

use anyhow::Result;
use host::process::ProcessGroup;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use kernels::firmware;
use kernels::kernel::Kernel;
use machines::alone::Running;
use report::Verdict;

use super::{SKIPPED, vm};

/// What the lines of the guest's test begin with on the console.
const PASSED: &str = "PASS suspend: ";

/// The test.
pub(super) fn test() -> Batch {
    let test = Test {
        needs_plugin: true,
        ..Test::new("suspend", Scope::ONCE)
    };
    Batch::of_one(test, |context: &Context<'_>, _| {
        let (kernel, firmware) = (context.kernel()?, firmware::build(context.paths)?);
        let _machine = Running::beside_others();
        check(&kernel, &firmware)
    })
    .needing(|context, _| vec![context.firmware_artefact()])
}

fn check(kernel: &Kernel, firmware: &Path) -> Result<Verdict> {
    let mut command = vm(kernel, &["--idle-states", "--firmware"]);
    command.arg(firmware);
    command.args(["--", "branch-guest", "suspend", "--power-off"]);
    // The host's directories do not come back from the suspension (virtio-9p), nor does the
    // session. What is left of the machine is in memory: the guest's test and its console, whose
    // end is what `brbe vm` prints of a machine that ends without its session.
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = ProcessGroup::spawn(command.stdin(Stdio::null()))?.finish()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if output.status.code() == Some(SKIPPED) {
        return Ok(Verdict::Skip(said.trim().to_owned()));
    }
    let passed = said.lines().find_map(|line| line.split_once(PASSED));
    Ok(match passed {
        Some((_, seen)) => Verdict::Pass(seen.trim().to_owned()),
        None => Verdict::Fail(said.trim().to_owned()),
    })
}
