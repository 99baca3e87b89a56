//! Whether the kernel can be built. It is the test of mutants that the compiler refuses.

use host::process::Failed;
use report::Verdict;

use crate::registry::{Batch, Scope, Test};

/// The name of the test.
pub const TEST: &str = "the compiler";

/// The test. A kernel that does not build is a FAIL and no error.
pub fn tests() -> Batch {
    Batch::of_one(Test::new(TEST, Scope::NONE), |context, _| {
        match context.kernel() {
            Ok(_) => Ok(Verdict::pass()),
            Err(error) if error.is::<Failed>() => Ok(Verdict::Fail(format!("{error:#}"))),
            Err(error) => Err(error),
        }
    })
}
