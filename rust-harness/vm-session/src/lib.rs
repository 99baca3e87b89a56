//! What the program `vm-session` and the host, which boots it, agree on.
//!
//! The program is the first process of a machine that somebody sits at. It comes in an initramfs
//! of its own, beside its [`config`], so that the guest's root needs nothing but a shell. It puts
//! a root together that can be written to and that nothing is kept of, runs a shell or a command
//! there, and powers the machine off when that has ended.
//!
//! What is typed, printed and reported goes through one port of a virtio console ([`PORT`]), as
//! [`frame`]s: in one port everything comes in the order in which it happened. The kernel's
//! console is left to the kernel.
//!
//! A machine that is exported has no host that speaks with it: its root is in the initramfs, and
//! what its command prints goes through ports without frames.

pub mod config;
pub mod frame;

/// Name of the program.
pub const PROGRAM: &str = "vm-session";
/// Path of the program in its initramfs.
pub const INIT: &str = "init";
/// Path of the configuration in the initramfs.
pub const CONFIG: &str = "session.json";
/// The name of the virtio console's port that the frames go through.
pub const PORT: &str = "org.brbe.session";
/// Path of the command in an initramfs that has a root too: each word ends with a NUL. Without such
/// a file there is a shell.
pub const COMMAND: &str = "command";
/// The name of the port for what the command prints, where its streams have ports of their own.
pub const OUTPUT_PORT: &str = "org.brbe.output";
/// The name of the port for the command's errors, where its streams have ports of their own.
pub const ERRORS_PORT: &str = "org.brbe.errors";
/// The name of the port for the command's exit status, a decimal number, where its streams have
/// ports of their own.
pub const STATUS_PORT: &str = "org.brbe.status";
/// Where the guest sees this project's own programs.
pub const PROGRAMS: &str = "/opt/brbe";
/// The mount tag of the guest's root file system.
pub const ROOT: &str = "root";
