//! The table of what came of the mutants.

use std::collections::BTreeMap;
use std::fmt;

use kernels::driver_module::{DriverFile, DriverMutant};

use super::{Explanations, Outcome};

/// What came of the mutants of a series, for a page.
#[derive(Debug)]
pub struct Table {
    /// The title of the kernel.
    pub(super) kernel: String,
    /// The lines with something in them that is not changed.
    pub(super) unknown: Vec<(DriverFile, usize)>,
    /// How many mutants there are.
    pub(super) count: usize,
    pub(super) explanations: Explanations,
    /// What came of each mutant, in the order of files and lines; `None`: it is explained, and was
    /// not tried.
    pub(super) outcomes: Vec<(DriverMutant, Option<Outcome>)>,
}

/// How many mutants came to which end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    refused: usize,
    same_code: usize,
    killed: usize,
    explained: usize,
    survived: usize,
}

impl Counts {
    fn add(&mut self, outcome: Option<&Outcome>, is_explained: bool) {
        match outcome {
            Some(Outcome::Refused) => self.refused += 1,
            Some(Outcome::SameCode) => self.same_code += 1,
            Some(Outcome::Killed { .. }) => self.killed += 1,
            Some(Outcome::Survived) if !is_explained => self.survived += 1,
            Some(Outcome::Survived) | None => self.explained += 1,
        }
    }

    fn all(self) -> usize {
        self.refused + self.same_code + self.killed + self.explained + self.survived
    }
}

impl Table {
    /// Whether every mutant was tried or is explained.
    pub fn is_whole(&self) -> bool {
        self.outcomes.len() == self.count
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_function: BTreeMap<(DriverFile, &str), Counts> = BTreeMap::new();
        let mut by_test: BTreeMap<&str, usize> = BTreeMap::new();
        let mut all = Counts::default();
        let mut tried = 0;
        for (mutant, outcome) in &self.outcomes {
            let key = (mutant.file(), mutant.function());
            let (outcome, is_explained) =
                (outcome.as_ref(), self.explanations.of(mutant).is_some());
            for counts in [by_function.entry(key).or_default(), &mut all] {
                counts.add(outcome, is_explained);
            }
            tried += usize::from(outcome == Some(&Outcome::Survived) && is_explained);
            if let Some(Outcome::Killed { by, .. }) = outcome {
                *by_test.entry(by).or_default() += 1;
            }
        }
        writeln!(f, "## {}\n", self.kernel)?;
        writeln!(
            f,
            "| function | mutants | do not compile | same code | killed | explained | survive |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|")?;
        let rows = by_function.iter().map(|((_, function), counts)| {
            let name = match *function {
                "" => "none".to_owned(),
                name => format!("`{name}`"),
            };
            (name, counts)
        });
        for (name, counts) in rows.chain([("all".to_owned(), &all)]) {
            let Counts {
                refused,
                same_code,
                killed,
                explained,
                survived,
            } = counts;
            writeln!(
                f,
                "| {name} | {} | {refused} | {same_code} | {killed} | {explained} | {survived} |",
                counts.all()
            )?;
        }
        writeln!(
            f,
            "\nThe first test that noticed a mutant:\n\n| test | mutants |\n|---|--:|"
        )?;
        let mut by_test: Vec<_> = by_test.into_iter().collect();
        by_test.sort_by_key(|(name, count)| (usize::MAX - count, *name));
        for (name, count) in by_test {
            writeln!(f, "| {name} | {count} |")?;
        }
        if !self.unknown.is_empty() {
            writeln!(
                f,
                "\nNot changed is what the parser does not know in these lines, macros for the most part:"
            )?;
            let lines: Vec<_> = self
                .unknown
                .iter()
                .map(|(file, line)| format!("{}:{line}", file.path()))
                .collect();
            writeln!(f, "{}.", lines.join(", "))?;
        }
        let survivors = self
            .outcomes
            .iter()
            .filter(|(_, outcome)| matches!(outcome, Some(Outcome::Survived) | None));
        writeln!(
            f,
            "\nThose that are explained, of which {tried} were tried and survived, and those that \
             are not and survive:\n\n| line | change | why it makes no difference |\n|---|---|---|"
        )?;
        for (mutant, _) in survivors {
            writeln!(
                f,
                "| `{}`: `{}` | {} | {} |",
                mutant.function(),
                mutant.text().replace('|', "\\|"),
                mutant.what().replace('|', "\\|"),
                self.explanations
                    .of(mutant)
                    .unwrap_or("**nothing explains it**")
            )?;
        }
        Ok(())
    }
}
