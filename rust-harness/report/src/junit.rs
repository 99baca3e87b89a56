//! A report as JUnit's XML, which most CI engines show.

use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestRerun, TestSuite};

use crate::outcome::Report;
use crate::verdict::Verdict;

/// The report as a JUnit document in XML: a suite for each subject, a test case for each row. A
/// row that passed or failed at a later attempt than the first has a `flakyFailure` or
/// `rerunFailure`, which says at which.
///
/// # Errors
///
/// When a text of the report cannot be written as XML.
pub fn document(report: &Report) -> Result<String, quick_junit::SerializeError> {
    let mut suites = Vec::<TestSuite>::new();
    for row in report.rows() {
        let (mut status, reason) = match row.verdict() {
            Verdict::Pass(reason) => (TestCaseStatus::success(), reason),
            Verdict::Fail(reason) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(reason.lines().next().unwrap_or_default());
                status.set_description(reason.as_str());
                (status, reason)
            }
            Verdict::Skip(reason) => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(reason.as_str());
                (status, reason)
            }
        };
        if let Some(attempt) = row.attempt() {
            let mut rerun = TestRerun::new(NonSuccessKind::Failure);
            rerun.set_message(attempt);
            status.add_rerun(rerun);
        }
        let mut case = TestCase::new(row.test.as_str(), status);
        case.set_classname(row.subject.as_str());
        case.set_time(Duration::try_from_secs_f64(row.seconds).unwrap_or_default());
        if matches!(row.verdict(), Verdict::Pass(_)) && !reason.is_empty() {
            case.set_system_out(reason.as_str());
        }
        let known = |suite: &TestSuite| suite.name.as_str() == row.subject;
        match suites.iter_mut().find(|suite| known(suite)) {
            Some(suite) => {
                suite.add_test_case(case);
            }
            None => {
                let mut suite = TestSuite::new(row.subject.as_str());
                suite.add_test_case(case);
                suites.push(suite);
            }
        }
    }
    // Suites are added when they are complete: the test cases of a suite are counted when it
    // is added.
    let mut junit = quick_junit::Report::new("brbe");
    junit.add_test_suites(suites);
    junit.to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn subjects_are_suites() {
        insta::assert_snapshot!(super::document(&crate::outcome::tests::report()).unwrap());
    }
}
