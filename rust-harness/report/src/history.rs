//! What earlier runs have seen of each test: how long it took, and how often it was tried again.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context as _, Error, Result};
use serde::{Deserialize, Serialize};

use crate::verdict::{Row, Verdict};
use host::cache::{self, Lock};
use host::paths::Paths;
use host::progress;

/// Tasks that take less time, in seconds, may have found what they make.
pub(crate) const FOUND: f64 = 1.0;
/// How many runs of a test are kept.
const KEPT: usize = 10;

/// Seconds by the name of a task: of a job, or of an artefact.
pub type Durations = BTreeMap<String, f64>;

/// The file of the repository that says how long tasks take, by its path from the root of the
/// repository.
const DURATIONS: &str = "scripts/durations.json";

/// How long tasks take, as the repository says it. All machines have the same, so that they agree
/// on partitions. Without the file nothing is known.
///
/// # Errors
///
/// When the file cannot be read.
pub fn recorded_durations(paths: &Paths) -> Result<Durations> {
    let file = paths.repo(DURATIONS);
    let read = || match fs::read(&file) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Durations::default()),
        Err(error) => Err(Error::from(error)),
    };
    read().with_context(|| format!("reading {}", file.display()))
}

/// What was seen of a test in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    passed: bool,
    retries: u32,
}

/// What earlier runs have seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// How long tasks took when they last had something to do.
    seconds: Durations,
    /// How long tasks took in the last run that had them, be it that they found what they make.
    #[serde(default)]
    last: Durations,
    /// The last runs of tests, by their lines, the newest last.
    tests: BTreeMap<String, Vec<Seen>>,
}

/// A test that was tried again in one of its last runs, or whose verdict changed back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flaky {
    /// The line of the test.
    pub test: String,
    /// How many runs are known.
    pub runs: usize,
    /// In how many of them the test passed only when it was tried again.
    pub retried: usize,
    /// In how many of them the test failed.
    pub failed: usize,
}

impl History {
    /// What earlier runs on this machine have seen. A file that cannot be read as a history is
    /// none, which is said.
    ///
    /// # Errors
    ///
    /// When the file is there and cannot be read.
    pub fn load(paths: &Paths) -> Result<Self> {
        let file = file(paths);
        match fs::read(&file) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                progress::say(&format!(
                    "brbe: {} is no history of runs ({error}): what earlier runs have seen is lost",
                    file.display()
                ));
                Self::default()
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("reading {}", file.display())),
        }
    }

    /// Adds what this run has seen to what is kept, beside what other runs have added by now.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written, or the run is interrupted.
    pub fn keep(self, paths: &Paths) -> Result<()> {
        let _lock = Lock::take(paths, "history")?;
        let mut all = Self::load(paths)?;
        for (task, seconds) in self.seconds {
            // A task that took no time has found what it makes: that says nothing of the next
            // time.
            let known = all.seconds.entry(task).or_insert(seconds);
            if seconds >= FOUND {
                *known = seconds;
            }
        }
        all.last.extend(self.last);
        for (test, seen) in self.tests {
            let runs = all.tests.entry(test).or_default();
            runs.extend(seen);
            runs.drain(..runs.len().saturating_sub(KEPT));
        }
        let text = serde_json::to_vec(&all).context("writing JSON")?;
        cache::write_atomically(&file(paths), &text)
    }

    /// How long tasks took when they last had something to do.
    pub fn durations(&self) -> &Durations {
        &self.seconds
    }

    /// How long tasks took in the last run that had them. Where the run before had made
    /// everything, nothing was made.
    pub fn last(&self) -> &Durations {
        &self.last
    }

    /// How long tasks are expected to take on this machine: what they took here, or else what the
    /// repository says.
    ///
    /// # Errors
    ///
    /// Those of [`recorded_durations`].
    pub(crate) fn expected(&self, paths: &Paths) -> Result<Durations> {
        let mut all = recorded_durations(paths)?;
        all.extend(self.seconds.clone());
        Ok(all)
    }

    /// Notes how long a task took.
    pub(crate) fn took(&mut self, task: String, seconds: f64) {
        self.last.insert(task.clone(), seconds);
        self.seconds.insert(task, seconds);
    }

    /// Notes what came of the tests of `rows`. A test that was skipped was not seen.
    pub(crate) fn saw(&mut self, rows: &[Row]) {
        for row in rows {
            if matches!(row.verdict(), Verdict::Skip(_)) {
                continue;
            }
            let seen = Seen {
                passed: matches!(row.verdict(), Verdict::Pass(_)),
                retries: row.retries,
            };
            let line = format!("{}: {}", row.subject, row.test);
            self.tests.entry(line).or_default().push(seen);
        }
    }

    /// The tests that needed another try in one of their last runs, or whose verdict changed and
    /// changed back.
    pub fn flaky(&self) -> Vec<Flaky> {
        let count = |(test, seen): (&String, &Vec<Seen>)| Flaky {
            test: test.clone(),
            runs: seen.len(),
            retried: seen
                .iter()
                .filter(|seen| seen.passed && seen.retries > 0)
                .count(),
            failed: seen.iter().filter(|seen| !seen.passed).count(),
        };
        // One change is that of the code.
        let changes = |seen: &[Seen]| {
            let pairs = seen.windows(2);
            pairs
                .filter(|pair| pair[0].passed != pair[1].passed)
                .count()
        };
        let is_flaky = |(_, seen): &(&String, &Vec<Seen>)| {
            let retried = seen.iter().any(|seen| seen.passed && seen.retries > 0);
            retried || changes(seen) > 1
        };
        self.tests.iter().filter(is_flaky).map(count).collect()
    }
}

