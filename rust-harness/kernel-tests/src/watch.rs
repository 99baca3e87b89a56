//! What a snapshot executes, as the plugin's option `watch=` logs it.
//!
//! [`functions`] finds the functions of a snapshot in vmlinux. [`window`] reads from the
//! plugin's log which of their instructions were executed.

pub mod functions;
pub mod window;
