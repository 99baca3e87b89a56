//! Points of the code, as a command line names them.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::symbol::{Location, Symbol};

/// A point of the code: `FUNCTION`, `FUNCTION+OFFSET` or `FILE:LINE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodePoint {
    /// An instruction of a function.
    Function {
        /// The function's name.
        name: String,
        /// The distance from its first instruction, in bytes.
        offset: u64,
    },
    /// A line of source.
    Line {
        /// The end of the file's path.
        file: String,
        /// The number of the line.
        line: u32,
    },
}

/// Why a word is no point of the code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no point of the code: FUNCTION, FUNCTION+OFFSET and FILE:LINE are")]
pub struct PointError(String);

impl FromStr for CodePoint {
    type Err = PointError;

    fn from_str(text: &str) -> Result<Self, PointError> {
        let wrong = || PointError(text.to_owned());
        let (name, offset) = text.split_once('+').unwrap_or((text, "0"));
        let offset = match offset.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => offset.parse(),
        };
        let point = match text.rsplit_once(':') {
            Some((file, line)) => Self::Line {
                file: file.to_owned(),
                line: line.parse().map_err(|_| wrong())?,
            },
            None => Self::Function {
                name: name.to_owned(),
                offset: offset.map_err(|_| wrong())?,
            },
        };
        let (Self::Function { name, .. } | Self::Line { file: name, .. }) = &point;
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(point)
    }
}

impl fmt::Display for CodePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function { name, offset: 0 } => f.write_str(name),
            Self::Function { name, offset } => write!(f, "{name}+{offset:#x}"),
            Self::Line { file, line } => write!(f, "{file}:{line}"),
        }
    }
}

impl Serialize for CodePoint {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl CodePoint {
    /// Whether the point is at an address with this symbol.
    pub(super) fn is_at(&self, symbol: &Symbol) -> bool {
        match self {
            Self::Function { name, offset } => {
                symbol.base_name() == name && symbol.offset == *offset
            }
            Self::Line { file, line } => {
                let inlined = symbol
                    .inlined
                    .iter()
                    .map(|inlined| inlined.location.as_ref());
                let mut all = inlined.chain([symbol.location.as_ref()]).flatten();
                let ends = |path: &str| {
                    let before = path.strip_suffix(&file[..]);
                    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
                };
                all.any(|Location { file, line: at, .. }| *at == Some(*line) && ends(file))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_three_spellings() {
        for text in ["vfs_read", "vfs_read+0x40", "fs/read_write.c:570"] {
            assert_eq!(text.parse::<CodePoint>().unwrap().to_string(), text);
        }
        let decimal = "vfs_read+64".parse::<CodePoint>();
        assert_eq!(decimal, "vfs_read+0x40".parse());
        for text in ["", "+4", "f+x", "f+", ":7", "a.c:", "a.c:x", "a b", "a b:3"] {
            assert!(text.parse::<CodePoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_is_that_of_a_file_by_the_end_of_its_path() {
        let mut symbol = Symbol::new("vfs_read", 0x40);
        symbol.location = Some(Location::new("fs/read_write.c", Some(570)));
        let is_at = |text: &str| text.parse::<CodePoint>().unwrap().is_at(&symbol);
        assert!(is_at("read_write.c:570") && is_at("fs/read_write.c:570"));
        assert!(is_at("vfs_read+0x40"));
        assert!(!is_at("write.c:570") && !is_at("read_write.c:571") && !is_at("vfs_read"));
    }
}
