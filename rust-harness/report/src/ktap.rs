//! A report as KTAP, which the kernel's own tools read
//! (Documentation/dev-tools/ktap.rst).

use std::fmt::Write as _;

use crate::outcome::Report;
use crate::verdict::Verdict;

/// The report as a KTAP document: a line for each row. Diagnostic lines before it say at which
/// attempt the row was decided, if that was not the first, and the reason of a failure.
pub fn document(report: &Report) -> String {
    let mut text = format!("KTAP version 1\n1..{}\n", report.rows().len());
    for (index, row) in report.rows().iter().enumerate() {
        let (word, rest) = match row.verdict() {
            Verdict::Pass(_) => ("ok", String::new()),
            Verdict::Fail(_) => ("not ok", String::new()),
            Verdict::Skip(reason) => ("ok", format!(" # SKIP {}", one_line(reason))),
        };
        let failure = match row.verdict() {
            Verdict::Fail(reason) => reason.as_str(),
            Verdict::Pass(_) | Verdict::Skip(_) => "",
        };
        let attempt = row.attempt();
        for line in attempt.as_deref().into_iter().chain(failure.lines()) {
            // A write to a String does not fail.
            let _ = writeln!(text, "# {line}");
        }
        // What follows a `#` would be a directive.
        let name = format!("{}: {}", row.subject, row.test).replace('#', "no. ");
        let _ = writeln!(text, "{word} {} {name}{rest}", index + 1);
    }
    text
}

fn one_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_verdict_is_a_line() {
        insta::assert_snapshot!(super::document(&crate::outcome::tests::report()));
    }
}
