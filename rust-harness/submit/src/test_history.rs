//! What the last runs of the tests have seen of a series, kept for its cover letter.
//!
//! What is kept belongs to the code that the kernel is compiled from. Another word in a
//! commit message leaves it valid, another line of code does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use host::cache::{self, Key, Lock};
use host::paths::Paths;
use host::progress;
use host::toolchain;
use kernel_tests::cost;
use kernel_tests::proofs;
use kernel_tests::waste;
use kernels::config;
use kernels::subject::Subject;
use report::{Row, Verdict};

/// The beginnings of names of tests that are of this project rather than of a series.
const HARNESS_TESTS: [&str; 2] = ["branch-trace", "lane "];

/// A row that is kept: a test with its verdict, and when and where it ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptRow {
    #[serde(flatten)]
    row: Row,
    /// The day of the run, `2026-11-22`, in UTC.
    day: String,
    /// The kind of machine that the test ran on.
    machine: String,
    /// The row is of a proof: a safeguard is taken out, and a test has to fail.
    is_proof: bool,
    /// The row is of a whole run: one with all tests of its subject.
    is_whole: bool,
    /// The name of the figures that the test has compared, by [`figures`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    figures: Option<String>,
}

/// All rows that are kept of a series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tested(Vec<KeptRow>);

impl Tested {
    /// Reads what is kept of the subject's series. If nothing is kept, there are no rows. A file that
    /// cannot be read as rows is none, which is said.
    ///
    /// # Errors
    ///
    /// When the file with the rows cannot be read, or git cannot tell what the kernel is
    /// compiled from.
    pub fn load(paths: &Paths, subject: &Subject) -> Result<Self> {
        let path = path(paths, subject)?;
        if !path.is_file() {
            return Ok(Self::default());
        }
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        // Another version of this program may have kept them.
        Ok(serde_json::from_slice(&text).unwrap_or_else(|error| {
            progress::say(&format!(
                "brbe: {} has no verdicts that can be read ({error}): what was kept there is lost",
                path.display()
            ));
            Self::default()
        }))
    }

    /// Keeps the rows of a run on one kind of machine for the subject's series: beside the
    /// rows that were kept before, or of a `whole` run in their place.
    ///
    /// # Errors
    ///
    /// When the rows that were kept before, the list of mutants or the figures of a test that has
    /// passed cannot be read, or the file cannot be written.
    pub fn keep(
        paths: &Paths,
        subject: &Subject,
        machine: &str,
        rows: &[Row],
        whole: bool,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let proofs = proofs::titles(paths, subject)?;
        let day = today();
        let new = rows.iter().map(|row| {
            let figures = match row.verdict() {
                Verdict::Pass(_) => figures(paths, &row.subject, &row.test)?,
                Verdict::Fail(_) | Verdict::Skip(_) => None,
            };
            Ok(KeptRow {
                row: row.clone(),
                day: day.clone(),
                machine: machine.to_owned(),
                is_proof: proofs.contains(&row.subject),
                is_whole: whole,
                figures,
            })
        });
        let new = new.collect::<Result<Vec<_>>>()?;
        let path = path(paths, subject)?;
        let _lock = Lock::take(paths, "tested")?;
        let mut known = Self::load(paths, subject)?;
        known.add(new);
        let dir = path.parent().context("a file has a directory")?;
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let text = serde_json::to_vec_pretty(&known).context("writing JSON")?;
        cache::write_atomically(&path, &text)
    }

    /// Adds the rows of a run. A test that was skipped this time keeps its old row: it has
    /// not been seen to fail. A test that a whole run does not have any more is forgotten.
    fn add(&mut self, rows: Vec<KeptRow>) {
        let Self(kept) = self;
        kept.retain(|old| {
            !rows.iter().any(|new| {
                new.is_whole && (&new.row.subject, &new.machine) == (&old.row.subject, &old.machine)
            })
        });
        for new in rows {
            let is_same = |kept: &KeptRow| kept.row.is_of(&new.row) && kept.machine == new.machine;
            let known = kept.iter().position(is_same);
            match known {
                Some(_) if matches!(new.row.verdict(), Verdict::Skip(_)) => {}
                Some(place) => kept[place] = new,
                None => kept.push(new),
            }
        }
    }

    /// Whether a test whose name contains `text` has passed.
    pub fn has_passed(&self, text: &str) -> bool {
        let passed = |kept: &KeptRow| matches!(kept.row.verdict(), Verdict::Pass(_));
        let mut rows = self.0.iter();
        rows.any(|kept| kept.row.test.contains(text) && passed(kept))
    }

