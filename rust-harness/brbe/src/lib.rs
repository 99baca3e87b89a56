//! The command behind `./brbe`: from a clean checkout to a verdict.
//!
//! Each step is one module. [`source`] fetches a kernel, [`series`] turns the patches into
//! commits on top of it, [`mutants`] knows those that take something away again, [`kernel`]
//! and [`selftests`] build a commit, [`cargo`] builds the plugin and the guest's programs,
//! [`image`] makes the guest's root, [`machine`] boots a kernel with it and [`guest`] runs a
//! test there: [`guest_tests`] those that `branch-guest` decides, for which [`guest_module`]
//! builds what one of them loads, [`perf`] those that perf is part of, [`overflow`] those in
//! which a counter overflows at a chosen instruction, [`kunit`] those that the kernel decides,
//! which [`ktap`] reads, and [`machine_tests`] those of the harness itself. [`x86`] runs what
//! x86-64 shares, for an [`arch`] of its own, made by the same [`toolchain`]. [`pause`] and
//! [`raw_memory`] read the code of a kernel, and [`cost`] counts what a snapshot executes.
//! [`commands`] puts them together, [`selection`] says which of them are wanted; [`cache`] keeps
//! what they make, [`progress`] and [`verdict`] say what became of it.

pub mod any_test;
pub mod arch;
pub mod bases;
pub mod cache;
pub mod captures;
pub mod cargo;
pub mod checks;
pub mod ci;
pub mod commands;
pub mod cost;
pub mod documents;
pub mod exec;
pub mod flow;
pub mod generated;
pub mod git;
pub mod guest;
pub mod guest_module;
pub mod guest_tests;
pub mod image;
pub mod jobs;
pub mod kernel;
pub mod ktap;
pub mod kunit;
pub mod lane;
pub mod lane_tests;
pub mod machine;
pub mod machine_tests;
pub mod matrix;
pub mod mirror;
pub mod mutants;
pub mod overflow;
pub mod pause;
pub mod perf;
pub mod places;
pub mod progress;
pub mod raw_memory;
pub mod rebase;
pub mod remote;
pub mod selection;
pub mod selftests;
pub mod series;
pub mod source;
pub mod submit;
pub mod tested;
pub mod toolchain;
pub mod trace_tests;
pub mod uapi_copies;
pub mod undone;
pub mod verdict;
pub mod waste;
pub mod x86;
