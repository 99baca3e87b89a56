//! The kernel's unit tests (KUnit) of the snapshot in Rust, and the examples in its
//! documentation.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::context::Context;
use crate::one_boot;
use crate::registry::{Batch, Scope, Test};
use kernels::variant::Variant;
use machines::machine_spec::MachineSpec;
use report::kernel_ktap::Suite;
use report::{Decided, Verdict};

/// Names of the tests that compare how records are read in C and in Rust: at EL1 with 64 records,
/// and at EL2 with 8.
pub(crate) const READING: [&str; 2] = [
    "KUnit: decoding, and 20,000 buffers as in C",
    "KUnit: decoding and 20,000 buffers, at EL2 (VHE), 8 records",
];

/// A KUnit suite, and what is expected of it.
#[derive(Clone, Copy, Debug)]
struct Expected {
    suite: &'static str,
    /// Parts of names of tests that the suite must have.
    tests: &'static [&'static str],
    /// How many tests of the suite must say in the kernel's log how many buffers they
    /// compared.
    compares: usize,
}

/// The suite of the driver.
const DRIVER: Expected = Expected {
    suite: "arm_brbe_snapshot",
    tests: &["injected_records_as_in_c", "live_records_as_in_c"],
    compares: 2,
};

/// The suite that the kernel's build makes of the examples in Rust's documentation.
const EXAMPLES: Expected = Expected {
    suite: "rust_doctests_kernel",
    tests: &[
        "_perf_rs_",
        "_arch_arm64_daif_rs_",
        "_arch_arm64_sysreg_rs_",
    ],
    compares: 0,
};

/// The tests: suites, and the machines that they run on.
pub fn tests() -> Vec<Batch> {
    let on = |machine: MachineSpec, expected: Vec<(&'static str, Expected)>| {
        let scope = Scope {
            series: &[Variant::Rust],
            is_of_changes: false,
            ..Scope::SNAPSHOT
        };
        let tests = expected.iter().map(|(name, _)| Test {
            machine: machine.clone(),
            ..Test::new(name, scope)
        });
        Batch::of(tests.collect(), move |context, wanted| {
            let suites: Vec<_> = wanted.iter().map(|place| expected[*place]).collect();
            run(context, &machine, &suites)
        })
    };
    let records = |records, vhe| MachineSpec {
        vhe,
        records: Some(records),
        ..MachineSpec::default()
    };
    vec![
        on(
            records(64, false),
            vec![
                (READING[0], DRIVER),
                ("KUnit: examples in the documentation", EXAMPLES),
            ],
        ),
        on(records(8, true), vec![(READING[1], DRIVER)]),
    ]
}

/// How long a suite may take, from power-on to power-off: several times as long as one needs.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The words by which a test says in the kernel's log that it has compared buffers.
const COMPARED: &str = "buffers compared";

/// Boots the kernel on `machine` and runs suites after each other. The first name is in the names
/// of the logs. Returns what came of each.
///
/// # Errors
///
/// When the kernel cannot be built, or the machine failed.
fn run(
    context: &Context<'_>,
    machine: &MachineSpec,
    suites: &[(&'static str, Expected)],
) -> Result<Vec<Decided>> {
    one_boot::decide(suites.len(), |places| {
        let suites: Vec<_> = places.iter().map(|place| suites[*place]).collect();
        let (name, _) = suites.first().context("there are suites")?;
        let lines: Vec<_> = suites.iter().map(|(_, suite)| suite.line()).collect();
        let timeout = TIMEOUT * u32::try_from(suites.len())?;
        let share = context.share()?;
        let run = context.run_within(timeout, machine, name, &lines.join("\n"), &share)?;
        one_boot::judge(suites.len(), &run, |place, status, output| {
            suites[place].1.verdict(status, output)
        })
    })
}

impl Expected {
    /// A line of shell that runs the suite and prints its results, and what it said of
    /// comparisons. The kernel's log is emptied, for the suite after it.
    fn line(&self) -> String {
        one_boot::line(&format!(
            "(cd /sys/kernel/debug/kunit/{} || exit; echo > run && cat results && \
             dmesg --read-clear | grep '{COMPARED}'; true)",
            self.suite
        ))
    }

    /// The verdict on the suite, by the exit status of its line and what it printed.
    fn verdict(&self, status: i32, output: &str) -> Verdict {
        match self.seen(status, output) {
            Ok(seen) => Verdict::Pass(seen),
            Err(error) => Verdict::Fail(format!("{error:#}")),
        }
    }

    /// What the suite has seen, in a line.
    ///
    /// # Errors
    ///
    /// When the kernel has no such suite, when the suite lacks a test, when one of its tests
    /// failed or compared nothing, or when its results are not complete KTAP.
    fn seen(&self, status: i32, output: &str) -> Result<String> {
        ensure!(status == 0, "this kernel has no suite {}", self.suite);
        let suite =
            Suite::parse(output).with_context(|| format!("{}: {}", self.suite, output.trim()))?;
        for test in self.tests {
            let there = suite
                .passed
                .iter()
                .chain(suite.failed.iter().map(|(name, _)| name));
            ensure!(
                there.into_iter().any(|name| name.contains(test)),
                "{} has no test {test}",
                self.suite
            );
        }
        ensure!(suite.failed.is_empty(), "{suite}");
        let compared: Vec<_> = output.lines().filter_map(compared).collect();
        if let Some(missed) = missed(&compared, self.compares) {
            bail!(missed);
        }
        let said = [suite.to_string()].into_iter().chain(compared);
        Ok(said.collect::<Vec<_>>().join("; "))
    }
}

/// What is wrong if another number of tests than `tests` says that it has compared buffers
/// with records in them; `None` if nothing is. It is checked since the kernel's test also
/// passes where there is nothing to compare.
fn missed(compared: &[String], tests: usize) -> Option<String> {
    let entries = |said: &String| {
        let count = said.strip_suffix(" entries")?.rsplit(' ').next()?;
        count.parse::<u64>().ok()
    };
    let is_real = |said: &&String| entries(said).is_some_and(|entries| entries > 0);
    let real = compared.iter().filter(is_real).count();
    (real != tests).then(|| {
        format!(
            "{real} of {tests} tests have compared records: {}",
            compared.join("; ")
        )
    })
}

/// What a line of the kernel's log says of buffers that were compared, without the time;
/// `None` for other lines.
fn compared(line: &str) -> Option<String> {
    let (_, said) = line.split_once("] ")?;
    said.contains(COMPARED).then(|| said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_read_without_its_times() {
        let line = "[    3.141592] 10000 buffers compared, 320000 entries";
        let said = compared(line);
        assert_eq!(
            said.as_deref(),
            Some("10000 buffers compared, 320000 entries")
        );
        assert_eq!(compared("    ok 1 types"), None);
    }

    #[test]
    fn what_compares_nothing_is_missed() {
        let both = |second: &str| {
            let first = "10000 buffers compared, 320000 entries";
            missed(&[first.to_owned(), second.to_owned()], 2)
        };
        assert_eq!(both("10000 buffers compared, 7 entries"), None);
        for nothing in ["10000 buffers compared, 0 entries", "buffers compared"] {
            let said = both(nothing).unwrap();
            assert!(said.starts_with("1 of 2 tests"), "{said}");
        }
        assert!(missed(&[], 2).is_some());
    }
}
