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

/// A row of a report: a test, its verdict and the time that it took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What the test is about: `7.3.4 patched`, `plugin`, `rust`.
    pub subject: String,
    /// The test's name.
    pub test: String,
    #[serde(flatten)]
    verdict: Verdict,
    /// How long the test took, in seconds. That is not part of any verdict.
    pub seconds: f64,
}

impl Row {
    /// The row of a test that has just ended, printed on standard error.
    pub(crate) fn announced(subject: &str, test: &str, verdict: Verdict, time: Duration) -> Self {
        let reason = verdict.reason().lines().next().unwrap_or_default();
        progress::say(&format!(
            "{} {subject}: {test}{}{reason}",
            verdict.word(),
            if reason.is_empty() { "" } else { ": " }
        ));
        Self::new(subject, test, verdict, time)
    }

    /// The row of a test. Nothing is printed.
    pub fn new(subject: &str, test: &str, verdict: Verdict, time: Duration) -> Self {
        Self {
            subject: subject.to_owned(),
            test: test.to_owned(),
            verdict,
            seconds: time.as_secs_f64(),
        }
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
