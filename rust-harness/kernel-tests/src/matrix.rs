//! The matrix: tests on all combinations of kernels and machines that `scripts/matrix.toml`
//! defines.

mod definition;
mod pairs;

use std::fmt;
use std::fs;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};

use crate::context::Context;
use crate::guest_tests;
use crate::selftests;
use crate::x86;
use host::paths::Paths;
use kernels::subject::Configuration;
use kernels::variant::Variant;
use machines::machine_spec::{Capabilities, MachineSpec};
use report::Job;

pub use definition::{AXES, Cell, MachineKind};
use pairs::Pairs;

/// A choice of cells of the matrix, such as `records=16,level=VHE`. A cell is taken if all
/// parts of the choice match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only(Vec<(String, String)>);

/// The error for a text that is no choice of cells.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no choice such as records=16,level=VHE; the axes are {axes}", axes = AXES.join(", "))]
pub struct NoChoice(String);

impl FromStr for Only {
    type Err = NoChoice;

    fn from_str(text: &str) -> Result<Self, NoChoice> {
        let parse = |part: &str| {
            let (axis, value) = part.split_once('=')?;
            AXES.contains(&axis)
                .then(|| (axis.to_owned(), value.to_owned()))
        };
        let parts: Option<_> = text.split(',').map(parse).collect();
        parts.map(Self).ok_or_else(|| NoChoice(text.to_owned()))
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(parts) = self;
        let parts: Vec<_> = parts
            .iter()
            .map(|(axis, value)| format!("{axis}={value}"))
            .collect();
        f.write_str(&parts.join(","))
    }
}

impl Only {
    fn takes(&self, cell: &Cell) -> bool {
        let Self(parts) = self;
        parts
            .iter()
            .all(|(axis, value)| cell.value(axis) == Some(value.as_str()))
    }
}

/// The cells of the matrix that are wanted: those that one of `only` takes, or all if `only`
/// is empty.
///
/// # Errors
///
/// When `scripts/matrix.toml` cannot be read or is wrong, or no cell is left.
pub fn cells(paths: &Paths, only: &[Only]) -> Result<Vec<Cell>> {
    let file = paths.repo("scripts/matrix.toml");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let mut cells = definition::cells(&text).with_context(|| file.display().to_string())?;
    cells.retain(|cell| only.is_empty() || only.iter().any(|only| only.takes(cell)));
    ensure!(
        !cells.is_empty(),
        "no cell of {} matches --only",
        file.display()
    );
    Ok(cells)
}

/// Those of `cells` that a run with tests of all kernels on `machines` has beside these tests: they
/// make up for what no such test has, and together have each pair of values of two axes. Cells that
/// the machines cannot be have pairs that no other cell has.
pub fn beside_tests(cells: &[Cell], machines: &Capabilities) -> Vec<Cell> {
    let (tested, others): (Vec<_>, Vec<_>) = cells
        .iter()
        .partition(|cell| cell.is_tested_anyway(machines));
    let mut pairs = Pairs::default();
    tested.iter().for_each(|cell| pairs.add(cell));
    let (able, unable): (Vec<_>, Vec<_>) = others
        .iter()
        .partition(|cell| machine(cell).unmet(machines).is_none());
    let chosen = [able, unable].map(|cells| pairs.choose(&cells));
    chosen.concat().into_iter().cloned().collect()
}

/// The name of the test in whose place a cell has one row.
pub const ALL: &str = "all tests";

impl Cell {
    /// The series whose kernel the cell runs on.
    pub fn variant(&self) -> Variant {
        if self.in_rust {
            Variant::Rust
        } else {
            Variant::Snapshot
        }
    }

    /// Whether the tests of a kernel have the cell's machine anyway: it is the ordinary one, or
    /// the one with heterogeneous CPUs, where `machines` have as many records as the cell.
    fn is_tested_anyway(&self, machines: &Capabilities) -> bool {
        let tested = MachineSpec {
            records: Some(machines.records),
            ..machine_of_kind(self.machine)
        };
        machine(self) == tested
    }