fn file(paths: &Paths) -> PathBuf {
    paths.home("run-history.json")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(test: &str, verdict: Verdict, retries: u32) -> Row {
        let mut row = Row::new("x", test, verdict, Duration::ZERO);
        row.retries = retries;
        row
    }

    #[test]
    fn a_history_grows_to_ten_runs_and_names_what_is_flaky() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::at(dir.path(), dir.path());
        for run in 0..12 {
            let mut seen = History::default();
            let fails = if run % 2 == 0 {
                Verdict::pass()
            } else {
                Verdict::Fail(String::new())
            };
            let mended = if run < 8 {
                Verdict::Fail(String::new())
            } else {
                Verdict::pass()
            };
            seen.saw(&[
                row("good", Verdict::pass(), 0),
                row("slow", Verdict::pass(), u32::from(run == 11)),
                row("once", fails, 0),
                row("never", Verdict::Fail(String::new()), 1),
                row("mended", mended, 0),
                row("absent", Verdict::Skip(String::new()), 0),
            ]);
            seen.took("x: good".to_owned(), f64::from(run));
            seen.keep(&paths).unwrap();
        }
        let all = History::load(&paths).unwrap();
        assert_eq!(all.durations()["x: good"], 11.0);
        // Another run finds what this one has made.
        let mut finds = History::default();
        finds.took("x: good".to_owned(), FOUND / 2.0);
        finds.keep(&paths).unwrap();
        let all = History::load(&paths).unwrap();
        assert_eq!(all.durations()["x: good"], 11.0);
        assert_eq!(all.last()["x: good"], FOUND / 2.0);
        let flaky = |test: &str, retried, failed| Flaky {
            test: format!("x: {test}"),
            runs: KEPT,
            retried,
            failed,
        };
        assert_eq!(all.flaky(), [flaky("once", 0, 5), flaky("slow", 1, 0)]);
    }

    #[test]
    fn what_was_never_run_here_takes_as_long_as_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::at(dir.path(), dir.path());
        let mut history = History::default();
        assert_eq!(history.expected(&paths).unwrap(), Durations::new());
        let file = paths.repo(DURATIONS);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, r#"{ "a": 2.0, "b": 3.0 }"#).unwrap();
        history.took("a".to_owned(), 5.0);
        let expected = history.expected(&paths).unwrap();
        assert_eq!((expected["a"], expected["b"]), (5.0, 3.0));
        fs::write(&file, "{").unwrap();
        let error = format!("{:#}", history.expected(&paths).unwrap_err());
        assert!(error.contains("durations.json"), "{error}");
    }

    #[test]
    fn a_broken_file_is_no_history() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::at(dir.path(), dir.path());
        fs::write(file(&paths), "{").unwrap();
        assert_eq!(History::load(&paths).unwrap(), History::default());
    }
}
