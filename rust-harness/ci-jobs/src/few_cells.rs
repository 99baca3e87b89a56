//! A few cells of the matrix, for trying a definition.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result};

use crate::definitions::{Definition, Engine, Wishes};
use host::paths::Paths;
use kernel_tests::matrix::{self, Cell};

/// Two cells of one kernel, one for each of two parts.
#[derive(Clone, Debug)]
pub(crate) struct FewCells {
    pub(crate) cells: Vec<Cell>,
    pub(crate) wishes: Wishes,
}

impl FewCells {
    /// The cells, of the matrix's first base, that take the shortest time: each has one test, which
    /// is that of heterogeneous CPUs. What cells test is no matter of the engine that runs them.
    ///
    /// # Errors
    ///
    /// When the matrix cannot be read, or has no such cells.
    pub(crate) fn short(paths: &Paths) -> Result<Self> {
        Self::of_the_matrix(paths, "machine=heterogeneous")
    }

    /// The cells, of the matrix's first base, of the ordinary machine with 16 records: a board can be
    /// that machine.
    ///
    /// # Errors
    ///
    /// When the matrix cannot be read, or has no such cells.
    pub(crate) fn of_boards(paths: &Paths) -> Result<Self> {
        Self::of_the_matrix(paths, "machine=arm64,interrupts=IRQ,records=16")
    }

    fn of_the_matrix(paths: &Paths, machines: &str) -> Result<Self> {
        let all = matrix::cells(paths, &[])?;
        let base = &all.first().context("the matrix has no cell")?.base;
        let only = format!("base={base},language=C,{machines}");
        let only = vec![only.parse()?];
        Ok(Self {
            cells: matrix::cells(paths, &only)?,
            wishes: Wishes {
                parts: NonZeroU32::MIN.saturating_add(1),
                only,
                ..Wishes::default()
            },
        })
    }

    /// The definition of these cells for an engine.
    ///
    /// # Errors
    ///
    /// When a template cannot be read.
    pub(crate) fn definition(&self, paths: &Paths, engine: Engine) -> Result<Definition> {
        Definition::of_engine(paths, &self.wishes, engine)
    }
}
