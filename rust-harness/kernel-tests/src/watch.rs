//! What the plugin's option `watch=` tells of the functions of a snapshot: [`functions`]
//! finds them in vmlinux, [`window`] reads what was executed of them.

pub mod functions;
pub mod window;
