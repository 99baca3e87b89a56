//! Runs of tests, and reports about them. Nothing here knows what a test is about.
//!
//! A [`Job`] decides one or several tests, once the [`Artefact`]s are there that it needs. A
//! [`Plan`] is made of jobs first. Then a [`Selection`] takes some of them, and a [`Runner`]
//! runs them, three at once for every two CPUs. A [`Report`] has a [`Row`] with a [`Verdict`]
//! of each test, and a [`History`] what earlier runs have seen.
//! [`html`], [`junit`] and [`ktap`] write a report in formats for others. [`kernel_ktap`]
//! reads the KTAP of the kernel's unit tests.

mod artefact;
mod body;
mod graph;
mod history;
pub mod html;
mod job;
pub mod junit;
pub mod kcidb;
pub mod kernel_ktap;
pub mod ktap;
mod limit;
mod outcome;
mod partition;
mod plan;
mod run;
mod schedule;
mod selection;
mod simulation;
mod tier;
mod verdict;

pub use artefact::Artefact;
pub use history::{Durations, Flaky, History, recorded_durations};
pub use job::{Job, wanted_of};
pub use limit::Limit;
pub use outcome::{Report, RunNote, table};
pub use plan::Plan;
pub use run::Runner;
pub use selection::{NotAPartition, Partition, Selection};
pub use simulation::Simulated;
pub use tier::Tier;
pub use verdict::{Decided, Row, Verdict};
