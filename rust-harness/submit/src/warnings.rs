//! The warnings of compilers and checkers about the kernel, and which of them are new.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Warnings and errors, each with how often it occurs. What they say is their key, without
/// the numbers of their lines, which each patch moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warnings(BTreeMap<String, usize>);

impl Warnings {
    /// The warnings in the output of make, clang, sparse, kernel-doc or Sphinx. `tree` is
    /// what begins the path of a source file.
    pub(crate) fn of(output: &str, tree: &str) -> Self {
        let mut found = Self::default();
        for line in output.lines() {
            found.read(line, tree);
        }
        found
    }

    /// Adds the warning of a line, if the line has one.
    fn read(&mut self, line: &str, tree: &str) {
        if is_warning(line) {
            let line = without_lines(&line.replace(tree, ""));
            *self.0.entry(line).or_default() += 1;
        }
    }

    /// The warnings in the file `log`. `tree` is what begins the path of a source file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) fn of_log(log: &Path, tree: &str) -> Result<Self> {
        let text = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
        Ok(Self::of(&String::from_utf8_lossy(&text), tree))
    }

    /// The warnings that occur more often here than in `before`.
    pub(crate) fn since(&self, before: &Self) -> Vec<String> {
        let Self(now) = self;
        let new = now
            .iter()
            .filter(|(line, count)| **count > before.0.get(*line).copied().unwrap_or(0));
        new.map(|(line, _)| line.clone()).collect()
    }

    /// The warnings about one of these files.
    pub(crate) fn about(mut self, files: &[String]) -> Self {
        self.0
            .retain(|line, _| files.iter().any(|file| line.contains(file.as_str())));
        self
    }
}

/// The warnings of each file that make says it does `what` with (`CC`, `CHECK`), by the path
/// of the file from the tree's root without the ending. A file without warnings is there,
/// too. The output has to be one target's after the other's.
pub(crate) fn of_each(output: &str, tree: &str, what: &str) -> BTreeMap<String, Warnings> {
    let mut found: BTreeMap<String, Warnings> = BTreeMap::new();
    let mut of = None;
    for line in output.lines() {
        if let Some((does, file)) = does(line) {
            let path = file.strip_prefix(tree).unwrap_or(file);
            let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
            of = (does == what).then(|| stem.to_owned());
        }
        if let Some(stem) = &of {
            found.entry(stem.clone()).or_default().read(line, tree);
        }
    }
    found
}

/// What make says in a line that it does, and with which file: `  CC [M]  fs/x.o`.
fn does(line: &str) -> Option<(&str, &str)> {
    let (what, rest) = line.strip_prefix("  ")?.split_once(' ')?;
    let is_word = !what.is_empty() && what.bytes().all(|byte| byte.is_ascii_uppercase());
    let file = rest.split_ascii_whitespace().next_back()?;
    is_word.then_some((what, file))
}

fn is_warning(line: &str) -> bool {
    let says = |word| line.contains(word);
    says("warning: ")
        || says("error: ")
        || says("WARNING: ")
        || says("ERROR: ")
        || line.starts_with("Warning: ")
}

/// The text of a line without numbers of lines such as `:12` and `:12:34`.
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
    fn what_is_said_is_of_the_file_above() {
        let output = "  CALL    scripts/checksyscalls.sh\n\
                      x.c:1:1: warning: of another\n  \
                      CC      kernel/fork.o\n  \
                      CC [M]  arch/arm64/kernel/fork.o\n\
                      /tree/a.h:1:2: warning: unused\n   \
                      12 | int a;\n\
                      /tree/a.h:1:2: note: of the same\n\
                      /tree/a.h:3:2: warning: unused\n  \
                      AR      kernel/built-in.a\n\
                      y.c:1:1: error: of another\n";
        let found = of_each(output, "/tree/", "CC");
        let counts: Vec<_> = found
            .iter()
            .map(|(stem, Warnings(lines))| (stem.as_str(), lines.values().sum::<usize>()))
            .collect();
        assert_eq!(counts, [("arch/arm64/kernel/fork", 2), ("kernel/fork", 0)]);
        let checked = of_each("  CHECK   /tree/kernel/fork.c\n", "/tree/", "CHECK");
        assert!(checked.contains_key("kernel/fork"));
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
