//! The axes of the matrix, and the cells that they make.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use host::arch::Arch;

/// The axes, in the order of a cell's name.
pub const AXES: [&str; 6] = [
    "base",
    "language",
    "machine",
    "level",
    "interrupts",
    "records",
];

/// The definition of the matrix, as `scripts/matrix.toml` has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    axes: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    without: Vec<BTreeMap<String, String>>,
}

/// The key of an exclusion's reason.
const WHY: &str = "why";

/// The kind of machine that a cell runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MachineKind {
    /// An arm64 machine whose CPUs all have BRBE.
    Arm64,
    /// An arm64 machine with heterogeneous CPUs: some have BRBE, and others of another kind
    /// do not.
    Heterogeneous,
    /// An x86-64 machine whose CPUs have LBRs.
    X86_64,
}

/// A cell of the matrix: one combination of a kernel and a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The value on each axis, in the order of [`AXES`].
    values: [String; AXES.len()],
    /// The name of the base.
    pub base: String,
    /// The snapshot is the one in Rust, not the one in C.
    pub in_rust: bool,
    /// The kind of machine.
    pub machine: MachineKind,
    /// The kernel runs at EL2.
    pub vhe: bool,
    /// The PMU's interrupt is a pseudo-NMI.
    pub pseudo_nmi: bool,
    /// The number of branch records of each CPU.
    pub records: u8,
}

impl Cell {
    fn new(values: [String; AXES.len()]) -> Result<Self> {
        let [base, language, machine, level, interrupts, records] = &values;
        let one_of = |axis: &str, value: &str, names: &[&str]| {
            let place = names.iter().position(|name| *name == value);
            place.with_context(|| {
                format!(
                    "{axis} {value:?} is not known; there are {}",
                    names.join(", ")
                )
            })
        };
        let machines = [
            MachineKind::Arm64,
            MachineKind::Heterogeneous,
            MachineKind::X86_64,
        ];
        let names = ["arm64", "heterogeneous", "x86_64"];
        let records = records.parse().ok();
        Ok(Self {
            base: base.clone(),
            in_rust: one_of("language", language, &["C", "Rust"])? == 1,
            machine: machines[one_of("machine", machine, &names)?],
            vhe: one_of("level", level, &["EL1", "VHE"])? == 1,
            pseudo_nmi: one_of("interrupts", interrupts, &["IRQ", "pseudo-NMI"])? == 1,
            records: records
                .filter(|count| [8, 16, 32, 64].contains(count))
                .context("records are 8, 16, 32 or 64")?,
            values,
        })
    }

    /// The cell's value on an axis; `None` if there is no such axis.
    pub fn value(&self, axis: &str) -> Option<&str> {
        let place = AXES.iter().position(|name| *name == axis)?;
        Some(&self.values[place])
    }

    /// The architecture of the cell's machine.
    pub fn arch(&self) -> Arch {
        match self.machine {
            MachineKind::Arm64 | MachineKind::Heterogeneous => Arch::Arm64,
            MachineKind::X86_64 => Arch::X86_64,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [base, language, machine, level, interrupts, records] = &self.values;
        write!(f, "{base} {language}, {machine}, ")?;
        match self.machine {
            MachineKind::X86_64 => write!(f, "{records} records"),
            _ => write!(f, "{level}, {interrupts}, {records} records"),
        }
    }
}

/// The cells of a definition of the matrix in TOML.
///
/// # Errors
///
/// When the definition lacks an axis, when it has axes or values that are not known, or when
/// one of its exclusions gives no reason, excludes everything, or excludes a value that is
/// not there.
pub(super) fn cells(text: &str) -> Result<Vec<Cell>> {
    let Definition { axes, without } = toml::from_str(text)?;
    for axis in axes.keys() {
        ensure!(AXES.contains(&axis.as_str()), "there is no axis {axis}");
    }
    for exclusion in &without {
        check(exclusion, &axes)?;
    }
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for axis in AXES {
        let values = axes
            .get(axis)
            .with_context(|| format!("axis {axis} is missing"))?;
        let longer = |cell: &Vec<String>| {
            let cell = cell.clone();
            values
                .iter()
                .map(move |value| [&cell[..], std::slice::from_ref(value)].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    let is_left_out = |cell: &Cell| {
        let matches = |(axis, value): (&String, &String)| {
            axis == WHY || cell.value(axis) == Some(value.as_str())
        };
        without
            .iter()
            .any(|exclusion| exclusion.iter().all(matches))
    };
    let mut cells = Vec::new();
    for values in all {
        let values = values.try_into();
        let values = values.map_err(|_| anyhow::anyhow!("a value for each axis"))?;
        let cell = Cell::new(values)?;
        if !is_left_out(&cell) {
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// Checks that an exclusion gives a reason, and excludes only values that are there.
fn check(exclusion: &BTreeMap<String, String>, axes: &BTreeMap<String, Vec<String>>) -> Result<()> {
    ensure!(
        exclusion.contains_key(WHY),
        "{exclusion:?} does not say {WHY}"
    );
    ensure!(exclusion.len() > 1, "{exclusion:?} leaves everything out");
    for (axis, value) in exclusion {
        let known = axes.get(axis).is_some_and(|values| values.contains(value));
        if axis != WHY && !known {
            bail!("{axis} = {value:?} is left out, and not there");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES_OF_ONE: &str = "[axes]\nbase = ['7.3']\nlanguage = ['C']\nmachine = ['arm64']\n\
                               level = ['EL1', 'VHE']\ninterrupts = ['IRQ']\nrecords = ['8', '64']\n";

    #[test]
    fn cells_are_all_combinations() {
        let names: Vec<_> = cells(AXES_OF_ONE)
            .unwrap()
            .iter()
            .map(Cell::to_string)
            .collect();
        assert_eq!(
            names,
            [
                "7.3 C, arm64, EL1, IRQ, 8 records",
                "7.3 C, arm64, EL1, IRQ, 64 records",
                "7.3 C, arm64, VHE, IRQ, 8 records",
                "7.3 C, arm64, VHE, IRQ, 64 records",
            ]
        );
    }

    #[test]
    fn some_are_left_out() {
        let text = format!("{AXES_OF_ONE}[[without]]\nlevel = 'VHE'\nrecords = '8'\nwhy = 'x'\n");
        let cells = cells(&text).unwrap();
        assert_eq!(cells.len(), 3);
        assert!(!cells.iter().any(|cell| cell.vhe && cell.records == 8));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            (
                AXES_OF_ONE.replace("EL1", "EL7"),
                "level \"EL7\" is not known",
            ),
            (AXES_OF_ONE.replace("'8'", "'9'"), "records are 8, 16"),
            (
                AXES_OF_ONE.replace("level", "colour"),
                "there is no axis colour",
            ),
            (
                AXES_OF_ONE.replace("base = ['7.3']\n", ""),
                "axis base is missing",
            ),
            (
                format!("{AXES_OF_ONE}[[without]]\nlevel = 'EL2'\nwhy = 'x'\n"),
                "level = \"EL2\" is left out, and not there",
            ),
            (
                format!("{AXES_OF_ONE}[[without]]\nlevel = 'VHE'\n"),
                "does not say why",
            ),
            (
                format!("{AXES_OF_ONE}[[without]]\nwhy = 'x'\n"),
                "leaves everything out",
            ),
        ] {
            let error = format!("{:#}", cells(&text).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
    }
}
