//! What compilers and checkers say of the kernel, and what of that is new.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Warnings and errors, by what they say: not by their lines, which each patch moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Warnings(BTreeMap<String, usize>);

impl Warnings {
    /// Those in the output of make, clang, sparse, kernel-doc or Sphinx. `tree` is what
    /// begins the path of a source file.
    pub(super) fn of(output: &str, tree: &str) -> Self {
        let mut found = BTreeMap::new();
        for line in output.lines().filter(|line| is_warning(line)) {
            let line = without_lines(&line.replace(tree, ""));
            *found.entry(line).or_default() += 1;
        }
        Self(found)
    }

    /// Those in a log.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub(super) fn of_log(log: &Path, tree: &str) -> Result<Self> {
        let text = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
        Ok(Self::of(&String::from_utf8_lossy(&text), tree))
    }

    /// Those that there were fewer of before.
    pub(super) fn since(&self, before: &Self) -> Vec<String> {
        let Self(now) = self;
        let new = now
            .iter()
            .filter(|(line, count)| **count > before.0.get(*line).copied().unwrap_or(0));
        new.map(|(line, _)| line.clone()).collect()
    }

    /// Those about one of these files.
    pub(super) fn about(mut self, files: &[String]) -> Self {
        self.0
            .retain(|line, _| files.iter().any(|file| line.contains(file.as_str())));
        self
    }
}

fn is_warning(line: &str) -> bool {
    let says = |word| line.contains(word);
    says("warning: ")
        || says("error: ")
        || says("WARNING: ")
        || says("ERROR: ")
        || line.starts_with("Warning: ")
}

/// The line without `:12` and `:12:34`.
fn without_lines(line: &str) -> String {
    let mut parts = line.split(':');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &part[digits..];
        if digits == 0 || !(rest.is_empty() || rest.starts_with(' ')) {
            text.push(':');
            text += part;
        } else {
            text += rest;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_have_moved_are_not_new() {
        let of = |text| Warnings::of(text, "/tree/");
        let before = of("  CC a.o\n/tree/a.c:3:9: warning: unused variable 'x' [-W]\n");
        let moved = of("/tree/a.c:13:9: warning: unused variable 'x' [-W]\n");
        assert_eq!(moved.since(&before), Vec::<String>::new());
        let twice = of("/tree/a.c:13:9: warning: unused variable 'x' [-W]\n\
             /tree/a.c:99:9: warning: unused variable 'x' [-W]\n");
        assert_eq!(
            twice.since(&before),
            ["a.c: warning: unused variable 'x' [-W]"]
        );
    }

    #[test]
    fn each_tool_is_understood() {
        let output = "Warning: /tree/a.h:12 function parameter 'x' not described\n\
                      /tree/a.c:1:2: error: undefined identifier 'y'\n\
                      /tree/Documentation/x.rst:7: WARNING: Title underline too short.\n\
                      make: Entering directory '/tree'\n";
        let found = Warnings::of(output, "/tree/");
        assert_eq!(
            found.since(&Warnings::default()),
            [
                "Documentation/x.rst: WARNING: Title underline too short.",
                "Warning: a.h function parameter 'x' not described",
                "a.c: error: undefined identifier 'y'",
            ]
        );
        let about = found.about(&["a.h".to_owned()]);
        assert_eq!(about.since(&Warnings::default()).len(), 1);
    }
}
