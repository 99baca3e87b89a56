//! A choice of cells that has, on each kind of machine, each pair of values of two axes.

use std::collections::BTreeSet;

use super::definition::{AXES, Cell};

/// The axis that is the kind of machine. An exception level of one kind is none of another: pairs are
/// of a kind each.
const MACHINE: &str = "machine";

/// The other axes. Base and language are one here, the kernel.
const GROUPS: [&[&str]; 4] = [
    &["base", "language"],
    &["level"],
    &["interrupts"],
    &["records"],
];

/// A cell's kind of machine and its values on two axes, and nothing on the others.
type Pair<'a> = [Option<&'a str>; AXES.len()];

/// The pairs that cells have.
#[derive(Default)]
pub(super) struct Pairs<'a>(BTreeSet<Pair<'a>>);

impl<'a> Pairs<'a> {
    /// Adds the pairs of a cell.
    pub(super) fn add(&mut self, cell: &'a Cell) {
        let Self(pairs) = self;
        pairs.extend(of(cell));
    }

    /// How many pairs a cell has that are not among these.
    fn missing(&self, cell: &Cell) -> usize {
        let Self(pairs) = self;
        of(cell).filter(|pair| !pairs.contains(pair)).count()
    }

    /// Chooses among `cells` until these are all pairs that they have: each time the cell that adds
    /// most, and of several the first one.
    pub(super) fn choose(&mut self, cells: &[&'a Cell]) -> Vec<&'a Cell> {
        let mut chosen = Vec::new();
        loop {
            // Of several the last one is the greatest.
            let backwards = cells.iter().rev();
            let next = backwards.max_by_key(|cell| self.missing(cell));
            let Some(cell) = next.filter(|cell| self.missing(cell) > 0) else {
                return chosen;
            };
            self.add(cell);
            chosen.push(*cell);
        }
    }
}

/// The pairs of a cell.
fn of(cell: &Cell) -> impl Iterator<Item = Pair<'_>> {
    let groups = GROUPS.iter().enumerate();
    groups.flat_map(move |(place, first)| {
        GROUPS[1 + place..].iter().map(move |second| {
            AXES.map(|axis| {
                let is_one = axis == MACHINE || first.contains(&axis) || second.contains(&axis);
                cell.value(axis).filter(|_| is_one)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::definition;
    use super::*;

    fn cells() -> Vec<Cell> {
        definition::cells(include_str!("../../../../scripts/matrix.toml")).unwrap()
    }

    #[test]
    fn each_pair_of_values_is_chosen_and_few_cells_are() {
        let all = cells();
        let mut pairs = Pairs::default();
        let chosen = pairs.choose(&all.iter().collect::<Vec<_>>());
        assert!(all.iter().all(|cell| pairs.missing(cell) == 0));
        assert!(chosen.len() < all.len() / 2, "{}", chosen.len());
        let has = |kernel: &str, records| {
            let of_kernel = |cell: &&&Cell| cell.to_string().starts_with(kernel);
            let mut cells = chosen.iter().filter(of_kernel);
            cells.any(|cell| cell.records == records)
        };
        for kernel in ["7.3 C, arm64", "7.3 Rust, arm64", "7.0 C, arm64"] {
            for records in [8, 16, 32, 64] {
                assert!(has(kernel, records), "{kernel} {records}");
            }
        }
        // No cell is there in vain.
        for cell in &chosen {
            let mut others = Pairs::default();
            let rest = chosen.iter().filter(|other| *other != cell);
            rest.for_each(|other| others.add(other));
            assert!(others.missing(cell) > 0, "{cell}");
        }
    }

    #[test]
    fn what_is_there_anyway_is_not_chosen() {
        let all = cells();
        let mut pairs = Pairs::default();
        all.iter().for_each(|cell| pairs.add(cell));
        assert_eq!(
            pairs.choose(&all.iter().collect::<Vec<_>>()),
            Vec::<&Cell>::new()
        );
    }
}
