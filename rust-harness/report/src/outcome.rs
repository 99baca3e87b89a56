//! What a run of tests has seen: its rows, and the table at its end.

use std::collections::BTreeSet;

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use host::progress;
use serde::{Deserialize, Serialize};

use crate::selection::Partition;
use crate::verdict::{Row, Verdict, is_default};

/// The columns of a terminal below which a table is not fitted to it.
const NARROW: u16 = 60;

/// What a run of tests has seen: a row for each test, in the order of the plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    rows: Vec<Row>,
    /// The runs that the rows are of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    runs: Vec<RunNote>,
    /// How many tests did not begin before the limit of their run.
    #[serde(default, skip_serializing_if = "is_default")]
    late: usize,
}

/// What is known of a run beside its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunNote {
    /// The partition that was run, such as `2/8`. `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// How long the run took, in seconds.
    pub seconds: f64,
}

impl From<Vec<Row>> for Report {
    fn from(rows: Vec<Row>) -> Self {
        Self {
            rows,
            ..Self::default()
        }
    }
}

impl Report {
    /// Adds the rows of another report, perhaps of a run on another machine.
    pub fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.runs.extend(other.runs);
        self.late = self.late.saturating_add(other.late);
    }

    /// This report, of a run in which so many tests did not begin before its limit.
    pub(crate) fn with_late(mut self, late: usize) -> Self {
        self.late = late;
        self
    }

    /// How many tests did not begin before the limit of their run.
    pub fn late(&self) -> usize {
        self.late
    }

    /// Notes what is known of the run beside its rows.
    pub fn note(&mut self, run: RunNote) {
        self.runs.push(run);
    }

    /// The partition that took longest, and its seconds. `None` if no partitions were run.
    pub fn longest_partition(&self) -> Option<(Partition, f64)> {
        let partitions = self.runs.iter();
        let partitions = partitions.filter_map(|run| Some((run.partition?, run.seconds)));
        partitions.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// The partitions that were not run, beside those that were.
    pub fn missing_partitions(&self) -> BTreeSet<Partition> {
        let run: BTreeSet<_> = self.runs.iter().filter_map(|run| run.partition).collect();
        let all = run.iter().flat_map(|partition| partition.all());
        all.filter(|partition| !run.contains(partition)).collect()
    }

    /// How often tests were tried again.
    pub fn retries(&self) -> u32 {
        self.rows
            .iter()
            .fold(0, |all, row| all.saturating_add(row.retries))
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

    /// The table of all rows, and below it each failure in full, without what would do something to
    /// a terminal: what failed may have been said by anybody.
    pub fn table(&self) -> String {
        let mut table = table(["", "subject", "test", "seen", "time"]);
        for row in &self.rows {
            let time = format!("{:.1} s", row.seconds);
            table.add_row([
                row.verdict().word(),
                &row.subject,
                &row.test,
                &row.seen(),
                &time,
            ]);
        }
        let mut text = format!("{table}\n");
        for row in &self.rows {
            if let Verdict::Fail(reason) = row.verdict() {
                text += &format!("\nFAIL {}: {}\n{reason}\n", row.subject, row.test);
            }
        }
        progress::printable(&text)
    }

    /// The line that closes a report: how many tests passed, failed and were skipped.
    pub fn summary(&self) -> String {
        let (passed, failed, skipped) = self.counts();
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// A table with these heads of columns. On a terminal its lines are no longer than the terminal's,
/// unless words would be broken into letters: some engines give their jobs a terminal of no width.
pub fn table<const COLUMNS: usize>(heads: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    if table.width().is_none_or(|width| width >= NARROW) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(heads);
    table
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
        report.rows[0].retries = 1;
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

    /// The report of a run of a partition.
    fn of(partition: Option<&str>, seconds: f64) -> Report {
        let mut report = report().with_late(1);
        report.note(RunNote {
            partition: partition.map(|text| text.parse().unwrap()),
            seconds,
        });
        report
    }

    #[test]
    fn the_longest_of_several_partitions_is_known() {
        let mut all = of(Some("1/2"), 5.0);
        all.append(of(Some("2/2"), 7.0));
        let text = serde_json::to_string(&all).unwrap();
        let again: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(
            again.longest_partition(),
            Some(("2/2".parse().unwrap(), 7.0))
        );
        assert_eq!(again.late(), 2);
        assert_eq!(of(None, 5.0).longest_partition(), None);
    }

    #[test]
    fn a_partition_that_is_not_there_is_missed() {
        let missing = |all: &[&str]| {
            let mut report = Report::default();
            for partition in all {
                report.append(of(Some(partition), 1.0));
            }
            let missing = report.missing_partitions().into_iter();
            missing
                .map(|partition| partition.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(missing(&["2/2", "1/2"]), [""; 0]);
        assert_eq!(missing(&["3/4", "1/2", "1/4"]), ["2/2", "2/4", "4/4"]);
        assert_eq!(of(None, 1.0).missing_partitions().len(), 0);
    }

    #[test]
    fn a_run_without_a_test_is_not_good() {
        assert!(!Report::default().good());
        assert!(!report().good());
    }
}