    /// Whether a test has passed on the kernel `title`, and has compared the figures of that name.
    pub(crate) fn has_compared(&self, title: &str, test: &str, figures: Option<&str>) -> bool {
        let passed = |kept: &KeptRow| matches!(kept.row.verdict(), Verdict::Pass(_));
        let mut rows = self.of_test(title, test);
        rows.any(|kept| kept.figures.as_deref() == figures && passed(kept))
    }

    /// Whether a test has failed on the kernel `title`.
    pub(crate) fn has_failed(&self, title: &str, test: &str) -> bool {
        let mut rows = self.of_test(title, test);
        rows.any(|kept| matches!(kept.row.verdict(), Verdict::Fail(_)))
    }

    fn of_test(&self, title: &str, test: &str) -> impl Iterator<Item = &KeptRow> {
        let rows = self.0.iter();
        rows.filter(move |kept| kept.row.subject == title && kept.row.test == test)
    }

    /// The verdict on whether the series has been tested enough to be sent. `title` is that
    /// of the kernel with all patches. `proofs` are the titles of the kernels with a mutant.
    ///
    /// * FAIL: a test has failed.
    /// * PASS: there is a whole run on that kernel, each test that was skipped has passed on
    ///   another kind of machine, and there is a row for each of `proofs`.
    /// * SKIP: something of this is missing.
    pub fn judge(&self, title: &str, proofs: &BTreeSet<String>) -> Verdict {
        let failed = |kept: &&KeptRow| matches!(kept.row.verdict(), Verdict::Fail(_));
        let failed: Vec<_> = self.0.iter().filter(failed).collect();
        if let Some(one) = failed.first() {
            let Row { subject, test, .. } = &one.row;
            let count = failed.len();
            return Verdict::Fail(format!("{count} failed, such as {subject}: {test}"));
        }
        let is_whole = |kept: &KeptRow| kept.is_whole && kept.row.subject == title;
        if !self.0.iter().any(is_whole) {
            return Verdict::Skip("no whole run of ./brbe test --tier all is recorded".to_owned());
        }
        // What one kind of machine lacks another may have.
        let has_passed = |row: &Row| {
            let mut rows = self.0.iter().map(|kept| &kept.row);
            rows.any(|other| other.is_of(row) && matches!(other.verdict(), Verdict::Pass(_)))
        };
        let is_open = |kept: &&KeptRow| {
            matches!(kept.row.verdict(), Verdict::Skip(_)) && !has_passed(&kept.row)
        };
        if let Some(one) = self.0.iter().find(is_open) {
            let Row { subject, test, .. } = &one.row;
            return Verdict::Skip(format!("skipped: {subject}: {test}"));
        }
        let is_there = |title: &str| self.0.iter().any(|kept| kept.row.subject == title);
        let left: Vec<_> = proofs.iter().filter(|title| !is_there(title)).collect();
        match &left[..] {
            [] => Verdict::Pass(format!("{} rows, {} mutants", self.0.len(), proofs.len())),
            [first, ..] => Verdict::Skip(format!(
                "no run with --prove or --tier all is recorded of {} of {} mutants: {first}",
                left.len(),
                proofs.len()
            )),
        }
    }

    /// The paragraphs of a cover letter about the tests, if anything is kept. `title` is what
    /// the kernel with the patches is called. `proven_with` is the series whose kernel the
    /// safeguards were taken out of, if that is another one.
    pub fn cover_letter_text(&self, title: &str, proven_with: Option<&str>) -> Option<String> {
        let Self(kept) = self;
        // Also `7.3.4 patched, x86_64`.
        let is_of_title = |kept: &&KeptRow| {
            let is_ours = HARNESS_TESTS
                .iter()
                .any(|of_ours| kept.row.test.starts_with(of_ours));
            kept.row.subject.starts_with(title) && !is_ours
        };
        let mut by_machine = BTreeMap::<_, Vec<_>>::new();
        for kept in kept.iter().filter(is_of_title) {
            by_machine
                .entry(kept.machine.as_str())
                .or_default()
                .push(kept);
        }
        if by_machine.is_empty() {
            return None;
        }
        let parts = by_machine
            .into_iter()
            .map(|(machine, kept)| paragraphs_of(machine, title, &kept));
        let mut text = parts.collect::<Vec<_>>().join("\n\n");
        let safeguards: Vec<_> = kept.iter().filter(|kept| kept.is_proof).collect();
        if !safeguards.is_empty() {
            let is_killed = |kept: &&KeptRow| matches!(kept.row.verdict(), Verdict::Pass(_));
            let (killed, not): (Vec<_>, Vec<_>) = safeguards.into_iter().partition(is_killed);
            let names = |kept: &[&KeptRow]| {
                let names = kept.iter().map(|kept| kept.row.test.as_str());
                names.collect::<Vec<_>>().join("; ")
            };
            let with = proven_with.map_or_else(String::new, |series| {
                format!(", with the series \"{series}\" on top, whose snapshots the tests take")
            });
            let mut said = format!(
                "Safeguards were taken out one at a time{with}, to see a test fail without each, \
                 for that reason; so it was for {} of {}",
                killed.len(),
                killed.len() + not.len(),
            );
            for (begin, some) in [(": ", killed), (". NOT SEEN: ", not)] {
                if !some.is_empty() {
                    said += begin;
                    said += &names(&some);
                }
            }
            said += ".";
            text += "\n\n";
            text += &wrapped(&said);
        }
        Some(text)
    }
}

