//! A report as one HTML file, for people who did not see the run.

use std::fmt::Write as _;

use quick_xml::escape::escape;

use crate::outcome::Report;
use crate::verdict::Verdict;

const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 0 auto; padding: 1rem 2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: 0.25rem 0.8rem; border-bottom: 1px solid light-dark(#ddd, #333); vertical-align: top; }
td:last-child { text-align: right; white-space: nowrap; }
.pass { color: light-dark(#116329, #56d364); } .fail { color: light-dark(#b3261e, #ff7b72); font-weight: bold; } .skip { color: #8b949e; }
pre { white-space: pre-wrap; margin: 0; font-size: 13px; }
";

/// The report as a complete HTML page.
pub fn document(report: &Report) -> String {
    let mut rows = String::new();
    for row in report.rows() {
        let reason = row.verdict().reason();
        let seen = match row.verdict() {
            Verdict::Fail(_) if !reason.is_empty() => format!("<pre>{}</pre>", escape(reason)),
            _ => escape(row.seen()).into_owned(),
        };
        let word = row.verdict().word();
        // A write to a String does not fail.
        let _ = writeln!(
            rows,
            "<tr><td class=\"{}\">{word}</td><td>{}</td><td>{}</td><td>{seen}</td><td>{:.1} s</td></tr>",
            word.to_lowercase(),
            escape(&row.subject),
            escape(&row.test),
            row.seconds
        );
    }
    let summary = report.summary();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{summary}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{summary}</h1>\n\
         <table>\n<tr><th></th><th>subject</th><th>test</th><th>seen</th><th>time</th></tr>\n\
         {rows}</table>\n</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_verdict_is_a_row() {
        let page = super::document(&crate::outcome::tests::report());
        assert_eq!(page.matches("<tr>").count(), 4);
        assert!(page.contains("<h1>1 passed, 1 failed, 1 skipped</h1>"));
        assert!(page.contains("the console:\n  nothing"), "{page}");
    }
}
