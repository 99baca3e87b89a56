//! The plot of `Documentation/waste.md`: two kernels side by side for each way to attach a
//! program, and below them what debug kernels waste.

use anyhow::{Result, anyhow};
use guest_reports::waste::KeptWaste;
use kernel_tests::waste::Measured;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The width of the plot, in pixels.
const WIDTH: i32 = 900;
/// Where bars begin, to the right of names.
const LEFT: i32 = 190;
/// The length of a bar of [`FULL`] records.
const LONGEST: i32 = 560;
/// The records of the buffer.
const FULL: usize = 64;
/// The height of a bar, and of a group of two with the space below it.
const BAR: i32 = 13;
const GROUP: i32 = 36;
/// Room above the first group, for title and legend.
const HEAD: i32 = 78;

/// Two colours of Okabe and Ito's palette, which the colour-blind tell apart, and a grey.
const BEFORE: RGBColor = RGBColor(0, 114, 178);
const AFTER: RGBColor = RGBColor(230, 159, 0);
const DEBUG: RGBColor = RGBColor(150, 150, 150);
const TEXT: RGBColor = RGBColor(40, 40, 40);

/// Draws the plot: bars for the two kernels named, and a panel for all debug kernels.
///
/// # Errors
///
/// When one of the two kernels was not measured, or the drawing fails.
pub(super) fn svg(all: &Measured, kernels: &[String; 2]) -> Result<String> {
    let ways = |name: &String| {
        all.get(name).ok_or_else(|| {
            anyhow!("no numbers of {name} are kept: ./brbe bench waste --all --write measures all")
        })
    };
    let [before, after] = [ways(&kernels[0])?, ways(&kernels[1])?];
    let debug: Vec<_> = all.iter().filter(|(name, _)| is_debug(name)).collect();
    let groups = i32::try_from(before.len())?;
    let panel = HEAD + groups * GROUP + 30;
    let height = panel + 44 + i32::try_from(debug.len())? * 24;
    let mut text = String::new();
    {
        let size = (u32::try_from(WIDTH)?, u32::try_from(height)?);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let sheet = Sheet { area: &area };
        let drawn = area.fill(&WHITE).and_then(|()| {
            sheet.compared(kernels, before, after)?;
            sheet.debug(panel, &debug)?;
            area.present()
        });
        drawn.map_err(|error| anyhow!("drawing: {error}"))?;
    }
    Ok(text)
}

/// Whether the kernel of this name has lockdep or other checks of its own: its name ends with
/// them, behind a comma.
pub(super) fn is_debug(kernel: &str) -> bool {
    let configuration = kernel.rsplit_once(", ");
    configuration.is_some_and(|(_, last)| ["debug", "lockdep"].contains(&last))
}

/// What is drawn on.
struct Sheet<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
}

/// What drawing on a backend gives.
type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

impl<B: DrawingBackend> Sheet<'_, B> {
    /// Writes a text, to the right of a point or to its left, in the middle of its height.
    fn text(&self, text: &str, at: (i32, i32), size: i32, side: HPos) -> Drawn<B> {
        let style = ("sans-serif", size).into_font().color(&TEXT);
        let style = style.pos(Pos::new(side, VPos::Center));
        self.area.draw(&Text::new(text.to_owned(), at, style))
    }

    /// Draws a bar for a number of records, and the number behind it.
    fn bar(&self, top: i32, kept: &KeptWaste, colour: RGBColor) -> Drawn<B> {
        let records = kept.wasted[0].min(FULL);
        let length = i32::try_from(records).unwrap_or(0) * LONGEST / FULL as i32;
        let corners = [(LEFT, top), (LEFT + length.max(1), top + BAR)];
        self.area.draw(&Rectangle::new(corners, colour.filled()))?;
        let number = kept.count(0);
        self.text(
            &number,
            (LEFT + length + 6, top + BAR / 2 + 1),
            13,
            HPos::Left,
        )
    }

    /// A group of two bars for each way to attach a program.
    fn compared(&self, names: &[String; 2], before: &[KeptWaste], after: &[KeptWaste]) -> Drawn<B> {
        let title = "Records wasted before a snapshot, of 64, all branches recorded";
        self.text(title, (20, 24), 17, HPos::Left)?;
        let mut left = LEFT;
        for (name, colour) in names.iter().zip([BEFORE, AFTER]) {
            let corners = [(left, 48), (left + 14, 60)];
            self.area.draw(&Rectangle::new(corners, colour.filled()))?;
            self.text(name, (left + 20, 55), 13, HPos::Left)?;
            left += 190;
        }
        for (place, kept) in (0_i32..).zip(before) {
            let top = HEAD + place * GROUP;
            self.text(&kept.way, (LEFT - 10, top + BAR), 14, HPos::Right)?;
            self.bar(top, kept, BEFORE)?;
            let other = after.iter().find(|other| other.way == kept.way);
            if let Some(other) = other {
                self.bar(top + BAR + 1, other, AFTER)?;
            }
        }
        Ok(())
    }

    /// A bar for each debug kernel, of the way that wastes least there.
    fn debug(&self, top: i32, kernels: &[(&String, &Vec<KeptWaste>)]) -> Drawn<B> {
        let title = "Debug kernels: the way that wastes least";
        self.text(title, (20, top + 8), 15, HPos::Left)?;
        for (place, (name, ways)) in (0_i32..).zip(kernels) {
            let row = top + 30 + place * 24;
            self.text(name, (LEFT - 10, row + BAR / 2 + 1), 13, HPos::Right)?;
            if let Some(least) = ways.iter().min_by_key(|kept| kept.wasted[0]) {
                self.bar(row, least, DEBUG)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kernels_and_the_debug_kernels_are_drawn() {
        let way = |name: &str, wasted: usize| KeptWaste {
            way: name.to_owned(),
            wasted: [wasted, 1, 1, 1],
            all: wasted == 64,
            path: Vec::new(),
        };
        let all: Measured = [
            ("a".to_owned(), vec![way("fentry", 10), way("uprobe", 64)]),
            ("b".to_owned(), vec![way("fentry", 7)]),
            ("a, debug".to_owned(), vec![way("fentry", 64)]),
        ]
        .into();
        let names = ["a", "b"].map(str::to_owned);
        let plot = svg(&all, &names).unwrap();
        for text in [
            "fentry",
            "uprobe",
            "64 or more",
            "a, debug",
            ">\n7\n<",
            ">\n10\n<",
        ] {
            assert!(plot.contains(text), "{text:?} is not in {plot}");
        }
        let unknown = svg(&all, &["a".to_owned(), "c".to_owned()]).unwrap_err();
        assert!(unknown.to_string().contains("no numbers of c"), "{unknown}");
    }
}
