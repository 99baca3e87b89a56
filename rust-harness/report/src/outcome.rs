//! What a run of tests has seen: its rows, and the table at its end.

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::{Deserialize, Serialize};

use crate::verdict::{Row, Verdict};

/// What a run of tests has seen: a row for each test, in the order of the plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    rows: Vec<Row>,
}

impl From<Vec<Row>> for Report {
    fn from(rows: Vec<Row>) -> Self {
        Self { rows }
    }
}

impl Report {
    /// Adds the rows of another report, perhaps of a run on another machine.
    pub fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// The rows of the tests that have been run or skipped so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The verdict of the first test of this name, whatever its subject.
    pub fn verdict(&self, test: &str) -> Option<&Verdict> {
        let row = self.rows.iter().find(|row| row.test == test)?;
        Some(row.verdict())
    }

    /// The numbers of tests that passed, that failed and that were skipped, in this order.
    pub fn counts(&self) -> (usize, usize, usize) {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for row in &self.rows {
            *match row.verdict() {
                Verdict::Pass(_) => &mut passed,
                Verdict::Fail(_) => &mut failed,
                Verdict::Skip(_) => &mut skipped,
            } += 1;
        }
        (passed, failed, skipped)
    }

    /// Whether no test failed, and at least one passed.
    pub fn good(&self) -> bool {
        let (passed, failed, _) = self.counts();
        failed == 0 && passed > 0
    }

    /// The table of all rows, and below it each failure in full.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table
            .load_preset(UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["", "subject", "test", "seen", "time"]);
        for row in &self.rows {
            let seen = row.verdict().reason().lines().next().unwrap_or_default();
            let time = format!("{:.1} s", row.seconds);
            table.add_row([row.verdict().word(), &row.subject, &row.test, seen, &time]);
        }
        let mut text = format!("{table}\n");
        for row in &self.rows {
            if let Verdict::Fail(reason) = row.verdict() {
                text += &format!("\nFAIL {}: {}\n{reason}\n", row.subject, row.test);
            }
        }
        text
    }

    /// The line that closes a report: how many tests passed, failed and were skipped.
    pub fn summary(&self) -> String {
        let (passed, failed, skipped) = self.counts();
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn report() -> Report {
        let mut report = Report::default();
        let time = Duration::from_millis(1500);
        for (subject, test, verdict) in [
            ("7.3", "selftest", Verdict::pass()),
            (
                "7.0",
                "oops",
                Verdict::Fail("no oops\nthe console:\n  nothing".into()),
            ),
            ("7.3", "nmi", Verdict::Skip("no pseudo-NMI".into())),
        ] {
            report.rows.push(Row::new(subject, test, verdict, time));
        }
        report
    }

    #[test]
    fn a_report_comes_back_from_json() {
        let text = serde_json::to_string(&report()).unwrap();
        let again: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(again.table(), report().table());
    }

    #[test]
    fn the_table_shows_each_verdict_and_failures_in_full() {
        insta::assert_snapshot!(report().table());
        assert_eq!(report().summary(), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_run_without_a_test_is_not_good() {
        assert!(!Report::default().good());
        assert!(!report().good());
    }
}
