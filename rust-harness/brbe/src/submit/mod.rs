//! A series as a maintainer would receive it: what is checked before it is sent, and the
//! mails.

mod bisect;
pub mod checks;
mod compile;
mod documents;
mod fixes;
pub mod identity;
pub mod letter;
pub mod mailbox;
mod objects;
pub mod recipients;
mod warnings;
