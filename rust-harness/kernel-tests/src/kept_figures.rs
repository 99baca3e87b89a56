//! Figures that commands keep in `Documentation/`: numbers in a JSON file, and tables in the
//! last part of a page.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use host::cache;
use host::paths::Paths;

/// Reads the figures that a command has kept in `document`, a JSON file named by its path
/// from the root of the repository.
///
/// # Errors
///
/// When the file cannot be read, or its JSON is not that of a `T`.
pub fn known<T: DeserializeOwned>(paths: &Paths, document: &str) -> Result<T> {
    let path = paths.repo(document);
    let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))
}

/// Keeps the figures `what` as JSON in the file `document`, named by its path from the root
/// of the repository. They replace what the file had.
///
/// # Errors
///
/// When `what` cannot be written as JSON, or the file cannot be written.
pub fn keep(paths: &Paths, document: &str, what: &impl Serialize) -> Result<()> {
    let mut json = serde_json::to_string_pretty(what).context("writing JSON")?;
    json.push('\n');
    cache::write_atomically(&paths.repo(document), json.as_bytes())
}

/// Replaces the generated part of the page `document` with `made`. The generated part is
/// everything after the line which says that `command` makes it. What is before that line was
/// written by people, and stays.
///
/// # Errors
///
/// When the page cannot be read or written, or has no such line.
pub fn replace(paths: &Paths, document: &str, command: &str, made: &str) -> Result<()> {
    let begin = format!("<!-- From here on: {command} -->");
    let path = paths.repo(document);
    let before =
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let (people, _) = before
        .split_once(&begin)
        .with_context(|| format!("{document} has no line {begin:?}"))?;
    let text = format!("{people}{begin}\n\n{made}");
    cache::write_atomically(&path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::at(dir.path(), dir.path());
        assert!(known::<Vec<u32>>(&paths, "x.json").is_err());
        keep(&paths, "x.json", &[1, 2]).unwrap();
        assert_eq!(known::<Vec<u32>>(&paths, "x.json").unwrap(), [1, 2]);
        assert!(known::<String>(&paths, "x.json").is_err());
    }

    #[test]
    fn what_people_wrote_stays() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::at(dir.path(), dir.path());
        let path = dir.path().join("x.md");
        fs::write(&path, "# People\n\n<!-- From here on: make x -->\n\nold\n").unwrap();
        replace(&paths, "x.md", "make x", "new\n").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "# People\n\n<!-- From here on: make x -->\n\nnew\n");
        assert!(replace(&paths, "x.md", "make y", "").is_err());
    }
}
