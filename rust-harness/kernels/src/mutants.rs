//! The mutants of a series, in its folder `mutants`: patches that take a safeguard away.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::series::{Patch, Series};

/// A mutant: a patch that takes a safeguard of a series away, and how that shows in a test.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// The safeguard in words: what is true with the series, and not with the mutant on top
    /// of it.
    pub safeguard: String,
    /// The name of the patch's file, which is beside the list `mutants.toml`.
    pub patch: String,
    /// Path of the directory with the list and the patch.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The name of the test that has to fail on the mutant.
    pub test: String,
    /// What the failure of the test has to contain. A test that fails for another reason
    /// proves nothing.
    pub says: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    mutant: Vec<Mutant>,
}

/// Reads the mutants of the series in a directory, in the order of their list. A series may
/// have none.
pub fn load(series: &Path) -> Result<Vec<Mutant>> {
    let dir = series.join("mutants");
    let path = dir.join("mutants.toml");
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut mutants = parse(&text).with_context(|| format!("in {}", path.display()))?;
    for mutant in &mut mutants {
        mutant.dir.clone_from(&dir);
    }
    Ok(mutants)
}

fn parse(text: &str) -> Result<Vec<Mutant>> {
    let mutants = toml::from_str::<Document>(text)?.mutant;
    for mutant in &mutants {
        ensure!(
            !mutant.patch.contains('/'),
            "{:?} is not a file beside the list",
            mutant.patch
        );
        ensure!(
            !mutant.says.trim().is_empty(),
            "{}: any failure would do for a proof",
            mutant.patch
        );
    }
    Ok(mutants)
}

impl Mutant {
    /// The patches of `series`, and this mutant on top of them.
    pub fn on_top_of(&self, series: &Series) -> Series {
        let mut patches = series.patches.clone();
        patches.push(self.patch());
        Series { patches }
    }

    /// The patch that the mutant is.
    pub fn patch(&self) -> Patch {
        Patch {
            name: self.patch.clone(),
            path: self.dir.join(&self.patch),
        }
    }

    /// The mutant's name: the name of its patch's file without `.patch`.
    pub fn name(&self) -> &str {
        self.patch.trim_end_matches(".patch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[[mutant]]\nsafeguard = \"s\"\npatch = \"p.patch\"\ntest = \"t\"\n";

    #[test]
    fn a_mutant_says_what_fails_and_how() {
        let mutants = parse(&format!("{LIST}says = \"no record\"\n")).unwrap();
        assert_eq!(mutants[0].name(), "p");
        assert!(parse(LIST).is_err());
        assert!(parse(&format!("{LIST}says = \" \"\n")).is_err());
        let elsewhere = LIST.replace("p.patch", "../p.patch");
        assert!(parse(&format!("{elsewhere}says = \"x\"\n")).is_err());
    }
}
