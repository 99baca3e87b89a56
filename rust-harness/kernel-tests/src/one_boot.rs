//! Tests that run after each other in one boot: the verdicts on them, by what the guest
//! printed, and which of them are tried again.

use anyhow::{Context as _, Error, Result, anyhow, ensure};

use host::process::Interrupted;
use machines::backend::Run;
use machines::guest::{self, Dead};
use report::{Decided, Verdict};

/// How the reason of a failure begins that says nothing of the kernel: the machine failed, something
/// could not be built, or the test was not run.
pub(crate) const NO_VERDICT: &str = "no verdict: ";
/// The beginning of the line that has the exit status of a test.
const ENDED: &str = "the test ended with ";

/// A line of shell that runs the command of a test and prints its exit status, which is in
/// `$status` then.
pub(crate) fn line(command: &str) -> String {
    format!("{command}; status=$?; echo {ENDED}$status")
}

/// Lines of shell that run those of a test, and then print the exit status of the last one.
pub fn lines(commands: &str) -> String {
    format!("{commands}\n{}\n", line("(exit $?)"))
}

/// What came of tests that ran after each other in one boot.
#[derive(Debug)]
pub struct Judged {
    /// What came of those that ended, which are the first ones.
    pub(crate) ended: Vec<Decided>,
    /// Why the next one did not end, if there is one. Those after it did not run.
    pub(crate) died: Option<Death>,
}

/// How a guest died, or its machine failed.
#[derive(Debug)]
pub struct Death {
    why: Error,
}

impl Judged {
    /// A verdict for each of `count` tests. The one that did not end and those after it fail.
    pub(crate) fn verdicts(self, count: usize) -> Vec<Verdict> {
        let ended = self.ended.into_iter().map(|decided| decided.verdict);
        let mut verdicts: Vec<_> = ended.collect();
        verdicts.extend(self.died.map(|death| death.verdict()));
        let not_run = Verdict::Fail(format!("{NO_VERDICT}not run after the one before it"));
        verdicts.resize(count, not_run);
        verdicts
    }
}

/// What came of `count` tests, whose lines ran after each other in `run`. `verdict` is given the
/// place of a test among them, its exit status and what it printed.
///
/// # Errors
///
/// When the machine failed before a test ended. A guest that died or did not end in time is no
/// error here, nor is a machine that failed later, as when the host's memory was short: what ended
/// before is kept.
pub fn judge<D: Into<Decided>>(
    count: usize,
    run: &Run,
    verdict: impl Fn(usize, i32, &str) -> D,
) -> Result<Judged> {
    let died = match guest::status(run) {
        Ok(_) => None,
        Err(why) if why.is::<Dead>() || !sections(&run.output).is_empty() => Some(Death { why }),
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
        failed(&self.why)
    }
}

/// What came of a test that ended in `error`. A guest that is [`Dead`] says something of its kernel.
pub(crate) fn failed(error: &Error) -> Verdict {
    Verdict::Fail(if error.is::<Dead>() {
        format!("{error:#}")
    } else {
        format!("{NO_VERDICT}{error:#}")
    })
}

