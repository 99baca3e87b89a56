//! The verdicts on tests that ran in one boot, by what the guest printed.

use anyhow::{Error, Result};

use super::GuestTest;
use machines::backend::Run;
use machines::guest::{self, Dead};
use report::Verdict;

/// The exit status of a test for which the machine or kernel lacks the means.
const SKIPPED: i32 = 77;

/// The beginning of the line that has the exit status of a test.
pub(super) const ENDED: &str = "branch-guest ended with ";

/// A verdict for each of `tests`, which ran after each other in `run`.
///
/// # Errors
///
/// When the machine failed. A guest that died or did not end in time is no error but a FAIL.
pub(super) fn judge(tests: &[&GuestTest], run: &Run) -> Result<Vec<Verdict>> {
    let died = match guest::status(run) {
        Ok(_) => None,
        Err(error) if error.is::<Dead>() => Some(error),
        Err(error) => return Err(error),
    };
    let names: Vec<_> = tests.iter().map(|test| test.name).collect();
    Ok(verdicts(&names, &run.output, died))
}

/// The exit status of each test, and what the test printed before it ended, in the order of
/// `output`.
fn sections(output: &str) -> Vec<(i32, String)> {
    let mut sections = Vec::new();
    let mut said = String::new();
    for line in output.lines() {
        match line.strip_prefix(ENDED).map(str::parse) {
            Some(Ok(status)) => sections.push((status, std::mem::take(&mut said))),
            _ => said = said + line + "\n",
        }
    }
    sections
}

fn verdict(status: i32, output: &str) -> Verdict {
    let lines = output.lines().rev();
    let last = lines.map(str::trim).find(|line| !line.is_empty());
    let last = last.unwrap_or_default();
    match status {
        0 => {
            let seen = last.split_once(": ").map(|(_, seen)| seen);
            Verdict::Pass(seen.unwrap_or_default().to_owned())
        }
        SKIPPED => Verdict::Skip(last.to_owned()),
        _ => Verdict::Fail(output.to_owned()),
    }
}

/// A verdict for each of the tests of these names, by the `output` of the guest. If the guest
/// died, the test that it died of fails with the error `died`, and those after it fail since
/// they were not run.
fn verdicts(names: &[&str], output: &str, mut died: Option<Error>) -> Vec<Verdict> {
    let sections = sections(output);
    let mut culprit = None;
    let tests = names.iter().enumerate();
    tests
        .map(|(index, name)| match (sections.get(index), culprit) {
            (Some((status, said)), _) => verdict(*status, said),
            (None, None) => {
                culprit = Some(name);
                Verdict::Fail(match died.take() {
                    Some(error) => format!("{error:#}"),
                    None => format!("the guest did not report how it ended:\n{output}"),
                })
            }
            (None, Some(culprit)) => Verdict::Fail(format!("not run after {culprit}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "one\nPASS a: 3 records\nbranch-guest ended with 0\n\
                          FAIL b: no\nbranch-guest ended with 1\n\
                          SKIP c: no BRBE\nbranch-guest ended with 77\n";

    #[test]
    fn tests_of_one_boot_have_verdicts_of_their_own() {
        let expected = [
            Verdict::Pass("3 records".to_owned()),
            Verdict::Fail("FAIL b: no\n".to_owned()),
            Verdict::Skip("SKIP c: no BRBE".to_owned()),
        ];
        assert_eq!(verdicts(&["a", "b", "c"], OUTPUT, None), expected);
    }

    #[test]
    fn what_the_guest_died_of_and_what_did_not_run_fail() {
        let died = Some(anyhow::anyhow!("the guest's kernel died"));
        let verdicts = verdicts(&["a", "b", "c", "d", "e"], OUTPUT, died);
        let said: Vec<_> = verdicts.iter().map(Verdict::reason).collect();
        assert_eq!(said[3..], ["the guest's kernel died", "not run after d"]);
        let one = super::verdicts(&["d"], "cut", None);
        assert!(one[0].reason().contains("how it ended"), "{one:?}");
    }
}
