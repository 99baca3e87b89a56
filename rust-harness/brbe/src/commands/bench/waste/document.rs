//! Documentation/waste.md, its plot, and the numbers for the test.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::by_patch;
use host::cache;
use host::paths::Paths;
use kernel_tests::kept_figures;
use kernel_tests::waste::{self, FILTERS, Kept, Measured, Way};

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
    let plot = plot(&waste::known(paths)?)?;
    cache::write_atomically(&paths.repo(PLOT), plot.as_bytes())?;
    kept_figures::replace(paths, TABLE, COMMAND, &document(paths)?)
}

/// The tables, of the numbers that are kept.
fn document(paths: &Paths) -> Result<String> {
    Ok(by_patch::tables(&by_patch::known(paths)?) + &tables(&waste::known(paths)?))
}

/// A table for each kernel, and each wasted record by name.
fn tables(all: &Measured) -> String {
    let mut text = String::new();
    for (kernel, ways) in all {
        let _ = writeln!(text, "## {kernel}\n\n| | {} |", FILTERS.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(FILTERS.len()));
        for kept in ways {
            let more = if kept.all { " or more" } else { "" };
            let cells = kept.wasted.map(|wasted| format!("{wasted}{more}"));
            let _ = writeln!(text, "| {} | {} |", kept.way, cells.join(" | "));
        }
        text += "\n<details><summary>Each of them, with all branches recorded</summary>\n\n";
        for kept in ways {
            let _ = writeln!(text, "    {}", kept.way);
            for record in &kept.path {
                let _ = writeln!(text, "      {record}");
            }
        }
        text += "\n</details>\n\n";
    }
    text
}

/// Bars of what each way wastes where all branches are recorded, the kernels beside each
/// other.
fn plot(all: &Measured) -> Result<String> {
    const WIDTH: u32 = 1200;
    const HEIGHT: u32 = 420;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        draw(&area, all).map_err(|error| anyhow!("drawing {PLOT}: {error}"))?;
    }
    Ok(text)
}

fn draw<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    all: &Measured,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    let count = |kept: &Kept| kept.wasted[0] as f64;
    // A kernel that has more ways than another has them at the end.
    let most_ways = all.values().max_by_key(|ways| ways.len());
    let most_ways = most_ways.map_or(&[][..], Vec::as_slice);
    let names: Vec<_> = most_ways.iter().map(|kept| kept.way.clone()).collect();
    let most = all.values().flatten().map(count).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption("Wasted records, all branches recorded", ("sans-serif", 18))
        .x_label_area_size(36)
        .y_label_area_size(36)
        .build_cartesian_2d(0.0..names.len() as f64, 0.0..most + 1.0)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * names.len() + 1)
        // Between two lines, in the middle of its bars.
        .x_label_formatter(&|x| {
            let is_middle = (x.fract() - 0.5).abs() < 0.1;
            let name = names.get(x.floor() as usize).filter(|_| is_middle);
            name.cloned().unwrap_or_default()
        })
        .draw()?;
    let width = 0.84 / all.len() as f64;
    for (number, (kernel, ways)) in all.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let bars = ways.iter().enumerate().map(|(place, kept)| {
            let left = place as f64 + 0.08 + number as f64 * width;
            let corners = [(left, 0.0), (left + width, count(kept))];
            Rectangle::new(corners, colour.filled())
        });
        chart
            .draw_series(bars)?
            .label(kernel)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE)
        .position(SeriesLabelPosition::UpperRight)
        .draw()?;
    area.present()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn each_kernel_has_a_table_and_bars() {
        let way = |name: &str| Kept {
            way: name.to_owned(),
            wasted: [4, 3, 1, 2],
            all: name == "fexit",
            path: vec!["f+0x8 -> bpf_trampoline+0x0 CALL".to_owned()],
        };
        let kernels = ["7.3.4 patched", "7.3.4 low-waste"];
        let ways = |kernel: &str| (kernel.to_owned(), vec![way("fentry"), way("fexit")]);
        let all = kernels.map(ways).into_iter().collect();
        insta::assert_snapshot!(tables(&all));
        let plot = plot(&all).unwrap();
        for text in ["fentry", "fexit", "7.3.4 low-waste"] {
            assert!(plot.contains(text), "{text} is not in {plot}");
        }
    }

    #[test]
    fn the_page_is_of_the_numbers_that_are_kept() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let paths = Paths::at(root, root);
        let page = fs::read_to_string(paths.repo(TABLE)).unwrap();
        assert!(page.ends_with(&document(&paths).unwrap()), "{COMMAND}");
        let drawn = fs::read_to_string(paths.repo(PLOT)).unwrap();
        assert!(
            drawn == plot(&waste::known(&paths).unwrap()).unwrap(),
            "{COMMAND}"
        );
    }
}
