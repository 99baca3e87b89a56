//! Judges the selftests by what `test_progs` prints.

use std::collections::BTreeMap;

use super::HELPER;
use super::build::TESTS;
use report::{Decided, Verdict};

/// How a test of `test_progs`, one of its subtests or the whole run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelftestOutcome {
    /// The test ran and all checks held.
    Pass,
    /// The test found that it cannot run here.
    Skip,
    /// A check failed.
    Fail,
}

/// The verdict on the tests of perf events with BPF programs, from the output of all
/// attempts. What became of each the last time counts. All of them have to be there, and one
/// may skip itself.
pub(super) fn of_perf_events(output: &str) -> Decided {
    Decided {
        verdict: verdict_on_perf_events(output),
        retries: retries(output, "perf events, attempt "),
    }
}

fn verdict_on_perf_events(output: &str) -> Verdict {
    let tests = each(output).into_iter();
    let tests: BTreeMap<_, _> = tests
        .filter(|(name, _)| name.starts_with("perf_"))
        .collect();
    let count = |wanted| tests.values().filter(|outcome| **outcome == wanted).count();
    let all = TESTS.len() - 1;
    if count(SelftestOutcome::Fail) > 0 || count(SelftestOutcome::Skip) > 1 || tests.len() != all {
        return Verdict::Fail(without_passed(output));
    }
    let words = tests.iter().map(|(name, outcome)| match outcome {
        SelftestOutcome::Skip => format!("{name} skips itself"),
        _ => (*name).to_owned(),
    });
    Verdict::Pass(words.collect::<Vec<_>>().join(", "))
}

/// How each test ended, by name: `#12  perf_link:OK`. Subtests are left out. A test that was
/// run several times is listed each time.
fn each(output: &str) -> Vec<(&str, SelftestOutcome)> {
    let is_test = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
    outcomes(output, is_test)
}

/// How each subtest of the helper's test ended, by name:
/// `#12/3  get_branch_snapshot/size:OK`. `test_progs` prints the line of a failed subtest a
/// second time, at the end.
fn subtests(output: &str) -> BTreeMap<&str, SelftestOutcome> {
    let is_subtest = |number: &str| number.contains('/');
    let tests = outcomes(output, is_subtest).into_iter();
    tests
        .filter_map(|(name, outcome)| match name.split_once('/') {
            Some((HELPER, name)) => Some((name, outcome)),
            _ => None,
        })
        .collect()
}

/// How each test or subtest ended whose number `is_wanted` takes, in the order of the output.
fn outcomes(output: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<(&str, SelftestOutcome)> {
    let outcome = |word: &str| match word {
        "OK" => Some(SelftestOutcome::Pass),
        "SKIP" => Some(SelftestOutcome::Skip),
        "FAIL" => Some(SelftestOutcome::Fail),
        _ => None,
    };
    let mut tests = Vec::new();
    for line in output.lines() {
        let Some((number, rest)) = line
            .trim()
            .strip_prefix('#')
            .and_then(|rest| rest.split_once(char::is_whitespace))
        else {
            continue;
        };
        // `OK (SKIP: 1/2)`, where a part of the test was left out.
        if let Some((name, words)) = rest.trim().split_once(':')
            && let Some(word) = words.split(' ').next()
            && let Some(outcome) = outcome(word).filter(|_| is_wanted(number))
        {
            tests.push((name, outcome));
        }
    }
    tests
}

/// How a run of `test_progs` ended, by its summary line,
/// `Summary: 1/0 PASSED, 0 SKIPPED, 0/0 FAILED`. `None` if there is no such line, or no test
/// was run.
pub(crate) fn outcome(output: &str) -> Option<SelftestOutcome> {
    let summary = output
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("Summary: "))?;
    let mut counts = summary.split(", ").map(|part| {
        let number = part.split(['/', ' ']).next()?;
        number.parse::<u32>().ok()
    });
    let (passed, skipped, failed) = (counts.next()??, counts.next()??, counts.next()??);
    match (passed, skipped, failed) {
        (_, _, 1..) => Some(SelftestOutcome::Fail),
        (_, 1.., 0) => Some(SelftestOutcome::Skip),
        (1.., 0, 0) => Some(SelftestOutcome::Pass),
        (0, 0, 0) => None,
    }
}

