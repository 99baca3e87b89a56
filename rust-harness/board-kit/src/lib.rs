//! What somebody with a board runs on it, and what comes back.
//!
//! * [`kit`]: the archive, and running it on the emulated machine.
//! * [`compare`]: what a board says beside what the emulated machine says.

pub mod compare;
pub mod kit;
