//! Documents that `branch-guest` writes in a guest or on a board, and that the host reads.
//!
//! * [`board`]: what a machine says of its branch records, and what such a document is asked for
//!   ([`kit`]).
//! * [`waste`]: snapshots of each way to attach a program, and which of their records are wasted.

pub mod board;
pub mod kit;
pub mod waste;
