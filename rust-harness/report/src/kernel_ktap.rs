//! Reads KTAP, in which the kernel's unit tests (KUnit) report their results
//! (Documentation/dev-tools/ktap.rst).

use std::fmt;

use thiserror::Error;

/// The results of one suite of the kernel's unit tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    /// The names of the tests that passed.
    pub passed: Vec<String>,
    /// The names of the tests that failed, each with the diagnostic lines before its result.
    pub failed: Vec<(String, Vec<String>)>,
    /// The names of the tests that were skipped, each with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Why a text is not the complete result of a suite.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KtapError {
    /// There is no `KTAP version` line.
    #[error("no line says which version of KTAP it is")]
    Version,
    /// There is no plan (`1..N`). Without one, tests that did not run would not be missed.
    #[error("no line says how many tests there are")]
    Plan,
    /// The number of results is not that of the plan: tests did not run, or ran twice.
    #[error("{seen} results of {planned} tests")]
    Count {
        /// The number of tests in the plan.
        planned: usize,
        /// The number of lines with a result.
        seen: usize,
    },
    /// A line with a result has no number or no name after `ok` or `not ok`.
    #[error("this is no result: {0:?}")]
    Result(String),
}

/// The indentation of the lines of a suite's tests, which are one level below the suite
/// itself.
const INDENT: &str = "    ";

impl Suite {
    /// Reads the results of a suite, the contents of
    /// `/sys/kernel/debug/kunit/<suite>/results`. A test that has tests of its own counts as
    /// one: those of its own do not count.
    ///
    /// # Errors
    ///
    /// [`KtapError`], when the results are not complete or a line with a result is
    /// malformed.
    pub fn parse(text: &str) -> Result<Self, KtapError> {
        let mut suite = Self::default();
        let (mut version, mut planned) = (false, None);
        let mut diagnostics = Vec::new();
        let lines = text.lines().filter_map(|line| line.strip_prefix(INDENT));
        for line in lines.filter(|line| !line.starts_with(' ')) {
            if line.starts_with("KTAP version ") {
                version = true;
            } else if let Some(count) = line.strip_prefix("1..") {
                planned = count.trim().parse().ok();
            } else if line.starts_with("ok ") || line.starts_with("not ok ") {
                suite.add(line, std::mem::take(&mut diagnostics))?;
            } else {
                diagnostics.push(line.to_owned());
            }
        }
        if !version {
            return Err(KtapError::Version);
        }
        let planned: usize = planned.ok_or(KtapError::Plan)?;
        let seen = suite.passed.len() + suite.failed.len() + suite.skipped.len();
        if seen == planned {
            Ok(suite)
        } else {
            Err(KtapError::Count { planned, seen })
        }
    }

    /// Adds the result in the line `[not ]ok <number> <name>[ # SKIP why]`, and the
    /// diagnostic lines before it.
    fn add(&mut self, line: &str, diagnostics: Vec<String>) -> Result<(), KtapError> {
        let bad = || KtapError::Result(line.to_owned());
        let (good, rest) = match line.strip_prefix("not ok ") {
            Some(rest) => (false, rest),
            None => (true, line.strip_prefix("ok ").ok_or_else(bad)?),
        };
        let (number, rest) = rest.split_once(' ').ok_or_else(bad)?;
        number.parse::<u32>().map_err(|_| bad())?;
        let (name, directive) = match rest.split_once(" # ") {
            Some((name, directive)) => (name, Some(directive)),
            None => (rest, None),
        };
        let name = name.trim_start_matches("- ").trim().to_owned();
        let skipped = directive.and_then(|directive| directive.strip_prefix("SKIP"));
        match (good, skipped) {
            (true, Some(why)) => self.skipped.push((name, why.trim().to_owned())),
            (true, None) => self.passed.push(name),
            (false, _) => self.failed.push((name, diagnostics)),
        }
        Ok(())
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tests passed", self.passed.len())?;
        for (name, diagnostics) in &self.failed {
            write!(f, "\n{name} failed:\n    {}", diagnostics.join("\n    "))?;
        }
        for (name, why) in &self.skipped {
            write!(f, "\n{name} was skipped: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "KTAP version 1
1..1
    KTAP version 1
    # Subtest: arm_brbe_snapshot
    1..3
    ok 1 types
        KTAP version 1
        ok 1 a parameter
    # half_records: ASSERTION FAILED at drivers/perf/arm_brbe_snapshot.rs:1
    not ok 2 half_records
    ok 3 live_records # SKIP no BRBE
# arm_brbe_snapshot: pass:1 fail:1 skip:1 total:3
not ok 1 arm_brbe_snapshot
";

    #[test]
    fn tests_of_a_suite_are_distinguished() {
        let suite = Suite::parse(TEXT).unwrap();
        assert_eq!(suite.passed, ["types"]);
        let (name, diagnostics) = &suite.failed[0];
        assert_eq!(name, "half_records");
        assert!(diagnostics.last().unwrap().contains("ASSERTION FAILED"));
        let skipped = [("live_records".to_owned(), "no BRBE".to_owned())];
        assert_eq!(suite.skipped, skipped);
        let said = suite.to_string();
        assert!(
            said.starts_with("1 tests passed\nhalf_records failed:\n"),
            "{said}"
        );
        assert!(
            said.ends_with("live_records was skipped: no BRBE"),
            "{said}"
        );
    }

    #[test]
    fn a_part_of_the_results_is_none() {
        let cut = TEXT.split("    ok 3").next().unwrap();
        let seen = Err(KtapError::Count {
            planned: 3,
            seen: 2,
        });
        assert_eq!(Suite::parse(cut), seen);
        assert_eq!(Suite::parse(""), Err(KtapError::Version));
        let text = TEXT.replace("    1..3\n", "");
        assert_eq!(Suite::parse(&text), Err(KtapError::Plan));
        let text = TEXT.replace("ok 1 types", "ok types");
        assert!(matches!(Suite::parse(&text), Err(KtapError::Result(_))));
    }
}
