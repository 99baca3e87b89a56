//! Tests that run after each other in one boot: the verdicts on them, by what the guest
//! printed, and which of them are tried again.

use anyhow::{Context as _, Error, Result, anyhow, ensure};

use machines::backend::Run;
use machines::guest::{self, Dead};
use report::{Decided, Verdict};

/// The beginning of the line that has the exit status of a test.
const ENDED: &str = "the test ended with ";

/// A line of shell that runs the command of a test and prints its exit status, which is in
/// `$status` then.
pub(crate) fn line(command: &str) -> String {
    format!("{command}; status=$?; echo {ENDED}$status")
}

/// What came of tests that ran after each other in one boot.
#[derive(Debug)]
pub(crate) struct Judged {
    /// The verdicts on those that ended, which are the first ones.
    pub(crate) ended: Vec<Verdict>,
    /// Why the next one did not end, if there is one. Those after it did not run.
    pub(crate) died: Option<Death>,
}

/// How a guest died.
#[derive(Debug)]
pub(crate) struct Death {
    why: Error,
}

impl Judged {
    /// A verdict for each of `count` tests. The one that did not end and those after it fail.
    pub(crate) fn verdicts(self, count: usize) -> Vec<Verdict> {
        let mut verdicts = self.ended;
        verdicts.extend(self.died.map(|death| death.verdict()));
        let not_run = Verdict::Fail("not run after the one before it".to_owned());
        verdicts.resize(count, not_run);
        verdicts
    }
}

