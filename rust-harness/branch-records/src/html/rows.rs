//! A branch as a row of an HTML table.

use std::io::{self, Write};

use super::escape::Text;
use crate::report::{Endpoint, NamedBranch};
use crate::text::words;

/// Writes the row of a branch that was taken `times` times.
pub(super) fn branch(
    branch: &NamedBranch,
    times: usize,
    last_jump: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let class = if last_jump == Some(branch.number) {
        " class=\"last\""
    } else {
        ""
    };
    write!(out, "<tr{class}><td>#{:02}</td>", branch.number)?;
    for end in [&branch.from, &branch.to] {
        write!(out, "<td>{}</td>", Text(&name(end)))?;
    }
    writeln!(out, "<td>{}</td></tr>", Text(&words::notes(branch, times)))
}

/// The text for one end of a branch: `inlined in function+0x10 (file:line)`.
fn name(end: &Endpoint) -> String {
    let symbol = end.symbol.as_ref();
    let inlined = symbol.and_then(|symbol| symbol.inlined.last());
    let inlined = inlined.map_or_else(String::new, |inlined| format!("{} in ", inlined.name));
    format!("{inlined}{}", words::place(end))
}
