//! What came of mutants, kept from run to run in one file.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context as _, Error, Result};
use serde::{Deserialize, Serialize};

use super::Outcome;
use host::cache::{self, Lock};
use host::paths::Paths;

/// What came of mutants, by the names of the series and of the mutant.
type Document = BTreeMap<String, BTreeMap<String, KeptOutcome>>;

/// What came of a mutant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptOutcome {
    /// The key for all that the outcome depends on.
    pub(super) key: String,
    pub(super) outcome: Outcome,
}

/// The outcomes of the mutants of a series.
pub(super) struct KeptOutcomes<'a> {
    paths: &'a Paths,
    /// What the series and its base are called.
    series: String,
}

impl<'a> KeptOutcomes<'a> {
    pub(super) fn of(paths: &'a Paths, series: String) -> Self {
        Self { paths, series }
    }

    /// What came of the mutant `id`, if it was tried.
    pub(super) fn get(&self, id: &str) -> Result<Option<KeptOutcome>> {
        Ok(self
            .read()?
            .get(&self.series)
            .and_then(|all| all.get(id))
            .cloned())
    }

    /// Keeps what came of the mutant `id`. Another run may keep those of others.
    pub(super) fn put(&self, id: String, kept: KeptOutcome) -> Result<()> {
        let _lock = Lock::take(self.paths, "mutants")?;
        let mut all = self.read()?;
        all.entry(self.series.clone()).or_default().insert(id, kept);
        let text = serde_json::to_vec_pretty(&all).context("writing outcomes")?;
        let file = self.file();
        fs::create_dir_all(file.parent().context("a directory for outcomes")?)
            .context("a directory for outcomes")?;
        cache::write_atomically(&file, &text)
    }

    /// The outcomes of all series.
    fn read(&self) -> Result<Document> {
        let file = self.file();
        let read = || match fs::read(&file) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Document::new()),
            Err(error) => Err(Error::from(error)),
        };
        // Hours of work may be in it.
        read().with_context(|| {
            let file = file.display();
            format!("{file} has the outcomes of mutants, and cannot be read: move it away")
        })
    }

    fn file(&self) -> PathBuf {
        self.paths.home("tested").join("mutants.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_outcomes_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::at(dir.path(), dir.path());
        let of = |series: &str| KeptOutcomes::of(&paths, series.to_owned());
        let kept = |key: &str| KeptOutcome {
            key: key.to_owned(),
            outcome: Outcome::Survived,
        };
        assert_eq!(of("a").get("x").unwrap(), None);
        of("a").put("x".to_owned(), kept("1")).unwrap();
        of("b").put("x".to_owned(), kept("2")).unwrap();
        of("a").put("y".to_owned(), kept("3")).unwrap();
        assert_eq!(of("a").get("x").unwrap(), Some(kept("1")));
        assert_eq!(of("b").get("x").unwrap(), Some(kept("2")));
        assert_eq!(of("b").get("y").unwrap(), None);
        fs::write(of("a").file(), "{").unwrap();
        assert!(of("a").get("x").is_err(), "what is in the file is kept");
        assert!(of("a").put("x".to_owned(), kept("4")).is_err());
    }
}
