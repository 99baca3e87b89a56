//! The machine that the harness runs on: everything that knows nothing of kernels, guests
//! and tests.
//!
//! [`paths`] says where the checkout and the caches are, [`cache`] keeps what is made under
//! names that change with its inputs, [`process`] runs programs and ends them when the user
//! interrupts, [`progress`] shows what is under way. [`git`], [`cargo`] and [`mirror`] are
//! the tools behind it; [`toolchain`] identifies the compilers, [`arch`] names the
//! architectures, [`files`] copies files, [`logs`] has logs of one run each, [`made`] makes
//! a thing when it is first needed, [`memory`] says how much memory is free, [`cpu_time`] for
//! what share of a time the CPUs worked, and [`retries`] how often something was done again.

pub mod arch;
pub mod cache;
pub mod cargo;
pub mod cpu_time;
pub mod files;
pub mod git;
pub mod logs;
pub mod made;
pub mod memory;
pub mod mirror;
pub mod paths;
pub mod process;
pub mod progress;
pub mod retries;
pub mod toolchain;
