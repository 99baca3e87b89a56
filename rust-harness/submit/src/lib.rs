//! A series as a maintainer would receive it: what is checked before it is sent, and the
//! mails.
//!
//! * [`patches`] checks each patch: its style, that it builds, [`uapi_copies`], and
//!   [`undone`] work of earlier patches.
//! * [`ready`] checks the rest of what reviewers ask.
//! * [`test_history`] keeps what runs of the tests have seen. The cover [`letter`] reports
//!   it.
//! * [`mailbox`] writes the mails to the [`recipients`] of the series.

mod bisect;
mod compile;
mod documents;
mod fixes;
pub mod identity;
pub mod letter;
pub mod mailbox;
mod objects;
pub mod patches;
pub mod ready;
pub mod recipients;
pub mod selftest_patches;
pub mod test_history;
pub mod uapi_copies;
pub mod undone;
mod warnings;
