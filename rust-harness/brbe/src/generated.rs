//! Documents whose last part is made by a command.

use std::fs;

use anyhow::{Context, Result};

use crate::cache;
use crate::places::Places;

/// Puts `made` in the place of all that follows the line which says that `command` makes
/// it. What is before that line is people's.
///
/// # Errors
///
/// When the document has no such line, or cannot be written.
pub fn replace(places: &Places, document: &str, command: &str, made: &str) -> Result<()> {
    let begin = format!("<!-- From here on: {command} -->");
    let path = places.repo(document);
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
    fn what_people_wrote_stays() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::at(dir.path(), dir.path());
        let path = dir.path().join("x.md");
        fs::write(&path, "# People\n\n<!-- From here on: make x -->\n\nold\n").unwrap();
        replace(&places, "x.md", "make x", "new\n").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "# People\n\n<!-- From here on: make x -->\n\nnew\n");
        assert!(replace(&places, "x.md", "make y", "").is_err());
    }
}
