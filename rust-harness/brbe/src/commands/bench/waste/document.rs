//! Documentation/waste.md, its plot, and the numbers for the test.

use std::fmt::Write as _;

use anyhow::Result;

use super::{by_patch, markdown, plot};
use guest_reports::waste::{AttachedBy, FILTERS, KeptWaste};
use host::cache;
use host::paths::Paths;
use kernel_tests::kept_figures;
use kernel_tests::waste::{self, Measured};
use kernels::bases;
use kernels::variant::Variant;

const TABLE: &str = "Documentation/waste.md";
const PLOT: &str = "Documentation/waste.svg";
/// What makes it.
const COMMAND: &str = "./brbe bench waste --write";

/// Writes all three: what was measured now in the place of what was known.
pub(super) fn write(paths: &Paths, kernel: &str, ways: &[AttachedBy]) -> Result<()> {
    let mut all = waste::known(paths)?;
    all.insert(
        kernel.to_owned(),
        ways.iter().map(AttachedBy::kept).collect(),
    );
    kept_figures::keep(paths, waste::KNOWN, &all)?;
    render(paths)
}

/// Makes the tables and the plot from the numbers that are kept.
pub(super) fn render(paths: &Paths) -> Result<()> {
    let (tables, plot) = document(paths)?;
    cache::write_atomically(&paths.repo(PLOT), plot.as_bytes())?;
    kept_figures::replace(paths, TABLE, COMMAND, &tables)
}

/// The tables and the plot, of the numbers that are kept. The plot puts the kernel of the
/// default base with the snapshot beside the one with the series that spends fewer records.
fn document(paths: &Paths) -> Result<(String, String)> {
    let all = waste::known(paths)?;
    let base = bases::choose(&bases::load(paths)?, None)?;
    let compared = [Variant::Snapshot, Variant::LowWaste].map(|variant| variant.title(&base));
    let tables = tables(&all, &compared[0]) + &by_patch::tables(&by_patch::known(paths)?);
    Ok((tables, plot::svg(&all, &compared)?))
}

/// What all kernels waste where all branches are recorded, and one of them with each filter.
fn tables(all: &Measured, one: &str) -> String {
    let (debug, ordinary): (Vec<_>, Vec<_>) =
        all.iter().partition(|(name, _)| plot::is_debug(name));
    let mut text = "## By kernel, all branches recorded\n\n".to_owned();
    text += &by_kernel(&ordinary);
    text += "\n## Debug kernels, all branches recorded\n\n";
    if debug
        .iter()
        .all(|(_, ways)| ways.iter().all(|kept| kept.all))
    {
        let names: Vec<_> = debug.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join("; ");
        let _ = writeln!(
            text,
            "Each way wastes the whole buffer, on each of them: {names}."
        );
    } else {
        text += &by_kernel(&debug);
    }
    if let Some(ways) = all.get(one) {
        let _ = writeln!(text, "\n## By filter, {one}\n");
        let counts = |kept: &KeptWaste| {
            let counts = (0..FILTERS.len()).map(|filter| kept.count(filter));
            (kept.way.clone(), counts.collect())
        };
        text += &markdown::table(&FILTERS, ways.iter().map(counts));
    }
    text + "\n"
}

/// A table with a line for each way to attach a program, and a column for each kernel.
fn by_kernel(kernels: &[(&String, &Vec<KeptWaste>)]) -> String {
    let names: Vec<_> = kernels.iter().map(|(name, _)| name.as_str()).collect();
    // A kernel that has more ways than another has them at the end.
    let most_ways = kernels.iter().max_by_key(|(_, ways)| ways.len());
    let most_ways = most_ways.map_or(&[][..], |(_, ways)| ways);
    let line = |(place, kept): (usize, &KeptWaste)| {
        let count = |(_, ways): &(&String, &Vec<KeptWaste>)| match ways.get(place) {
            Some(kept) => kept.count(0),
            None => "-".to_owned(),
        };
        (kept.way.clone(), kernels.iter().map(count).collect())
    };
    markdown::table(&names, most_ways.iter().enumerate().map(line))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn kernels_are_columns_and_debug_kernels_apart() {
        let way = |name: &str| KeptWaste {
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
        let (tables, plot) = document(&paths).unwrap();
        assert!(page.ends_with(&tables), "{COMMAND}");
        let lines = page.lines().count();
        assert!(
            lines <= 200,
            "{TABLE} has {lines} lines: who would read them?"
        );
        let drawn = fs::read_to_string(paths.repo(PLOT)).unwrap();
        assert!(drawn == plot, "{COMMAND}");
    }
}
