//! Tables of the pages in `Documentation/`.

use std::fmt::{Display, Write as _};

/// A table whose lines have names: the heads of the columns behind the names, then a line for
/// each name with its cells.
pub(super) fn table(
    heads: &[impl AsRef<str>],
    lines: impl Iterator<Item = (impl Display, Vec<String>)>,
) -> String {
    let heads: Vec<_> = heads.iter().map(AsRef::as_ref).collect();
    let mut text = format!("| | {} |\n", heads.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(heads.len()));
    for (name, cells) in lines {
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text
}
