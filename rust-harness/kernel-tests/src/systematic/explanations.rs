//! Why some mutants survive: what is changed makes no difference.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use kernels::driver_module::DriverMutant;
use serde::Deserialize;

/// The file with the explanations, beside the mutants of a series.
pub const EXPLAINED: &str = "mutants/explained.toml";

/// Explanations of mutants that survive.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanations {
    #[serde(default)]
    explained: Vec<Explanation>,
}

/// Why changes of a line make no difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Explanation {
    /// The function that the line is in.
    function: String,
    /// The line, without white space around it.
    line: String,
    /// The changes, in the words of [`DriverMutant::what`].
    changes: Vec<String>,
    /// Why they make no difference, as a maintainer is told.
    why: String,
}

impl Explanation {
    fn is_of(&self, mutant: &DriverMutant) -> bool {
        self.function == mutant.function()
            && self.line == mutant.text()
            && self.changes.contains(&mutant.what())
    }
}

impl Explanations {
    /// Reads those of the series in a directory. A series may have none.
    ///
    /// # Errors
    ///
    /// When the file is there and cannot be read.
    pub fn load(series: &Path) -> Result<Self> {
        let path = series.join(EXPLAINED);
        if !path.is_file() {
            return Ok(Self::default());
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let parsed: Self = toml::from_str(text)?;
        for Explanation { line, why, .. } in &parsed.explained {
            ensure!(!why.trim().is_empty(), "nothing explains {line:?}");
        }
        Ok(parsed)
    }

    /// Adds those of another series.
    pub fn add(&mut self, more: Self) {
        self.explained.extend(more.explained);
    }

    /// The explanations that are of none of `mutants`, a sentence each: the code may have changed
    /// since they were written.
    pub fn stale(&self, mutants: &[DriverMutant]) -> Vec<String> {
        let mut stale = Vec::new();
        for explanation in &self.explained {
            for change in &explanation.changes {
                let is_it =
                    |mutant: &DriverMutant| explanation.is_of(mutant) && mutant.what() == *change;
                if !mutants.iter().any(is_it) {
                    stale.push(format!(
                        "{EXPLAINED} explains {change:?} of {:?} in {}, and there is no such \
                         mutant",
                        explanation.line, explanation.function
                    ));
                }
            }
        }
        stale
    }

    /// Why a mutant survives; `None` if nothing explains it.
    pub fn of(&self, mutant: &DriverMutant) -> Option<&str> {
        let mut all = self.explained.iter();
        let explanation = all.find(|explanation| explanation.is_of(mutant))?;
        Some(explanation.why.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_explains() {
        let text =
            "[[explained]]\nfunction = \"f\"\nline = \"g();\"\nchanges = [\"left out: g();\"]\n";
        let with = |why: &str| Explanations::parse(&format!("{text}why = {why:?}\n"));
        assert!(with(" ").is_err());
        let explanations = with("g() does nothing").unwrap();
        let said = explanations.stale(&[]);
        assert!(said[0].contains("no such mutant"), "{said:?}");
        assert!(Explanations::default().stale(&[]).is_empty());
    }
}
