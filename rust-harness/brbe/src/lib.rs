//! The command behind `./brbe`: from a clean checkout to a verdict.
//!
//! [`commands`] has a module for each command, and [`documents`] runs the commands that the
//! documentation shows. What they put together is in other crates: the row `brbe` of the table in
//! `Documentation/architecture.md` names them.

pub mod commands;
pub mod documents;
