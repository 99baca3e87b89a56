//! The kernel's unit tests (KUnit) of the snapshot in Rust, and the examples in its
//! documentation.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::registry::{Batch, Scope, Test};
use kernels::variant::Variant;
use machines::guest;
use machines::machine_spec::MachineSpec;
use report::Verdict;
use report::kernel_ktap::Suite;

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

/// The tests: suites, each on a machine.
pub fn tests() -> Vec<Batch> {
    let on = |name, records, vhe, expected: Expected| {
        let scope = Scope {
            series: &[Variant::Rust],
            is_of_changes: false,
            ..Scope::SNAPSHOT
        };
        let test = Test {
            machine: MachineSpec {
                vhe,
                records: Some(records),
                ..MachineSpec::default()
            },
            ..Test::new(name, scope)
        };
        Batch::of_one(test, move |context, machine| {
            expected.run(context, machine, name)
        })
    };
    vec![
        on(
            "KUnit: decoding, and 20,000 buffers as in C",
            64,
            false,
            DRIVER,
        ),
        on(
            "KUnit: decoding and 20,000 buffers, at EL2 (VHE), 8 records",
            8,
            true,
            DRIVER,
        ),
        on("KUnit: examples in the documentation", 64, false, EXAMPLES),
    ]
}

/// How long a suite may take, from power-on to power-off: several times as long as one needs.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The words by which a test says in the kernel's log that it has compared buffers.
const COMPARED: &str = "buffers compared";

impl Expected {
    /// Boots the kernel on `machine` and runs the suite. `name` is in the names of the logs.
    ///
    /// # Errors
    ///
    /// When the guest dies or does not end in time, or the results that it prints are not
    /// complete KTAP.
    fn run(&self, context: &Context<'_>, machine: &MachineSpec, name: &str) -> Result<Verdict> {
        let command = format!(
            "cd /sys/kernel/debug/kunit/{} || exit; echo > run && cat results && dmesg | grep '{COMPARED}'; true",
            self.suite
        );
        let run = context.run_within(TIMEOUT, machine, name, &command, &context.share()?)?;
        if guest::status(&run)? != 0 {
            let reason = format!("this kernel has no suite {}", self.suite);
            return Ok(Verdict::Fail(reason));
        }
        let suite = Suite::parse(&run.output)
            .with_context(|| format!("{}: {}", self.suite, run.output.trim()))?;
        for test in self.tests {
            let there = suite
                .passed
                .iter()
                .chain(suite.failed.iter().map(|(name, _)| name));
            if !there.into_iter().any(|name| name.contains(test)) {
                let reason = format!("{} has no test {test}", self.suite);
                return Ok(Verdict::Fail(reason));
            }
        }
        if !suite.failed.is_empty() {
            return Ok(Verdict::Fail(suite.to_string()));
        }
        let compared: Vec<_> = run.output.lines().filter_map(compared).collect();
        if let Some(missed) = missed(&compared, self.compares) {
            return Ok(Verdict::Fail(missed));
        }
        let said = [suite.to_string()].into_iter().chain(compared);
        Ok(Verdict::Pass(said.collect::<Vec<_>>().join("; ")))
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
