//! The plugin from the guest's side: a program without an operating system runs on QEMU
//! and prints what BRBE recorded of it, and what BRBE's registers say.
//!
//! `aarch64-linux-gnu-gcc` and `qemu-system-aarch64` are found on `PATH`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod boundaries;
mod branches;
mod el2;
mod el3;
mod filters;
mod interrupts;
mod options;
mod psci;
mod registers;
mod run;
