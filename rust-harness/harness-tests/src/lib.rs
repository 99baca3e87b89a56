//! What is asked of the harness itself, on a kernel that is known to be good.
//!
//! [`plugin_tests`] ask whether the emulated BRBE is right, [`machine_tests`] how a guest's
//! end is told, [`lane_tests`] whether the other lanes do what QEMU does, and
//! [`trace_tests`] whether branch-trace shows what happened.

pub mod lane_tests;
pub mod machine_tests;
pub mod plugin_tests;
pub mod trace_tests;
