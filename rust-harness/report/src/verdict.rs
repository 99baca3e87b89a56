//! What became of a test.

use std::time::Duration;

use host::progress;
use serde::{Deserialize, Serialize};

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "lowercase")]
pub enum Verdict {
    /// It held. The reason says what was seen, where that is not obvious.
    Pass(String),
    /// It did not, and why.
    Fail(String),
    /// It could not run here, and why.
    Skip(String),
}

impl Verdict {
    /// Held, and nothing more to say.
    pub fn pass() -> Self {
        Self::Pass(String::new())
    }

    /// As the first column of the table has it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Pass(_) => "PASS",
            Self::Fail(_) => "FAIL",
            Self::Skip(_) => "SKIP",
        }
    }

    /// What was seen, or why it failed or was skipped.
    pub fn reason(&self) -> &str {
        let (Self::Pass(reason) | Self::Fail(reason) | Self::Skip(reason)) = self;
        reason
    }
}

/// A test and its verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What it is about: a base, `rust`.
    pub subject: String,
    /// The test's name.
    pub test: String,
    #[serde(flatten)]
    verdict: Verdict,
    /// How long it took, in seconds. Not part of any verdict.
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

    /// What became of it.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Whether both are of one test.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.subject, &self.test) == (&other.subject, &other.test)
    }
}
