//! The names that software uses, and which accesses by them are permitted (D24.8, C5.7,
//! and the accessor pseudocode of each register).

mod encoding;
mod redirection;
mod traps;

pub use encoding::{Instruction, Register};
pub(crate) use redirection::{Readable, Writable, resolve_read, resolve_write};
pub use traps::Denied;
pub(crate) use traps::check_instruction;

#[cfg(test)]
mod tests;
