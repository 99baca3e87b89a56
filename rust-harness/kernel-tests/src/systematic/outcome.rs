//! What came of a mutant, and the verdict on that.

use serde::{Deserialize, Serialize};

use super::explanations::EXPLAINED;
use report::Verdict;

/// What came of a mutant that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The compiler refuses it.
    Refused,
    /// The compiler makes the code of the drivers as they are.
    SameCode,
    /// A test notices it.
    Killed {
        /// The name of the test.
        by: String,
        /// The first line of what the test said.
        says: String,
    },
    /// No test notices it.
    Survived,
}

impl Outcome {
    /// The verdict on the mutant. `why` is the explanation of why no test could notice it, if it has
    /// one.
    pub(super) fn verdict(self, why: Option<&str>) -> Verdict {
        match (self, why) {
            (Self::Refused, _) => Verdict::Pass("does not compile".to_owned()),
            (Self::SameCode, _) => Verdict::Pass("the compiler makes the same code".to_owned()),
            (Self::Killed { by, says }, None) => Verdict::Pass(format!("killed by {by}: {says}")),
            (Self::Killed { by, .. }, Some(_)) => Verdict::Fail(format!(
                "killed by {by}, but {EXPLAINED} explains why it survives"
            )),
            (Self::Survived, Some(why)) => Verdict::Pass(format!("survives: {why}")),
            (Self::Survived, None) => Verdict::Fail("SURVIVED: every test passes".to_owned()),
        }
    }
}
