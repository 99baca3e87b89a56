//! Documentation/waste.md, its plot, and the numbers for the test.

use std::fmt::Write as _;

use anyhow::Result;

use super::{by_patch, plot};
use host::cache;
use host::paths::Paths;
use kernel_tests::kept_figures;
use kernel_tests::waste::{self, FILTERS, Kept, Measured, Way};
use kernels::bases;
use kernels::variant::Variant;

const TABLE: &str = "Documentation/waste.md";
const PLOT: &str = "Documentation/waste.svg";
/// What makes it.
const COMMAND: &str = "./brbe bench waste --write";

/// Writes all three: what was measured now in the place of what was known.
pub(super) fn write(paths: &Paths, kernel: &str, ways: &[Way]) -> Result<()> {
    let mut all = waste::known(paths)?;
    all.insert(kernel.to_owned(), ways.iter().map(Way::kept).collect());
    kept_figures::keep(paths, waste::KNOWN, &all)?;
    render(paths)
}

/// Makes the tables and the plot from the numbers that are kept.
pub(super) fn render(paths: &Paths) -> Result<()> {
    let plot = plot::svg(&waste::known(paths)?, &compared(paths)?)?;
    cache::write_atomically(&paths.repo(PLOT), plot.as_bytes())?;
    kept_figures::replace(paths, TABLE, COMMAND, &document(paths)?)
}

/// The kernels that the plot puts beside each other: the default base's with the snapshot,
/// and with the series on top of it that spends fewer records.
fn compared(paths: &Paths) -> Result<[String; 2]> {
    let base = bases::choose(&bases::load(paths)?, None)?;
    Ok([Variant::Snapshot, Variant::LowWaste].map(|variant| variant.title(&base)))
}

/// The tables, of the numbers that are kept.
fn document(paths: &Paths) -> Result<String> {
    let [snapshot, _] = compared(paths)?;
    let tables = tables(&waste::known(paths)?, &snapshot);
    Ok(tables + &by_patch::tables(&by_patch::known(paths)?))
}

/// What all kernels waste where all branches are recorded, and one of them with each filter.
fn tables(all: &Measured, one: &str) -> String {
    let all_branches = |kept: &Kept| cell(kept, 0);
    let (debug, ordinary): (Vec<_>, Vec<_>) =
        all.iter().partition(|(name, _)| plot::is_debug(name));
    let mut text = "## By kernel, all branches recorded\n\n".to_owned();
    text += &table(
        ordinary.iter().map(|(name, ways)| (name.as_str(), *ways)),
        all_branches,
    );
    text += "\n## Debug kernels, all branches recorded\n\n";
    let spends_all = |(_, ways): &(&String, &Vec<Kept>)| ways.iter().all(|kept| kept.all);
    if debug.iter().all(spends_all) {
        let names: Vec<_> = debug.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join("; ");
        let _ = writeln!(
            text,
            "Each way wastes the whole buffer, on each of them: {names}."
        );
    } else {
        text += &table(
            debug.iter().map(|(name, ways)| (name.as_str(), *ways)),
            all_branches,
        );
    }
    if let Some(ways) = all.get(one) {
        let _ = writeln!(text, "\n## By filter, {one}\n");
        let _ = writeln!(text, "| | {} |", FILTERS.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(FILTERS.len()));
        for kept in ways {
            let cells: Vec<_> = (0..FILTERS.len())
                .map(|filter| cell(kept, filter))
                .collect();
            let _ = writeln!(text, "| {} | {} |", kept.way, cells.join(" | "));
        }
    }
    text + "\n"
}

/// A table with a line for each way to attach a program, and a column for each kernel.
fn table<'a>(
    kernels: impl Iterator<Item = (&'a str, &'a Vec<Kept>)>,
    cell: impl Fn(&Kept) -> String,
) -> String {
    let kernels: Vec<_> = kernels.collect();
    let names: Vec<_> = kernels.iter().map(|(name, _)| *name).collect();
    let mut text = format!("| | {} |\n", names.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(names.len()));
    // A kernel that has more ways than another has them at the end.
    let most_ways = kernels.iter().max_by_key(|(_, ways)| ways.len());
    for place in 0..most_ways.map_or(0, |(_, ways)| ways.len()) {
        let of_kernel =
            |(_, ways): &(&str, &Vec<Kept>)| ways.get(place).map_or_else(|| "-".to_owned(), &cell);
        let cells: Vec<_> = kernels.iter().map(of_kernel).collect();
        let way = most_ways.map_or("", |(_, ways)| &ways[place].way);
        let _ = writeln!(text, "| {way} | {} |", cells.join(" | "));
    }
    text
}

/// The records that a way wastes with a filter.
fn cell(kept: &Kept, filter: usize) -> String {
    let more = if kept.all { " or more" } else { "" };
    format!("{}{more}", kept.wasted[filter])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn kernels_are_columns_and_debug_kernels_apart() {
        let way = |name: &str| Kept {
            way: name.to_owned(),
            wasted: [4, 3, 1, 2],
            all: name == "fexit",
            path: vec!["f+0x8 -> bpf_trampoline+0x0 CALL".to_owned()],
        };
        let kernels = ["7.3.4 patched", "7.3.4 low-waste", "7.3.4 patched, debug"];
        let ways = |kernel: &str| (kernel.to_owned(), vec![way("fentry"), way("fexit")]);
        let all = kernels.map(ways).into_iter().collect();
        insta::assert_snapshot!(tables(&all, "7.3.4 patched"));
    }

    #[test]
    fn the_page_is_of_the_numbers_that_are_kept() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let paths = Paths::at(root, root);
        let page = fs::read_to_string(paths.repo(TABLE)).unwrap();
        assert!(page.ends_with(&document(&paths).unwrap()), "{COMMAND}");
        let lines = page.lines().count();
        assert!(
            lines <= 200,
            "{TABLE} has {lines} lines: who would read them?"
        );
        let drawn = fs::read_to_string(paths.repo(PLOT)).unwrap();
        assert!(
            drawn == plot::svg(&waste::known(&paths).unwrap(), &compared(&paths).unwrap()).unwrap(),
            "{COMMAND}"
        );
    }
}