/// What came of `count` tests, whose lines ran after each other in `run`. `verdict` is given the
/// place of a test among them, its exit status and what it printed.
///
/// # Errors
///
/// When the machine failed. A guest that died or did not end in time is no error here.
pub(crate) fn judge(
    count: usize,
    run: &Run,
    verdict: impl Fn(usize, i32, &str) -> Verdict,
) -> Result<Judged> {
    let died = match guest::status(run) {
        Ok(_) => None,
        Err(why) if why.is::<Dead>() => Some(Death { why }),
        Err(error) => return Err(error),
    };
    Ok(judged(count, &run.output, died, verdict))
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

impl Death {
    fn is_panic(&self) -> bool {
        matches!(self.why.downcast_ref(), Some(Dead::Panicked(_)))
    }

    fn is_time_out(&self) -> bool {
        matches!(self.why.downcast_ref(), Some(Dead::TimedOut(_)))
    }

    fn verdict(&self) -> Verdict {
        Verdict::Fail(format!("{:#}", self.why))
    }
}

/// What came of `count` tests, by the `output` of the guest, and by how it died if it did. If it
/// died when all had ended, it died of the last one.
fn judged(
    count: usize,
    output: &str,
    died: Option<Death>,
    verdict: impl Fn(usize, i32, &str) -> Verdict,
) -> Judged {
    let ended = if died.is_some() {
        count.saturating_sub(1)
    } else {
        count
    };
    let sections = sections(output).into_iter().take(ended).enumerate();
    let ended: Vec<_> = sections
        .map(|(place, (status, said))| verdict(place, status, &said))
        .collect();
    let unreported = || Death {
        why: anyhow!("the guest did not report how it ended:\n{output}"),
    };
    let died = (ended.len() < count).then(|| died.unwrap_or_else(unreported));
    Judged { ended, died }
}

/// What came of each of `count` tests, some of which are tried again: `boot` runs those at the
/// places that it is given, after each other in one boot. A test that does not end, or that the
/// kernel dies of, is tried a second time alone: one before it may have left what it died of.
/// Those after it run in another boot. A kernel that died has a mistake, whichever test made it:
/// a test that passes alone then fails for what it saw first.
///
/// # Errors
///
/// Those of `boot`, and [`Dead::TimedOut`] for one test that did not end in time: a time-out is the
/// one failure that may be the host's.
pub(crate) fn decide(
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
        if count == 1 && died.is_time_out() {
            return Err(died.why);
        }
        let place = decided.len();
        if place == first {
            decided.push(died.verdict().into());
            continue;
        }
        let alone = boot(&[place])?.verdicts(1).into_iter().next();
        let alone = alone.context("a test without a verdict")?;
        let verdict = if died.is_panic() && matches!(alone, Verdict::Pass(_)) {
            Verdict::Fail(format!(
                "after the tests before it in the same boot, {:#}\nAlone the test passes",
                died.why
            ))
        } else {
            alone
        };
        let retries = 1;
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

    const OUTPUT: &str = "one\nPASS a: 3 records\nthe test ended with 0\n\
                          FAIL b: no\nthe test ended with 1\n\
                          SKIP c: no BRBE\nthe test ended with 77\n";

    /// A verdict that says all that is known of a test.
    fn told(place: usize, status: i32, output: &str) -> Verdict {
        Verdict::Pass(format!("{place}: {status}, {output:?}"))
    }

    #[test]
    fn tests_of_one_boot_have_verdicts_of_their_own() {
        let expected = [
            told(0, 0, "one\nPASS a: 3 records\n"),
            told(1, 1, "FAIL b: no\n"),
            told(2, 77, "SKIP c: no BRBE\n"),
        ];
        let Judged { ended, died } = judged(3, OUTPUT, None, told);
        assert_eq!(ended, expected);
        assert!(died.is_none());
        for count in [5, 3] {
            let Judged { ended, died } = judged(count, OUTPUT, Some(death(true)), told);
            // A death after the last test is that test's.
            assert_eq!(ended.len(), count.min(2) + count / 5);
            assert_eq!(died.unwrap().why.to_string(), "it died");
        }
        let unreported = judged(1, "cut", None, told).died.unwrap().why.to_string();
        assert!(unreported.contains("how it ended"), "{unreported}");
        let verdicts = judged(6, OUTPUT, Some(death(true)), told).verdicts(6);
        let said: Vec<_> = verdicts.iter().map(Verdict::reason).collect();
        let after = "not run after the one before it";
        assert_eq!(said[3..], ["it died", after, after]);
    }

    fn death(is_panic: bool) -> Death {
        let how = if is_panic {
            Dead::Panicked
        } else {
            Dead::TimedOut
        };
        let why = how("it died".to_owned()).into();
        Death { why }
    }

    /// What comes of `count` tests if a guest dies of those of `deadly` that are not alone in
    /// their boot, and of those of `always`; and how many guests were booted.
    fn booted(
        count: usize,
        deadly: &[usize],
        always: &[usize],
        is_panic: bool,
    ) -> (Vec<Decided>, usize) {
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
            let died = ended.map(|_| death(is_panic));
            let ended = ended.unwrap_or(places.len());
            Ok(Judged {
                ended: vec![Verdict::pass(); ended],
                died,
            })
        });
        (decided.unwrap(), boots)
    }

    #[test]
    fn a_time_out_of_one_test_is_told_from_its_failure() {
        let decided = decide(1, |_| {
            Ok(Judged {
                ended: Vec::new(),
                died: Some(death(false)),
            })
        });
        let error = decided.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Dead::TimedOut(_))));
    }

    #[test]
    fn one_test_fails_no_other() {
        let pass = |retries| Decided {
            verdict: Verdict::pass(),
            retries,
        };
        assert_eq!(booted(3, &[], &[], false), (vec![pass(0); 3], 1));
        let again = vec![pass(0), pass(1), pass(0)];
        assert_eq!(booted(3, &[1], &[], false), (again, 3));
        let fail = |retries| Decided {
            verdict: Verdict::Fail("it died".to_owned()),
            retries,
        };
        let failed = vec![pass(0), fail(1), pass(0)];
        assert_eq!(booted(3, &[], &[1], false), (failed, 3));
        // A test that was first in its boot has no neighbour to blame.
        let first = vec![fail(0), pass(0), pass(0)];
        assert_eq!(booted(3, &[], &[0], false), (first, 2));
        assert_eq!(booted(1, &[], &[0], true), (vec![fail(0)], 1));
        // A kernel that died is no matter of which test.
        let (decided, boots) = booted(3, &[1], &[], true);
        let reason = decided[1].verdict.reason();
        assert!(
            reason.ends_with("it died\nAlone the test passes"),
            "{reason}"
        );
        assert!(matches!(decided[1].verdict, Verdict::Fail(_)));
        assert_eq!((boots, &decided[2]), (3, &pass(0)));
    }
}
