//! The command behind `./brbe`: from a clean checkout to a verdict.
//!
//! [`commands`] has a module for each command, [`ci`] writes the jobs for CI engines, and
//! [`documents`] runs the commands that the documentation shows. What they put together is in
//! other crates: `host`, `kernels`, `machines`, `report`, `kernel-tests`, `harness-tests`,
//! `plugin-check` and `submit`.

pub mod ci;
pub mod commands;
pub mod documents;
