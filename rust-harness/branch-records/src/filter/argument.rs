//! Arguments that a filter compares.

use std::fmt;

use super::FilterError;
use crate::capture::{ArgumentValue, Snapshot};

/// How an argument begins in a filter.
pub(super) const PREFIX: &str = "arg.";

/// A path to a number: the name of an argument, and the names of fields from there on, as in
/// `arg.attr->map_type`. `->` and `.` mean the same: types say what is a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentPath {
    first: String,
    fields: Vec<String>,
}

impl ArgumentPath {
    /// Parses a path with its prefix.
    pub(super) fn parse(word: &str) -> Result<Self, FilterError> {
        let is_name = |name: &String| {
            let mut characters = name.chars();
            let starts = characters
                .next()
                .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            starts && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let path = word
            .strip_prefix(PREFIX)
            .unwrap_or_default()
            .replace("->", ".");
        let mut names = path.split('.').map(str::to_owned);
        let first = names.next().filter(is_name);
        let fields: Vec<_> = names.collect();
        match first.filter(|_| fields.iter().all(is_name)) {
            Some(first) => Ok(Self { first, fields }),
            None => Err(FilterError::Argument(word.to_owned())),
        }
    }

    /// The name of the argument, and those of the fields.
    pub fn names(&self) -> (&str, &[String]) {
        (&self.first, &self.fields)
    }

    /// The number at the end of the path in a snapshot, if it holds that.
    pub(super) fn number(&self, snapshot: &Snapshot) -> Option<u64> {
        let mut arguments = snapshot.arguments.iter();
        let argument = arguments.find(|argument| argument.name == self.first)?;
        let value = argument.value.at(&self.fields);
        value.and_then(ArgumentValue::number)
    }
}

impl fmt::Display for ArgumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.first)?;
        self.fields
            .iter()
            .try_for_each(|field| write!(f, ".{field}"))
    }
}

/// How long the path is that `text` begins with.
pub(super) fn length(text: &str) -> usize {
    let mut rest = text;
    loop {
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        rest = rest.trim_start_matches(part);
        match rest.strip_prefix("->") {
            Some(behind) => rest = behind,
            None => return text.len() - rest.len(),
        }
    }
}
