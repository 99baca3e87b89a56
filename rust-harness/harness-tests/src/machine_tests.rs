//! Tests of how a guest ends: one that fails, dies or hangs has to be reported as what it is,
//! in bounded time.

use std::time::Duration;

use anyhow::Result;

use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use machines::backend::End;
use machines::machine_spec::MachineSpec;
use report::Verdict;

/// A way in which a guest can end: the name of the test, the command that ends it so, and how
/// long the run may take. `expected` says whether it has ended so.
struct Ending {
    name: &'static str,
    command: &'static str,
    seconds: u64,
    expected: fn(&End) -> bool,
}

const ENDINGS: [Ending; 3] = [
    Ending {
        name: "a command's exit status comes back",
        command: "exit 7",
        seconds: 70,
        expected: |end| matches!(end, End::Exited(7)),
    },
    Ending {
        name: "a panic is reported in the kernel's words",
        command: "echo c > /proc/sysrq-trigger; sleep 100",
        seconds: 70,
        expected: |end| matches!(end, End::Panicked(said) if has(said, "sysrq triggered crash")),
    },
    Ending {
        name: "a guest that hangs is ended, and its CPUs' PCs are reported",
        command: "echo here > /dev/kmsg; sleep 1000",
        seconds: 40,
        expected: |end| matches!(end, End::TimedOut(last) if has(last, "here") && has(last, "CPU#0 PC=")),
    },
];

fn has(lines: &[String], words: &str) -> bool {
    lines.iter().any(|line| line.contains(words))
}

/// The tests, one for each way in which a guest can end.
pub fn tests() -> Vec<Batch> {
    let batch = |ending: Ending| {
        let test = Test {
            needs_plugin: true,
            ..Test::new(ending.name, Scope::DEFAULT)
        };
        Batch::of_one(test, move |context, machine| ending.check(context, machine)).about("machine")
    };
    ENDINGS.into_iter().map(batch).collect()
}

impl Ending {
    fn check(&self, context: &Context<'_>, machine: &MachineSpec) -> Result<Verdict> {
        let (timeout, share) = (Duration::from_secs(self.seconds), context.share()?);
        let end = context
            .run_within(timeout, machine, self.name, self.command, &share)?
            .end;
        Ok(if (self.expected)(&end) {
            Verdict::pass()
        } else {
            Verdict::Fail(format!("the guest ended otherwise: {end:?}"))
        })
    }
}
