//! Tests of a kernel: tests that run in a guest, and tests of the kernel's code.
//!
//! * [`guest_tests`]: tests that `branch-guest` decides in the guest.
//! * [`selftests`]: the kernel tree's own BPF selftests.
//! * [`perf`]: recordings of perf, and the kernel's own test of perf.
//! * [`kunit`]: tests that the kernel decides itself (KUnit).
//! * [`overflow`]: a counter overflows at each instruction of a snapshot. [`watch`] reads
//!   from the plugin's log which instruction each overflow hit.
//! * [`entry_code`], [`raw_memory`]: checks of a kernel's machine code and of its Rust
//!   source.
//! * [`cost`]: how many instructions a snapshot executes.
//! * [`waste`]: which records are spent before a snapshot.
//! * [`x86`]: the selftests on x86-64, which shares the helper with arm64.
//!
//! [`kept_figures`] keeps the figures of [`cost`] and [`waste`] in `Documentation/`.
//! [`any_test`] finds a test by its name, [`proofs`] runs one on a mutant, and [`matrix`]
//! runs tests on each combination of kernel and machine.

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
