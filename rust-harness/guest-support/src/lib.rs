//! What is read from the machine that this runs on: its CPUs, its kernel's symbols and
//! code, and the branches that its CPUs record. Shared by `branch-guest`, which tests
//! snapshots, and `branch-trace`, which shows them.

pub mod cpus;
pub mod first_read;
pub mod kallsyms;
pub mod kcore;
pub mod perf;
pub mod ring;
pub mod snapshot_function;
