//! The command behind `./brbe`: from a clean checkout to a verdict.
//!
//! [`commands`] has a module for each command, and [`documents`] runs the commands that the documentation shows. What they put together is in
//! other crates: `host`, `kernels`, `machines`, `report`, `kernel-tests`, `harness-tests`,
//! `plugin-check` and `submit`.

pub mod commands;
pub mod documents;
