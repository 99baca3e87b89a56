//! What a pipeline has handed on: reports of its parts, and what the last job made of them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::scratch::files_below;
use kernel_tests::matrix::Cell;
use report::Report;

/// How many tests the parts of a pipeline have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Results {
    parts: usize,
    tests: usize,
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tests in {} jobs and one of reports",
            self.tests, self.parts
        )
    }
}

/// Reads what a pipeline that tests `cells`, each in a part of its own, has kept below `dir`: a
/// report of each part, without a failure, and a page and a JUnit file that have the tests of all of them.
///
/// # Errors
///
/// When one of them is not there, has a failure, or is not about the cells.
pub(crate) fn read(dir: &Path, cells: &[Cell]) -> Result<Results> {
    let mut results = Results { parts: 0, tests: 0 };
    let mut subjects = Vec::new();
    for path in files_below(dir, |name| {
        name.starts_with("report-") && name.ends_with(".json")
    })? {
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let name = path.display();
        let report: Report = serde_json::from_slice(&text).with_context(|| name.to_string())?;
        ensure!(report.good(), "{name}: {}", report.summary());
        let of_part: BTreeSet<_> = report.rows().iter().map(|row| &row.subject).collect();
        subjects.extend(of_part.into_iter().cloned());
        results.parts += 1;
        results.tests += report.rows().len();
    }
    let one = |name: &str| {
        let found = files_below(dir, |file| file == name)?;
        let [path] = &found[..] else {
            bail!(
                "{} files {name} were kept, and it was to be one",
                found.len()
            );
        };
        fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    };
    let (junit, page) = (one("junit.xml")?, one("report.html")?);
    let in_junit = junit.matches("<testcase ").count();
    ensure!(
        in_junit == results.tests,
        "junit.xml has {in_junit} tests, and the parts ran {}",
        results.tests
    );
    ensure!(
        results.parts == cells.len(),
        "{} parts have left reports, of {}",
        results.parts,
        cells.len()
    );
    for cell in cells.iter().map(ToString::to_string) {
        let parts = subjects.iter().filter(|subject| **subject == cell).count();
        ensure!(parts == 1, "{parts} parts ran {cell}, and it was to be one");
        ensure!(page.contains(&cell), "report.html has nothing of {cell}");
    }
    Ok(results)
}
