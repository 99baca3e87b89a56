//! What is asked of a kernel: tests that run in a guest, and tests of its code.
//!
//! [`guest_tests`] are those that `branch-guest` decides, [`selftests`] the kernel's own,
//! [`perf`] those that perf is part of, [`kunit`] those that the kernel decides itself. In
//! [`overflow`] a counter overflows at each instruction of a snapshot, which [`watch`]
//! follows. [`entry_code`] and [`raw_memory`] read a kernel's code, [`cost`] counts what a
//! snapshot executes and [`waste`] which records are spent before it; [`kept_figures`] keeps
//! their figures in `Documentation/`. [`x86`] is what x86-64 shares.
//!
//! [`any_test`] finds one of them by its name, [`proofs`] runs it on a mutant, and
//! [`matrix`] on each combination of kernel and machine.

pub mod any_test;
pub mod cost;
pub mod entry_code;
pub mod guest_tests;
pub mod kept_figures;
pub mod kunit;
pub mod matrix;
pub mod overflow;
pub mod perf;
pub mod proofs;
pub mod raw_memory;
pub mod selftests;
pub mod waste;
pub mod watch;
pub mod x86;
