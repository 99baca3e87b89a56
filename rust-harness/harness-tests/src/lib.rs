//! Tests of the harness itself, on a kernel that is known to be good.
//!
//! * [`plugin_tests`]: whether the emulated BRBE is right.
//! * [`machine_tests`]: whether the end of a guest is reported as what it is.
//! * [`lane_tests`]: whether the other lanes do what QEMU does.
//! * [`trace_tests`]: whether branch-trace shows what happened.
//! * [`vm_tests`]: whether a machine can be sat at.
//! * [`export_tests`]: whether a copy of the machine boots by itself.
//! * [`judge_tests`]: whether implementations are told apart.
//! * [`board_tests`]: whether the kit for boards says what a machine has, and what it lacks.
//! * [`given_tests`]: whether a kernel that was built elsewhere is taken.

mod as_user;
pub mod board_tests;
pub mod export_tests;
pub mod given_tests;
pub mod judge_tests;
pub mod lane_tests;
pub mod machine_tests;
pub mod plugin_tests;
mod processes;
pub mod trace_tests;
pub mod vm_tests;

use kernel_tests::registry::Batch;

/// All tests of the harness.
pub fn tests() -> Vec<Batch> {
    let several = [
        trace_tests::tests(),
        machine_tests::tests(),
        plugin_tests::tests(),
        lane_tests::tests(),
        vm_tests::tests(),
        given_tests::tests(),
        judge_tests::tests(),
        export_tests::tests(),
        board_tests::tests(),
    ];
    several.into_iter().flatten().collect()
}
