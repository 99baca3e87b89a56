//! Jobs for CI engines.
//!
//! * [`definitions`] writes them, from the matrix and the templates in `scripts/ci`.
//! * [`schemas`] checks them by the schemas that the engines publish, and [`linters`] by more than
//!   schemas can say.
//! * [`kernelci`] checks results for KernelCI's database.
//! * [`gitlab`], [`github`] and [`lava`] have them run by an engine, on a machine that has nothing
//!   else.

mod bare_machine;
pub mod definitions;
mod few_cells;
pub mod github;
pub mod gitlab;
pub mod kernelci;
pub mod lava;
pub mod linters;
mod results;
pub mod schemas;
mod scratch;
mod tools;