/// The paragraphs of a cover letter about the tests on one kind of machine. `title` is what
/// the kernel of the series is called.
fn paragraphs_of(machine: &str, title: &str, kept: &[&KeptRow]) -> String {
    let days = || kept.iter().map(|kept| kept.day.as_str());
    let (first, last) = (
        days().min().unwrap_or_default(),
        days().max().unwrap_or_default(),
    );
    let when = if first == last {
        format!("on {first}")
    } else {
        format!("from {first} to {last}")
    };
    let words = |verdict: fn(&Verdict) -> bool| {
        let tests = kept
            .iter()
            .filter(|kept| !kept.is_proof && verdict(kept.row.verdict()));
        let name = |kept: &&KeptRow| {
            let kernel = kept.row.subject[title.len()..].trim_matches([' ', ',']);
            let attempt = kept.row.attempt();
            let kernel = Some(kernel).filter(|kernel| !kernel.is_empty());
            let notes: Vec<_> = kernel.into_iter().chain(attempt.as_deref()).collect();
            match &notes[..] {
                [] => kept.row.test.clone(),
                notes => format!("{} ({})", kept.row.test, notes.join(", ")),
            }
        };
        tests.map(name).collect::<Vec<_>>()
    };
    let passed = words(|verdict| matches!(verdict, Verdict::Pass(_)));
    let failed = words(|verdict| matches!(verdict, Verdict::Fail(_)));
    let skipped = words(|verdict| matches!(verdict, Verdict::Skip(_)));
    let mut text = wrapped(&format!(
        "Tested {when} in {machine}: {} passed, {} failed, {} skipped.",
        count(passed.len(), "test"),
        failed.len(),
        skipped.len(),
    ));
    for (what, tests) in [("Passed", passed), ("FAILED", failed), ("Skipped", skipped)] {
        if !tests.is_empty() {
            text += "\n\n";
            text += &wrapped(&format!("{what}: {}.", tests.join("; ")));
        }
    }
    text
}

fn count(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

/// The text in lines as long as those of a mail.
fn wrapped(text: &str) -> String {
    textwrap::fill(text, 72)
}

/// The file that keeps what was seen of a subject: of these patches, with these configurations and
/// compilers. Of others it says nothing.
fn path(paths: &Paths, subject: &Subject) -> Result<PathBuf> {
    let key = toolchain::key()?.with(subject.tree.content(subject.patched())?);
    let key = config::with_all(paths, key)?;
    let name = subject.name().replace(' ', "-");
    Ok(paths
        .home("tested")
        .join(format!("{name}-{}.json", key.name())))
}

/// Names the figures that a test compares with those that are measured of the kernel `title`. Other
/// figures have another name. `None` for a test that compares no figures which are kept.
///
/// # Errors
///
/// When the file with the figures cannot be read.
pub(crate) fn figures(paths: &Paths, title: &str, test: &str) -> Result<Option<String>> {
    let figures = match test {
        waste::TEST => serde_json::to_vec(&waste::known(paths)?.get(title)),
        cost::TEST => {
            let mut rows = cost::known(paths)?;
            rows.retain(|row| row.kernel == title);
            serde_json::to_vec(&rows)
        }
        _ => return Ok(None),
    };
    let figures = figures.context("writing JSON")?;
    Ok(Some(Key::new("figures 1").with(figures).name()))
}

fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.chars().take("2026-11-22".len()).collect()
}

#[cfg(test)]
mod tests;
