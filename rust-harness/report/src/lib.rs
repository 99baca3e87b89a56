//! Runs of tests, and reports about them. Nothing here knows what a test is about.
//!
//! A [`Job`] decides one or several tests. A [`Plan`] is made of jobs first. Then a
//! [`Selection`] takes some of them, and they run, as many at once as there are CPUs. A
//! [`Report`] has a [`Row`] with a [`Verdict`] of each test.
//! [`html`], [`junit`] and [`ktap`] write a report in formats for others. [`kernel_ktap`]
//! reads the KTAP of the kernel's unit tests.

pub mod html;
mod job;
pub mod junit;
pub mod kernel_ktap;
pub mod ktap;
mod outcome;
mod plan;
mod selection;
mod verdict;

pub use job::{Job, Limit, wanted_of};
pub use outcome::Report;
pub use plan::Plan;
pub use selection::{NotAPartition, Partition, Selection};
pub use verdict::{Row, Verdict};
