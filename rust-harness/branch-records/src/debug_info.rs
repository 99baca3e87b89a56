//! Converts what blazesym reports of an address to this crate's types.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::Source;
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::symbol::{Inlined, Location, Symbol};
use crate::visible::visible;

/// The build ID that the linker gave the ELF file at `path`, if it did.
///
/// # Errors
///
/// A description of the problem, when the file cannot be read as ELF.
pub fn build_id(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let id = blazesym::helper::read_elf_build_id(&path);
    let id = id.map_err(|error| format!("{error:#}"))?;
    Ok(id.map(|id| id.into_owned()))
}

/// A build ID as hexadecimal digits.
#[must_use]
pub fn hexadecimal(build_id: &[u8]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where distributions have the debug information of the file with this build ID, which is given as
/// hexadecimal digits.
pub fn debug_file(build_id: &str) -> PathBuf {
    let (first, rest) = build_id.split_at_checked(2).unwrap_or((build_id, ""));
    PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"))
}

/// The symbol at `place` in `source`. A file that is so damaged that the symboliser panics has none.
pub(crate) fn look_up<'a>(
    symbolizer: &'a Symbolizer,
    source: &Source,
    place: Input<u64>,
) -> Option<Sym<'a>> {
    // What a panic leaves of the symboliser's caches is of the damaged file.
    let look_up = AssertUnwindSafe(|| symbolizer.symbolize_single(source, place));
    let found = panic::catch_unwind(look_up).ok()?;
    found.ok().and_then(Symbolized::into_sym)
}

/// Converts a symbol of blazesym and the functions that are inlined at its address.
/// `location` converts each source line.
pub(crate) fn symbol(symbol: &Sym<'_>, location: impl Fn(&CodeInfo<'_>) -> Location) -> Symbol {
    let inlined = symbol.inlined.iter().map(|inlined| Inlined {
        name: visible(&inlined.name),
        location: inlined.code_info.as_ref().map(&location),
    });
    Symbol {
        inlined: inlined.collect(),
        location: symbol.code_info.as_deref().map(&location),
        ..Symbol::new(visible(&symbol.name), symbol.offset as u64)
    }
}

/// The source line of `code`, in a file by its normalised path.
pub(crate) fn location(code: &CodeInfo<'_>) -> Location {
    Location {
        column: code.column.filter(|column| *column != 0),
        ..Location::new(path(code), line(code))
    }
}

/// The number of the source line of `code`. DWARF's line 0 is no line.
fn line(code: &CodeInfo<'_>) -> Option<u32> {
    code.line.filter(|line| *line != 0)
}

/// The path of the source file of `code`, normalised.
fn path(code: &CodeInfo<'_>) -> String {
    visible(&normalize(&code.to_path().to_string_lossy()))
}

/// Normalises a path: drops `.` and resolves `..`. It does so by name alone, because the
/// tree may be gone.
pub(crate) fn normalize(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            "" if !parts.is_empty() => {}
            ".." if parts.last().is_some_and(|last| !matches!(*last, "" | "..")) => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_what_leads_nowhere() {
        assert_eq!(normalize("/build/../src/./init/main.c"), "/src/init/main.c");
        assert_eq!(normalize("/src//kernel/fork.c"), "/src/kernel/fork.c");
        assert_eq!(normalize("../../src/x.c"), "../../src/x.c");
        assert_eq!(normalize("/../x.c"), "/../x.c");
    }
}