/// The verdict on the helper's test, from the output of all attempts. The last attempt
/// counts. Of the subtests, only those in `may_skip` may be skipped.
pub(super) fn of_helper(output: &str, may_skip: &[&str]) -> Decided {
    const ATTEMPT: &str = "helper, attempt ";
    Decided {
        verdict: verdict_on_helper(output, ATTEMPT, may_skip),
        retries: retries(output, ATTEMPT),
    }
}

fn verdict_on_helper(output: &str, attempt: &str, may_skip: &[&str]) -> Verdict {
    let last = output.rsplit_once(attempt).map_or(output, |(_, last)| {
        last.split_once('\n').map_or("", |(_number, rest)| rest)
    });
    let (tests, subtests) = (each(last), subtests(last));
    let with = |wanted| {
        let names = subtests
            .iter()
            .filter(move |(_, outcome)| **outcome == wanted);
        names.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    match tests.iter().rfind(|(name, _)| *name == HELPER) {
        Some((_, SelftestOutcome::Pass)) if with(SelftestOutcome::Fail).is_empty() => {}
        Some((_, SelftestOutcome::Skip)) => {
            return Verdict::Fail(format!("the test skips itself:\n{}", without_passed(last)));
        }
        _ => return Verdict::Fail(without_passed(last)),
    }
    let skipped = with(SelftestOutcome::Skip);
    if skipped.iter().any(|name| !may_skip.contains(name)) {
        let skipped = skipped.join(", ");
        let said = without_passed(last);
        return Verdict::Fail(format!("subtests are skipped, {skipped}:\n{said}"));
    }
    let passed = match with(SelftestOutcome::Pass).len() {
        0 => None,
        count => Some(format!("{count} of {} subtests", subtests.len())),
    };
    let skipped = (!skipped.is_empty()).then(|| format!("skipped: {}", skipped.join(", ")));
    let words: Vec<_> = [passed, skipped].into_iter().flatten().collect();
    Verdict::Pass(words.join("; "))
}

/// The lines of `output` but for those of checks that held: `test_size:PASS:size 0 nsec`.
fn without_passed(output: &str) -> String {
    let lines = output.lines().filter(|line| !line.contains(":PASS:"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// How often tests were run again, by `output`. Each attempt has one line that begins with
/// `mark`.
fn retries(output: &str, mark: &str) -> u32 {
    let attempts = output.lines().filter(|line| line.starts_with(mark)).count();
    u32::try_from(attempts).map_or(u32::MAX, |attempts| attempts.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_decides() {
        let say = |line: &str| outcome(&format!("#1 get_branch_snapshot:OK\n{line}\ndone\n"));
        assert_eq!(
            say("Summary: 1/0 PASSED, 0 SKIPPED, 0/0 FAILED"),
            Some(SelftestOutcome::Pass)
        );
        assert_eq!(
            say("Summary: 1/0 PASSED, 1 SKIPPED, 0/0 FAILED"),
            Some(SelftestOutcome::Skip)
        );
        assert_eq!(
            say("Summary: 0/0 PASSED, 0 SKIPPED, 1/0 FAILED"),
            Some(SelftestOutcome::Fail)
        );
    }

    #[test]
    fn each_test_is_reported() {
        let output = "#7/1     perf_branches/perf_branches_hw:SKIP\n#7       perf_branches:OK (SKIP: 1/2)\n\
                      #9       perf_link:FAIL\ncheck_good:PASS:x\nSummary: 1/1 PASSED\n";
        let expected = [
            ("perf_branches", SelftestOutcome::Pass),
            ("perf_link", SelftestOutcome::Fail),
        ];
        assert_eq!(each(output), expected);
    }

    #[test]
    fn tests_of_perf_events_are_all_there() {
        let line = |name: &str, word: &str| format!("#1 {name}:{word}\n");
        let names = TESTS.map(|(name, _)| name);
        let all: String = names.iter().map(|name| line(name, "OK")).collect();
        assert!(matches!(verdict_on_perf_events(&all), Verdict::Pass(_)));
        let skipped = all.replace("perf_link:OK", "perf_link:SKIP");
        let Verdict::Pass(words) = verdict_on_perf_events(&skipped) else {
            panic!("{skipped}")
        };
        assert!(words.contains("perf_link skips itself"), "{words}");
        let failed = all.replace("perf_link:OK", "perf_link:FAIL");
        assert!(matches!(verdict_on_perf_events(&failed), Verdict::Fail(_)));
        // test_progs prints what failed a second time.
        let mark = "perf events, attempt ";
        let again = "All error logs:\n#1 perf_link:FAIL\n";
        let twice = format!("{mark}1\n{failed}{again}{mark}2\n{all}");
        let second = of_perf_events(&twice);
        assert!(matches!(second.verdict, Verdict::Pass(_)));
        assert_eq!(second.retries, 1);
        let two = skipped.replace("perf_skip:OK", "perf_skip:SKIP");
        assert!(matches!(verdict_on_perf_events(&two), Verdict::Fail(_)));
        let missing = all.replace("#1 perf_link", "perf_link");
        assert!(matches!(verdict_on_perf_events(&missing), Verdict::Fail(_)));
    }

    #[test]
    fn the_helpers_last_attempt_counts() {
        let line = |word: &str| format!("helper, attempt 1\n#1 {HELPER}:{word}\n");
        let judge = |output: &str| of_helper(output, &[]);
        assert_eq!(judge(&line("OK")), Verdict::pass().into());
        let second = line("FAIL") + &line("OK");
        let second = judge(&second);
        assert_eq!((second.verdict, second.retries), (Verdict::pass(), 1));
        for wrong in [line("FAIL"), line("SKIP"), String::new()] {
            assert!(matches!(judge(&wrong).verdict, Verdict::Fail(_)), "{wrong}");
        }
    }

    #[test]
    fn subtests_pass_or_are_skipped_where_they_may() {
        let says = |one: &str, other: &str, all: &str| {
            format!(
                "#1/1     {HELPER}/size:{one}\n#1/2     {HELPER}/flags:{other}\n\
                 #1       {HELPER}:{all}\n"
            )
        };
        let (whole, part) = (says("OK", "OK", "OK"), says("SKIP", "OK", "OK (SKIP: 1/2)"));
        let passed = |output: &str, may_skip: &[&str]| match of_helper(output, may_skip).verdict {
            Verdict::Pass(said) => Some(said),
            _ => None,
        };
        let expected = Some("2 of 2 subtests".to_owned());
        assert_eq!(passed(&whole, &[]), expected);
        assert_eq!(passed(&whole, &["size"]), expected);
        let expected = Some("1 of 2 subtests; skipped: size".to_owned());
        assert_eq!(passed(&part, &["size"]), expected);
        assert_eq!(passed(&part, &["flags"]), None);
        assert_eq!(passed(&part, &[]), None);
        let wrong = says("FAIL", "OK", "FAIL");
        assert_eq!(passed(&wrong, &["size"]), None);
        // Of several attempts only the last one counts.
        let mark = "helper, attempt ";
        let twice = format!("{mark}1\n{wrong}{mark}2\n{whole}");
        assert_eq!(passed(&twice, &[]).as_deref(), Some("2 of 2 subtests"));
    }

    #[test]
    fn a_failure_has_what_failed_in_the_last_attempt() {
        let attempt = |number: u32| {
            format!(
                "helper, attempt {number}\nrun:PASS:retval 0 nsec\n\
                 test_size:FAIL:size unexpected size: actual {number} != expected 0\n\
                 #1 {HELPER}:FAIL\n"
            )
        };
        let said = of_helper(&(attempt(1) + &attempt(2)), &[]).verdict;
        let expected = format!(
            "test_size:FAIL:size unexpected size: actual 2 != expected 0\n#1 {HELPER}:FAIL\n"
        );
        assert_eq!(said, Verdict::Fail(expected));
    }

    #[test]
    fn no_summary_or_no_test_is_no_verdict() {
        assert_eq!(outcome("Loading bpf_testmod.ko...\n"), None);
        assert_eq!(
            outcome("Summary: 0/0 PASSED, 0 SKIPPED, 0/0 FAILED\n"),
            None
        );
    }
}
