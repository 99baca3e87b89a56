//! A series as a maintainer would receive it: what is checked before it is sent, and the
//! mails.
//!
//! [`patches`] checks each patch (style, builds, [`uapi_copies`], [`undone`] work), [`ready`]
//! the rest of what reviewers ask. [`test_history`] keeps what runs of the tests have seen,
//! which the [`letter`] tells, and [`mailbox`] writes the mails to its [`recipients`].

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
pub mod test_history;
pub mod uapi_copies;
pub mod undone;
mod warnings;
