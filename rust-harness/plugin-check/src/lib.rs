//! A second opinion on the plugin: control flow as QEMU's own log shows it, and whether the
//! plugin's records agree with it.
//!
//! `-d exec,nochain,int,in_asm` says which blocks QEMU translated and executed, and which
//! exceptions it took: all that a branch recorder has to know, found without a plugin.
//! [`qemu_log`] reads this log, [`emulated`] knows what the plugin executes, [`reconstruct`]
//! makes an [`event::Event`] of each step, with the decoder of `branch_records::path`, which
//! the model does not use. [`compare`] holds the events against the [`plugin_log`], one by
//! one, and [`check`] runs a workload for it. The crate depends on neither of the plugin's
//! crates.

pub mod check;
pub mod compare;
pub mod emulated;
pub mod event;
pub mod plugin_log;
pub mod qemu_log;
pub mod reconstruct;