/// What came of `count` tests, by the `output` of the guest, and by how it died if it did. If it
/// died when all had ended, it died of the last one.
fn judged<D: Into<Decided>>(
    count: usize,
    output: &str,
    died: Option<Death>,
    verdict: impl Fn(usize, i32, &str) -> D,
) -> Judged {
    let ended = if died.is_some() {
        count.saturating_sub(1)
    } else {
        count
    };
    let sections = sections(output).into_iter().take(ended).enumerate();
    let ended: Vec<_> = sections
        .map(|(place, (status, said))| verdict(place, status, &said).into())
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
/// Those after it run in another boot. A test that was the first in its boot is tried again only if
/// it did not end in time, which may be the host's fault. A kernel that died has a mistake,
/// whichever test made it: a test that passes alone then fails for what it saw first. Where `boot`
/// fails when tests are decided, these keep their verdicts: the test that it was to try a second time
/// fails, or all that are left.
///
/// # Errors
///
/// Those of `boot` when no test is decided, or when the run is interrupted; and [`Dead::TimedOut`]
/// for a single test that did not end in time twice: its callers tell that from a test that failed.
pub fn decide(
    count: usize,
    mut boot: impl FnMut(&[usize]) -> Result<Judged>,
) -> Result<Vec<Decided>> {
    let mut decided: Vec<Decided> = Vec::new();
    while decided.len() < count {
        let first = decided.len();
        let places: Vec<_> = (first..count).collect();
        let Judged { ended, died } = match boot(&places) {
            Err(error) if first > 0 && !error.is::<Interrupted>() => {
                decided.resize(count, failed(&error).into());
                break;
            }
            judged => judged?,
        };
        decided.extend(ended);
        let Some(died) = died else {
            break;
        };
        let place = decided.len();
        if place == first && !died.is_time_out() {
            decided.push(died.verdict().into());
            continue;
        }
        let mut alone = match boot(&[place]) {
            Err(error) if count > 1 && !error.is::<Interrupted>() => failed(&error).into(),
            judged => match judged? {
                Judged {
                    died: Some(again), ..
                } if count == 1 && again.is_time_out() => return Err(again.why),
                Judged {
                    died: Some(again), ..
                } => again.verdict().into(),
                Judged {
                    mut ended,
                    died: None,
                } => ended.pop().context("a test without a verdict")?,
            },
        };
        alone.retries += 1;
        if died.is_panic() && matches!(alone.verdict, Verdict::Pass(_)) {
            alone.verdict = Verdict::Fail(format!(
                "after the tests before it in the same boot, {:#}\nAlone the test passes",
                died.why
            ));
        }
        decided.push(alone);
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
    use std::path::PathBuf;

    use machines::backend::End;

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
            told(0, 0, "one\nPASS a: 3 records\n").into(),
            told(1, 1, "FAIL b: no\n").into(),
            told(2, 77, "SKIP c: no BRBE\n").into(),
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
        let after = "no verdict: not run after the one before it";
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
                ended: vec![Verdict::pass().into(); ended],
                died,
            })
        });
        (decided.unwrap(), boots)
    }

    #[test]
    fn a_time_out_of_one_test_is_told_from_its_failure() {
        let decided = |late: usize| {
            let mut boots = 0;
            decide(1, |_| {
                boots += 1;
                let is_late = boots <= late;
                Ok(Judged {
                    ended: vec![Verdict::pass().into(); usize::from(!is_late)],
                    died: is_late.then(|| death(false)),
                })
            })
        };
        let error = decided(2).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Dead::TimedOut(_))));
        let [once] = &decided(1).unwrap()[..] else {
            panic!("one test")
        };
        assert_eq!((&once.verdict, once.retries), (&Verdict::pass(), 1));
    }

    /// What comes of four tests, if a guest does not end the third one in time, and the machines of
    /// all boots from the `failing` one on fail with `error`.
    fn failing(failing: usize, error: impl Fn() -> Error) -> Result<Vec<Decided>> {
        let mut boots = 0;
        decide(4, |places| {
            boots += 1;
            if boots >= failing {
                return Err(error());
            }
            let late = places
                .iter()
                .position(|place| *place == 2 && places.len() > 1);
            Ok(Judged {
                ended: vec![Verdict::pass().into(); late.unwrap_or(places.len())],
                died: late.map(|_| death(false)),
            })
        })
    }

    #[test]
    fn a_machine_that_fails_later_takes_no_verdict() {
        let no_memory = || anyhow!("no memory");
        assert!(failing(1, no_memory).is_err());
        for (first, passed) in [(2, 2), (3, 3)] {
            let decided = failing(first, no_memory).unwrap();
            let verdicts: Vec<_> = decided.into_iter().map(|decided| decided.verdict).collect();
            let mut expected = vec![Verdict::pass(); passed];
            expected.resize(4, Verdict::Fail("no verdict: no memory".to_owned()));
            assert_eq!(verdicts, expected);
            assert!(failing(first, || Interrupted.into()).is_err());
        }
    }

    #[test]
    fn a_machine_that_fails_takes_nothing_that_ended() {
        let run = |output: &str| Run {
            output: output.into(),
            end: End::Failed("out of memory".to_owned()),
            console: PathBuf::new(),
        };
        assert!(judge(3, &run("one\n"), told).is_err());
        let Judged { ended, died } = judge(4, &run(OUTPUT), told).unwrap();
        assert_eq!(ended.len(), 3);
        let why = died.unwrap().why.to_string();
        assert!(why.contains("out of memory"), "{why}");
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
        // A test that was first in its boot has no neighbour to blame, and a time-out the host.
        let first = |retries| vec![fail(retries), pass(0), pass(0)];
        assert_eq!(booted(3, &[], &[0], true), (first(0), 2));
        assert_eq!(booted(3, &[], &[0], false), (first(1), 3));
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
