//! The verdicts on tests that ran in one boot, by what the guest printed.

use anyhow::{Context as _, Error, Result, anyhow, ensure};

use machines::backend::Run;
use machines::guest::{self, Dead};
use report::{Decided, Verdict};

/// The exit status of a test for which the machine or kernel lacks the means.
const SKIPPED: i32 = 77;

/// The beginning of the line that has the exit status of a test.
pub(super) const ENDED: &str = "branch-guest ended with ";

/// What came of tests that ran after each other in one boot.
#[derive(Debug)]
pub(super) struct Judged {
    /// The verdicts on those that ended, which are the first ones.
    pub(super) ended: Vec<Verdict>,
    /// Why the next one did not end, if there is one. Those after it did not run.
    pub(super) died: Option<Error>,
}

impl Judged {
    /// A verdict for each of `count` tests. The one that did not end and those after it fail.
    pub(super) fn verdicts(self, count: usize) -> Vec<Verdict> {
        let mut verdicts = self.ended;
        verdicts.extend(self.died.map(|error| Verdict::Fail(format!("{error:#}"))));
        let not_run = Verdict::Fail("not run after the one before it".to_owned());
        verdicts.resize(count, not_run);
        verdicts
    }
}

/// What came of `count` tests, which ran after each other in `run`.
///
/// # Errors
///
/// When the machine failed. A guest that died or did not end in time is no error here.
pub(super) fn judge(count: usize, run: &Run) -> Result<Judged> {
    let died = match guest::status(run) {
        Ok(_) => None,
        Err(error) if error.is::<Dead>() => Some(error),
        Err(error) => return Err(error),
    };
    Ok(judged(count, &run.output, died))
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

/// What came of `count` tests, by the `output` of the guest, and by why it died if it did.
fn judged(count: usize, output: &str, died: Option<Error>) -> Judged {
    let sections = sections(output).into_iter().take(count);
    let ended: Vec<_> = sections
        .map(|(status, said)| verdict(status, &said))
        .collect();
    let unreported = || anyhow!("the guest did not report how it ended:\n{output}");
    let died = (ended.len() < count).then(|| died.unwrap_or_else(unreported));
    Judged { ended, died }
}

/// What came of each of `count` tests, some of which are tried again: `boot` runs those at the
/// places that it is given, after each other in one boot. A test that the guest dies of, or that
/// does not end, is tried a second time alone: one before it may have left what it died of.
/// Those after it run in another boot.
///
/// # Errors
///
/// Those of `boot`.
pub(super) fn decide(
    count: usize,
    mut boot: impl FnMut(&[usize]) -> Result<Judged>,
) -> Result<Vec<Decided>> {
    let mut decided: Vec<Decided> = Vec::new();
    while decided.len() < count {
        let first = decided.len();
        let places: Vec<_> = (first..count).collect();
        let Judged { ended, died } = boot(&places)?;
        decided.extend(ended.into_iter().map(Decided::from));
        let Some(died) = died else {
            break;
        };
        let place = decided.len();
        let mut retries = 0;
        let mut alone = Judged {
            ended: Vec::new(),
            died: Some(died),
        };
        if place > first {
            alone = boot(&[place])?;
            retries = 1;
        }
        let why = alone.died.map(|error| Verdict::Fail(format!("{error:#}")));
        let verdict = alone.ended.into_iter().next().or(why);
        let verdict = verdict.context("a test without a verdict")?;
        decided.push(Decided { verdict, retries });
    }
    ensure!(
        decided.len() == count,
        "{} verdicts for {count} tests",
        decided.len()
    );
    Ok(decided)
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
        let Judged { ended, died } = judged(3, OUTPUT, None);
        assert_eq!(ended, expected);
        assert!(died.is_none());
        let Judged { ended, died } = judged(5, OUTPUT, Some(anyhow!("the kernel died")));
        assert_eq!(ended.len(), 3);
        assert_eq!(died.unwrap().to_string(), "the kernel died");
        let unreported = judged(1, "cut", None).died.unwrap().to_string();
        assert!(unreported.contains("how it ended"), "{unreported}");
        let verdicts = judged(6, OUTPUT, Some(anyhow!("the kernel died"))).verdicts(6);
        let said: Vec<_> = verdicts.iter().map(Verdict::reason).collect();
        let after = "not run after the one before it";
        assert_eq!(said[3..], ["the kernel died", after, after]);
    }

    /// What comes of `count` tests if a guest dies of those of `deadly` that are not alone in
    /// their boot, and of those of `always`; and how many guests were booted.
    fn booted(count: usize, deadly: &[usize], always: &[usize]) -> (Vec<Decided>, usize) {
        let mut boots = 0;
        let decided = decide(count, |places| {
            boots += 1;
            let dies = |(nth, place): (usize, &usize)| {
                always.contains(place) || nth > 0 && deadly.contains(place)
            };
            let ended = places
                .iter()
                .enumerate()
                .position(|(nth, place)| dies((nth, place)));
            let died = ended.map(|_| anyhow!("it died"));
            let ended = ended.unwrap_or(places.len());
            Ok(Judged {
                ended: vec![Verdict::pass(); ended],
                died,
            })
        });
        (decided.unwrap(), boots)
    }

    #[test]
    fn one_test_fails_no_other() {
        let pass = |retries| Decided {
            verdict: Verdict::pass(),
            retries,
        };
        assert_eq!(booted(3, &[], &[]), (vec![pass(0); 3], 1));
        assert_eq!(booted(3, &[1], &[]), (vec![pass(0), pass(1), pass(0)], 3));
        let fail = |retries| Decided {
            verdict: Verdict::Fail("it died".to_owned()),
            retries,
        };
        assert_eq!(booted(3, &[], &[1]), (vec![pass(0), fail(1), pass(0)], 3));
        // A test that was first in its boot has no neighbour to blame.
        assert_eq!(booted(3, &[], &[0]), (vec![fail(0), pass(0), pass(0)], 2));
        assert_eq!(booted(1, &[], &[0]), (vec![fail(0)], 1));
    }
}
