//! The verdict on a test that `branch-guest` decides.

use report::Verdict;

/// The exit status of a test for which the machine or kernel lacks the means.
const SKIPPED: i32 = 77;

/// Whether a test says that the kernel does not do what it should. `said` is the reason of a
/// [`verdict`] that is a failure.
pub(crate) fn is_failure(said: &str) -> bool {
    said.starts_with("FAIL ")
}

/// Whether a test says that it could not be tried. `said` is the reason of a [`verdict`] that is a
/// failure.
pub(crate) fn is_error(said: &str) -> bool {
    said.starts_with("ERROR ")
}

/// The verdict on a test, by its exit status and what it printed.
pub(crate) fn verdict(status: i32, output: &str) -> Verdict {
    let lines = output.lines().rev();
    let last = lines.map(str::trim).find(|line| !line.is_empty());
    let last = last.unwrap_or_default();
    match status {
        0 => {
            let seen = last.split_once(": ").map(|(_, seen)| seen);
            Verdict::Pass(seen.unwrap_or_default().to_owned())
        }
        SKIPPED => Verdict::Skip(last.to_owned()),
        _ => Verdict::failed(output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_decides_and_the_last_line_says_what_was_seen() {
        for (status, output, expected) in [
            (
                0,
                "one\nPASS a: 3 records\n",
                Verdict::Pass("3 records".to_owned()),
            ),
            (0, "\n", Verdict::pass()),
            (
                1,
                "one\ntwo\nFAIL b: no\n",
                Verdict::Fail("FAIL b: no\none\ntwo".to_owned()),
            ),
            (
                77,
                "SKIP c: no BRBE\n",
                Verdict::Skip("SKIP c: no BRBE".to_owned()),
            ),
        ] {
            assert_eq!(verdict(status, output), expected);
        }
    }
}
