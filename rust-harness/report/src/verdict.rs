//! The verdict on a test, and the row of a report that holds it.

use std::time::Duration;

use host::progress;
use serde::{Deserialize, Serialize};

/// The verdict on a test, with a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "lowercase")]
pub enum Verdict {
    /// The test passed. The reason says what was seen, where that is not obvious.
    Pass(String),
    /// The test failed, for this reason.
    Fail(String),
    /// The test could not run here, for this reason.
    Skip(String),
}

impl Verdict {
    /// The verdict PASS without a reason.
    pub fn pass() -> Self {
        Self::Pass(String::new())
    }

    /// FAIL, by what a program printed. The last line, which says why, comes first: the first line of
    /// a reason is all that some reports have room for.
    pub fn failed(printed: &str) -> Self {
        let printed = printed.trim_end();
        Self::Fail(match printed.rsplit_once('\n') {
            Some((before, last)) => format!("{last}\n{before}"),
            None => printed.to_owned(),
        })
    }

    /// FAIL, by what was found wrong, each on its own lines; PASS if that is nothing. Then `seen`
    /// says what was looked at.
    pub fn of_findings<S: AsRef<str>>(
        findings: impl IntoIterator<Item = S>,
        seen: impl Into<String>,
    ) -> Self {
        let findings: Vec<_> = findings.into_iter().collect();
        if findings.is_empty() {
            return Self::Pass(seen.into());
        }
        let findings: Vec<_> = findings.iter().map(AsRef::as_ref).collect();
        Self::Fail(findings.join("\n"))
    }

    /// The word for the verdict in the first column of the table: PASS, FAIL or SKIP.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Pass(_) => "PASS",
            Self::Fail(_) => "FAIL",
            Self::Skip(_) => "SKIP",
        }
    }

    /// The reason of the verdict: what was seen, or why the test failed or was skipped.
    pub fn reason(&self) -> &str {
        let (Self::Pass(reason) | Self::Fail(reason) | Self::Skip(reason)) = self;
        reason
    }
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The verdict.
    pub verdict: Verdict,
    /// How often the test was tried again before, or its machine was started again.
    pub retries: u32,
}

impl From<Verdict> for Decided {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            retries: 0,
        }
    }
}

/// A row of a report: a test, its verdict and the time that it took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What the test is about: `7.3.4 patched`, `plugin`, `rust`.
    pub subject: String,
    /// The test's name.
    pub test: String,
    #[serde(flatten)]
    verdict: Verdict,
    /// How often the test was tried again before the verdict.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// How long the test took, in seconds. That is not part of any verdict.
    pub seconds: f64,
}

/// Whether a field has the value that a document without the field gives it, so that it need not be
/// written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Row {
    /// The row of a test that has just ended, printed on standard error.
    pub(crate) fn announced(subject: &str, test: &str, decided: Decided, time: Duration) -> Self {
        let Decided { verdict, retries } = decided;
        let row = Self {
            retries,
            ..Self::new(subject, test, verdict, time)
        };
        let (word, seen) = (row.verdict.word(), row.seen());
        let colon = if seen.is_empty() { "" } else { ": " };
        progress::say(&format!("{word} {subject}: {test}{colon}{seen}"));
        row
    }

    /// The row of a test. Nothing is printed.
    pub fn new(subject: &str, test: &str, verdict: Verdict, time: Duration) -> Self {
        Self {
            subject: subject.to_owned(),
            test: test.to_owned(),
            verdict,
            retries: 0,
            seconds: time.as_secs_f64(),
        }
    }

    /// The attempt at which the test was decided, in words, if that was not the first one.
    pub fn attempt(&self) -> Option<String> {
        (self.retries > 0).then(|| format!("at attempt {}", self.retries.saturating_add(1)))
    }

    /// What was seen, in a line.
    pub(crate) fn seen(&self) -> String {
        let reason = self.verdict.reason().lines().next();
        let reason = reason
            .filter(|reason| !reason.is_empty())
            .map(str::to_owned);
        let words: Vec<_> = self.attempt().into_iter().chain(reason).collect();
        words.join(": ")
    }

    /// The verdict on the test.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Whether both rows are of the same test, by subject and name.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.subject, &self.test) == (&other.subject, &other.test)
    }
}
