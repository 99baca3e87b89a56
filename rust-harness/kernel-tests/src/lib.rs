//! Tests of a kernel: tests that run in a guest, and tests of the kernel's code.
//!
//! * [`guest_tests`]: tests that `branch-guest` decides in the guest.
//! * [`selftests`]: the kernel tree's own BPF selftests.
//! * [`perf`]: recordings of perf, and the kernel's own test of perf.
//! * [`kunit`]: tests that the kernel decides itself (KUnit).
//! * [`overflow`]: a counter overflows at each instruction of a snapshot. [`watch`] reads
//!   from the plugin's log which instruction each overflow hit, and [`entry`] says where a
//!   snapshot begins.
//! * [`entry_code`], [`raw_memory`]: checks of a kernel's machine code and of its Rust
//!   source.
//! * [`cost`]: how many instructions a snapshot executes.
//! * [`waste`]: which records are spent before a snapshot.
//! * [`x86`]: the selftests on x86-64, which shares the helper with arm64.
//!
//! [`kept_figures`] keeps the figures of [`cost`] and [`waste`] in `Documentation/`.
//! [`registry`] is the model of a test, and [`tests`] are all of them. [`properties`] says what they
//! decide of an implementation. [`proofs`] runs one on
//! a mutant, [`systematic`] all on mutants that nobody chose, and [`matrix`] runs tests on each combination of kernel and machine.

mod branch_guest;
pub mod compiler;
pub mod context;
pub mod cost;
pub mod entry;
pub mod entry_code;
mod explained;
pub mod guest_tests;
pub mod kept_figures;
pub mod kunit;
pub mod matrix;
pub mod one_boot;
pub mod overflow;
pub mod perf;
pub mod proofs;
pub mod properties;
pub mod raw_memory;
pub mod registry;
pub mod selftests;
pub mod systematic;
pub mod unpatched;
pub mod waste;
pub mod watch;
pub mod x86;

use registry::Batch;

/// All tests of a kernel for arm64. A test that is not here runs nowhere.
pub fn tests() -> Vec<Batch> {
    let alone = [
        compiler::tests(),
        explained::tests(),
        entry_code::tests(),
        raw_memory::tests(),
        waste::tests(),
    ];
    let several = [
        selftests::tests(),
        guest_tests::tests(),
        overflow::tests(),
        cost::tests().into(),
        kunit::tests(),
        perf::tests().into(),
    ];
    alone
        .into_iter()
        .chain(several.into_iter().flatten())
        .collect()
}
