//! Runs of tests, and reports about them. Nothing here knows what a test is about.
//!
//! A [`Job`] decides one or several tests; a [`Report`] runs those that its [`Selection`]
//! takes, as many at once as there are CPUs, and keeps a [`Row`] with a [`Verdict`] of each.
//! [`html`], [`junit`] and [`ktap`] write a report in formats for others. [`kernel_ktap`]
//! reads the KTAP of the kernel's unit tests.

pub mod html;
mod job;
pub mod junit;
pub mod kernel_ktap;
pub mod ktap;
mod run;
mod selection;
mod verdict;

pub use job::{Job, Limit, Outcome};
pub use run::Report;
pub use selection::{NotAPartition, Partition, Selection};
pub use verdict::{Row, Verdict};
