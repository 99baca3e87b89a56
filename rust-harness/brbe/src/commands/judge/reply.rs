//! A mail that answers the posting of an implementation with what tests found.

use std::fmt::Write as _;

use kernel_tests::properties::{Evidence, Finding, JudgedProperty, Judgement, PropertyKind};
use report::{Report, Verdict};

/// The most lines of a test's words that are quoted.
const LINES: usize = 12;
/// How long a line of a mail is.
const WIDTH: usize = 72;

/// The mail, without headers. `machine` describes what the tests ran on.
pub(super) fn mail(judgement: &Judgement, report: &Report, machine: &str) -> String {
    let mut text = String::new();
    let kernel = report.rows().last().map_or("it", |row| &row.subject);
    paragraph(
        &mut text,
        &format!("I have tested this ({kernel}) on {machine}."),
    );
    let failed = |judged: &&JudgedProperty| matches!(judged.finding, Finding::Broken { .. });
    let of = |kind| {
        let properties = judgement.properties.iter();
        properties.filter(move |judged| judged.kind == kind)
    };
    for judged in of(PropertyKind::Promise).filter(failed) {
        paragraph(&mut text, &format!("This does not hold: {}.", judged.says));
        if let Finding::Broken { evidence } = &judged.finding {
            quote(&mut text, evidence);
        }
    }
    for judged in of(PropertyKind::Policy).filter(failed) {
        let differs = "This is otherwise, which callers should know";
        paragraph(&mut text, &format!("{differs}: {}.", judged.says));
        if let Finding::Broken { evidence } = &judged.finding {
            quote(&mut text, evidence);
        }
    }
    if !judgement.others.is_empty() {
        paragraph(&mut text, "These tests did not pass, either:");
        quote(&mut text, &judgement.others);
    }
    list(
        &mut text,
        "These hold:",
        &judgement.properties,
        |finding| matches!(finding, Finding::Upheld { but, .. } if but.is_empty()),
    );
    list(
        &mut text,
        "These hold as far as I could test them:",
        &judgement.properties,
        |finding| matches!(finding, Finding::Upheld { but, .. } if !but.is_empty()),
    );
    list(
        &mut text,
        "I could not decide these:",
        &judgement.properties,
        |finding| matches!(finding, Finding::NotDecided { .. }),
    );
    let count = |wanted: fn(&Verdict) -> bool| {
        let verdicts = report.rows().iter().map(|row| row.verdict());
        verdicts.filter(|verdict| wanted(verdict)).count()
    };
    paragraph(
        &mut text,
        &format!(
            "{} tests passed, {} failed, {} were skipped.",
            count(|verdict| matches!(verdict, Verdict::Pass(_))),
            count(|verdict| matches!(verdict, Verdict::Fail(_))),
            count(|verdict| matches!(verdict, Verdict::Skip(_)))
        ),
    );
    text
}

fn paragraph(text: &mut String, words: &str) {
    let _ = writeln!(text, "{}\n", textwrap::fill(words, WIDTH));
}

/// The properties whose findings are `wanted`, as a list.
fn list(
    text: &mut String,
    title: &str,
    properties: &[JudgedProperty],
    wanted: fn(&Finding) -> bool,
) {
    let wanted: Vec<_> = properties
        .iter()
        .filter(|judged| wanted(&judged.finding))
        .collect();
    if wanted.is_empty() {
        return;
    }
    paragraph(text, title);
    for judged in wanted {
        let options = textwrap::Options::new(WIDTH).initial_indent(" - ");
        let options = options.subsequent_indent("   ");
        let line = format!("{}: {}", judged.name, judged.says);
        let _ = writeln!(text, "{}", textwrap::fill(&line, options));
    }
    text.push('\n');
}

/// The words of tests, indented. Lines of a log are not wrapped.
fn quote(text: &mut String, evidence: &[Evidence]) {
    for Evidence { test, said } in evidence {
        let _ = writeln!(text, "  {test}:");
        let lines: Vec<_> = said.trim().lines().collect();
        for line in lines.iter().take(LINES) {
            let _ = writeln!(text, "    {line}");
        }
        if lines.len() > LINES {
            let _ = writeln!(text, "    [{} more lines]", lines.len() - LINES);
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kernel_tests::properties::PROPERTIES;
    use report::Row;

    use super::*;

    #[test]
    fn the_mail_says_what_tests_said() {
        let twice = "the newest branch of the first snapshot is not the one into x: branches of the \
                     snapshot's own cost records";
        let rows = [
            ("twice", Verdict::Fail(twice.to_owned())),
            ("flags", Verdict::pass()),
            (
                "late-pmu",
                Verdict::Skip("it needs a device tree".to_owned()),
            ),
            ("nested", Verdict::Fail("a line\n".repeat(20))),
        ];
        let rows = rows
            .map(|(test, verdict)| Row::new("7.3.4 with v2.mbox", test, verdict, Duration::ZERO));
        let report = Report::from(rows.to_vec());
        let judgement = Judgement::of(&report, &PROPERTIES);
        insta::assert_snapshot!(mail(&judgement, &report, "an emulated machine"));
    }
}
