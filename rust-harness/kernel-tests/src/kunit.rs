//! The kernel's unit tests (KUnit) of the snapshot in Rust, and the examples in its
//! documentation.

use std::time::Duration;

use anyhow::{Context, Result};

use host::paths::Paths;
use kernels::kernel::Kernel;
use machines::guest::{self, Guest, Setup};
use machines::share::Share;
use report::Job;
use report::Verdict;
use report::kernel_ktap::Suite;

/// A KUnit suite, and the machine that it runs on.
#[derive(Debug)]
pub struct Kind {
    /// The name of the test.
    pub name: &'static str,
    suite: &'static str,
    /// The kernel runs at EL2.
    vhe: bool,
    /// The number of records that BRBE has.
    records: u8,
    /// Parts of names of tests that the suite must have.
    tests: &'static [&'static str],
    /// How many tests of the suite must say in the kernel's log how many buffers they
    /// compared.
    compares: usize,
}

/// All suites that are run, each with its machine.
pub static KINDS: [Kind; 3] = [
    Kind {
        name: "KUnit: decoding, and 20,000 buffers as in C",
        suite: "arm_brbe_snapshot",
        vhe: false,
        records: 64,
        tests: &["injected_records_as_in_c", "live_records_as_in_c"],
        compares: 2,
    },
    Kind {
        name: "KUnit: decoding and 20,000 buffers, at EL2 (VHE), 8 records",
        suite: "arm_brbe_snapshot",
        vhe: true,
        records: 8,
        tests: &["injected_records_as_in_c", "live_records_as_in_c"],
        compares: 2,
    },
    Kind {
        name: "KUnit: examples in the documentation",
        suite: "rust_doctests_kernel",
        vhe: false,
        records: 64,
        tests: &[
            "_perf_rs_",
            "_arch_arm64_daif_rs_",
            "_arch_arm64_sysreg_rs_",
        ],
        compares: 0,
    },
];

/// How long a suite may take, from power-on to power-off: several times as long as one needs.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The words by which a test says in the kernel's log that it has compared buffers.
const COMPARED: &str = "buffers compared";

/// A job for each of [`KINDS`], on `kernel`, which is called `title`.
pub fn jobs<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    kernel: &'a Kernel,
    title: &str,
) -> impl Iterator<Item = Job<'a>> {
    KINDS.iter().map(move |kind| {
        let title = title.to_owned();
        Job::new(title.clone(), kind.name, move || {
            kind.run(paths, guest, kernel, &title)
        })
    })
}

impl Kind {
    /// Boots `kernel`, which is called `title`, on the machine of this kind, and runs the
    /// suite.
    ///
    /// # Errors
    ///
    /// When the guest dies or does not end in time, or the results that it prints are not
    /// complete KTAP.
    pub fn run(
        &self,
        paths: &Paths,
        guest: &Guest,
        kernel: &Kernel,
        title: &str,
    ) -> Result<Verdict> {
        let setup = Setup {
            timeout: TIMEOUT,
            virtualization: self.vhe,
            plugin: Some(vec![format!("records={}", self.records)]),
            ..Setup::default()
        };
        let command = format!(
            "cd /sys/kernel/debug/kunit/{} || exit; echo > run && cat results && dmesg | grep '{COMPARED}'; true",
            self.suite
        );
        let name = format!("{} on {title}", self.name);
        let run = guest.run_as(&setup, kernel, &name, &command, &Share::new(paths)?)?;
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