    /// The job with all tests of the cell, on the kernel of `context`. It is skipped if the
    /// machines of its guest cannot be those of the cell.
    pub fn job<'a>(&self, context: Context<'a>) -> Job<'a> {
        let title = self.to_string();
        let machine = machine(self);
        let unmet = machine.unmet(&context.guest.capabilities()).or_else(|| {
            let is_other = self.arch() != context.guest.arch();
            is_other.then(|| format!("no kernel for {} is at hand", self.arch().kernel()))
        });
        if let Some(reason) = unmet {
            return Job::skipped(title, ALL, reason);
        }
        let name = format!("tests of {title}");
        let mut needed = context.boot_artefacts(Configuration::Ordinary);
        if self.machine == MachineKind::X86_64 {
            needed.push(selftests::artefact_at(&context, Configuration::Ordinary));
        }
        let job = match self.machine {
            MachineKind::X86_64 => {
                let tests = selftests::DECIDED.map(str::to_owned).into();
                Job::partial(title, tests, move |wanted: &[usize]| {
                    selftests::run_decided(&context, &machine, wanted)
                })
            }
            MachineKind::Arm64 | MachineKind::Heterogeneous => {
                let tests =
                    guest_tests::for_any_machine(self.machine == MachineKind::Heterogeneous);
                let names = tests.iter().map(|test| test.name.to_owned()).collect();
                Job::partial(title, names, move |wanted: &[usize]| {
                    let (kernel, guest) = (context.kernel()?, context.guest);
                    let tests: Vec<_> = wanted.iter().map(|index| &tests[*index]).collect();
                    guest_tests::on_machine(guest, &machine, &kernel, &name, &tests)
                })
            }
        };
        job.needing(needed)
    }
}

/// The machine of a cell.
fn machine(cell: &Cell) -> MachineSpec {
    MachineSpec {
        vhe: cell.vhe,
        pseudo_nmi: cell.pseudo_nmi,
        records: Some(cell.records),
        ..machine_of_kind(cell.machine)
    }
}

fn machine_of_kind(kind: MachineKind) -> MachineSpec {
    match kind {
        MachineKind::Arm64 => MachineSpec::default(),
        MachineKind::Heterogeneous => MachineSpec::heterogeneous(),
        MachineKind::X86_64 => x86::emulated(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machines::backend::Backend as _;
    use machines::qemu::Qemu;

    fn cells() -> Vec<Cell> {
        definition::cells(include_str!("../../../scripts/matrix.toml")).unwrap()
    }

    #[test]
    fn cells_are_chosen_by_their_values() {
        let chosen = |text: &str| {
            let only: Only = text.parse().unwrap();
            cells().iter().filter(|cell| only.takes(cell)).count()
        };
        assert_eq!(chosen("machine=x86_64"), 2);
        assert!(chosen("level=VHE") > chosen("level=VHE,records=16"));
        assert_eq!(chosen("records=16,machine=heterogeneous"), 0);
        for wrong in ["", "x", "colour=red", "records"] {
            assert!(wrong.parse::<Only>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn qemu_has_all_machines_and_others_say_what_they_lack() {
        let model = Capabilities {
            cpus: 8,
            records: 64,
            vhe: true,
            ..Capabilities::default()
        };
        let able = |machines: &Capabilities| {
            let able = |cell: &&Cell| machine(cell).unmet(machines).is_none();
            cells().iter().filter(able).count()
        };
        assert_eq!(able(&Qemu.capabilities()), cells().len());
        // Two levels, of two bases and two languages but one.
        assert_eq!(able(&model), 6);
    }

    #[test]
    fn each_kernel_has_an_ordinary_machine_and_one_with_heterogeneous_cpus_anyway() {
        let machines = Qemu.capabilities();
        let cells = cells();
        let anyway = cells.iter().filter(|cell| cell.is_tested_anyway(&machines));
        let anyway: Vec<_> = anyway.map(Cell::to_string).collect();
        assert_eq!(anyway.len(), 6, "{anyway:?}");
        let beside = beside_tests(&cells, &machines);
        let beside: Vec<_> = beside.iter().map(Cell::to_string).collect();
        assert_eq!(beside.len(), 15, "{beside:#?}");
        assert!(beside.iter().all(|cell| !anyway.contains(cell)));
        // Machines that can be few cells have these, and say of the others what they lack.
        let model = Capabilities {
            records: 64,
            ..Capabilities::default()
        };
        let beside = beside_tests(&cells, &model);
        assert!(
            beside
                .iter()
                .any(|cell| machine(cell).unmet(&model).is_some())
        );
    }
}
