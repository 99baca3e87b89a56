//! What the last runs of the tests have said of a series: kept for its cover letter.
//!
//! A record is of what the kernel is compiled from. Another word in a commit message
//! leaves it valid, another line of code does not.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cache;
use crate::commands::Subject;
use crate::places::Places;
use crate::verdict::{Row, Verdict};

/// A test, its verdict, and the day.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    row: Row,
    /// `2026-11-22`, UTC.
    day: String,
    /// What it ran on.
    machine: String,
}

/// All that is known of a series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tested(Vec<Kept>);

impl Tested {
    /// What is known of a subject's series.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn load(places: &Places, subject: &Subject) -> Result<Self> {
        let path = path(places, subject)?;
        if !path.is_file() {
            return Ok(Self::default());
        }
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    /// Keeps what a run has seen of a subject's series. Of a `whole` run that is all there
    /// is; otherwise it is added to what was known.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn keep(
        places: &Places,
        subject: &Subject,
        machine: &str,
        rows: &[Row],
        whole: bool,
    ) -> Result<()> {
        let mut known = Self::load(places, subject)?;
        if whole {
            // Tests that there are no more.
            known.forget(rows);
        }
        known.add(rows, machine, &today());
        let path = path(places, subject)?;
        let dir = path.parent().context("a file has a directory")?;
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let text = serde_json::to_vec_pretty(&known).context("writing JSON")?;
        cache::write_atomically(&path, &text)
    }

    fn forget(&mut self, rows: &[Row]) {
        let is_again = |kept: &Kept| rows.iter().any(|row| row.subject == kept.row.subject);
        self.0.retain(|kept| !is_again(kept));
    }

    /// A test that was skipped this time has not been seen to fail.
    fn add(&mut self, rows: &[Row], machine: &str, day: &str) {
        let Self(kept) = self;
        for row in rows {
            let known = kept.iter().position(|kept| kept.row.is_of(row));
            let new = Kept {
                row: row.clone(),
                day: day.to_owned(),
                machine: machine.to_owned(),
            };
            match known {
                Some(_) if matches!(row.verdict(), Verdict::Skip(_)) => {}
                Some(place) => kept[place] = new,
                None => kept.push(new),
            }
        }
    }

    /// The paragraphs of a cover letter, if anything is known: `title` is what the kernel
    /// with the patches is called.
    pub fn told(&self, title: &str) -> Option<String> {
        let Self(kept) = self;
        // Also `7.3.4 patched, x86_64`.
        let is_of_title = |kept: &&Kept| kept.row.subject.starts_with(title);
        let of_title: Vec<_> = kept.iter().filter(is_of_title).collect();
        let days = of_title.iter().map(|kept| kept.day.as_str());
        let (first, last) = (days.clone().min()?, days.max()?);
        let mut machines: Vec<_> = of_title.iter().map(|kept| kept.machine.as_str()).collect();
        machines.dedup();
        let when = match first == last {
            true => format!("on {first}"),
            false => format!("from {first} to {last}"),
        };
        let safeguards: Vec<_> = kept.iter().filter(is_proof).collect();
        let words = |verdict: fn(&Verdict) -> bool| {
            let tests = of_title
                .iter()
                .filter(|kept| !is_proof(kept) && verdict(kept.row.verdict()));
            let name = |kept: &&Kept| match kept.row.subject[title.len()..].trim_matches([' ', ','])
            {
                "" => kept.row.test.clone(),
                machine => format!("{} ({machine})", kept.row.test),
            };
            tests.map(name).collect::<Vec<_>>()
        };
        let passed = words(|verdict| matches!(verdict, Verdict::Pass(_)));
        let failed = words(|verdict| matches!(verdict, Verdict::Fail(_)));
        let skipped = words(|verdict| matches!(verdict, Verdict::Skip(_)));
        let mut text = wrapped(&format!(
            "Tested {when} in {}: {} passed, {} failed, {} skipped.",
            machines.join(" and in "),
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
        if !safeguards.is_empty() {
            let killed = safeguards.iter();
            let killed = killed.filter(|kept| matches!(kept.row.verdict(), Verdict::Pass(_)));
            text += "\n\n";
            text += &wrapped(&format!(
                "Each safeguard was taken out in turn, to see a test fail without it, for that \
                 reason: so it was for {} of {}.",
                killed.count(),
                safeguards.len(),
            ));
        }
        Some(text)
    }
}

fn is_proof(kept: &&Kept) -> bool {
    let reason = kept.row.verdict().reason();
    reason.starts_with("killed by ") || reason.starts_with("SURVIVED")
}

fn count(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

/// In lines as long as a mail's.
fn wrapped(text: &str) -> String {
    textwrap::fill(text, 72)
}

fn path(places: &Places, subject: &Subject) -> Result<PathBuf> {
    let content = subject.tree.content(subject.patched())?;
    let name = subject.name().replace(' ', "-");
    Ok(places
        .home("tested")
        .join(format!("{name}-{content:.16}.json")))
}

fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.chars().take("2026-11-22".len()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(subject: &str, test: &str, verdict: Verdict) -> Row {
        Row::silent(subject, test, verdict, Duration::ZERO)
    }

    fn pass(subject: &str, test: &str, reason: &str) -> Row {
        row(subject, test, Verdict::Pass(reason.to_owned()))
    }

    #[test]
    fn what_was_seen_is_told() {
        let mut tested = Tested::default();
        assert_eq!(tested.told("7.3.4 patched"), None);
        let rows = [
            pass("7.3.4 patched", "twice", ""),
            pass("7.3.4 patched", "nested", ""),
            pass("7.3.4 patched, x86_64", "selftest", ""),
            row("7.3.4 patched", "paused", Verdict::Skip("no".to_owned())),
            row("7.3.4 patched", "stress", Verdict::Fail("no".to_owned())),
            pass("7.3.4 not-masked", "DAIF", "killed by twice: no path"),
            pass("7.3.4 unpatched", "must not pass", ""),
        ];
        tested.add(&rows, "QEMU 11.1", "2026-11-22");
        insta::assert_snapshot!(tested.told("7.3.4 patched").unwrap());
    }

    #[test]
    fn a_later_verdict_counts_unless_it_is_none() {
        let mut tested = Tested::default();
        let skip = Verdict::Skip("not begun".to_owned());
        tested.add(&[pass("7.3.4 patched", "twice", "")], "x", "2026-11-20");
        tested.add(&[row("7.3.4 patched", "twice", skip)], "x", "2026-11-21");
        let told = tested.told("7.3.4 patched").unwrap();
        assert!(
            told.starts_with("Tested on 2026-11-20 in x: 1 test passed, 0 failed"),
            "{told}"
        );
        let now = [row(
            "7.3.4 patched",
            "twice",
            Verdict::Fail("no".to_owned()),
        )];
        tested.add(&now, "x", "2026-11-22");
        let told = tested.told("7.3.4 patched").unwrap();
        assert!(
            told.starts_with("Tested on 2026-11-22 in x: 0 tests passed, 1"),
            "{told}"
        );
        tested.forget(&now);
        assert_eq!(tested.told("7.3.4 patched"), None);
    }
}
